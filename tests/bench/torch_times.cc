#include "tests/bench/torch_times.h"

#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/bounded_run.h"
#include "tests/bench/torch_peer.h"

namespace outboard::bench {
namespace {

constexpr int kNoTorch = 3, kNoPython = 127;  // torch_gpu.py's and env's exit statuses

}  // namespace

std::string TorchTimes::WhyNot(const std::string& name) const {
  if (status == kNoTorch || status == kNoPython)
    return "no PyTorch that uses the GPU to compare with";
  if (seconds_over > 0)
    return absl::StrCat("PyTorch's ", seconds_over, " s were over before ", name);
  if (status != 0) return absl::StrCat("PyTorch ended with status ", status, " before ", name);
  return absl::StrCat("the peer lacks ", name);
}

TorchTimes TorchTimesOf(const std::string& part, int seconds_max) {
  const BoundedRun run = RunBounded(
      absl::StrCat(TorchPython(), " ", BenchSources(), "/torch_gpu.py ", part, " 2>/dev/null"),
      seconds_max);
  TorchTimes times{.seconds = {},
                   .status = run.status,
                   .seconds_over = run.timed_out ? seconds_max : 0};
  // "name seconds"; libraries print lines of their own between them.
  for (const absl::string_view line : absl::StrSplit(run.said, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    double value = 0;
    if (words.size() == 2 && absl::SimpleAtod(words[1], &value) && std::isfinite(value))
      times.seconds[words[0]] = value;
  }
  return times;
}

}  // namespace outboard::bench
