#include "compiler/search/beam.h"

#include <algorithm>

#include "compiler/codegen/heuristic.h"
#include "compiler/codegen/kernel.h"
#include "compiler/ir/check.h"

namespace outboard::search {
namespace {

// Less of a gain is noise.
constexpr double kGainMin = 0.01;
// Of each list in the beam, in a round: its changes come before additions, and the best of those are
// met again from the next round's lists.
constexpr size_t kNeighboursMax = 16;

struct Tried {
  Opts opts;
  int64_t time_ns;
};

}  // namespace

absl::StatusOr<BeamResult> Beam(const UOp* kernel, const codegen::Machine& machine,
                                const BeamOptions& options, const Measure& measure) {
  OB_ASSIGN_OR_RETURN(const codegen::Kernel analysed, codegen::AnalyzeKernel(kernel));
  std::vector<Tried> tried;    // in order
  std::vector<Tried> by_time;  // those that may be used, the fastest first
  const auto try_all = [&](std::span<const Opts> lists) -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::vector<int64_t> times, measure(lists));
    OB_CHECK(times.size() == lists.size());
    for (size_t i = 0; i < lists.size(); ++i) {
      tried.push_back({lists[i], times[i]});
      if (times[i] > 0) by_time.push_back(tried.back());
    }
    std::stable_sort(by_time.begin(), by_time.end(),
                     [](const Tried& a, const Tried& b) { return a.time_ns < b.time_ns; });
    return absl::OkStatus();
  };
  const Opts first = codegen::HeuristicOpts(analysed, machine);
  OB_RETURN_IF_ERROR(try_all({&first, 1}));
  if (by_time.empty())
    return absl::FailedPreconditionError("beam: the heuristic's choice may not be used");
  BeamResult result{.baseline_ns = by_time[0].time_ns};

  for (bool better = true; better;) {
    const int64_t before = by_time[0].time_ns;
    std::vector<Opts> next;
    const size_t width = std::min<size_t>(options.width, by_time.size());
    for (size_t b = 0; b < width; ++b) {
      OB_ASSIGN_OR_RETURN(const std::vector<Opts> neighbours,
                          Neighbours(kernel, by_time[b].opts, machine));
      size_t taken = 0;
      for (const Opts& opts : neighbours) {
        const bool known = std::any_of(tried.begin(), tried.end(),
                                       [&](const Tried& t) { return t.opts == opts; }) ||
                           std::find(next.begin(), next.end(), opts) != next.end();
        if (known || taken == kNeighboursMax ||
            tried.size() + next.size() >= static_cast<size_t>(options.trials_max))
          continue;
        next.push_back(opts);
        ++taken;
      }
    }
    if (next.empty()) break;
    OB_RETURN_IF_ERROR(try_all(next));
    better = static_cast<double>(by_time[0].time_ns) < static_cast<double>(before) * (1 - kGainMin);
  }
  result.opts = by_time[0].opts;
  result.time_ns = by_time[0].time_ns;
  result.trials = static_cast<int>(tried.size());
  return result;
}

}  // namespace outboard::search
