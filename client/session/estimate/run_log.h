// What a session has sent, for its estimate: how often each graph ran. Graphs are counted when
// somebody asks, so that a step pays for a look-up alone.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "client/session/estimate/graph_work.h"
#include "client/session/request.h"

namespace outboard::session {

// A program has as many graphs as steps that differ; more than this are not looked at.
inline constexpr size_t kGraphsLoggedMax = 512;
inline constexpr size_t kWorkKernelsMax = 65536;
// The first steps compile kernels and fill caches: they are no measure of the others.
inline constexpr uint64_t kStepsBeforeMeasure = 10;
// Fewer than this say little: a gateway answers for several steps at a time.
inline constexpr uint64_t kStepsMeasured = 10;
// More than so long is not looked at: the latest count. Right behind the first steps caches are
// cold and compilers busy, which a program of long steps does not notice. Of steps of a millisecond
// it is hundreds: how long one takes depends on which processors are awake.
inline constexpr double kSecondsMeasured = 0.5;

struct RecordedWork {
  uint64_t sessions = 1;
  uint64_t devices = 1;  // of each
  uint64_t runs = 0, steps = 0, graphs = 0;
  uint64_t waits = 0;       // values that the program waited for
  double client_s = 0;      // from the first Run to the last, without waiting for a device
  std::vector<KernelWork> kernels;
  std::string unknown;      // why there is no telling what was sent; empty: it is known
};

// A graph that was run, for whoever wants to schedule it.
struct SentGraph {
  std::shared_ptr<const std::string> encoding;
  std::vector<Binding> bindings;  // the mean of all Runs
  std::vector<int64_t> donated;   // PARAM slots, in the latest Run
  uint64_t steps = 0;
};
// A line of text, for the same pipe, without its end: graph `number` of session `session`.
// `whole`: with the encoding, which a reader that has had one line with it needs no more.
std::string ToLine(uint64_t session, size_t number, const SentGraph& graph, bool whole);
// Reads such a line into the graph that it is about. Errors: INVALID_ARGUMENT  no such line
absl::Status AddGraphLine(std::string_view line,
                          std::map<std::pair<uint64_t, uint64_t>, SentGraph>& graphs);

// Lines of text, for a pipe: what a program without a device tells `outboard estimate`.
std::string ToText(const RecordedWork& work);
// Errors: INVALID_ARGUMENT  no such text
absl::StatusOr<RecordedWork> WorkFromText(std::string_view text);

class RunLog {
 public:
  using Clock = std::chrono::steady_clock;

  void NoteRun(const RunRequest& request, Clock::time_point now);
  void NoteWait();
  uint64_t steps() const;

  // In the order in which they were sent first.
  std::vector<SentGraph> Graphs() const;
  // Reads the graphs. Takes as long as sending them did. `counted`, if not null: those graphs.
  RecordedWork Work(std::vector<SentGraph>* counted = nullptr) const;

 private:
  struct Sent {
    std::shared_ptr<const std::string> graph;
    std::vector<std::pair<int64_t, double>> bindings;  // slot, sum of the values
    std::vector<uint32_t> donate;
    uint64_t steps = 0;
  };

  mutable std::mutex mutex_;
  std::deque<Sent> sent_;
  absl::flat_hash_map<std::string, size_t> place_;  // by graph id
  uint64_t runs_ = 0, steps_ = 0, waits_ = 0, left_out_ = 0;
  std::optional<Clock::time_point> first_, last_;
};

// Times of steps that are done, for milliseconds per step: the mean of the latest ones, without
// what happens once. A kernel that is compiled later than the first, a snapshot, a program that
// waits for its user: spans that took more than kOddSpan times as long per step as the median span
// are left out. Short ones count together, since many answers may come at once, of steps that were
// done one after the other: the time that those took is in the span ahead of them.
class StepPace {
 public:
  using Clock = std::chrono::steady_clock;
  // `steps` are done.
  void Note(uint64_t steps, Clock::time_point now);
  struct Measured {
    uint64_t steps = 0;  // kStepsMeasured or more, behind the first kStepsBeforeMeasure
    double seconds_per_step = 0;
  };
  // Nothing: there were not so many steps.
  std::optional<Measured> PerStep() const;
  // Twice as many as are looked at: more would not make the measure better.
  bool HasEnough() const;

 private:
  // From one answer to a later one, kSpanSeconds or more: shorter ones count together.
  struct Span {
    uint64_t steps = 0;
    double seconds = 0;
    double per_step() const { return seconds / static_cast<double>(steps); }
  };
  static constexpr size_t kSpansMax = 256;
  static constexpr double kOddSpan = 4;
  static constexpr double kSpanSeconds = 0.01;

  std::optional<std::pair<uint64_t, Clock::time_point>> last_;
  std::deque<Span> spans_;  // behind the first kStepsBeforeMeasure, the latest
};

}  // namespace outboard::session
