// The two sockets of an executor's process. On the control socket the supervisor gives commands
// (proto/executor.proto); on the data socket, which it hands over with Begin, the session's frames
// pass, to the gateway itself where that is on this machine. When the data socket breaks the
// session waits for another Begin; when the control socket breaks the executor ends.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>

#include "proto/cloud.pb.h"
#include "proto/executor.pb.h"
#include "wire/framing.h"

namespace outboard::worker {

// Where the data socket is, whichever it is: a number that others may poll.
inline constexpr int kDataSocket = 4;

// Threads: one, but for Tell.
class ExecutorSockets {
 public:
  // In a child that has its control socket as kChildSocket, before anything else is opened.
  ExecutorSockets();

  enum class Came { kFrame, kCommand, kNothing, kEnd };
  // What comes first, of both sockets; kNothing after `patience`.
  Came Next(proto::ClientFrame& frame, proto::NodeCommand& command,
            std::optional<std::chrono::milliseconds> patience);
  // Whether Next would return something within `patience`.
  bool Knocked(std::chrono::milliseconds patience);

  // What cannot be sent is lost, as on any broken connection; the session's resumption sees to it.
  void Send(const proto::ServerFrame& frame);
  void Tell(const proto::NodeEvent& event);  // any thread; whole messages

 private:
  Came ReadCommand(proto::NodeCommand& command);
  void DropData();

  wire::MessageReader reader_;
  std::mutex tell_mutex_;
  bool has_data_ = false;
};

}  // namespace outboard::worker
