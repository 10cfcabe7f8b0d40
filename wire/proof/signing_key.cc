#include "wire/proof/signing_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hex.h"
#include "wire/tls/private_file.h"

namespace outboard::signing {
namespace {

constexpr size_t kSeedBytes = 32;
constexpr size_t kFileBytesMax = 2 * kSeedBytes + 1;  // hex, and the end of its line

struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct ContextFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, KeyFree>;
using Context = std::unique_ptr<EVP_MD_CTX, ContextFree>;

// A session that ends with its program, after main, still checks a signature: OpenSSL may not have
// taken itself apart by then.
[[maybe_unused]] const int kStaysAtExit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

const unsigned char* Raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Key PrivateKeyOf(std::string_view seed) {
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Raw(seed), seed.size()));
}

}  // namespace

absl::StatusOr<SigningKey> SigningKey::FromSeed(std::string seed) {
  Key key = PrivateKeyOf(seed);
  std::string public_key(kPublicKeyBytes, '\0');
  size_t length = public_key.size();
  if (seed.size() != kSeedBytes || key == nullptr ||
      EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(public_key.data()),
                                  &length) != 1 ||
      length != kPublicKeyBytes)
    return absl::DataLossError("not a signing key");
  return SigningKey(std::move(seed), std::move(public_key), std::move(key));
}

SigningKey SigningKey::Make() {
  std::string seed(kSeedBytes, '\0');
  OB_CHECK(getentropy(seed.data(), seed.size()) == 0);
  absl::StatusOr<SigningKey> key = FromSeed(std::move(seed));
  OB_CHECK(key.ok());
  return *std::move(key);
}

absl::StatusOr<SigningKey> SigningKey::Open(const std::string& path) {
  absl::StatusOr<std::string> text = tls::ReadFile(path, /*is_secret=*/true, kFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    const SigningKey key = Make();
    const absl::Status written = tls::WriteFile(path, ToHex(key.seed_) + "\n", /*is_secret=*/true,
                                                tls::Replace::kNo);
    if (written.ok()) return key;
    if (!absl::IsAlreadyExists(written)) return written;
    text = tls::ReadFile(path, /*is_secret=*/true, kFileBytesMax);  // another was first
  }
  if (absl::IsInvalidArgument(text.status()))
    return absl::DataLossError("no signing key: too long");
  if (!text.ok()) return text.status();
  if (!text->empty() && text->back() == '\n') text->pop_back();
  std::string seed(kSeedBytes, '\0');
  if (!FromHex(*text, {reinterpret_cast<uint8_t*>(seed.data()), seed.size()}))
    return absl::DataLossError("the file of the signing key holds none");
  return FromSeed(std::move(seed));
}

std::string SigningKey::Sign(std::string_view statement) const {
  const Context context(EVP_MD_CTX_new());
  std::string signature(kSignatureBytes, '\0');
  size_t length = signature.size();
  OB_CHECK(context != nullptr);
  OB_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_.get()) == 1);
  OB_CHECK(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                          &length, Raw(statement), statement.size()) == 1);
  OB_CHECK(length == kSignatureBytes);
  return signature;
}

bool IsSignedBy(std::string_view public_key, std::string_view statement,
                std::string_view signature) {
  if (public_key.size() != kPublicKeyBytes || signature.size() != kSignatureBytes) return false;
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Raw(public_key),
                                            public_key.size()));
  const Context context(EVP_MD_CTX_new());
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Raw(signature), signature.size(), Raw(statement),
                          statement.size()) == 1;
}

StatementBytes& StatementBytes::Int(int64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  return *this;
}

StatementBytes& StatementBytes::Bytes(std::string_view value) {
  Int(static_cast<int64_t>(value.size()));
  bytes_.append(value);
  return *this;
}

}  // namespace outboard::signing
