// The stream on which a session's large values come, over a connection of its own, so that no step
// waits behind them (Values in proto/cloud.proto). What comes is handed on as it is.
//
// Threads: the listener is called from gRPC's. A gateway that does not know the call ends it with
// UNIMPLEMENTED, which harms nothing: the values come on the session's stream.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::transport {

// Whether pieces may have been on their way when a stream ended so. Not where it was refused, nor
// where the gateway ended it (ABORTED: the session is over, or another stream has taken its place).
bool MayLoseValues(const absl::Status& end);

class ValuesStream {
 public:
  struct Listener {
    std::function<void(proto::ServerFrame)> on_frame;
    std::function<void(absl::Status)> on_end;  // once, the last; not from within the destructor
  };
  ValuesStream(std::shared_ptr<grpc::Channel> channel, const std::string& key,
               proto::ValuesRequest request, Listener listener);
  ~ValuesStream();  // cancels, and waits for the last call
  ValuesStream(const ValuesStream&) = delete;
  ValuesStream& operator=(const ValuesStream&) = delete;

  uint64_t bytes_down() const;

 private:
  class Reactor;
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace outboard::transport
