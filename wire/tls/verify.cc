#include "wire/tls/verify.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace outboard::tls {
namespace {

struct StoreFree {
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
};
using Store = std::unique_ptr<X509_STORE, StoreFree>;

// `anchors`: believed as they are, also where they are no CA.
Store StoreOf(const std::vector<Certificate>& anchors) {
  Store store(X509_STORE_new());
  OB_CHECK(store != nullptr);
  for (const Certificate& anchor : anchors) X509_STORE_add_cert(store.get(), anchor.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  return store;
}

Store SystemRoots() {
  Store store(X509_STORE_new());
  OB_CHECK(store != nullptr);
  X509_STORE_set_default_paths(store.get());  // also as SSL_CERT_FILE and SSL_CERT_DIR say
  ERR_clear_error();
  return store;
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::UTCTimeZone()) + " UTC";
}

std::string NamesOf(const Certificate& leaf) {
  constexpr size_t kShownMax = 5;
  std::vector<std::string> names = leaf.names();
  if (names.empty()) names = {leaf.common_name()};
  const bool more = names.size() > kShownMax;
  if (more) names.resize(kShownMax);
  return absl::StrCat(absl::StrJoin(names, ", "), more ? " and more" : "");
}

// What OpenSSL's code means for whoever reads it. `at` is the certificate that it is about.
std::string Reason(int code, const Certificate& at, const Certificate& leaf) {
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat("its certificate expired on ", Day(at.not_after()));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat("its certificate is not valid before ", Day(at.not_before()),
                          "; is this machine's clock right?");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat("its certificate is of another CA (\"", leaf.issuer(),
                          "\", which is not trusted here)");
    case X509_V_ERR_INVALID_PURPOSE:
    case X509_V_ERR_INVALID_CA:
      return "its certificate was not made for this purpose (a server's and a worker's differ)";
    default:
      return absl::StrCat("its certificate is refused: ", X509_verify_cert_error_string(code));
  }
}

// "" where `leaf` is good.
std::string WhyNot(X509_STORE* store, const std::vector<Certificate>& chain, int purpose) {
  std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(X509_STORE_CTX_new(),
                                                                          &X509_STORE_CTX_free);
  std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> others(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  OB_CHECK(context != nullptr && others != nullptr);
  for (const Certificate& one : chain) sk_X509_push(others.get(), one.get());
  OB_CHECK(X509_STORE_CTX_init(context.get(), store, chain.front().get(), others.get()) == 1);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  const bool good = X509_verify_cert(context.get()) == 1;
  const int code = X509_STORE_CTX_get_error(context.get());
  X509* const at = X509_STORE_CTX_get_current_cert(context.get());
  if (at != nullptr) X509_up_ref(at);
  const std::string why =
      good ? "" : Reason(code, at != nullptr ? Certificate(at) : chain.front(), chain.front());
  ERR_clear_error();
  return why;
}

bool IsFor(const Certificate& leaf, const std::string& host) {
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), &address) == 1;
  const bool matches = is_address
                           ? X509_check_ip_asc(leaf.get(), host.c_str(), 0) == 1
                           : X509_check_host(leaf.get(), host.data(), host.size(), 0, nullptr) == 1;
  ERR_clear_error();
  return matches;
}

absl::Status CheckPinned(const std::vector<Certificate>& chain, const Fingerprint& pinned) {
  const auto anchor = std::find_if(chain.begin(), chain.end(), [&](const Certificate& one) {
    return one.fingerprint() == pinned;
  });
  if (anchor == chain.end())
    return absl::UnavailableError(absl::StrCat(
        "its certificate is of another CA: the fingerprint given is ", pinned.ToString(),
        ", and that of what it presents is ", chain.back().fingerprint().ToString(), " (\"",
        chain.back().common_name(), "\")"));
  const std::string why = WhyNot(StoreOf({*anchor}).get(), chain, X509_PURPOSE_SSL_SERVER);
  return why.empty() ? absl::OkStatus() : absl::UnavailableError(why);
}

}  // namespace

absl::Status CheckServer(const std::vector<Certificate>& chain, const std::string& host,
                         const Trust& trust) {
  if (chain.empty()) return absl::UnavailableError("it presents no certificate");
  if (trust.pinned.has_value()) OB_RETURN_IF_ERROR(CheckPinned(chain, *trust.pinned));
  if (trust.pinned.has_value() && trust.roots.empty()) return absl::OkStatus();
  const Store store = trust.roots.empty() ? SystemRoots() : StoreOf(trust.roots);
  if (const std::string why = WhyNot(store.get(), chain, X509_PURPOSE_SSL_SERVER); !why.empty())
    return absl::UnavailableError(why);
  if (trust.pinned.has_value() || IsFor(chain.front(), host)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("its certificate is for another name (", NamesOf(chain.front()), ")"));
}

absl::Status CheckWorker(const Certificate& certificate, const Certificate& authority) {
  const std::string why =
      WhyNot(StoreOf({authority}).get(), {certificate}, X509_PURPOSE_SSL_CLIENT);
  if (why.empty()) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("the worker is refused: ", why));
}

}  // namespace outboard::tls
