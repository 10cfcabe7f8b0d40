#include "wire/tls/authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"

namespace outboard::tls {
namespace {

constexpr int kStrengthBitsMin = 112;  // RSA 2048, P-224; OpenSSL's security level 2

struct X509Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

absl::Status Failed(const char* what) {
  return absl::InternalError(
      absl::StrCat("cannot make a certificate: ", what, ": ", LastTlsError()));
}

bool IsAddress(const std::string& name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

bool SetSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, always 16 bytes
  BIGNUM* const number = BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr);
  const bool set = number != nullptr &&
                   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

bool SetName(X509_NAME* name, const std::string& common_name) {
  constexpr size_t kCommonNameBytesMax = 64;  // RFC 5280
  const std::string text = common_name.substr(0, kCommonNameBytesMax);
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

std::unique_ptr<X509, X509Free> NewCertificate(EVP_PKEY* key, const std::string& common_name,
                                               absl::Time not_before, absl::Time not_after) {
  std::unique_ptr<X509, X509Free> certificate(X509_new());
  X509* const x = certificate.get();
  const bool made = x != nullptr && X509_set_version(x, X509_VERSION_3) == 1 && SetSerial(x) &&
                    ASN1_TIME_set(X509_getm_notBefore(x), absl::ToTimeT(not_before)) != nullptr &&
                    ASN1_TIME_set(X509_getm_notAfter(x), absl::ToTimeT(not_after)) != nullptr &&
                    X509_set_pubkey(x, key) == 1 && SetName(X509_get_subject_name(x), common_name);
  if (!made) certificate.reset();
  return certificate;
}

// As a value of OpenSSL's configuration; the names have been checked.
std::string AlternativeNames(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names)
    parts.push_back(absl::StrCat(IsAddress(name) ? "IP:" : "DNS:", name));
  return absl::StrJoin(parts, ",");
}

// Ed25519 signs without a digest of its own.
const EVP_MD* DigestFor(EVP_PKEY* key) {
  const int type = EVP_PKEY_base_id(key);
  return type == EVP_PKEY_ED25519 || type == EVP_PKEY_ED448 ? nullptr : EVP_sha256();
}

struct FreeRequest {
  void operator()(X509_REQ* request) const { X509_REQ_free(request); }
};
using Request = std::unique_ptr<X509_REQ, FreeRequest>;

absl::StatusOr<Request> ParseRequest(std::string_view request) {
  if (request.size() > kRequestBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(
        "the request for a certificate has ", request.size(), " bytes; limit ", kRequestBytesMax));
  const auto* bytes = reinterpret_cast<const unsigned char*>(request.data());
  Request parsed(d2i_X509_REQ(nullptr, &bytes, static_cast<long>(request.size())));
  EVP_PKEY* const key = parsed != nullptr ? X509_REQ_get0_pubkey(parsed.get()) : nullptr;
  const bool proved = key != nullptr && EVP_PKEY_get_security_bits(key) >= kStrengthBitsMin &&
                      X509_REQ_verify(parsed.get(), key) == 1;
  ERR_clear_error();
  if (proved) return parsed;
  return absl::InvalidArgumentError(
      "this is no request for a certificate (PKCS#10, signed with a key of at least 112 bits of "
      "strength)");
}

}  // namespace

absl::Status CheckCertificateName(std::string_view name) {
  const std::string text(name.substr(0, kNameBytesMax + 1));
  if (IsAddress(text)) return absl::OkStatus();
  const std::string_view host = name.starts_with("*.") ? name.substr(2) : name;
  const bool is_host = !host.empty() && name.size() <= kNameBytesMax && host.front() != '.' &&
                       host.front() != '-' && std::all_of(host.begin(), host.end(), [](char c) {
                         return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                                c == '-' || c == '_';
                       });
  if (is_host) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, 100)),
      "\" is no name of a certificate: write a host's name, like box.example.org, or an address"));
}

absl::StatusOr<std::string> MakeRequest(const PrivateKey& key) {
  X509_REQ* const request = X509_REQ_new();
  unsigned char* der = nullptr;
  int size = -1;
  if (request != nullptr && X509_REQ_set_version(request, X509_REQ_VERSION_1) == 1 &&
      X509_REQ_set_pubkey(request, key.get()) == 1 &&
      X509_REQ_sign(request, key.get(), DigestFor(key.get())) > 0)
    size = i2d_X509_REQ(request, &der);
  X509_REQ_free(request);
  if (size <= 0) return Failed("the request");
  std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

absl::StatusOr<Authority> Authority::Generate(const std::string& common_name, int64_t lifetime_s) {
  OB_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::Generate());
  const absl::Time now = absl::Now();
  auto made = NewCertificate(key.get(), common_name, now - absl::Seconds(kClockSkewS),
                             now + absl::Seconds(lifetime_s));
  X509* const x = made.get();
  if (x == nullptr || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
      !AddExtension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(x, x, NID_subject_key_identifier, "hash") ||
      X509_sign(x, key.get(), EVP_sha256()) == 0)
    return Failed("the CA's");
  return Authority(KeyAndChain{std::move(key), {Certificate(made.release())}});
}

absl::StatusOr<Authority> Authority::Parse(std::string_view what, std::string_view key_pem,
                                           std::string_view certificate_pem) {
  OB_ASSIGN_OR_RETURN(KeyAndChain identity, KeyAndChain::Parse(what, key_pem, certificate_pem));
  if (!identity.chain.front().is_authority())
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), ": the certificate is not one of a CA"));
  identity.chain.erase(identity.chain.begin() + 1, identity.chain.end());
  return Authority(std::move(identity));
}

absl::StatusOr<Certificate> Authority::Sign(EVP_PKEY* key, const IssueOptions& options) const {
  if (options.names.size() > kNamesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("a certificate has ", options.names.size(), " names; limit ", kNamesMax));
  for (const std::string& name : options.names) OB_RETURN_IF_ERROR(CheckCertificateName(name));
  const absl::Time now = absl::Now(), last = certificate().not_after();
  if (now >= last)
    return absl::FailedPreconditionError(absl::StrCat(
        "the CA's certificate expired on ", absl::FormatTime("%Y-%m-%d", last, absl::UTCTimeZone()),
        ": make a new one with `outboard cert init --force`"));
  X509* const issuer = certificate().get();
  auto made = NewCertificate(key, options.common_name,
                             std::max(now - absl::Seconds(kClockSkewS), certificate().not_before()),
                             std::min(now + absl::Seconds(options.lifetime_s), last));
  X509* const x = made.get();
  const bool is_server = options.purpose == Purpose::kServer;
  const std::string names = AlternativeNames(options.names);
  if (x == nullptr || X509_set_issuer_name(x, X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(x, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(x, issuer, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(x, issuer, NID_ext_key_usage, is_server ? "serverAuth" : "clientAuth") ||
      !AddExtension(x, issuer, NID_subject_key_identifier, "hash") ||
      !AddExtension(x, issuer, NID_authority_key_identifier, "keyid:always") ||
      (!names.empty() && !AddExtension(x, issuer, NID_subject_alt_name, names)) ||
      X509_sign(x, own_.key.get(), DigestFor(own_.key.get())) == 0)
    return Failed("what the CA issues");
  return Certificate(made.release());
}

absl::StatusOr<KeyAndChain> Authority::Issue(const IssueOptions& options) const {
  OB_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::Generate());
  OB_ASSIGN_OR_RETURN(Certificate leaf, Sign(key.get(), options));
  return KeyAndChain{std::move(key), {std::move(leaf), certificate()}};
}

absl::StatusOr<std::string> RequestKeyId(std::string_view request) {
  OB_ASSIGN_OR_RETURN(const Request parsed, ParseRequest(request));
  const unsigned char* bytes = nullptr;
  int size = 0;
  OB_CHECK(X509_PUBKEY_get0_param(nullptr, &bytes, &size, nullptr,
                                  X509_REQ_get_X509_PUBKEY(parsed.get())) == 1);
  return KeyIdOf({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)});
}

absl::StatusOr<std::vector<Certificate>> Authority::IssueFor(std::string_view request,
                                                             const IssueOptions& options) const {
  OB_ASSIGN_OR_RETURN(const Request parsed, ParseRequest(request));
  OB_ASSIGN_OR_RETURN(Certificate leaf, Sign(X509_REQ_get0_pubkey(parsed.get()), options));
  return std::vector<Certificate>{std::move(leaf), certificate()};
}

}  // namespace outboard::tls
