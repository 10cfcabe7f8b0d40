#include "tests/bench/gpu_test_figures.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/bounded_run.h"
#include "tests/bench/cloud.h"
#include "tests/bench/figure_list.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

// ctest's entries by label (cmake/PtxMachine.cmake): operators and whole graphs on the CUDA device
// over the tests' own driver, and kernels alone on its machine. Tests of figures run some of these
// again; planted faults are a figure of their own. Tests that make the driver fail on purpose are
// counted, but what the driver reports in them is not.
constexpr char kOnTheMachine[] =
    "-L '^ptx_machine$' -LE '^(bench|planted_faults|faults_on_demand)$'";
constexpr char kOnDemand[] = "-L '^faults_on_demand$'";
constexpr char kFaultTests[] = "-L '^planted_faults$'";

// Of these the programs of operators and graphs, which run on any device.
struct OnADevice {
  const char* program;
  const char* tests = "*";  // others count what a session of the tests' own is asked
};
constexpr OnADevice kOnADevice[] = {
    {"device_test"},
    {"engine_test"},
    {"repeat_test"},
    {"reference_op_test"},
    {"ops_test"},
    {"random_graph_test"},
    {"gradient_engines_test"},
    {"elementwise_ulp_test"},
    {"random_test", "-*SameGraph"},
    {"variable_test", "-*OneGraph:*FirstUse:*PadsNothing:*DocumentRuns"},  // documents: not there
    {"decode_test", "-*OneGraph"},
    {"ggml_test"},
    {"nn_test", "*Gradients*:*Formulas:*BatchNorm*:*StartAlike"},
    {"operator_table_test"},
};
// scripts/gpu-checks ends a group after 590 s; the forms of instructions take half a minute.
constexpr int kSecondsOfAProgram = 150, kSecondsOfAll = 390;
constexpr int kSecondsOfATool = 40;  // of compute-sanitizer, which has four
// Tests of device_test that have to pass under it on the device, of eleven: fewer errors of fewer
// tests say nothing.
constexpr int64_t kSanitizedTestsLeast = 8;

struct TestResults {
  bool ran = false;
  int64_t passed = 0, failed = 0, skipped = 0;
  int64_t entries = 0;         // ctest's
  int64_t entries_failed = 0;  // of these; some may have ended without telling their tests
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

// The number that a tool's summary has after `start`; nullopt where it says nothing.
std::optional<int64_t> CountAfter(const std::string& said, const std::string& start) {
  const size_t at = said.rfind(start);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + start.size(), end = said.find_first_not_of("0123456789", begin);
  int64_t count = 0;
  if (!absl::SimpleAtoi(said.substr(begin, end - begin), &count)) return std::nullopt;
  return count;
}

// Of the entries that ctest selects so.
TestResults RunTests(const std::string& selection) {
  const test::TempFolder folder;
  const std::string reports = folder / "reports";
  const std::string said = OutputOf(
      absl::StrCat("GTEST_OUTPUT=json:", folder.path(), "/ OUTBOARD_FAKE_CUDA_REPORTS=", reports,
                   " ctest --test-dir ", test::kBuildFolder, " ", selection, " 2>&1 || true"));
  TestResults results;
  // "98% tests passed, 1 tests failed out of 13"
  constexpr char kOutOf[] = " tests failed out of ";
  const size_t failed = said.find(kOutOf);
  if (failed == std::string::npos) return results;
  const size_t first = said.find_last_not_of("0123456789", failed - 1) + 1;
  results.ran = absl::SimpleAtoi(said.substr(first, failed - first), &results.entries_failed);
  results.entries = CountAfter(said, kOutOf).value_or(0);
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    if (file.path().extension() == ".json") AddTests(file.path(), results);
  std::ifstream lines(reports);
  for (std::string line; std::getline(lines, line);) ++results.reports;
  return results;
}

// An entry that ended without a word counts as one test that failed.
int64_t Failed(const TestResults& results) {
  return std::max(results.failed, results.entries_failed);
}

std::string TestsFolder() {
  const char* const named = std::getenv("OUTBOARD_TESTS_FOLDER");
  return named != nullptr ? named : absl::StrCat(test::kBuildFolder, "/tests");
}

// Empty where there is none.
std::string FindSanitizer() {
  if (const char* const named = std::getenv("OUTBOARD_COMPUTE_SANITIZER"); named != nullptr)
    return named;
  const char* const path = std::getenv("PATH");
  const std::string folders = absl::StrCat(path == nullptr ? "" : path, ":/usr/local/cuda/bin");
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string file = absl::StrCat(folder, "/compute-sanitizer");
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace

SanitizerRuns RunTestsUnderSanitizer() {
  SanitizerRuns runs;
  const std::string sanitizer = FindSanitizer(), program = TestsFolder() + "/device_test";
  if (sanitizer.empty())
    runs.lacks = "there is no compute-sanitizer (CUDA toolkit; OUTBOARD_COMPUTE_SANITIZER)";
  else if (access(program.c_str(), X_OK) != 0)
    runs.lacks = "device_test is not built";
  if (!runs.lacks.empty()) return runs;
  const test::TempFolder results_folder;
  for (const auto& [tool, summary] : {std::pair("memcheck", "ERROR SUMMARY: "),
                                      {"racecheck", "RACECHECK SUMMARY: "},
                                      {"synccheck", "ERROR SUMMARY: "},
                                      {"initcheck", "ERROR SUMMARY: "}}) {
    const std::string file = absl::StrCat(results_folder / tool, ".json");
    const BoundedRun run = RunBounded(
        absl::StrCat("OUTBOARD_DEVICE=cuda OUTBOARD_KERNEL_STORE= GTEST_OUTPUT=json:", file, " '",
                     sanitizer, "' --tool ", tool, " --print-limit 5 '", program,
                     "' '--gtest_filter=*/cuda' 2>&1"),
        kSecondsOfATool);
    const std::optional<int64_t> errors = CountAfter(run.said, summary);
    runs.errors += errors.value_or(0);
    if (errors.value_or(0) > 0) std::fprintf(stderr, "%s\n", run.said.c_str());
    TestResults results;
    AddTests(file, results);
    std::string lacks;
    if (run.timed_out)
      lacks = absl::StrCat("was cut off after ", kSecondsOfATool, " s");
    else if (!errors.has_value())
      lacks = "ended without a summary";
    else if (results.failed > 0)
      lacks = absl::StrCat("saw tests fail: ", results.failures);
    else if (results.passed < kSanitizedTestsLeast)
      lacks = absl::StrCat("saw ", results.passed, " tests pass on the device, ", results.skipped,
                           " skipped");
    if (!lacks.empty())
      absl::StrAppend(&runs.lacks, runs.lacks.empty() ? "" : "; ", "compute-sanitizer --tool ",
                      tool, " ", lacks);
  }
  return runs;
}

void GpuTestFigures() {
  FigureList figures({"cuda_operators_ratio", "cuda_random_kernels", "cuda_reports",
                      "cuda_planted_faults_found"});
  const TestResults tests = RunTests(kOnTheMachine), on_demand = RunTests(kOnDemand),
                    faults = RunTests(kFaultTests);
  if (!tests.ran || !on_demand.ran || !faults.ran)
    return figures.Lacks("there are no tests in this build (OUTBOARD_TESTS)");
  const int64_t passed = tests.passed + on_demand.passed,
                failed = Failed(tests) + Failed(on_demand);
  figures.Report("cuda_operators_ratio",
                 static_cast<double>(passed) / static_cast<double>(passed + failed), "", "",
                 absl::StrCat(passed + failed, " tests of ", tests.entries + on_demand.entries,
                              " entries on the PTX machine, ", failed, " failed; ",
                              tests.skipped + on_demand.skipped, " more are skipped by name"));
  figures.Report("cuda_random_kernels", static_cast<double>(tests.Sum("random_kernels")), "count",
                 "",
                 absl::StrCat("with random Opts, on the PTX machine in this run; at least 500 are "
                              "wanted; also ",
                              tests.Sum("chosen_kernels"), " with the Opts that are chosen and ",
                              tests.Sum("random_programs"), " programs without Opts"));
  figures.Report("cuda_reports", static_cast<double>(tests.reports), "count", "",
                 "races, missing waits and the like in these tests");
  figures.Report("cuda_planted_faults_found", static_cast<double>(faults.Sum("faults_found")),
                 "count", "",
                 absl::StrCat("of ", faults.Sum("faults_planted"),
                              " that ptx_faults_test and ptx_planted_test plant"));
}

std::vector<std::string> DeviceTestPrograms() {
  std::vector<std::string> names;
  for (const OnADevice& one : kOnADevice) names.push_back(one.program);
  return names;
}

TestsOnDevice RunTestsOnDevice(const std::string& only) {
  const std::string folder = TestsFolder();
  const test::TempFolder results_folder;
  TestsOnDevice all;
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [name, filter] : kOnADevice) {
    const std::string test = name;
    if (!only.empty() && only != test) continue;
    const std::string program = absl::StrCat(folder, "/", test);
    const auto left = std::chrono::seconds(kSecondsOfAll) -
                      (std::chrono::steady_clock::now() - begin);
    const int seconds = std::min(
        kSecondsOfAProgram,
        static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(left).count()));
    // A program that is not there, or for which no time is left, counts as one test that failed.
    if (seconds <= 0 || access(program.c_str(), X_OK) != 0) {
      ++all.ran;
      absl::StrAppend(&all.failed, test, seconds <= 0 ? " (no time was left) " : " (not built) ");
      continue;
    }
    const std::string file = absl::StrCat(results_folder / test, ".json");
    RunBounded(absl::StrCat("OUTBOARD_DEVICE=cuda OUTBOARD_KERNEL_STORE= OUTBOARD_IDLE_SEARCH=0 "
                            "OUTBOARD_TEST_CLOUD=1 CLOUD=0 OUTBOARD_ROWS_TOGETHER=8 "
                            "OUTBOARD_RANDOM_GRAPHS=200 OUTBOARD_BIN=",
                            Beside("outboard"), " GTEST_OUTPUT=json:", file, " ", program,
                            " '--gtest_filter=", filter, "' >/dev/null 2>&1"),
               seconds);
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
