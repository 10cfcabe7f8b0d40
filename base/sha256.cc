#include "base/sha256.h"

#include <openssl/evp.h>

namespace outboard {
namespace {

// Looked up once: EVP_sha256() alone has each digest look for an implementation (crypto(7)), which
// takes longer than to hash a few hundred bytes.
const EVP_MD* Algorithm() {
  static const EVP_MD* const found = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return found != nullptr ? found : EVP_sha256();
}

}  // namespace

bool IsSha256Name(std::string_view text) {
  constexpr size_t kDigits = 2 * std::tuple_size_v<Sha256Digest>;
  return text.starts_with(kSha256Prefix) && text.size() == kSha256Prefix.size() + kDigits &&
         text.find_first_not_of("0123456789abcdef", kSha256Prefix.size()) == std::string_view::npos;
}

struct Sha256Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Hasher::Sha256Hasher() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context, Algorithm(), nullptr);
}
Sha256Hasher::~Sha256Hasher() = default;

void Sha256Hasher::Update(std::string_view bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

Sha256Digest Sha256Hasher::Finish() {
  Sha256Digest digest{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(state_->context, digest.data(), &length);
  return digest;
}

Sha256Digest Sha256(std::string_view bytes) {
  Sha256Digest digest{};
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, Algorithm(), nullptr);
  return digest;
}

}  // namespace outboard
