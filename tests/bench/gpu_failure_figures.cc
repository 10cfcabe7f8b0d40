#include "tests/bench/gpu_failure_figures.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

constexpr char kFigure[] = "cuda_failure_cases_ratio";
// The tests of the table in docs/gpu-workers.md: a driver that fails on demand; a process that does
// not die; candidates of a search.
constexpr char kPrograms[] =
    "^[a-z0-9]+\\.(gpu_failures|executor_host|gpu_tuner)_test$";
constexpr const char* kSuites[] = {"GpuFailures.", "DeviceEndTest.", "GpuTuner.",
                                   "GpuTunerDeathTest."};

int64_t CountOf(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

void GpuFailureFigures() {
  const std::string said = OutputOf(absl::StrCat("ctest --test-dir ", test::kBuildFolder, " -R '",
                                                 kPrograms, "' -V 2>&1 || true"));
  int64_t passed = 0, all = 0;
  for (const std::string suite : kSuites) {
    const int64_t ran = CountOf(said, absl::StrCat("[ RUN      ] ", suite));
    if (ran == 0)
      return ReportSkipped(kFigure, absl::StrCat("no test of ", suite, " in this build"));
    all += ran;
    passed += CountOf(said, absl::StrCat("[       OK ] ", suite));
  }
  Report(kFigure, static_cast<double>(passed) / static_cast<double>(all), "ratio", "",
         absl::StrCat(passed, " of ", all, " tests of the table in docs/gpu-workers.md pass"));
}

}  // namespace outboard::bench
