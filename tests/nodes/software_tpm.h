// A TPM without the chip: Debian's swtpm, new at each start, at sockets in a folder of the test's.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"

namespace outboard::test {

class SoftwareTpm {
 public:
  static bool IsInstalled() { return access(kProgram, X_OK) == 0; }

  SoftwareTpm() {
    std::filesystem::create_directories(state());
    process_ = std::make_unique<Process>(std::vector<std::string>{
        kProgram, "socket", "--tpm2", "--tpmstate", "dir=" + state(), "--server",
        "type=unixio,path=" + socket(), "--ctrl", "type=unixio,path=" + socket() + ".ctrl",
        "--flags", "not-need-init,startup-clear"});
    EXPECT_TRUE(Eventually([&] {
      return std::filesystem::exists(socket() + ".ctrl") && std::filesystem::exists(socket());
    })) << process_->err();
  }
  // As the node's worker takes it.
  std::string where() const { return "swtpm:path=" + socket(); }

 private:
  static constexpr char kProgram[] = "/usr/bin/swtpm";
  std::string socket() const { return folder_ / "tpm"; }
  std::string state() const { return folder_ / "state"; }

  TempFolder folder_;
  std::unique_ptr<Process> process_;
};

#define OB_NEEDS_SWTPM()                                                   \
  if (!outboard::test::SoftwareTpm::IsInstalled())                         \
  GTEST_SKIP() << "there is no swtpm (Debian's package, which scripts/setup installs)"

}  // namespace outboard::test
