// Credentials of gRPC for both ends.
//
// gRPC's own check of a server says nothing about what is wrong and knows no fingerprints, so it is
// replaced by CheckServer (wire/tls/verify.h), which runs after the handshake and before the first
// byte of HTTP/2: nothing is sent to a server that is refused.
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "wire/tls/certificate.h"
#include "wire/tls/verify.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace outboard::tls {

// `host`: as in CheckServer. `identity`: presented to a server that asks; null: nothing is.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const std::string& host,
                                                            const Trust& trust,
                                                            const KeyAndChain* identity = nullptr);

// `pem_path`: a file with key and chain (KeyAndChain::ToPem), which is read again within seconds
// when it is replaced. `asks_clients`: requests a certificate from whoever connects, and accepts
// any and
// none: the services decide (gateway/tls/worker_admission.h).
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const std::string& pem_path,
                                                           bool asks_clients);

// From now on, servers of this process speak TLS 1.3 only. gRPC 1.51 offers no setting for it:
// docs/decisions/060-tls.md. Call before any other thread may read the environment.
void RequireTls13();

// True if the call came by TLS; false for plain connections and for those within the process.
bool CameByTls(const grpc::AuthContext& context);
// What the caller presented: PEM, or "".
std::string PresentedCertificate(const grpc::AuthContext& context);

}  // namespace outboard::tls
