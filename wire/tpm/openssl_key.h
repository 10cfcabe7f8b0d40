// What credential.cc and tpm_keys.cc share: a key of OpenSSL that frees itself, and the size of a
// coordinate of P-256. Internal to wire/tpm.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>

namespace outboard::tpm {

inline constexpr size_t kCoordinateBytes = 32;  // of a point of P-256

struct PkeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Pkey = std::unique_ptr<EVP_PKEY, PkeyFree>;

}  // namespace outboard::tpm
