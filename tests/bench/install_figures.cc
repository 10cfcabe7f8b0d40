#include "tests/bench/install_figures.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

// The text of {"lacks": "text"}, empty for another object.
std::string LackIn(const std::string& json) {
  const std::string begin = "{\"lacks\": \"", end = "\"}";
  if (json.compare(0, begin.size(), begin) != 0) return "";
  return json.substr(begin.size(), json.size() - begin.size() - end.size());
}

}  // namespace

void InstallFigures() {
  const std::string measured =
      OutputOf(absl::StrCat(test::kBenchFolder, "/install_cold --json"));
  const std::string lack = LackIn(measured);
  const auto report = [&](const std::string& figure, const std::string& unit,
                          const std::string& note) {
    if (!lack.empty()) return ReportSkipped(figure, lack);
    Report(figure, NumberIn(measured, figure), unit, "", note);
  };
  report("wheel_mb", "MB", "of 1,000,000 bytes; at most 80 are wanted");
  report("install_to_first_step_s", "s",
         "a bare Debian 12 with Python: environment, pip install of the wheel, the first program "
         "of docs/python.md; at most 120 are wanted");
  report("first_step_after_pip_s", "s", "the program alone, all of its steps; at most 20");
}

}  // namespace outboard::bench
