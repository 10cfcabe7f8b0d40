// How a child process ended: what was asked of the system, and what is decided by it. Its words are
// for people alone.
#pragma once

#include <ostream>
#include <string>

namespace outboard::worker {

class ChildEnd {
 public:
  // It was not running, so that it cannot have ended.
  ChildEnd() = default;
  // As waitpid has it. A program that aborts within its sandbox exits with kExitAborted, and has
  // ended by SIGABRT.
  static ChildEnd OfStatus(int status);
  // It was killed and did not end in time: it waits within the kernel, for a driver for example. A
  // thread of its own reaps it whenever it ends.
  static ChildEnd Never() { return ChildEnd(Kind::kNever, 0); }

  bool IsNever() const { return kind_ == Kind::kNever; }
  bool IsExit(int code) const { return kind_ == Kind::kExit && number_ == code; }
  bool IsSignal(int signal) const { return kind_ == Kind::kSignal && number_ == signal; }

  // "exited with 1", "ended by signal 9", "was killed, and does not end", "was not running".
  std::string ToString() const;

  bool operator==(const ChildEnd&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const ChildEnd& end) {
    return out << end.ToString();
  }

 private:
  enum class Kind { kNotRunning, kExit, kSignal, kNever };
  ChildEnd(Kind kind, int number) : kind_(kind), number_(number) {}

  Kind kind_ = Kind::kNotRunning;
  int number_ = 0;  // the exit code, or the signal
};

}  // namespace outboard::worker
