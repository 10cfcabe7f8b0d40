#include "wire/tpm/maker_roots.h"

#include <openssl/err.h>
#include <openssl/objects.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/tls/certificate.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard::tpm {
namespace {

// tcg-kp-EKCertificate (TCG "EK Credential Profile for TPM Family 2.0", 3.2.16).
constexpr char kOfEndorsementKeys[] = "2.23.133.8.1";

struct ContextFree {
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
};

// Or it says nothing of what it is for.
bool IsForEndorsementKeys(const X509* certificate) {
  auto* const uses = static_cast<EXTENDED_KEY_USAGE*>(
      X509_get_ext_d2i(certificate, NID_ext_key_usage, nullptr, nullptr));
  if (uses == nullptr) return true;
  bool found = false;
  for (int i = 0; i < sk_ASN1_OBJECT_num(uses); ++i) {
    char text[64] = "";
    OBJ_obj2txt(text, sizeof text, sk_ASN1_OBJECT_value(uses, i), /*no_name=*/1);
    found = found || std::string_view(text) == kOfEndorsementKeys;
  }
  sk_ASN1_OBJECT_pop_free(uses, ASN1_OBJECT_free);
  return found;
}

}  // namespace

absl::StatusOr<MakerRoots> MakerRoots::Parse(std::string_view what, std::string_view pem) {
  OB_ASSIGN_OR_RETURN(const std::vector<tls::Certificate> all,
                      tls::Certificate::ParseAll(what, pem));
  const std::shared_ptr<X509_STORE> store(X509_STORE_new(), &X509_STORE_free);
  OB_CHECK(store != nullptr);
  // One between a root and its TPMs is trusted without its root.
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  for (const tls::Certificate& one : all)
    OB_CHECK(X509_STORE_add_cert(store.get(), one.get()) == 1);
  return MakerRoots(store, all.size());
}

absl::Status MakerRoots::Check(std::string_view certificate) const {
  if (certificate.empty()) return absl::PermissionDeniedError("the TPM has no certificate");
  if (certificate.size() > kCertificateBytesMax)
    return absl::PermissionDeniedError("the TPM's certificate is too long");
  const auto* at = reinterpret_cast<const unsigned char*>(certificate.data());
  const std::unique_ptr<X509, decltype(&X509_free)> parsed(
      d2i_X509(nullptr, &at, static_cast<long>(certificate.size())), &X509_free);
  const std::unique_ptr<X509_STORE_CTX, ContextFree> context(X509_STORE_CTX_new());
  const bool is_good =
      parsed != nullptr && context != nullptr &&
      X509_STORE_CTX_init(context.get(), store_.get(), parsed.get(), nullptr) == 1 &&
      X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (is_good && IsForEndorsementKeys(parsed.get())) return absl::OkStatus();
  const char* const why =
      parsed == nullptr || context == nullptr ? "it is damaged"
      : is_good ? "it is for something else than an endorsement key"
                : X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  return absl::PermissionDeniedError(
      absl::StrCat("no maker that is trusted vouches for the TPM's certificate: ", why));
}

}  // namespace outboard::tpm
