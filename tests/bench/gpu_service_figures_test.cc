// What a session on a GPU pays besides its kernels, at small sizes on the tests' own driver: that
// each figure is measured; and that the tests on a device are run and counted.
#include "tests/bench/gpu_service_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

TEST(GpuServiceFigures, EachIsMeasured) {
  // Executors get no variables of tests: a file beside the driver has them.
  const test::TempFolder folder;
  const std::string driver = folder / "libcuda.so.1";
  std::filesystem::copy_file(test::kFakeCuda, driver);
  std::ofstream(driver + ".env") << "OUTBOARD_FAKE_CUDA_MIB=16\nOUTBOARD_FAKE_CUDA_RUNS=1\n";
  setenv("OUTBOARD_CUDA_DRIVER", driver.c_str(), 1);
  const auto figures = MeasureGpuService({.environment = {{"OUTBOARD_DEVICE", "cuda"}},
                                          .tiny_steps = 20,
                                          .repeats = 1,
                                          .mnist = false,
                                          .gpt = "--batch 1 --layers 1 --width 16 --heads 2 "
                                                 "--context 8 --vocabulary 100 --bf16"});
  ASSERT_TRUE(figures.ok()) << figures.status();
  std::set<std::string> names;
  for (const DeviceFigure& figure : *figures) {
    names.insert(figure.name);
    if (figure.unit == "s") {
      EXPECT_GT(figure.value, 0) << figure.name;
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"cuda_step_extra_us", "cuda_first_step_s_gpt2_cold",
                                          "cuda_first_step_s_gpt2_warm"}));
}

TEST(GpuTestFigures, TestsOnTheDevice_AreCounted) {
  // What a file beside a driver says stays in the environment of the process that loaded it.
  for (const char* const name : {"OUTBOARD_FAKE_CUDA_MIB", "OUTBOARD_FAKE_CUDA_RUNS"})
    unsetenv(name);
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  const TestsOnDevice tests = RunTestsOnDevice("device_test");
  EXPECT_GT(tests.ran, 5);
  EXPECT_EQ(tests.passed, tests.ran) << tests.failed;
  setenv("OUTBOARD_FAKE_CUDA_FAULTS", "alloc:1", 1);
  const TestsOnDevice faulty = RunTestsOnDevice("device_test");
  unsetenv("OUTBOARD_FAKE_CUDA_FAULTS");
  EXPECT_LT(faulty.passed, faulty.ran) << "nothing has failed without memory";
  EXPECT_FALSE(faulty.failed.empty());
}

// A stand-in for compute-sanitizer, which runs nothing and says how many tests have passed.
TEST(GpuTestFigures, TheSanitizersSummariesAreAdded) {
  const test::TempFolder folder;
  const auto passed = [](int count, const std::string& more = "") {
    std::string tests;
    for (int i = 0; i < count; ++i)
      tests += R"({"name": "one", "status": "RUN", "result": "COMPLETED"},)";
    return "echo '{\"testsuites\": [{\"name\": \"s\", \"testsuite\": [" + tests + more +
           R"({"status": "NOTRUN"}]}]}' > "${GTEST_OUTPUT#json:}")" + "\n";
  };
  const std::string program = folder / "compute-sanitizer";
  const auto says = [&](const std::string& script) {
    std::ofstream(program) << "#!/bin/bash\n" << script;
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    setenv("OUTBOARD_COMPUTE_SANITIZER", program.c_str(), 1);
    return RunTestsUnderSanitizer();
  };
  const std::string all =
      "[[ $2 != racecheck ]] && echo '========= ERROR SUMMARY: 2 errors' ||\n"
      "  echo '========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)'\n";
  // What is said of each tool.
  const auto of_all = [](const std::string& text) {
    std::vector<std::string> tools;
    for (const char* const tool : {"memcheck", "racecheck", "synccheck", "initcheck"})
      tools.push_back(absl::StrCat("compute-sanitizer --tool ", tool, " ", text));
    return absl::StrJoin(tools, "; ");
  };
  SanitizerRuns runs = says(passed(8) + all);
  EXPECT_EQ(runs.lacks, "");
  EXPECT_EQ(runs.errors, 2 + 3 + 2 + 2);
  runs = says(passed(8) + "echo '========= ERROR SUMMARY: 2 errors'\n");
  EXPECT_EQ(runs.lacks, "compute-sanitizer --tool racecheck ended without a summary");
  EXPECT_EQ(runs.errors, 6) << "what the others found does not vanish";
  runs = says(passed(0, R"({"name": "one", "status": "RUN", "result": "SKIPPED"},)") + all);
  EXPECT_EQ(runs.lacks, of_all("saw 0 tests pass on the device, 1 skipped"));
  runs = says(passed(8, R"({"name": "bad", "status": "RUN", "failures": [{}]},)") + all);
  EXPECT_EQ(runs.lacks, of_all("saw tests fail: s.bad "));
  setenv("OUTBOARD_COMPUTE_SANITIZER", "", 1);
  EXPECT_NE(RunTestsUnderSanitizer().lacks, "");
  unsetenv("OUTBOARD_COMPUTE_SANITIZER");
}

}  // namespace
}  // namespace outboard::bench
