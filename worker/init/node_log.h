// The log of a node from its first second: what process 1 says and what the worker prints, a line
// each, on the console and in a file in memory, from which the worker sends it to the gateway
// (worker/init/log_sender.h).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace outboard::worker {

inline constexpr size_t kNodeLogFileBytesMax = 1 << 20;

class NodeLog {
 public:
  // `console_fd`: each line goes there too; -1: nowhere. The file is begun anew when it is full: by
  // then a gateway that can be reached has it.
  NodeLog(std::string path, int console_fd) : path_(std::move(path)), console_fd_(console_fd) {}

  // "outboard node: TEXT", without line breaks, with seconds since the machine started.
  void Say(std::string_view text);
  // What a program printed: whole lines are written, the rest when it has come, cut where it is
  // long.
  void Add(std::string_view bytes);

 private:
  void Write(std::string line);

  const std::string path_;
  const int console_fd_;
  std::string rest_;
};

}  // namespace outboard::worker
