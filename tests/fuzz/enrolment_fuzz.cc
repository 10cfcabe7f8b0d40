// What a machine shows that asks to be a node, before anything is known of it: the keys of its TPM,
// the certificate of the endorsement key, its request for a certificate. Each is refused, or a key
// of which a certificate and a credential can be made; what is shown to people is printable.
#include <openssl/x509.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"
#include "wire/tls/authority.h"
#include "wire/tls/certificate.h"
#include "wire/tpm/credential.h"
#include "wire/tpm/maker_roots.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard {
namespace {

enum Kind : uint8_t { kTpm, kRequest, kChain, kKinds };

const tls::Authority& Fleet() {
  static const tls::Authority authority = ValueOrDie(tls::Authority::Generate("fleet"));
  return authority;
}
const tls::KeyAndChain& OfTpm() {
  static const tls::KeyAndChain issued = ValueOrDie(Fleet().Issue({.common_name = "a TPM"}));
  return issued;
}

template <typename T>
std::string Der(int (*encode)(const T*, unsigned char**), const T* value) {
  unsigned char* bytes = nullptr;
  const int size = encode(value, &bytes);
  OB_CHECK(size > 0);
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

// As a TPM has it: the template, with the key's coordinates in place of its zeros.
std::string PublicArea(const std::string& with_zeros, const tls::PrivateKey& key) {
  constexpr size_t kCoordinate = 32;
  const std::string der = Der<EVP_PKEY>(i2d_PUBKEY, key.get());
  const std::string x = der.substr(der.size() - 2 * kCoordinate, kCoordinate),
                    y = der.substr(der.size() - kCoordinate);
  const std::string length("\0\x20", 2);
  return with_zeros.substr(0, with_zeros.size() - 2 * (2 + kCoordinate)) + length + x + length + y;
}

void CheckPrintable(std::string_view text) {
  for (const char c : text) OB_CHECK(c >= ' ' && c <= '~');
}

void TryTpm(test::ByteSource bytes) {
  const auto endorsement = tpm::EndorsementKey::Parse(bytes.Block());
  const auto name = tpm::AttestationKeyName(bytes.Block());
  const std::string_view certificate = bytes.Block();
  if (endorsement.ok() && name.ok()) {
    const auto credential = ValueOrDie(
        tpm::MakeCredential(*endorsement, *name, std::string(tpm::kSecretBytes, 's')));
    OB_CHECK(credential.id_object.size() <= tpm::kCredentialBytesMax &&
             credential.seed.size() <= tpm::kSeedBytesMax);
  }
  static const auto makers = ValueOrDie(
      tpm::MakerRoots::Parse("makers", Fleet().certificate().ToPem()));
  (void)makers.Check(certificate).ok();
  if (!endorsement.ok()) return;
  if (const auto issuer = endorsement->IssuerOf(certificate); issuer.ok()) CheckPrintable(*issuer);
}

void TryRequest(std::string_view request) {
  const auto id = tls::RequestKeyId(request);
  const auto chain = Fleet().IssueFor(request, {.common_name = "node"});
  OB_CHECK(!chain.ok() || id.ok());
  if (!id.ok()) return;
  OB_CHECK(id->size() == 32 && id->find_first_not_of("0123456789abcdef") == id->npos);
}

void TryChain(std::string_view pem) {
  const auto chain = tls::Certificate::ParseAll("a text", pem);
  if (!chain.ok()) return;
  for (const tls::Certificate& certificate : *chain) {
    CheckPrintable(certificate.common_name());
    CheckPrintable(certificate.issuer());
    const std::vector<std::string> names = certificate.names();
    OB_CHECK(names.size() <= tls::kNamesMax);
    for (const std::string& name : names) CheckPrintable(name);
    (void)certificate.not_after();
    (void)certificate.is_authority();
    OB_CHECK(certificate.serial().find_first_not_of("-0123456789abcdefABCDEF") ==
             std::string::npos);
  }
}

}  // namespace
}  // namespace outboard

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace outboard;
  const auto kind = [](Kind of) { return std::string(1, static_cast<char>(of)); };
  const tls::PrivateKey& key = OfTpm().key;
  const std::string endorsement =
      PublicArea(tpm::EndorsementTemplate(tpm::KeyKind::kP256), key);
  OB_CHECK(tpm::EndorsementKey::Parse(endorsement).ok());
  const std::string certificate = Der<X509>(i2d_X509, OfTpm().chain.front().get());
  OB_CHECK(tpm::EndorsementKey::Parse(endorsement)->IssuerOf(certificate).ok());
  // An odd number of 2048 bits: nobody looks for its factors.
  std::string modulus = tpm::EndorsementTemplate(tpm::KeyKind::kRsa2048);
  modulus.replace(modulus.size() - 256, 256, std::string(256, '\xff'));
  OB_CHECK(tpm::EndorsementKey::Parse(modulus).ok());
  const std::string attestation = test::BlockOf(PublicArea(tpm::AttestationTemplate(), key));
  test::WriteSeeds(
      *argc, *argv,
      {kind(kTpm) + test::BlockOf(endorsement) + attestation + test::BlockOf(certificate),
       kind(kTpm) + test::BlockOf(modulus) + attestation,
       kind(kRequest) + ValueOrDie(tls::MakeRequest(key)), kind(kChain) + OfTpm().ChainToPem()});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % outboard::kKinds) {
    case outboard::kTpm: outboard::TryTpm(outboard::test::ByteSource(rest)); break;
    case outboard::kRequest: outboard::TryRequest(rest); break;
    default: outboard::TryChain(rest);
  }
  return 0;
}
