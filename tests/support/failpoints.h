// For the tests that kill a process at each of its failpoints (base/failpoint.h): which they are,
// and a child that does what the process does, in a folder, until it is killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"

namespace outboard::test {

inline std::vector<Failpoint> FailpointsOf(FailpointProcess process) {
  std::vector<Failpoint> all;
  for (const Failpoint& point : kFailpoints)
    if (point.process == process) all.push_back(point);
  return all;
}

// Runs the disabled test `lives` ("Suite.DISABLED_Lives") of this program in a child, which finds
// `folder` by FolderOfChild. Returns how it ended, as waitpid tells it.
inline int RunChild(const std::string& lives, const std::string& folder,
                    const std::string& failpoint) {
  const int child = fork();
  if (child == 0) {
    setenv("OUTBOARD_FAILPOINT", failpoint.c_str(), 1);
    setenv("OUTBOARD_FAILPOINTS_FOLDER", folder.c_str(), 1);
    execl("/proc/self/exe", "failpoints", absl::StrCat("--gtest_filter=", lives).c_str(),
          "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}
inline bool WasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

// In the child; null elsewhere.
inline const char* FolderOfChild() { return std::getenv("OUTBOARD_FAILPOINTS_FOLDER"); }

}  // namespace outboard::test
