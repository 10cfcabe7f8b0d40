#include "cli/program/start_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/exec_arguments.h"

namespace outboard::cli {
namespace {

// In the child, which has its parent's memory and changes none of it but `moved`, which has room
// for a descriptor each.
void Exec(const ProgramStart& start, char* const* arguments, char* const* environment,
          std::vector<int>& moved, int failure) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) signal(number, SIG_DFL);
  // Away from the numbers that they are about to get.
  const int failed = fcntl(failure, F_DUPFD_CLOEXEC, 10),
            nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (size_t i = 0; i < moved.size(); ++i)
    moved[i] = fcntl(start.descriptors[i].first, F_DUPFD_CLOEXEC, 10);
  dup2(nothing, 0);
  for (size_t i = 0; i < moved.size(); ++i) dup2(moved[i], start.descriptors[i].second);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failed, &error, sizeof error);
}

// vfork, since posix_spawn cannot ask for a signal when the parent ends, and to copy this process'
// page tables would take longer than the rest of a start.
pid_t Start(const ProgramStart& start, char* const* arguments, char* const* environment,
            std::vector<int>& moved, int failure) {
  const pid_t parent = getpid();
  const pid_t pid = vfork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent)  // else it has ended since
      Exec(start, arguments, environment, moved, failure);
    _exit(127);
  }
  return pid;
}

}  // namespace

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<pid_t> StartProgram(const ProgramStart& start) {
  int failure[2];  // an exec closes the program's end
  if (pipe2(failure, O_CLOEXEC) != 0) return SystemError(absl::StrCat("no pipe for ", start.name));
  std::vector<std::string> command = start.command, environment = EnvironmentWith(start.variables);
  const std::vector<char*> arguments = ExecPointers(command), variables = ExecPointers(environment);
  std::vector<int> moved(start.descriptors.size());
  const pid_t pid = Start(start, arguments.data(), variables.data(), moved, failure[1]);
  const absl::Status forked =
      pid < 0 ? SystemError(absl::StrCat("no process for ", start.name)) : absl::OkStatus();
  close(failure[1]);
  int error = 0;
  const bool failed = forked.ok() && read(failure[0], &error, sizeof error) == sizeof error;
  close(failure[0]);
  if (!forked.ok()) return forked;
  if (!failed) return pid;
  waitpid(pid, nullptr, 0);
  return absl::FailedPreconditionError(absl::StrCat(start.command[0], ": ", std::strerror(error)));
}

}  // namespace outboard::cli
