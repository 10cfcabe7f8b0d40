// The sandbox of one process: what its supervisor has begun and the process completes.
//
//   supervisor                            the new process
//   StartBoxed: clone into namespaces --> waits
//     writes its id map, says go      --> keeps what it needs of its rights, execs the program
//                                         main: EnterSandbox reads the plan from its environment:
//                                           empty root, own id, no rights, limits, system calls
//
// The program is linked dynamically, so it has to be loaded before its root is empty. No byte of a
// tenant's is read before EnterSandbox returns. A part that the plan names and the kernel refuses
// ends the process: plans name only what GrantedParts found.
#pragma once

#include <optional>
#include <string>

#include "worker/sandbox/sandbox_part.h"

namespace outboard::worker {

enum class SandboxProfile {
  kCompiler,  // reads kernels from its socket, answers, and needs nothing else
  kExecutor,  // also runs compiled kernels, and empties the file that it writes into
  kSearch,    // also runs compiled kernels
};

struct SandboxPlan {
  SandboxProfile profile = SandboxProfile::kCompiler;
  SandboxParts parts;
  // The id that the process takes; 0 within a user namespace. -1: it keeps the supervisor's.
  int64_t user = 0;
  // Its device has a driver, which is loaded behind the walls: the root has what that needs
  // (driver_root.h), and system calls are all but those that it is refused (driver_calls.h).
  bool has_driver = false;

  // As the value of kSandboxPlanVariable.
  std::string Encoded() const;
  // nullopt: not a plan
  static std::optional<SandboxPlan> Decode(const std::string& text);
};

inline constexpr char kSandboxPlanVariable[] = "OUTBOARD_SANDBOX_PLAN";

}  // namespace outboard::worker
