#include "wire/tpm/tpm_keys.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/sha.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "wire/tls/certificate.h"
#include "wire/tpm/openssl_key.h"

namespace outboard::tpm {
namespace {

// TPMT_PUBLIC up to `unique`. In each: the algorithm, SHA-256 for its name, the attributes.
// The policy is PolicySecret(TPM_RH_ENDORSEMENT); AES-128 in CFB mode protects what is below it.
constexpr char kEndorsementPolicy[] =
    "0020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa";
constexpr char kAes128Cfb[] = "000600800043";
// fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt
constexpr char kEndorsementAttributes[] = "000300b2";
// fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, restricted, sign
constexpr char kAttestationAttributes[] = "00050472";

constexpr size_t kRsaBytes = 256;

std::string Bytes(std::initializer_list<const char*> hex) {
  std::string all;
  for (const char* const part : hex) all += absl::HexStringToBytes(part);
  return all;
}

const std::string& Head(KeyKind kind) {
  // No scheme; 2048 bits, the exponent 65537 | no scheme; P-256, no key derivation.
  static const std::string rsa = Bytes(
      {"0001000b", kEndorsementAttributes, kEndorsementPolicy, kAes128Cfb, "0010080000000000"});
  static const std::string p256 = Bytes(
      {"0023000b", kEndorsementAttributes, kEndorsementPolicy, kAes128Cfb, "001000030010"});
  return kind == KeyKind::kRsa2048 ? rsa : p256;
}

// No policy, nothing below it; ECDSA with SHA-256, P-256.
const std::string& AttestationHead() {
  static const std::string head =
      Bytes({"0023000b", kAttestationAttributes, "0000", "0010", "0018000b00030010"});
  return head;
}

std::string SizedZeros(size_t bytes) {
  std::string out = {static_cast<char>(bytes >> 8), static_cast<char>(bytes & 0xff)};
  return out + std::string(bytes, '\0');
}

// Takes up to `size` bytes behind their own length, and gives all of `size`: some TPMs leave out a
// coordinate's leading zeros.
bool TakeSized(std::string_view& from, size_t size, std::string& out) {
  if (from.size() < 2) return false;
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(from[i]));
  };
  const size_t has = byte(0) << 8 | byte(1);
  if (has > size || from.size() < 2 + has) return false;
  out = std::string(size - has, '\0') + std::string(from.substr(2, has));
  from.remove_prefix(2 + has);
  return true;
}

// Null where the numbers are no public key.
Pkey KeyFrom(const char* algorithm, OSSL_PARAM_BLD* numbers) {
  OSSL_PARAM* const params = OSSL_PARAM_BLD_to_param(numbers);
  EVP_PKEY_CTX* const context = EVP_PKEY_CTX_new_from_name(nullptr, algorithm, nullptr);
  EVP_PKEY* key = nullptr;
  const bool made = params != nullptr && context != nullptr &&
                    EVP_PKEY_fromdata_init(context) == 1 &&
                    EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) == 1;
  OSSL_PARAM_free(params);
  EVP_PKEY_CTX_free(context);
  ERR_clear_error();
  Pkey owned(key);
  return made ? std::move(owned) : nullptr;
}

Pkey RsaKey(std::string_view modulus) {
  // 2048 bits, and odd, as a product of two primes is.
  if ((modulus.front() & 0x80) == 0 || (modulus.back() & 1) == 0) return nullptr;
  OSSL_PARAM_BLD* const numbers = OSSL_PARAM_BLD_new();
  BIGNUM* const n = BN_bin2bn(reinterpret_cast<const unsigned char*>(modulus.data()),
                              static_cast<int>(modulus.size()), nullptr);
  Pkey key;
  if (numbers != nullptr && n != nullptr &&
      OSSL_PARAM_BLD_push_BN(numbers, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
      OSSL_PARAM_BLD_push_uint(numbers, OSSL_PKEY_PARAM_RSA_E, 65537) == 1)
    key = KeyFrom("RSA", numbers);
  OSSL_PARAM_BLD_free(numbers);
  BN_free(n);
  return key;
}

// Null also where the point is not on the curve.
Pkey P256Key(std::string_view x, std::string_view y) {
  const std::string point = "\x04" + std::string(x) + std::string(y);
  OSSL_PARAM_BLD* const numbers = OSSL_PARAM_BLD_new();
  Pkey key;
  if (numbers != nullptr &&
      OSSL_PARAM_BLD_push_utf8_string(numbers, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
      OSSL_PARAM_BLD_push_octet_string(numbers, OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) == 1)
    key = KeyFrom("EC", numbers);
  OSSL_PARAM_BLD_free(numbers);
  return key;
}

// Behind its head; null where it is no key.
Pkey PointBehind(std::string_view rest) {
  std::string x, y;
  if (!TakeSized(rest, kCoordinateBytes, x) || !TakeSized(rest, kCoordinateBytes, y) ||
      !rest.empty())
    return nullptr;
  return P256Key(x, y);
}

absl::Status CheckBytes(const char* what, std::string_view public_area) {
  if (public_area.size() <= kPublicBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the TPM's ", what, " has ", public_area.size(),
                                                 " bytes; limit ", kPublicBytesMax));
}

}  // namespace

std::string EndorsementTemplate(KeyKind kind) {
  return Head(kind) + (kind == KeyKind::kRsa2048
                           ? SizedZeros(kRsaBytes)
                           : SizedZeros(kCoordinateBytes) + SizedZeros(kCoordinateBytes));
}

std::string AttestationTemplate() {
  return AttestationHead() + SizedZeros(kCoordinateBytes) + SizedZeros(kCoordinateBytes);
}

EndorsementKey::EndorsementKey(KeyKind kind, EVP_PKEY* key)
    : kind_(kind), key_(key, &EVP_PKEY_free) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  OB_CHECK(size > 0);
  SHA256(der, static_cast<size_t>(size), fingerprint_.bytes.data());
  OPENSSL_free(der);
}

absl::StatusOr<EndorsementKey> EndorsementKey::Parse(std::string_view public_area) {
  OB_RETURN_IF_ERROR(CheckBytes("endorsement key", public_area));
  if (const std::string& head = Head(KeyKind::kRsa2048); public_area.starts_with(head)) {
    std::string_view rest = public_area.substr(head.size());
    std::string modulus;
    if (TakeSized(rest, kRsaBytes, modulus) && rest.empty())
      if (Pkey key = RsaKey(modulus)) return EndorsementKey(KeyKind::kRsa2048, key.release());
  }
  if (const std::string& head = Head(KeyKind::kP256); public_area.starts_with(head))
    if (Pkey key = PointBehind(public_area.substr(head.size())))
      return EndorsementKey(KeyKind::kP256, key.release());
  return absl::InvalidArgumentError(
      "the TPM's endorsement key is neither RSA 2048 nor ECC P-256 of the default template");
}

absl::StatusOr<std::string> EndorsementKey::IssuerOf(std::string_view certificate) const {
  if (certificate.size() > kCertificateBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("the endorsement key's certificate has ",
                                                   certificate.size(), " bytes; limit ",
                                                   kCertificateBytesMax));
  const auto* at = reinterpret_cast<const unsigned char*>(certificate.data());
  X509* const parsed = d2i_X509(nullptr, &at, static_cast<long>(certificate.size()));
  ERR_clear_error();
  if (parsed == nullptr)
    return absl::InvalidArgumentError("the endorsement key's certificate is damaged");
  const tls::Certificate owned(parsed);
  if (owned.fingerprint() != fingerprint_)
    return absl::InvalidArgumentError("the endorsement key's certificate is of another key");
  return owned.issuer();
}

absl::StatusOr<std::string> AttestationKeyName(std::string_view public_area) {
  OB_RETURN_IF_ERROR(CheckBytes("attestation key", public_area));
  if (!public_area.starts_with(AttestationHead()) ||
      PointBehind(public_area.substr(AttestationHead().size())) == nullptr)
    return absl::InvalidArgumentError(
        "the TPM's attestation key is not ECC P-256 that stays in its TPM and signs only what that "
        "has written");
  const Sha256Digest digest = Sha256(public_area);
  // The algorithm of the digest, then the digest (part 1, 16).
  return std::string("\x00\x0b", 2) +
         std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace outboard::tpm
