#include "wire/tpm/credential.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/sha.h>

#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "wire/tpm/openssl_key.h"

namespace outboard::tpm {
namespace {

constexpr size_t kDigestBytes = SHA256_DIGEST_LENGTH;
constexpr size_t kAesKeyBytes = 16;  // of the templates' AES-128
// With the zero at its end, which counts (part 1, 11.4.10).
constexpr std::string_view kIdentity("IDENTITY", 9);
constexpr std::string_view kStorage("STORAGE", 8), kIntegrity("INTEGRITY", 10);
constexpr char kAnswerLabel[] = "outboard: a node's TPM, 1";

const unsigned char* Data(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* Data(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

std::string BigEndian(size_t number, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  return out;
}
std::string Sized(std::string_view bytes) {
  return BigEndian(bytes.size(), 2) + std::string(bytes);
}

std::string Hmac(std::string_view key, std::string_view text) {
  std::string mac(kDigestBytes, '\0');
  OB_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Data(text), text.size(),
                Data(mac), nullptr) != nullptr);
  return mac;
}

// KDFa of part 1, 11.4.10.2, for up to one digest: one round. `label` with its zero.
std::string KdfA(std::string_view key, std::string_view label, std::string_view context,
                 size_t bytes) {
  OB_CHECK(bytes <= kDigestBytes);
  const std::string text = BigEndian(1, 4) + std::string(label) + std::string(context) +
                           BigEndian(8 * bytes, 4);
  return Hmac(key, text).substr(0, bytes);
}

// KDFe of part 1, 11.4.10.3, for one digest.
std::string KdfE(std::string_view z, std::string_view label, std::string_view party_u,
                 std::string_view party_v) {
  const std::string text = BigEndian(1, 4) + std::string(z) + std::string(label) +
                           std::string(party_u) + std::string(party_v);
  const Sha256Digest digest = Sha256(text);
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

struct ContextFree {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_PKEY_CTX, ContextFree>;

struct Seed {
  std::string plain;      // kDigestBytes
  std::string encrypted;  // for the endorsement key
};

absl::Status Failed() {
  ERR_clear_error();
  return absl::InternalError("the credential for a TPM could not be made");
}

// Part 1, B.10.4: OAEP with the key's name algorithm.
absl::StatusOr<Seed> RsaSeed(const EndorsementKey& key) {
  Seed seed{.plain = std::string(kDigestBytes, '\0'), .encrypted = {}};
  const Context context(EVP_PKEY_CTX_new(key.get(), nullptr));
  if (RAND_bytes(Data(seed.plain), kDigestBytes) != 1 || context == nullptr ||
      EVP_PKEY_encrypt_init(context.get()) != 1 ||
      EVP_PKEY_CTX_set_rsa_padding(context.get(), RSA_PKCS1_OAEP_PADDING) != 1 ||
      EVP_PKEY_CTX_set_rsa_oaep_md(context.get(), EVP_sha256()) != 1 ||
      EVP_PKEY_CTX_set_rsa_mgf1_md(context.get(), EVP_sha256()) != 1)
    return Failed();
  void* const label = OPENSSL_memdup(kIdentity.data(), kIdentity.size());  // becomes the context's
  if (EVP_PKEY_CTX_set0_rsa_oaep_label(context.get(), label, kIdentity.size()) != 1) {
    OPENSSL_free(label);
    return Failed();
  }
  size_t size = static_cast<size_t>(EVP_PKEY_get_size(key.get()));
  seed.encrypted.resize(size);
  if (EVP_PKEY_encrypt(context.get(), Data(seed.encrypted), &size,
                       Data(std::string_view(seed.plain)), seed.plain.size()) != 1)
    return Failed();
  seed.encrypted.resize(size);
  return seed;
}

// x and y, each of kCoordinateBytes.
absl::StatusOr<std::string> PointOf(EVP_PKEY* key) {
  std::string point(1 + 2 * kCoordinateBytes, '\0');
  size_t size = 0;
  if (EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, Data(point), point.size(),
                                      &size) != 1 ||
      size != point.size() || point[0] != '\x04')
    return Failed();
  return point.substr(1);
}

// Part 1, C.6.4: the secret of a key made for this once and the endorsement key.
absl::StatusOr<Seed> P256Seed(const EndorsementKey& key) {
  const Pkey once(EVP_EC_gen("P-256"));
  if (once == nullptr) return Failed();
  const Context context(EVP_PKEY_CTX_new(once.get(), nullptr));
  std::string z(kCoordinateBytes, '\0');
  size_t size = z.size();
  if (context == nullptr || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), key.get()) != 1 ||
      EVP_PKEY_derive(context.get(), Data(z), &size) != 1 || size != z.size())
    return Failed();
  OB_ASSIGN_OR_RETURN(const std::string own, PointOf(once.get()));
  OB_ASSIGN_OR_RETURN(const std::string other, PointOf(key.get()));
  const std::string_view x = std::string_view(own).substr(0, kCoordinateBytes);
  const std::string_view y = std::string_view(own).substr(kCoordinateBytes);
  return Seed{.plain = KdfE(z, kIdentity, x, std::string_view(other).substr(0, kCoordinateBytes)),
              .encrypted = Sized(x) + Sized(y)};
}

// AES-128 in CFB mode, from a vector of zeros.
absl::StatusOr<std::string> Encrypt(std::string_view key, std::string_view text) {
  constexpr unsigned char kZeros[16] = {};
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  std::string out(text.size(), '\0');
  int size = 0;
  const bool done = context != nullptr &&
                    EVP_EncryptInit_ex(context, EVP_aes_128_cfb128(), nullptr, Data(key),
                                       kZeros) == 1 &&
                    EVP_EncryptUpdate(context, Data(out), &size, Data(text),
                                      static_cast<int>(text.size())) == 1 &&
                    static_cast<size_t>(size) == text.size();
  EVP_CIPHER_CTX_free(context);
  if (!done) return Failed();
  return out;
}

}  // namespace

absl::StatusOr<Credential> MakeCredential(const EndorsementKey& key, std::string_view name,
                                          std::string_view secret) {
  OB_CHECK(secret.size() == kSecretBytes);
  OB_ASSIGN_OR_RETURN(const Seed seed,
                      key.kind() == KeyKind::kRsa2048 ? RsaSeed(key) : P256Seed(key));
  OB_ASSIGN_OR_RETURN(const std::string identity,
                      Encrypt(KdfA(seed.plain, kStorage, name, kAesKeyBytes), Sized(secret)));
  const std::string mac =
      Hmac(KdfA(seed.plain, kIntegrity, "", kDigestBytes), identity + std::string(name));
  return Credential{.id_object = Sized(mac) + identity, .seed = seed.encrypted};
}

std::string AnswerOf(std::string_view secret, std::string_view certificate_request,
                     std::string_view serial) {
  return Hmac(secret, std::string(kAnswerLabel) + Sized(certificate_request) + Sized(serial));
}

bool IsSame(std::string_view answer, std::string_view expected) {
  return answer.size() == expected.size() &&
         CRYPTO_memcmp(answer.data(), expected.data(), expected.size()) == 0;
}

}  // namespace outboard::tpm
