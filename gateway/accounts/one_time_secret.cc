#include "gateway/accounts/one_time_secret.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random_bytes.h"
#include "base/sha256.h"

namespace outboard::gateway {
namespace {
constexpr size_t kSecretBytes = 32;
}  // namespace

absl::StatusOr<Secret> MakeOneTimeSecret(std::string_view prefix) {
  OB_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(kSecretBytes));
  return Secret(absl::StrCat(std::string(prefix), absl::BytesToHexString(bytes)));
}

std::string HashOfSecret(std::string_view secret) {
  const Sha256Digest digest = Sha256(secret);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace outboard::gateway
