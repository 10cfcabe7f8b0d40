// The stream for a session's large values, over a separate connection so that no step waits for
// them (Values in proto/cloud.proto). Forwards frames unchanged.
//
// Threads: the listener is called from gRPC's threads. A gateway that does not support the call
// ends it with UNIMPLEMENTED, which is harmless: the values then come on the session's stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace grpc {
class Channel;
}

namespace outboard::session {

// True if pieces may have been in flight when a stream ended with this status. False if it was
// refused or if the gateway ended it (ABORTED: the session is over, or another stream replaced it).
bool MayLoseValues(const absl::Status& end);

class ValuesStream {
 public:
  struct Listener {
    std::function<void(proto::ServerFrame)> on_frame;
    std::function<void(absl::Status)> on_end;  // called once, last; not from within the destructor
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

}  // namespace outboard::session
