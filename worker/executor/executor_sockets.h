// The two sockets of an executor's process. The control socket carries commands of the supervisor
// (proto/executor.proto); the data socket, which Begin passes to the executor, carries the
// session's frames, directly to the gateway if that is on this machine. When the data socket
// breaks, the session waits for another Begin; when the control socket breaks, the executor ends.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>

#include "proto/cloud.pb.h"
#include "proto/executor.pb.h"
#include "wire/framing.h"

namespace outboard::worker {

// The descriptor of the data socket. Fixed, also when the socket is replaced, so that other code
// may poll it.
inline constexpr int kDataSocket = 4;

// Threads: one, except Tell.
class ExecutorSockets {
 public:
  // Requires the control socket at descriptor kChildSocket; construct before opening other files.
  ExecutorSockets();

  enum class Came { kFrame, kCommand, kNothing, kEnd };
  // Waits for the supervisor's first command: it comes before any frame.
  Came FirstCommand(proto::ToExecutor& command, int& passed) {
    return ReadCommand(command, passed);
  }
  // Returns the next message of either socket; kNothing after `patience`. A descriptor that comes
  // with a command, and is no data socket, is then `passed`, else -1; it belongs to the caller.
  Came Next(proto::ClientFrame& frame, proto::ToExecutor& command, int& passed,
            std::optional<std::chrono::milliseconds> patience);
  // True if Next would return a message or kEnd within `patience`.
  bool Knocked(std::chrono::milliseconds patience);

  // Sends a frame. A frame that cannot be sent is lost, as on any broken connection; it is sent
  // again when the session resumes.
  void Send(const proto::ServerFrame& frame);
  void Tell(const proto::FromExecutor& event);  // any thread; messages are not interleaved

 private:
  Came ReadCommand(proto::ToExecutor& command, int& passed);
  void DropData();

  wire::MessageReader reader_;
  std::mutex tell_mutex_;
  bool has_data_ = false;
};

}  // namespace outboard::worker
