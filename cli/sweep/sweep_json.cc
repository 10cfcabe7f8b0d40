// A sweep as JSON: its plan and its trials, as they lie in the sweep's folder, and its results, as
// programs read them. Only this file includes nlohmann's header, which takes a compiler seconds.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/sweep/sweep_plan.h"
#include "cli/sweep/sweep_table.h"
#include "cli/sweep/trial.h"

namespace outboard::cli {
namespace {

constexpr TrialState kStates[] = {TrialState::kWaiting, TrialState::kRunning, TrialState::kDone,
                                  TrialState::kStopped, TrialState::kFailed};

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

std::string SweepPlan::ToJson() const {
  nlohmann::json json = {{"command", command},
                         {"parameters", parameters},
                         {"strategy", NameOf(strategy)},
                         {"trials", trials},
                         {"seed", seed},
                         {"metric", metric},
                         {"larger_is_better", larger_is_better},
                         {"at_once", at_once},
                         {"first_rung", first_rung},
                         {"warm_up", warm_up},
                         {"keep_one_of", keep_one_of}};
  if (max_cost_micro_usd.has_value()) json["max_cost_micro_usd"] = *max_cost_micro_usd;
  // A command line need not be UTF-8.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<SweepPlan> SweepPlan::FromJson(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    SweepPlan plan;
    plan.command = json.at("command");
    plan.parameters = json.at("parameters");
    plan.seed = json.at("seed");
    plan.metric = json.at("metric");
    plan.larger_is_better = json.at("larger_is_better");
    plan.at_once = json.at("at_once");
    plan.first_rung = json.at("first_rung");
    plan.keep_one_of = json.at("keep_one_of");
    if (json.contains("warm_up")) plan.warm_up = json["warm_up"];
    if (json.contains("max_cost_micro_usd")) plan.max_cost_micro_usd = json["max_cost_micro_usd"];
    const std::string strategy = json.at("strategy");
    const int trials = json.at("trials");
    if (absl::Status status = plan.Complete(strategy, trials); !status.ok()) return status;
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not the plan of a sweep: ", error.what()));
  }
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

std::string ResultsAsJsonLines(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
  const std::vector<std::string> names = plan.names();
  std::string lines;
  for (const SweepTrial& trial : trials) {
    nlohmann::json parameters = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i) parameters[names[i]] = trial.values[i];
    nlohmann::json json = {{"trial", trial.number},
                           {"parameters", std::move(parameters)},
                           {"state", NameOf(trial.state)},
                           {"ms_per_step", trial.ms_per_step},
                           {"cost_usd", static_cast<double>(trial.cost_micro_usd) / 1e6},
                           {"attempts", trial.attempts},
                           {"note", trial.note}};
    if (trial.step >= 0) json["step"] = trial.step;
    if (trial.metric.has_value()) json[plan.metric] = ToJson(*trial.metric);
    if (trial.best.has_value()) json["best_" + plan.metric] = ToJson(*trial.best);
    lines += json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace outboard::cli
