// One trial of a sweep: what is known of it, and whether successive halving stops it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/sweep/sweep_plan.h"

namespace outboard::cli {

enum class TrialState {
  kWaiting,
  kRunning,
  kDone,
  kStopped,  // by successive halving
  kFailed,   // its process ended with another code than 0, or did not start
};
const char* NameOf(TrialState state);

struct SweepTrial {
  int number = 0;  // from 1
  std::vector<std::string> values;
  TrialState state = TrialState::kWaiting;
  int64_t step = -1;             // the last one reported; -1: none
  std::optional<double> metric;  // as reported last
  std::optional<double> best;    // finite ones alone
  std::vector<double> at_rungs;  // the metric at each rung that was passed; NaN: not finite
  double ms_per_step = 0;        // 0: not known
  int64_t cost_micro_usd = 0;    // of all attempts
  int attempts = 0;
  std::string note;  // for people: why it failed, what is odd

  bool ended() const {
    return state == TrialState::kDone || state == TrialState::kStopped ||
           state == TrialState::kFailed;
  }
  // Forgets what an attempt has reported; what it cost stays.
  void Restart();
  // Takes in a report of `metric` (none: a report of a step alone).
  void Note(const SweepPlan& plan, std::optional<int64_t> reported_step,
            std::optional<double> value);
};

// Asynchronous successive halving in its form without promotion: a trial that reaches a rung goes
// on if it is among the best 1 / keep_one_of of those that have reached it so far, else it is
// stopped. Rungs are at first_rung * keep_one_of^k. Nothing waits for the slowest.
// Sources: L. Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020; the
// form that stops: D. Salinas et al., Syne Tune, AutoML 2022.
//
// Returns whether `trial`, which has just passed a rung, is to be stopped. A metric that is not
// finite is worse than all others.
bool StopsAtRung(const SweepPlan& plan, const std::vector<SweepTrial>& all,
                 const SweepTrial& trial);
int64_t StepOfRung(const SweepPlan& plan, size_t rung);

// The best trial by `best`; nullptr: none has reported a finite metric.
const SweepTrial* BestOf(const SweepPlan& plan, const std::vector<SweepTrial>& trials);

std::string TrialsToJson(const std::vector<SweepTrial>& trials);
// Errors: INVALID_ARGUMENT  not the trials of this plan
absl::StatusOr<std::vector<SweepTrial>> TrialsFromJson(const SweepPlan& plan,
                                                       std::string_view text);

}  // namespace outboard::cli
