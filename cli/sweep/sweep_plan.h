// What a sweep tries: the command, its parameters, and how values are chosen. Checked before
// anything starts, and the same values come from the same plan each time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/sweep/parameter.h"

namespace outboard::cli {

inline constexpr int kTrialsMax = 10'000;
inline constexpr int kTrialsAtOnce = 16, kTrialsAtOnceMax = 256;

enum class SweepStrategy {
  kGrid,     // every combination
  kRandom,   // `trials` combinations, drawn independently
  kHalving,  // as kRandom; those that fall behind are stopped (Halving in trial.h)
};

struct SweepPlan {
  std::vector<std::string> command;     // with {name} where a value goes
  std::vector<std::string> parameters;  // as `-p` has them
  SweepStrategy strategy = SweepStrategy::kRandom;
  int trials = 0;  // of kGrid: the product
  uint64_t seed = 0;
  std::string metric = "loss";
  bool larger_is_better = false;
  std::optional<int64_t> max_cost_micro_usd;  // of all trials together
  int at_once = kTrialsAtOnce;
  int64_t first_rung = 0;  // kHalving: the step at which trials are compared first
  int64_t warm_up = 0;     // steps that are done once, and that every trial begins with; 0: none
  int keep_one_of = 3;     // kHalving: a trial goes on if it is in the best 1 of so many

  // Fills in `strategy` (empty: a grid if every parameter is a list, else random) and `trials`
  // (`number`; 0: of a grid all, else an error).
  // Errors: INVALID_ARGUMENT  names the parameter, the placeholder or the number that is wrong
  absl::Status Complete(const std::string& strategy_name, int number);

  // Of each trial, a value for each parameter; and the command of one trial. Call after Complete.
  std::vector<std::vector<std::string>> ValuesOf() const;
  std::vector<std::string> CommandOf(const std::vector<std::string>& values) const;
  std::vector<std::string> names() const;

  std::string ToJson() const;
  // Errors: INVALID_ARGUMENT  not what ToJson writes
  static absl::StatusOr<SweepPlan> FromJson(std::string_view text);
};

const char* NameOf(SweepStrategy strategy);

}  // namespace outboard::cli
