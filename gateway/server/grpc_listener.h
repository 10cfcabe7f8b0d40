// Services of gRPC at one address: the gateway has one of these for clients and one for workers.
//
// Programs of this machine that know a TCP address use an abstract unix socket of the same name
// instead, which takes half as long (client/session/link/local_socket.h).
// Threads: any; Stop once.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/doors/acceptor.h"
#include "gateway/doors/connection_table.h"
#include "gateway/streams/abstract_listener.h"

namespace outboard::gateway {

// True where other machines cannot reach the address: a unix socket, loopback, or none.
bool IsLocalAddress(const std::string& address);

class GrpcListener {
 public:
  // `address`: "host:port" (port 0: any), "unix:/path", which this user alone may open, or empty:
  // no socket, InProcessChannel only. `connections` decides which connections of a port it takes.
  // Both arguments must outlive the listener.
  // Errors: UNAVAILABLE  the address is taken or is none of this machine's
  // `tls`: null for a port in the clear.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(
      const std::string& address, const std::vector<grpc::Service*>& services,
      ConnectionTable* connections,
      const std::shared_ptr<grpc::ServerCredentials>& tls = nullptr);
  ~GrpcListener();  // as Stop

  const std::string& address() const { return address_; }  // with the port that was chosen
  bool has_tls() const { return has_tls_; }
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // The port goes on accepting until Stop: clients of sessions that may still end come back to it.
  void CloseLocalSocket();
  void Stop();  // ends calls that go on after two seconds

 private:
  GrpcListener() = default;
  void ListenLocally(ConnectionTable* connections);

  std::string address_;
  // Passes what the acceptor takes on to the server, with its credentials.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> external_;
  std::unique_ptr<Acceptor> acceptor_;
  bool has_tls_ = false;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<AbstractListener> local_;
};

}  // namespace outboard::gateway
