#include "tests/bench/gpu_failure_figures.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

constexpr char kFigure[] = "cuda_failure_cases_ratio";

int64_t CountOf(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

void GpuFailureFigures() {
  const std::string said = OutputOf(absl::StrCat("ctest --test-dir ", OUTBOARD_BENCH_BUILD,
                                                 " -R e2e.gpu_failures_test -V 2>&1 || true"));
  const int64_t passed = CountOf(said, "[       OK ] GpuFailures."),
                all = CountOf(said, "[ RUN      ] GpuFailures.");
  if (all == 0)
    return ReportSkipped(kFigure, "there are no tests in this build (OUTBOARD_TESTS)");
  Report(kFigure, static_cast<double>(passed) / static_cast<double>(all), "ratio", "",
         absl::StrCat(passed, " of ", all, " tests of the table in docs/gpu-workers.md pass"));
}

}  // namespace outboard::bench
