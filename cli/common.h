// What the subcommands share: exit codes, folders, telling that we are ready, waiting for the end.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::cli {

inline constexpr const char* kVersion = "0.1.0";

// 0: done. 1: it failed. 2: wrong usage, or nobody could be reached.
int ExitCodeFor(const absl::Status& status);
// Prints the message to stderr unless OK, and returns the exit code.
int Report(const absl::Status& status);

// `text` as a string of JSON.
std::string Quoted(std::string_view text);

// $OUTBOARD_DATA, else $XDG_DATA_HOME/outboard, else ~/.local/share/outboard.
std::string DefaultDataFolder();

// The flags by which a server tells who started it that it is ready.
struct ReadyOptions {
  std::string file;    // appears whole, with the address in it
  int fd = -1;         // gets the line and is closed
  bool quiet = false;  // nothing on stdout
};
absl::Status TellReady(const ReadyOptions& options, const std::string& address);

// SIGINT, SIGTERM and SIGCHLD are for AwaitEnd. To be called before any thread starts.
void BlockSignals();
// Returns on SIGINT or SIGTERM, or when `life_fd` (if >= 0) closes: whoever started us is gone.
// From then on SIGINT ends the process at once. Calls `on_child` when some child has ended; a
// non-OK status of it ends the wait and is returned.
absl::Status AwaitEnd(int life_fd, const std::function<absl::Status()>& on_child = {});

// A child of ours that stops when this process ends, whatever ends it: it is given a pipe that then
// closes.
class Child {
 public:
  // `args` without the program, which is this binary; "--life-fd N" is added. `environment`:
  // "NAME=value" to add.
  static absl::StatusOr<Child> Start(std::vector<std::string> args,
                                     std::vector<std::string> environment);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // as Stop
  // Closes the pipe, waits a little, kills.
  void Stop();
  int pid() const { return pid_; }
  void Reaped() { pid_ = -1; }

 private:
  Child(int pid, int life_fd) : pid_(pid), life_fd_(life_fd) {}
  int pid_, life_fd_;
};

}  // namespace outboard::cli
