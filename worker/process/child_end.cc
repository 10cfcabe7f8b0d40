#include "worker/process/child_end.h"

#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "worker/sandbox/enter_sandbox.h"

namespace outboard::worker {

ChildEnd ChildEnd::OfStatus(int status) {
  if (WIFSIGNALED(status)) return {Kind::kSignal, WTERMSIG(status)};
  if (WEXITSTATUS(status) == kExitAborted) return {Kind::kSignal, SIGABRT};
  return {Kind::kExit, WEXITSTATUS(status)};
}

std::string ChildEnd::ToString() const {
  switch (kind_) {
    case Kind::kNotRunning: return "was not running";
    case Kind::kExit: return absl::StrCat("exited with ", number_);
    case Kind::kSignal: return absl::StrCat("ended by signal ", number_);
    case Kind::kNever: break;
  }
  return "was killed, and does not end";
}

}  // namespace outboard::worker
