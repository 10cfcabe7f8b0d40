#include "cli/sweep/sweep_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace outboard::cli {
namespace {

constexpr SweepStrategy kStrategies[] = {SweepStrategy::kGrid, SweepStrategy::kRandom,
                                         SweepStrategy::kHalving};

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): the
// same numbers with every standard library.
double UniformAt(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// Calls text(piece) and placeholder(name) in order. Braces around anything but a name stay as they
// are: programs take JSON.
template <typename Text, typename Placeholder>
void Split(std::string_view argument, const Text& text, const Placeholder& placeholder) {
  size_t done = 0;
  for (size_t at = 0; (at = argument.find('{', at)) != std::string_view::npos;) {
    size_t end = at + 1;
    while (end < argument.size() &&
           (absl::ascii_isalnum(argument[end]) || argument[end] == '_' || argument[end] == '-'))
      ++end;
    const bool is_name = end > at + 1 && end < argument.size() && argument[end] == '}' &&
                         !absl::ascii_isdigit(argument[at + 1]);
    if (is_name) {
      text(argument.substr(done, at - done));
      placeholder(argument.substr(at + 1, end - at - 1));
      done = end + 1;
    }
    at = is_name ? done : at + 1;
  }
  text(argument.substr(done));
}

std::vector<SweptParameter> Parsed(const std::vector<std::string>& texts) {
  std::vector<SweptParameter> parameters;
  for (const std::string& text : texts) parameters.push_back(*SweptParameter::Parse(text));
  return parameters;
}

}  // namespace

const char* NameOf(SweepStrategy strategy) {
  switch (strategy) {
    case SweepStrategy::kGrid: return "grid";
    case SweepStrategy::kRandom: return "random";
    case SweepStrategy::kHalving: return "halving";
  }
  return "";
}

absl::Status SweepPlan::Complete(const std::string& strategy_name, int number) {
  const auto wrong = [](auto&&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  if (command.empty()) return wrong("no command; write -- ./train --lr {lr} behind the options");
  if (parameters.empty()) return wrong("nothing to sweep; write -p lr=1e-4..1e-2:log");
  std::vector<SweptParameter> all;
  for (const std::string& text : parameters) {
    absl::StatusOr<SweptParameter> parameter = SweptParameter::Parse(text);
    if (!parameter.ok()) return parameter.status();
    for (const SweptParameter& other : all)
      if (other.name() == parameter->name())
        return wrong("-p ", text, ": ", parameter->name(), " is there twice");
    all.push_back(*std::move(parameter));
  }
  // Each placeholder has its parameter, and the other way round.
  std::vector<bool> used(all.size());
  std::string unknown;
  for (const std::string& argument : command) {
    Split(
        argument, [](std::string_view) {},
        [&](std::string_view name) {
          const auto it = std::ranges::find(all, name, &SweptParameter::name);
          if (it == all.end() && unknown.empty()) unknown = std::string(name);
          if (it != all.end()) used[it - all.begin()] = true;
        });
  }
  if (!unknown.empty()) return wrong("{", unknown, "}: there is no -p ", unknown, "=");
  for (size_t i = 0; i < all.size(); ++i)
    if (!used[i])
      return wrong("-p ", parameters[i], ": the command does not have {", all[i].name(), "}");

  const bool has_range = std::ranges::any_of(
      all, [](const SweptParameter& parameter) { return parameter.GridValues().empty(); });
  if (strategy_name.empty()) {
    strategy = has_range || number > 0 ? SweepStrategy::kRandom : SweepStrategy::kGrid;
  } else {
    const auto it = std::ranges::find(kStrategies, strategy_name, NameOf);
    if (it == std::end(kStrategies))
      return wrong("--strategy ", strategy_name, ": it is grid, random or halving");
    strategy = *it;
  }
  if (strategy == SweepStrategy::kGrid) {
    int64_t product = 1;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t values = static_cast<int64_t>(all[i].GridValues().size());
      if (values == 0)
        return wrong("-p ", parameters[i],
                     ": a grid needs the number of points; write :5 behind the range");
      product *= values;
      if (product > kTrialsMax) return wrong("the grid has more than ", kTrialsMax, " trials");
    }
    if (number > 0 && number != product)
      return wrong("-n ", number, ": the grid has ", product, " trials");
    trials = static_cast<int>(product);
  } else {
    if (number <= 0)
      return wrong("how many trials? write -n 8", has_range ? "" : ", or --strategy grid");
    if (number > kTrialsMax)
      return wrong("-n ", number, ": a sweep has at most ", kTrialsMax, " trials");
    trials = number;
  }
  if (strategy == SweepStrategy::kHalving && first_rung <= 0)
    return wrong("--strategy halving needs --first-rung, the step at which trials are compared");
  if (strategy != SweepStrategy::kHalving && first_rung > 0)
    return wrong("--first-rung goes with --strategy halving");
  at_once = std::min(at_once, trials);
  return absl::OkStatus();
}

std::vector<std::string> SweepPlan::names() const {
  std::vector<std::string> all;
  for (const SweptParameter& parameter : Parsed(parameters)) all.push_back(parameter.name());
  return all;
}

std::vector<std::vector<std::string>> SweepPlan::ValuesOf() const {
  const std::vector<SweptParameter> all = Parsed(parameters);
  std::vector<std::vector<std::string>> values(static_cast<size_t>(trials));
  std::vector<std::vector<std::string>> grid;
  if (strategy == SweepStrategy::kGrid)
    for (const SweptParameter& parameter : all) grid.push_back(parameter.GridValues());
  for (size_t t = 0; t < values.size(); ++t) {
    values[t].resize(all.size());
    size_t rest = t;
    for (size_t i = all.size(); i-- > 0;) {  // the last parameter changes fastest
      if (strategy == SweepStrategy::kGrid) {
        values[t][i] = grid[i][rest % grid[i].size()];
        rest /= grid[i].size();
      } else {
        values[t][i] = all[i].ValueAt(UniformAt(seed, t * all.size() + i));
      }
    }
  }
  return values;
}

std::vector<std::string> SweepPlan::CommandOf(const std::vector<std::string>& values) const {
  const std::vector<std::string> all = names();
  std::vector<std::string> filled;
  for (const std::string& argument : command) {
    std::string& out = filled.emplace_back();
    Split(
        argument, [&](std::string_view text) { out += text; },
        [&](std::string_view name) { out += values[std::ranges::find(all, name) - all.begin()]; });
  }
  return filled;
}

}  // namespace outboard::cli
