// Executors of this machine, on an abstract unix socket instead of Fleet.Attach: a step saves two
// processes and gRPC between them.
//
// A connection begins with a LocalAttach (proto/fleet.proto), whose token stands for the session as
// the metadata of Attach does; who connects from here is of this machine. Then frames pass both
// ways. Each connection has a thread, which reads; frames to an executor are written by whoever has
// them, and by that thread only while the socket is full.
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
                                                            Authenticator* gatekeeper);
  ~LocalAttach();  // as Stop

  // Welcome.local_socket: 128 random bits, so that nobody takes it by chance.
  const std::string& name() const;
  // Ends what is connected, and returns when nothing of it calls the driver any more.
  void Stop();

 private:
  class Impl;
  explicit LocalAttach(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::gateway
