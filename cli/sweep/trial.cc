#include "cli/sweep/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace outboard::cli {
namespace {

constexpr size_t kRungsMax = 60;

// Smaller is better for all strategies; NaN is worst.
double Rank(const SweepPlan& plan, double metric) {
  if (!std::isfinite(metric)) return std::numeric_limits<double>::infinity();
  return plan.larger_is_better ? -metric : metric;
}

}  // namespace

const char* NameOf(TrialState state) {
  switch (state) {
    case TrialState::kWaiting: return "waiting";
    case TrialState::kRunning: return "running";
    case TrialState::kDone: return "done";
    case TrialState::kStopped: return "stopped";
    case TrialState::kFailed: return "failed";
  }
  return "";
}

void SweepTrial::Restart() {
  state = TrialState::kWaiting;
  step = -1;
  metric.reset();
  best.reset();
  at_rungs.clear();
  ms_per_step = 0;
  note.clear();
}

int64_t StepOfRung(const SweepPlan& plan, size_t rung) {
  int64_t step = plan.first_rung;
  for (size_t i = 0; i < rung; ++i) {
    if (step > std::numeric_limits<int64_t>::max() / plan.keep_one_of)
      return std::numeric_limits<int64_t>::max();
    step *= plan.keep_one_of;
  }
  return step;
}

void SweepTrial::Note(const SweepPlan& plan, std::optional<int64_t> reported_step,
                      std::optional<double> value) {
  if (value.has_value()) {
    // Of the two ways that a trial can report, one may be read later than the other.
    if (reported_step.value_or(step) >= step) metric = *value;
    if (!std::isfinite(*value)) {
      note = absl::StrCat(plan.metric, " is ", *value, " at step ", reported_step.value_or(step));
    } else if (!best.has_value() || Rank(plan, *value) < Rank(plan, *best)) {
      best = *value;
    }
  }
  if (!reported_step.has_value()) return;
  step = std::max(step, *reported_step);
  if (plan.strategy != SweepStrategy::kHalving) return;
  while (at_rungs.size() < kRungsMax && step >= StepOfRung(plan, at_rungs.size()))
    at_rungs.push_back(metric.value_or(std::nan("")));
}

bool StopsAtRung(const SweepPlan& plan, const std::vector<SweepTrial>& all,
                 const SweepTrial& trial) {
  if (plan.strategy != SweepStrategy::kHalving || trial.at_rungs.empty()) return false;
  const size_t rung = trial.at_rungs.size() - 1;
  const double mine = Rank(plan, trial.at_rungs[rung]);
  size_t reached = 0, better = 0;
  for (const SweepTrial& other : all) {
    if (other.at_rungs.size() <= rung) continue;
    ++reached;
    if (&other != &trial && Rank(plan, other.at_rungs[rung]) < mine) ++better;
  }
  const size_t keep = std::max<size_t>(1, reached / static_cast<size_t>(plan.keep_one_of));
  return better >= keep;
}

const SweepTrial* BestOf(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
  const SweepTrial* best = nullptr;
  for (const SweepTrial& trial : trials)
    if (trial.best.has_value() &&
        (best == nullptr || Rank(plan, *trial.best) < Rank(plan, *best->best)))
      best = &trial;
  return best;
}

}  // namespace outboard::cli
