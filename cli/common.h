// Shared by the subcommands: exit codes, folders, reporting readiness to the parent process,
// waiting for the end. TellReady fails with INVALID_ARGUMENT, AwaitEnd with INTERNAL, Child::Start
// with UNAVAILABLE.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::cli {

inline constexpr const char* kVersion = "0.1.0";
// How long a command waits for a connection to the gateway.
inline constexpr std::chrono::milliseconds kConnectsWithin{3000};

// Returns 0 for success, 1 for a failure, 2 for wrong usage or an unreachable server.
int ExitCodeFor(const absl::Status& status);
// Prints the message to stderr unless OK, and returns the exit code.
int Report(const absl::Status& status);

// Returns `text` as a JSON string, quoted and escaped.
std::string Quoted(std::string_view text);

// Returns "1 kernel", "3 kernels".
std::string Plural(int64_t count, std::string_view what);

// Returns NOT_FOUND for the id of a key that does not exist. What is a key itself, secret and all,
// is not told again.
absl::Status NoSuchKey(std::string_view id);

// Returns $OUTBOARD_DATA, else $XDG_DATA_HOME/outboard, else ~/.local/share/outboard.
std::string DefaultDataFolder();
// `data`, as --data says; empty: the default.
std::string DataFolderOr(const std::string& data);

// How a server reports to its parent process that it is ready.
struct ReadyOptions {
  std::string file;    // created atomically, contains the address, and behind it the fleet's
  int fd = -1;         // the line is written to it, then it is closed
  bool quiet = false;  // prints nothing on stdout
};
// `fleet_address`, where workers join, unless it is empty: a second line on stdout and in the file.
// `fingerprint`, unless it is empty: a line on stdout with what clients need to connect by TLS.
// `metrics_address` likewise, as the last line: "metrics HOST:PORT" in the file.
// Tells a service manager, too.
absl::Status TellReady(const ReadyOptions& options, const std::string& address,
                       const std::string& fleet_address = "", const std::string& fingerprint = "",
                       const std::string& metrics_address = "");

// Takes a secret out of the environment: the variable is unset, and its place, which other
// processes of this user can read in /proc, is overwritten. "" where it is not set. Call before any
// thread starts.
std::string TakeSecret(const char* name);

// This process and its children leave no core dump, which would hold keys and customers' data;
// OUTBOARD_CORE_DUMPS=1 allows them.
void ForbidCoreDumps();

// Lets this process have as many descriptors as the system allows: each connection is one, and a
// server that has none left accepts nobody, and does not begin again (gRPC).
void RaiseDescriptorLimit();

// Asks for a SIGTERM when the parent, which has this pid, ends; 0: there is none to wait for.
void EndWith(int parent_pid);

// What each command that runs a server does first: keeps the descriptors that its parent gave it
// (--life-fd; -1: none; and that of `ready`) from its own children, and calls BlockSignals.
void BecomeServer(int life_fd, const ReadyOptions& ready);
// Blocks SIGINT, SIGTERM and SIGCHLD, which AwaitEnd receives. Call before any thread starts.
void BlockSignals();
// The same of SIGHUP, for a server that reads a file again then.
void BlockHangups();
// Returns on SIGINT or SIGTERM, or when `life_fd` (if >= 0) closes because the parent process
// ended. From then on SIGINT ends the process at once. Calls `on_child` when a child has ended; an
// error from it ends the wait and is returned. Calls `on_hangup` at each SIGHUP, which
// BlockHangups has blocked; without it that signal ends the process, as ever.
absl::Status AwaitEnd(int life_fd, const std::function<absl::Status()>& on_child = {},
                      const std::function<void()>& on_hangup = {});

// A child process that stops when this process ends for any reason: it holds the read end of a pipe
// that then closes.
class Child {
 public:
  // Starts this binary with `args` (without the program's name) and "--life-fd N". `environment`:
  // "NAME=value" to set. `cores`: those that it may use; empty: the caller's.
  static absl::StatusOr<Child> Start(std::vector<std::string> args,
                                     std::vector<std::string> environment,
                                     const std::vector<int>& cores = {});
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // as Stop
  // Closes the pipe, waits briefly, then kills the child.
  void Stop();
  int pid() const { return pid_; }
  void Reaped() { pid_ = -1; }

 private:
  Child(int pid, int life_fd) : pid_(pid), life_fd_(life_fd) {}
  int pid_, life_fd_;
};

}  // namespace outboard::cli
