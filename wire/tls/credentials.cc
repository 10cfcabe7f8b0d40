#include "wire/tls/credentials.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <stdlib.h>

#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/tls/authority.h"
#include "wire/tls/limits.h"

namespace outboard::tls {
namespace {

namespace tls_of_grpc = grpc::experimental;

constexpr unsigned kReloadSeconds = 1;

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

class ServerCheck final : public tls_of_grpc::ExternalCertificateVerifier {
 public:
  ServerCheck(std::string host, Trust trust) : host_(std::move(host)), trust_(std::move(trust)) {}

  bool Verify(tls_of_grpc::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* result) override {
    const std::string_view whole = ViewOf(request->peer_cert_full_chain());
    const std::string_view chain = whole.empty() ? ViewOf(request->peer_cert()) : whole;
    absl::Status status;
    if (chain.size() > kChainBytesMax) {
      status = absl::UnavailableError("its certificates are too long");
    } else {
      const auto parsed = Certificate::ParseAll("the server's certificate", chain);
      status = parsed.ok() ? CheckServer(*parsed, host_, trust_) : parsed.status();
    }
    if (!status.ok())
      *result = grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(status.message()));
    return true;  // at once
  }
  void Cancel(tls_of_grpc::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string host_;
  const Trust trust_;
};

// gRPC reads the system's roots also where it is not to verify by them, and makes no connection
// where there are none, as on a bare machine. This one it reads instead; nobody has its key, and
// nothing is verified by it.
const std::string& UnusedRoot() {
  static const std::string* const pem = [] {
    const auto authority = Authority::Generate("unused");
    return new std::string(authority.ok() ? authority->certificate().ToPem() : "");
  }();
  return *pem;
}

}  // namespace

void RequireTls13() {
  // gRPC sets TLS 1.2 as the lowest version, after whatever OpenSSL's configuration says. With this
  // as the only suite of TLS 1.2, which needs a shared secret that no connection here has, 1.2
  // finds no suite; those of TLS 1.3 are a list of their own. Read once, by the first credentials.
  static std::once_flag once;
  std::call_once(once, [] { setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", 1); });
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const std::string& host,
                                                            const Trust& trust,
                                                            const KeyAndChain* identity) {
  tls_of_grpc::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);  // ServerCheck does
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls_of_grpc::ExternalCertificateVerifier::Create<ServerCheck>(host, trust));
  std::vector<tls_of_grpc::IdentityKeyCertPair> own;
  if (identity != nullptr) {
    own.push_back({identity->key.ToPem(), identity->ChainToPem()});
    options.watch_identity_key_cert_pairs();
  }
  options.set_certificate_provider(
      std::make_shared<tls_of_grpc::StaticDataCertificateProvider>(UnusedRoot(), std::move(own)));
  options.watch_root_certs();
  return tls_of_grpc::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const std::string& pem_path,
                                                           bool asks_clients) {
  RequireTls13();
  tls_of_grpc::TlsServerCredentialsOptions options(
      std::make_shared<tls_of_grpc::FileWatcherCertificateProvider>(pem_path, pem_path,
                                                                    kReloadSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(asks_clients ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY
                                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return tls_of_grpc::TlsServerCredentials(options);
}

bool CameByTls(const grpc::AuthContext& context) {
  for (const grpc::string_ref& type : context.FindPropertyValues("transport_security_type"))
    if (ViewOf(type) == "tls" || ViewOf(type) == "ssl") return true;
  return false;
}

std::string PresentedCertificate(const grpc::AuthContext& context) {
  const auto found = context.FindPropertyValues("x509_pem_cert");
  return found.empty() ? std::string() : std::string(ViewOf(found.front()));
}

}  // namespace outboard::tls
