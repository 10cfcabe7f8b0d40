#include "cli/sweep/sweep_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace outboard::cli {
namespace {

std::string NumberOr(const std::optional<double>& number, const char* otherwise) {
  return number.has_value() ? absl::StrCat(*number) : otherwise;
}

std::string Dollars(int64_t micro_usd) {
  return absl::StrFormat("$%.4f", static_cast<double>(micro_usd) / 1e6);
}

// RFC 4180: quoted where it has to be.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

int Group(const SweepTrial& trial) {
  switch (trial.state) {
    case TrialState::kRunning: return 0;
    case TrialState::kDone:
    case TrialState::kStopped: return 1;
    case TrialState::kFailed: return 2;
    case TrialState::kWaiting: return 3;
  }
  return 4;
}

}  // namespace

std::string SweepSummary(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
  int64_t cost = 0;
  for (const SweepTrial& trial : trials) cost += trial.cost_micro_usd;
  const auto in = [&](TrialState state) {
    return std::ranges::count(trials, state, &SweepTrial::state);
  };
  const auto ended = std::ranges::count_if(trials, &SweepTrial::ended);
  std::string text = absl::StrCat(ended, " of ", trials.size(), " trials ended");
  if (in(TrialState::kRunning) > 0)
    absl::StrAppend(&text, ", ", in(TrialState::kRunning), " running");
  if (in(TrialState::kFailed) > 0) absl::StrAppend(&text, ", ", in(TrialState::kFailed), " failed");
  absl::StrAppend(&text, "; ", Dollars(cost));
  if (const SweepTrial* best = BestOf(plan, trials)) {
    std::vector<std::string> values;
    const std::vector<std::string> names = plan.names();
    for (size_t i = 0; i < names.size(); ++i)
      values.push_back(absl::StrCat(names[i], "=", best->values[i]));
    absl::StrAppend(&text, "; best: ", plan.metric, " ", *best->best, " at trial ", best->number,
                    " (", absl::StrJoin(values, " "), ")");
  }
  return text;
}

std::vector<std::string> SweepTable(const SweepPlan& plan, const std::vector<SweepTrial>& trials,
                                    size_t rows, size_t columns) {
  const auto rank = [&](const SweepTrial& trial) {
    if (!trial.best.has_value()) return std::numeric_limits<double>::infinity();
    return plan.larger_is_better ? -*trial.best : *trial.best;
  };
  std::vector<const SweepTrial*> shown;
  for (const SweepTrial& trial : trials) shown.push_back(&trial);
  std::ranges::stable_sort(shown, [&](const SweepTrial* a, const SweepTrial* b) {
    if (Group(*a) != Group(*b)) return Group(*a) < Group(*b);
    return Group(*a) == 1 && rank(*a) < rank(*b);
  });
  const size_t left_out = shown.size() > rows ? shown.size() - rows : 0;
  shown.resize(shown.size() - left_out);

  std::vector<std::vector<std::string>> cells = {{"trial"}};
  for (const std::string& name : plan.names()) cells[0].push_back(name);
  for (const std::string& name :
       {std::string("state"), std::string("step"), plan.metric, "best " + plan.metric,
        std::string("ms/step"), std::string("cost"), std::string("")})
    cells[0].push_back(name);
  for (const SweepTrial* trial : shown) {
    std::vector<std::string>& row = cells.emplace_back();
    row.push_back(absl::StrCat(trial->number));
    row.insert(row.end(), trial->values.begin(), trial->values.end());
    row.emplace_back(NameOf(trial->state));
    row.push_back(trial->step < 0 ? "-" : absl::StrCat(trial->step));
    row.push_back(NumberOr(trial->metric, "-"));
    row.push_back(NumberOr(trial->best, "-"));
    row.push_back(trial->ms_per_step > 0 ? absl::StrFormat("%.1f", trial->ms_per_step) : "-");
    row.push_back(Dollars(trial->cost_micro_usd));
    row.push_back(trial->note);
  }
  std::vector<size_t> widths(cells[0].size());
  for (const auto& row : cells)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> lines;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    // Notes are other programs' words: nothing of them may steer the terminal.
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    line = line.substr(0, columns);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  if (left_out > 0) lines.push_back(absl::StrCat("... and ", left_out, " more"));
  return lines;
}

std::string ResultsAsCsv(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
  std::string csv = "trial";
  for (const std::string& name : plan.names()) absl::StrAppend(&csv, ",", CsvField(name));
  absl::StrAppend(&csv, ",state,step,", CsvField(plan.metric), ",", CsvField("best_" + plan.metric),
                  "\n");
  for (const SweepTrial& trial : trials) {
    absl::StrAppend(&csv, trial.number);
    for (const std::string& value : trial.values) absl::StrAppend(&csv, ",", CsvField(value));
    absl::StrAppend(&csv, ",", NameOf(trial.state), ",",
                    trial.step < 0 ? "" : absl::StrCat(trial.step), ",", NumberOr(trial.metric, ""),
                    ",", NumberOr(trial.best, ""), "\n");
  }
  return csv;
}

}  // namespace outboard::cli
