#include "gateway/nodes/power_hook.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"

extern char** environ;

namespace outboard::gateway {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

}  // namespace

absl::Status PowerCycle(const std::string& hook, const std::string& serial,
                        std::chrono::milliseconds within) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  std::string path = hook, verb = "cycle", of = serial;
  char* const argv[] = {path.data(), verb.data(), of.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // what it starts ends with it
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("the power hook ", hook, ": ", strerror(error)));
  const auto until = std::chrono::steady_clock::now() + within;
  int how = 0;
  for (;;) {
    const pid_t ended = waitpid(pid, &how, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR)
      return absl::UnavailableError(absl::StrCat("the power hook: ", strerror(errno)));
    if (std::chrono::steady_clock::now() >= until) {
      kill(-pid, SIGKILL);
      waitpid(pid, &how, 0);
      return absl::DeadlineExceededError(
          absl::StrCat("the power hook took longer than ", within.count(), " ms for ", serial));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      WIFEXITED(how)
          ? absl::StrCat("the power hook exited with ", WEXITSTATUS(how), " for ", serial)
          : absl::StrCat("the power hook was ended by signal ", WTERMSIG(how), " for ", serial));
}

}  // namespace outboard::gateway
