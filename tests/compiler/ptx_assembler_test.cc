// What NVIDIA's assembler says is kept, so that no test asks it again (ptx_assembler.h). The
// assembler here is a script that counts how often it is asked, and refuses what is wrong.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/support/temp_folder.h"

namespace outboard::test {
namespace {

class PtxAssemblerTest : public ::testing::Test {
 protected:
  PtxAssemblerTest() {
    std::filesystem::create_directory(folder_ / "kept");
    setenv("OUTBOARD_ASSEMBLED", (folder_ / "kept").c_str(), 1);
    Make(folder_ / "ptxas", "1");
  }
  ~PtxAssemblerTest() override { unsetenv("OUTBOARD_ASSEMBLED"); }

  // Says that the kernel has as many registers as it was asked before.
  void Make(const std::string& path, const std::string& version) {
    std::ofstream(path) << "#!/bin/sh\n"
                        << "if [ $1 = --version ]; then echo " << version << "; exit; fi\n"
                        << "echo >>" << folder_ / "asked" << "\n"
                        << "n=$(wc -l <" << folder_ / "asked" << ")\n"
                        << "if grep -q wrong \"$3\"; then echo refused $n; exit 1; fi\n"
                        << "echo 0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n"
                        << "echo warning\n"
                        << "echo Used $n registers\n";
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  int64_t Registers(const std::string& ptx, const std::string& arch,
                    const std::string& ptxas = "ptxas") {
    const auto assembled = AssembleKernel(folder_ / ptxas, ptx, arch);
    EXPECT_TRUE(assembled.ok()) << assembled.status();
    if (!assembled.ok()) return -1;
    EXPECT_EQ(assembled->spill_bytes, 4);
    EXPECT_EQ(assembled->warnings, 1);
    return assembled->registers;
  }

  TempFolder folder_;
};

TEST_F(PtxAssemblerTest, TheSameText_IsAssembledOnce) {
  EXPECT_EQ(Registers("a", "sm_80"), 1);
  EXPECT_EQ(Registers("a", "sm_80"), 1);
  EXPECT_EQ(Registers("b", "sm_80"), 2);
  EXPECT_EQ(Registers("a", "sm_90"), 3);
  EXPECT_EQ(Registers("a", "sm_80"), 1);
}

TEST_F(PtxAssemblerTest, AnotherAssemblerOrVersion_IsAsked) {
  EXPECT_EQ(Registers("a", "sm_80"), 1);
  Make(folder_ / "other", "1");
  EXPECT_EQ(Registers("a", "sm_80", "other"), 2);
  Make(folder_ / "ptxas", "2");
  EXPECT_EQ(Registers("a", "sm_80"), 3);
}

TEST_F(PtxAssemblerTest, WhatIsRefused_IsAskedAgain) {
  for (const char* const said : {"refused 1\n", "refused 2\n"}) {
    const auto assembled = AssembleKernel(folder_ / "ptxas", "wrong", "sm_80");
    EXPECT_EQ(assembled.status(), absl::InternalError(said));
  }
}

TEST_F(PtxAssemblerTest, WithoutAFolder_NothingIsKept) {
  setenv("OUTBOARD_ASSEMBLED", "", 1);
  EXPECT_EQ(Registers("a", "sm_80"), 1);
  EXPECT_EQ(Registers("a", "sm_80"), 2);
}

}  // namespace
}  // namespace outboard::test
