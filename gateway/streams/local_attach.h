// Serves executors of this machine on an abstract unix socket instead of Fleet.Attach: the frames
// of a step then do not pass through the supervisor and gRPC.
//
// A connection begins with a LocalAttach (proto/fleet.proto), whose token authenticates the session
// as the metadata of Attach does; only processes of this machine can connect. Then frames pass in
// both directions. Each connection has a thread that reads. The thread that sends a frame to an
// executor also writes it to the socket; the connection's thread writes only while the socket is
// full.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::gateway {

class CoreDriver;
class Authenticator;

class LocalAttach {
 public:
  // Errors: UNAVAILABLE  no socket can be made
  static absl::StatusOr<std::unique_ptr<LocalAttach>> Start(CoreDriver* driver,
                                                            Authenticator* authenticator);
  ~LocalAttach();  // as Stop

  // The value of Welcome.local_socket: 128 random bits, so that names do not collide.
  const std::string& name() const;
  // Ends all connections, and returns when none of them calls the driver any more.
  void Stop();

 private:
  class Impl;
  explicit LocalAttach(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::gateway
