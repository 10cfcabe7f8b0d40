// The gateway as a server: GatewayCore behind gRPC, the accounts file and the blob store.
//
// Stops in three steps: no new sessions; what runs may end until the drain time is over; the rest
// is ended, billed and written. Threads: any; Stop once.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gateway/core/events.h"

namespace outboard::gateway {

struct GatewayOptions {
  // "host:port" (port 0: any) or "unix:/path". Empty: no socket, InProcessChannel only.
  std::string listen;
  std::string data_folder;  // made if it is not there
  // Everybody is the tenant "local". Only where nobody else can connect: a unix socket, loopback or
  // in process; INVALID_ARGUMENT with another address.
  bool no_auth = false;
  // Bytes that each tenant may keep in the store; 0: as many as the disk holds.
  uint64_t quota_bytes = 0;
  // What a worker must present. Empty: workers join from this machine only.
  std::string fleet_token;
  // Sessions of a gateway that was here before go on when their workers join. Not where these end
  // with this process: then the sessions have ended.
  bool executors_outlive = true;
  CoreOptions core;
};

// The one name of the accounts file within a data folder; the CLI opens it too.
std::string AccountsPath(const std::string& data_folder);

class Gateway {
 public:
  // Errors: INVALID_ARGUMENT (options), UNAVAILABLE (the address is taken), those of the accounts
  // file.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(GatewayOptions options);
  ~Gateway();  // as Stop(0)

  // "host:port" with the port that was chosen, or the unix address.
  const std::string& address() const;
  // A connection that leaves no process, for the workers of `serve` and for tests.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  uint32_t devices_total() const;
  size_t session_count() const;
  // Waits until workers with so many devices have joined; false when the time is over.
  bool AwaitDevices(uint32_t count, std::chrono::milliseconds limit);

  void Stop(std::chrono::milliseconds drain);

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::gateway
