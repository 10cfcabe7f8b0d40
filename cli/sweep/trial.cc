#include "cli/sweep/trial.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::cli {
namespace {

constexpr TrialState kStates[] = {TrialState::kWaiting, TrialState::kRunning, TrialState::kDone,
                                  TrialState::kStopped, TrialState::kFailed};
constexpr size_t kRungsMax = 60;

// Smaller is better for all strategies; NaN is worst.
double Rank(const SweepPlan& plan, double metric) {
  if (!std::isfinite(metric)) return std::numeric_limits<double>::infinity();
  return plan.larger_is_better ? -metric : metric;
}

// JSON has no infinities.
nlohmann::json ToJson(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(absl::StrCat(value));
}
double FromJson(const nlohmann::json& json) {
  if (json.is_number()) return json;
  const std::string text = json;
  const double infinity = std::numeric_limits<double>::infinity();
  return text == "inf" ? infinity : text == "-inf" ? -infinity : std::nan("");
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

std::string TrialsToJson(const std::vector<SweepTrial>& trials) {
  nlohmann::json all = nlohmann::json::array();
  for (const SweepTrial& trial : trials) {
    nlohmann::json json = {{"number", trial.number},
                           {"state", NameOf(trial.state)},
                           {"step", trial.step},
                           {"ms_per_step", trial.ms_per_step},
                           {"cost_micro_usd", trial.cost_micro_usd},
                           {"attempts", trial.attempts},
                           {"note", trial.note}};
    if (trial.metric.has_value()) json["metric"] = ToJson(*trial.metric);
    if (trial.best.has_value()) json["best"] = ToJson(*trial.best);
    for (const double metric : trial.at_rungs) json["at_rungs"].push_back(ToJson(metric));
    all.push_back(std::move(json));
  }
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::vector<SweepTrial>> TrialsFromJson(const SweepPlan& plan,
                                                       std::string_view text) {
  try {
    const nlohmann::json all = nlohmann::json::parse(text);
    const std::vector<std::vector<std::string>> values = plan.ValuesOf();
    if (!all.is_array() || all.size() != values.size())
      return absl::InvalidArgumentError("the trials on disk are not those of the sweep's plan");
    std::vector<SweepTrial> trials;
    for (size_t i = 0; i < values.size(); ++i) {
      const nlohmann::json& json = all[i];
      SweepTrial& trial = trials.emplace_back();
      trial.number = static_cast<int>(i) + 1;
      trial.values = values[i];
      const std::string state = json.at("state");
      const auto it =
          std::ranges::find_if(kStates, [&](TrialState s) { return NameOf(s) == state; });
      if (it == std::end(kStates))
        return absl::InvalidArgumentError(absl::StrCat("\"", state, "\" is no state of a trial"));
      trial.state = *it;
      trial.step = json.at("step");
      trial.ms_per_step = json.at("ms_per_step");
      trial.cost_micro_usd = json.at("cost_micro_usd");
      trial.attempts = json.at("attempts");
      trial.note = json.at("note");
      if (json.contains("metric")) trial.metric = FromJson(json["metric"]);
      if (json.contains("best")) trial.best = FromJson(json["best"]);
      if (json.contains("at_rungs"))
        for (const nlohmann::json& metric : json["at_rungs"])
          trial.at_rungs.push_back(FromJson(metric));
    }
    return trials;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not the trials of a sweep: ", error.what()));
  }
}

}  // namespace outboard::cli
