#include "tests/bench/gpu_test_figures.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

// ctest's entries: operators and whole graphs on the CUDA device over the tests' own driver, and
// kernels alone on its machine.
constexpr char kOnTheMachine[] =
    "(operator_table_test|ops_test|reference_op_test|random_graph_test|engine_test|repeat_test|"
    "device_test)\\.([0-9]+\\.)?cuda$|nvptx_test$|codegen_test\\.sm_";
constexpr char kFaultTests[] = "ptx_faults_test$";

// Those of kOnTheMachine whose entries end with cuda, as programs.
constexpr const char* kOnADevice[] = {"device_test",       "engine_test", "repeat_test",
                                      "reference_op_test", "ops_test",    "operator_table_test",
                                      "random_graph_test"};
constexpr int kSecondsOfAProgram = 150;

struct TestResults {
  bool ran = false;
  int64_t passed = 0, failed = 0, skipped = 0;
  int64_t entries_failed = 0;  // ctest's; some may have ended without telling their tests
  std::string failures;        // their names
  int64_t reports = 0;         // lines that the driver has written
  nlohmann::json properties = nlohmann::json::object();  // sums of what tests have recorded

  int64_t Sum(const std::string& name) const { return properties.value(name, int64_t{0}); }
};

void AddTests(const std::string& path, TestResults& results) {
  const nlohmann::json all = nlohmann::json::parse(std::ifstream(path), nullptr, false);
  if (all.is_discarded()) return;
  for (const auto& suite : all.value("testsuites", nlohmann::json::array()))
    for (const auto& test : suite.value("testsuite", nlohmann::json::array())) {
      if (test.value("status", "") != "RUN") continue;
      const bool skipped = test.value("result", "") == "SKIPPED";
      ++(test.contains("failures") ? results.failed : skipped ? results.skipped : results.passed);
      if (test.contains("failures"))
        absl::StrAppend(&results.failures, suite.value("name", ""), ".", test.value("name", ""),
                        " ");
      for (const auto& [name, value] : test.items()) {
        int64_t number = 0;
        if (value.is_string() && absl::SimpleAtoi(value.get<std::string>(), &number))
          results.properties[name] = results.Sum(name) + number;
      }
    }
}

TestResults RunTests(const std::string& regex) {
  const test::TempFolder folder;
  const std::string reports = folder / "reports";
  const std::string said = OutputOf(
      absl::StrCat("GTEST_OUTPUT=json:", folder.path(), "/ OUTBOARD_FAKE_CUDA_REPORTS=", reports,
                   " ctest --test-dir ", OUTBOARD_BENCH_BUILD, " -R '", regex, "' 2>&1 || true"));
  TestResults results;
  // "98% tests passed, 1 tests failed out of 13"
  const size_t failed = said.find(" tests failed out of ");
  if (failed == std::string::npos) return results;
  const size_t first = said.find_last_not_of("0123456789", failed - 1) + 1;
  results.ran = absl::SimpleAtoi(said.substr(first, failed - first), &results.entries_failed);
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    if (file.path().extension() == ".json") AddTests(file.path(), results);
  std::ifstream lines(reports);
  for (std::string line; std::getline(lines, line);) ++results.reports;
  return results;
}

}  // namespace

void GpuTestFigures() {
  const TestResults tests = RunTests(kOnTheMachine), faults = RunTests(kFaultTests);
  if (!tests.ran || !faults.ran) {
    for (const char* figure : {"cuda_operators_ratio", "cuda_random_kernels", "cuda_reports",
                               "cuda_planted_faults_found"})
      ReportSkipped(figure, "there are no tests in this build (OUTBOARD_TESTS)");
    return;
  }
  // An entry that ended without a word counts as one test that failed.
  const int64_t failed = std::max(tests.failed, tests.entries_failed);
  Report("cuda_operators_ratio",
         static_cast<double>(tests.passed) / static_cast<double>(tests.passed + failed), "", "",
         absl::StrCat(tests.passed + failed, " tests on the PTX machine, ", failed, " failed; ",
                      tests.skipped, " more are skipped by name"));
  Report("cuda_random_kernels", static_cast<double>(tests.Sum("random_kernels")), "count", "",
         "on the PTX machine in this run; at least 500 are wanted");
  Report("cuda_reports", static_cast<double>(tests.reports), "count", "",
         "races, missing waits and the like in these tests");
  Report("cuda_planted_faults_found", static_cast<double>(faults.Sum("faults_found")), "count", "",
         absl::StrCat("of ", faults.Sum("faults_planted"), " that ptx_faults_test plants"));
}

TestsOnDevice RunTestsOnDevice(const std::string& only) {
  const char* const named = std::getenv("OUTBOARD_TESTS_FOLDER");
  const std::string folder = named != nullptr ? named : OUTBOARD_BENCH_BUILD "/tests";
  const test::TempFolder results_folder;
  TestsOnDevice all;
  for (const std::string test : kOnADevice) {
    const std::string program = absl::StrCat(folder, "/", test);
    if ((!only.empty() && only != test) || access(program.c_str(), X_OK) != 0) continue;
    const std::string file = absl::StrCat(results_folder / test, ".json");
    OutputOf(absl::StrCat(
        "OUTBOARD_DEVICE=cuda OUTBOARD_KERNEL_STORE= OUTBOARD_IDLE_SEARCH=0 OUTBOARD_TEST_CLOUD=1 "
        "CLOUD=0 OUTBOARD_ROWS_TOGETHER=8 OUTBOARD_RANDOM_GRAPHS=200 OUTBOARD_BIN=",
        Beside("outboard"), " GTEST_OUTPUT=json:", file, " timeout ", kSecondsOfAProgram, " ",
        program, " >/dev/null 2>&1 || true"));
    TestResults results;
    AddTests(file, results);
    all.passed += results.passed;
    all.ran += results.passed + results.failed;
    absl::StrAppend(&all.failed, results.failures);
    if (std::filesystem::exists(file)) continue;
    ++all.ran;  // it ended without a word
    absl::StrAppend(&all.failed, test, " ");
  }
  return all;
}

}  // namespace outboard::bench
