#include "client/session/estimate/run_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace outboard::session {

namespace {

// How often a kernel runs that has so many products, others and bytes.
using KernelCounts = std::map<std::tuple<ProductKind, double, double, double>, double>;

// Kernels that are equal are one line; past the limit the rest are one kernel of each kind.
void Add(const std::vector<KernelWork>& kernels, double times, KernelCounts& all) {
  for (const KernelWork& k : kernels)
    all[{k.kind, k.products, k.others, k.bytes}] += k.count * times;
}

constexpr char kFirstWord[] = "outboard-work-1";

}  // namespace

std::string ToText(const RecordedWork& work) {
  std::string text = absl::StrFormat(
      "%s sessions=%d devices=%d runs=%d steps=%d graphs=%d waits=%d client_s=%.6f kernels=%d\n",
      kFirstWord, work.sessions, work.devices, work.runs, work.steps, work.graphs, work.waits,
      work.client_s, work.kernels.size());
  for (const KernelWork& k : work.kernels)
    absl::StrAppend(&text,
                    absl::StrFormat("%.17g %.17g %.17g %.17g %d\n", k.products, k.others, k.bytes,
                                    k.count, static_cast<int>(k.kind)));
  std::string unknown = work.unknown;  // one line
  std::replace(unknown.begin(), unknown.end(), '\n', ' ');
  absl::StrAppend(&text, "end ", unknown, "\n");
  return text;
}

absl::StatusOr<RecordedWork> WorkFromText(std::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError("no record of a program's steps");
  std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  if (lines.size() < 3 || lines.size() > kWorkKernelsMax + 3) return wrong;
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 9 || words[0] != kFirstWord) return wrong;
  RecordedWork work;
  size_t kernels = 0;
  const auto number = [&](size_t at, const char* name, auto& into) {
    const std::string prefix = absl::StrCat(name, "=");
    if (!words[at].starts_with(prefix)) return false;
    const std::string value = words[at].substr(prefix.size());
    if constexpr (std::is_same_v<decltype(into), double&>)
      return absl::SimpleAtod(value, &into) && std::isfinite(into) && into >= 0;
    else
      return absl::SimpleAtoi(value, &into);
  };
  if (!number(1, "sessions", work.sessions) || !number(2, "devices", work.devices) ||
      !number(3, "runs", work.runs) || !number(4, "steps", work.steps) ||
      !number(5, "graphs", work.graphs) || !number(6, "waits", work.waits) ||
      !number(7, "client_s", work.client_s) || !number(8, "kernels", kernels) ||
      lines.size() != kernels + 3 || !lines.back().empty())
    return wrong;
  for (size_t i = 0; i < kernels; ++i) {
    const std::vector<std::string> parts = absl::StrSplit(lines[i + 1], ' ');
    double values[4];
    int kind = 0;  // a library from before it says none
    if (parts.size() != 4 && (parts.size() != 5 || !absl::SimpleAtoi(parts[4], &kind) || kind < 0 ||
                              kind >= kProductKinds))
      return wrong;
    for (int j = 0; j < 4; ++j)
      if (!absl::SimpleAtod(parts[j], &values[j]) || !std::isfinite(values[j]) || values[j] < 0)
        return wrong;
    work.kernels.push_back(
        {values[0], values[1], values[2], values[3], static_cast<ProductKind>(kind)});
  }
  const std::string& end = lines[kernels + 1];
  if (!end.starts_with("end ")) return wrong;
  work.unknown = end.substr(4);
  return work;
}

std::string ToLine(uint64_t session, size_t number, const SentGraph& graph, bool whole) {
  std::vector<std::string> bindings;
  for (const Binding& of : graph.bindings) bindings.push_back(absl::StrCat(of.slot, "=", of.value));
  return absl::StrCat("graph ", session, " ", number, " ", graph.steps,
                      " bound:", absl::StrJoin(bindings, ","),
                      " donated:", absl::StrJoin(graph.donated, ","), " ",
                      whole ? absl::Base64Escape(*graph.encoding) : "known");
}

absl::Status AddGraphLine(std::string_view line,
                          std::map<std::pair<uint64_t, uint64_t>, SentGraph>& graphs) {
  const absl::Status wrong = absl::InvalidArgumentError("no record of a program's graph");
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  uint64_t session = 0, number = 0;
  SentGraph graph;
  if (words.size() != 7 || words[0] != "graph" || !absl::SimpleAtoi(words[1], &session) ||
      !absl::SimpleAtoi(words[2], &number) || number >= kGraphsLoggedMax ||
      !absl::SimpleAtoi(words[3], &graph.steps))
    return wrong;
  absl::string_view bound = words[4], donated = words[5];
  if (!absl::ConsumePrefix(&bound, "bound:") || !absl::ConsumePrefix(&donated, "donated:"))
    return wrong;
  for (const absl::string_view one : absl::StrSplit(bound, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> sides = absl::StrSplit(one, '=');
    Binding binding;
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &binding.slot) ||
        !absl::SimpleAtoi(sides[1], &binding.value))
      return wrong;
    graph.bindings.push_back(binding);
  }
  for (const absl::string_view one : absl::StrSplit(donated, ',', absl::SkipEmpty()))
    if (!absl::SimpleAtoi(one, &graph.donated.emplace_back())) return wrong;
  if (const auto known = graphs.find({session, number}); words[6] == "known") {
    if (known == graphs.end()) return wrong;
    graph.encoding = known->second.encoding;
  } else {
    std::string encoding;
    if (!absl::Base64Unescape(words[6], &encoding)) return wrong;
    graph.encoding = std::make_shared<const std::string>(std::move(encoding));
  }
  graphs[{session, number}] = std::move(graph);
  return absl::OkStatus();
}

void RunLog::NoteRun(const RunRequest& request, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  ++runs_;
  steps_ += request.repeat;
  if (!first_.has_value()) first_ = now;
  last_ = now;
  const std::string id(request.graph_id.begin(), request.graph_id.end());
  auto at = place_.find(id);
  if (at == place_.end()) {
    if (request.graph == nullptr || sent_.size() >= kGraphsLoggedMax) {
      ++left_out_;
      return;
    }
    at = place_.emplace(id, sent_.size()).first;
    sent_.push_back({.graph = request.graph});
    for (const Binding& binding : request.bindings)
      sent_.back().bindings.emplace_back(binding.slot, 0.0);
  }
  Sent& sent = sent_[at->second];
  sent.steps += request.repeat;
  sent.donate = request.donate;
  for (size_t i = 0; i < std::min(sent.bindings.size(), request.bindings.size()); ++i) {
    double value = static_cast<double>(request.bindings[i].value);
    if (request.cursor.has_value() &&
        static_cast<int64_t>(request.cursor->slot) == request.bindings[i].slot)
      value += static_cast<double>(request.cursor->stride) * (request.repeat - 1) / 2;
    sent.bindings[i].second += value * request.repeat;
  }
}

void RunLog::NoteWait() {
  const std::lock_guard lock(mutex_);
  ++waits_;
}

uint64_t RunLog::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

std::vector<SentGraph> RunLog::Graphs() const {
  const std::lock_guard lock(mutex_);
  std::vector<SentGraph> graphs;
  for (const Sent& of : sent_) {
    SentGraph& graph = graphs.emplace_back(
        SentGraph{.encoding = of.graph, .donated = {of.donate.begin(), of.donate.end()},
                  .steps = of.steps});
    for (const auto& [slot, sum] : of.bindings)
      graph.bindings.push_back({slot, std::llround(sum / static_cast<double>(of.steps))});
  }
  return graphs;
}

RecordedWork RunLog::Work(std::vector<SentGraph>* counted) const {
  std::vector<SentGraph> sent = Graphs();
  RecordedWork work;
  {
    const std::lock_guard lock(mutex_);
    work.runs = runs_;
    work.steps = steps_;
    work.waits = waits_;
    if (first_.has_value()) work.client_s = std::chrono::duration<double>(*last_ - *first_).count();
    if (left_out_ > 0)
      work.unknown = absl::StrCat(left_out_, " steps are of more than ", kGraphsLoggedMax,
                                  " different graphs, and not counted");
  }
  work.graphs = sent.size();
  KernelCounts all;
  for (const SentGraph& of : sent) {
    const absl::StatusOr<GraphWork> one = WorkOfEncoding(*of.encoding, of.bindings);
    if (!one.ok()) {
      work.unknown = absl::StrCat("a graph cannot be read: ", one.status().message());
      continue;
    }
    Add(one->kernels, static_cast<double>(of.steps), all);
  }
  std::array<KernelWork, kProductKinds> rests;
  for (int kind = 0; kind < kProductKinds; ++kind)
    rests[static_cast<size_t>(kind)] = {.count = 0, .kind = static_cast<ProductKind>(kind)};
  for (const auto& [of, count] : all) {
    const auto& [kind, products, others, bytes] = of;
    if (work.kernels.size() + rests.size() < kWorkKernelsMax) {
      work.kernels.push_back({products, others, bytes, count, kind});
    } else {
      KernelWork& rest = rests[static_cast<size_t>(kind)];
      rest.products += products * count;
      rest.others += others * count;
      rest.bytes += bytes * count;
      rest.count = 1;
    }
  }
  for (const KernelWork& rest : rests)
    if (rest.count > 0) work.kernels.push_back(rest);
  if (counted != nullptr) *counted = std::move(sent);
  return work;
}

void StepPace::Note(uint64_t steps, Clock::time_point now) {
  if (steps < kStepsBeforeMeasure || (last_.has_value() && steps <= last_->first)) return;
  if (last_.has_value()) {
    if (spans_.empty() || spans_.back().seconds >= kSpanSeconds) spans_.emplace_back();
    spans_.back().steps += steps - last_->first;
    spans_.back().seconds += std::chrono::duration<double>(now - last_->second).count();
    if (spans_.size() > kSpansMax) spans_.pop_front();
  }
  last_ = {steps, now};
}

std::optional<StepPace::Measured> StepPace::PerStep() const {
  Measured all;
  std::vector<Span> sorted;
  double took_s = 0;
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    if (all.steps >= kStepsMeasured && took_s >= kSecondsMeasured) break;
    sorted.push_back(*span);
    all.steps += span->steps;
    took_s += span->seconds;
  }
  if (all.steps < kStepsMeasured) return std::nullopt;
  std::sort(sorted.begin(), sorted.end(),
            [](const Span& a, const Span& b) { return a.per_step() < b.per_step(); });
  uint64_t below = 0;
  size_t middle = 0;  // half of the steps are at least as fast as this span
  while (2 * (below += sorted[middle].steps) < all.steps) ++middle;
  const double odd = kOddSpan * sorted[middle].per_step();
  uint64_t steps = 0;
  double seconds = 0;
  for (const Span& span : sorted) {
    if (span.per_step() > odd) break;
    steps += span.steps;
    seconds += span.seconds;
  }
  all.seconds_per_step = seconds / static_cast<double>(steps);
  return all;
}

bool StepPace::HasEnough() const {
  uint64_t steps = 0;
  double seconds = 0;
  for (const Span& span : spans_) {
    steps += span.steps;
    seconds += span.seconds;
  }
  return steps >= kStepsMeasured && seconds >= 2 * kSecondsMeasured;
}

}  // namespace outboard::session
