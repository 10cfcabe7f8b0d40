#include "gateway/accounts/one_time_secret.h"

#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace outboard::gateway {
namespace {
constexpr size_t kSecretBytes = 32;
}  // namespace

absl::StatusOr<Secret> MakeOneTimeSecret(std::string_view prefix) {
  std::string bytes(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) !=
      1)
    return absl::InternalError("the system gives no random bytes");
  return Secret(absl::StrCat(std::string(prefix), absl::BytesToHexString(bytes)));
}

std::string HashOfSecret(std::string_view secret) {
  const Sha256Digest digest = Sha256(secret);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace outboard::gateway
