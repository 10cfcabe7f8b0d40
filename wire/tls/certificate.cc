#include "wire/tls/certificate.h"

#include <arpa/inet.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "wire/tls/limits.h"

namespace outboard::tls {
namespace {

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

Bio Reader(std::string_view text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  OB_CHECK(bio != nullptr);
  return bio;
}

// Overwritten when it is freed.
Bio Writer() {
  Bio bio(BIO_new(BIO_s_secmem()));
  OB_CHECK(bio != nullptr);
  return bio;
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

// What a peer wrote, for messages.
std::string Shown(std::string_view text) { return Printable(text, /*bytes_max=*/100); }

std::string CommonNameOf(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
  if (size < 0) return "";
  const std::string out = Shown({reinterpret_cast<char*>(text), static_cast<size_t>(size)});
  OPENSSL_free(text);
  return out;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string NameOf(const GENERAL_NAME& name) {
  if (name.type == GEN_DNS)
    return Shown({reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.dNSName)),
                      static_cast<size_t>(ASN1_STRING_length(name.d.dNSName))});
  if (name.type != GEN_IPADD) return "";
  const int size = ASN1_STRING_length(name.d.iPAddress);
  char text[INET6_ADDRSTRLEN] = "";
  if (size == 4 || size == 16)
    inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name.d.iPAddress), text,
              sizeof text);
  return text;
}

}  // namespace

std::string LastTlsError() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason != nullptr ? reason : "it is damaged";
}

Certificate::Certificate(X509* certificate) : certificate_(certificate, &X509_free) {
  OB_CHECK(certificate != nullptr);
}

absl::StatusOr<std::vector<Certificate>> Certificate::ParseAll(std::string_view what,
                                                               std::string_view pem) {
  const std::string name(what);
  if (pem.size() > kPemBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", pem.size(), " bytes; limit ", kPemBytesMax));
  ERR_clear_error();
  const Bio bio = Reader(pem);
  std::vector<Certificate> all;
  while (X509* const one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    all.emplace_back(one);
  // The end of the text is an error of the reader's, too.
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (!at_end)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " holds a damaged certificate: ", LastTlsError()));
  ERR_clear_error();
  if (all.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(name, " holds no certificate (-----BEGIN CERTIFICATE-----)"));
  return all;
}

std::string Certificate::ToPem() const {
  const Bio bio = Writer();
  OB_CHECK(PEM_write_bio_X509(bio.get(), get()) == 1);
  return TextOf(bio.get());
}

Fingerprint Certificate::fingerprint() const {
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(get()), &der);
  Fingerprint fingerprint;
  if (size > 0) SHA256(der, static_cast<size_t>(size), fingerprint.bytes.data());
  OPENSSL_free(der);
  return fingerprint;
}

std::string KeyIdOf(std::string_view public_key) {
  constexpr size_t kShown = 16;  // too long to find another key for it
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(public_key.data()), public_key.size(), digest);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), kShown));
}

std::string Certificate::key_id() const {
  const ASN1_BIT_STRING* const key = X509_get0_pubkey_bitstr(get());
  OB_CHECK(key != nullptr);
  return KeyIdOf({reinterpret_cast<const char*>(ASN1_STRING_get0_data(key)),
                  static_cast<size_t>(ASN1_STRING_length(key))});
}

std::string Certificate::serial() const {
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(get()), nullptr);
  char* const hex = number != nullptr ? BN_bn2hex(number) : nullptr;
  std::string text = hex != nullptr ? Shown(hex) : "";
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  OPENSSL_free(hex);
  BN_free(number);
  return text;
}

std::string Certificate::common_name() const { return CommonNameOf(X509_get_subject_name(get())); }
std::string Certificate::issuer() const { return CommonNameOf(X509_get_issuer_name(get())); }

std::vector<std::string> Certificate::names() const {
  std::vector<std::string> out;
  auto* const names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names) && out.size() < kNamesMax; ++i)
    if (std::string name = NameOf(*sk_GENERAL_NAME_value(names, i)); !name.empty())
      out.push_back(std::move(name));
  GENERAL_NAMES_free(names);
  return out;
}

absl::Time Certificate::not_before() const { return TimeOf(X509_get0_notBefore(get())); }
absl::Time Certificate::not_after() const { return TimeOf(X509_get0_notAfter(get())); }
bool Certificate::is_authority() const { return X509_check_ca(get()) == 1; }

PrivateKey::PrivateKey(EVP_PKEY* key) : key_(key, &EVP_PKEY_free) { OB_CHECK(key != nullptr); }

absl::StatusOr<PrivateKey> PrivateKey::Generate() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  if (key == nullptr) return absl::InternalError(absl::StrCat("no key: ", LastTlsError()));
  return PrivateKey(key);
}

absl::StatusOr<PrivateKey> PrivateKey::Parse(std::string_view what, std::string_view pem) {
  const std::string name(what);
  if (pem.size() > kPemBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", pem.size(), " bytes; limit ", kPemBytesMax));
  ERR_clear_error();
  // No passphrase is asked for on the terminal of a server.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, no_passphrase, nullptr);
  if (key == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " holds no private key in PEM without a passphrase: ", LastTlsError()));
  return PrivateKey(key);
}

std::string PrivateKey::ToPem() const {
  const Bio bio = Writer();
  OB_CHECK(PEM_write_bio_PrivateKey(bio.get(), get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return TextOf(bio.get());
}

bool PrivateKey::Fits(const Certificate& certificate) const {
  const bool fits = X509_check_private_key(certificate.get(), get()) == 1;
  ERR_clear_error();
  return fits;
}

absl::StatusOr<KeyAndChain> KeyAndChain::Parse(std::string_view what, std::string_view key_pem,
                                               std::string_view chain_pem) {
  OB_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::Parse(what, key_pem));
  OB_ASSIGN_OR_RETURN(std::vector<Certificate> chain, Certificate::ParseAll(what, chain_pem));
  if (!key.Fits(chain.front()))
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), ": the private key is not that of the first certificate"));
  return KeyAndChain{std::move(key), std::move(chain)};
}

std::string KeyAndChain::ChainToPem() const {
  std::string pem;
  for (const Certificate& certificate : chain) pem += certificate.ToPem();
  return pem;
}

std::string KeyAndChain::ToPem() const { return key.ToPem() + ChainToPem(); }

absl::Time RenewAt(absl::Time not_before, absl::Time not_after) {
  return not_before + (not_after - not_before) * 2 / 3;
}

}  // namespace outboard::tls
