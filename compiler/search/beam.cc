#include "compiler/search/beam.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/search/neighbours.h"
#include "compiler/search/verify.h"
#include "compiler/starting_opts.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;
using Opts = std::vector<Opt>;

// A candidate is given up on once it takes so much longer than the worst that goes on.
constexpr int64_t kGiveUpTenths = 13;
constexpr int64_t kForever = INT64_MAX;
// On a GPU plain loops are one thread for each result: of more work than this they would take
// longer than the whole search.
constexpr int64_t kPlainFlopsMax = 300'000'000'000;
// On a GPU the results of every candidate are compared, also of one that is too slow to go on: a
// wrong one is struck, not stored as slow. The device does it; where it cannot, since it has no
// room for the right results, more bytes than these would take the host as long as a measurement,
// some 20 ms, and only the results of those are compared that go on.
constexpr int64_t kComparedBytesMax = 16 << 20;

class Search {
 public:
  Search(const UOp* sink, Measurer& device, const BeamOptions& options, std::vector<Trial> known)
      : sink_(sink),
        device_(device),
        options_(options),
        target_(ShareOf(options.target, CopiesOf(sink))) {
    result_.trials = std::move(known);
    for (size_t i = 0; i < result_.trials.size(); ++i) {
      place_[codegen::OptsToString(result_.trials[i].opts)] = i;
      fastest_mhz_ = std::max(fastest_mhz_, result_.trials[i].at.clock_mhz);
    }
  }

  absl::StatusOr<BeamResult> Run() {
    OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel, codegen::AnalyzeKernel(sink_));
    if (kernel.empty || kernel.stores.empty())
      return absl::InvalidArgumentError("search: the kernel has no work");
    const bool threads = target_.block_threads > 1;
    const bool panels = !codegen::PanelsOf(kernel, /*ends=*/threads).empty();
    if (panels && !threads)  // there is nothing quick enough to compare with
      return absl::InvalidArgumentError("search: plain loops would compute panels over and over");
    OB_RETURN_IF_ERROR(FindStart());
    Opts plain;
    if (!threads && kernel.parallel_count > 0)
      plain.push_back({OptKind::kThread, 0, kernel.parallel_count});
    // What all others are compared with. On a GPU the compiler's own choice has to do where plain
    // threads would take too long; steps are computed with it anyway.
    if (panels || (threads && kernel.flops > kPlainFlopsMax)) plain = start_;
    OB_ASSIGN_OR_RETURN(const CompiledKernel slow, device_.Compile(plain));
    OB_ASSIGN_OR_RETURN(
        verifier_, Verifier::Make(sink_, slow,
                                  [this](const CompiledKernel& k, std::span<void* const> buffers,
                                         int64_t begin, int64_t end) {
                                    return device_.Run(k, buffers, begin, end);
                                  }));
    device_compares_ = threads && device_.KeepExpected(verifier_->Expected()).ok();
    OB_RETURN_IF_ERROR(TryStart(start_));
    result_.finished = Rounds();
    result_.best = beam_[0];
    return std::move(result_);
  }

 private:
  // The first list of the compiler's choice that compiles; those behind it are candidates.
  absl::Status FindStart() {
    OB_ASSIGN_OR_RETURN(std::vector<Opts> lists, StartingOpts(sink_, target_));
    for (size_t i = 0; i < lists.size(); ++i) {
      const absl::Status compiled =
          i + 1 < lists.size() ? device_.Compile(lists[i]).status() : absl::OkStatus();
      if (absl::IsUnavailable(compiled) || absl::IsCancelled(compiled)) return compiled;
      if (!compiled.ok()) continue;
      start_ = std::move(lists[i]);
      for (size_t k = i + 1; k < lists.size(); ++k) others_.push_back(std::move(lists[k]));
      break;
    }
    return absl::OkStatus();
  }

  // That is known of it before it has run for the first time.
  void Announce(const Opts& opts) {
    if (options_.may_end_process && options_.on_trial) options_.on_trial(Trial{opts});
  }

  absl::Status TryStart(const Opts& opts) {
    if (absl::Status status = device_.health(); !status.ok()) return status;
    const Trial* const known = Known(opts);
    if (known != nullptr && IsDone(*known)) {
      beam_ = {*known};
    } else if (known != nullptr && !known->works() && options_.may_end_process) {
      return absl::DataLossError(absl::StrCat("search: the compiler's own choice, ",
                                              codegen::OptsToString(opts),
                                              ", did not work before"));
    } else {
      OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, device_.Compile(opts));
      Announce(opts);
      OB_RETURN_IF_ERROR(Check(kernel));
      Trial trial{opts};
      OB_RETURN_IF_ERROR(TakeTime(kernel, kForever, trial));
      trial.verified = true;
      Keep(trial);
      beam_ = {trial};
    }
    result_.start_ns = beam_[0].time_ns;
    return absl::OkStatus();
  }

  // What is a move away from one of the best and was not tried, the cheapest by the estimate first:
  // a search that is stopped has tried those, and what is slower is given up on sooner.
  std::vector<Opts> Candidates() const {
    std::vector<Neighbour> neighbours;
    absl::flat_hash_map<std::string, bool> listed;
    for (const Opts& opts : others_)
      if (const std::string text = codegen::OptsToString(opts);
          !tried_.contains(text) && listed.emplace(text, true).second)
        neighbours.push_back({opts, 0});
    for (const Trial& parent : beam_)
      for (Neighbour& neighbour : Neighbours(sink_, parent.opts, target_))
        if (const std::string text = codegen::OptsToString(neighbour.opts);
            !tried_.contains(text) && listed.emplace(text, true).second)
          neighbours.push_back(std::move(neighbour));
    std::stable_sort(neighbours.begin(), neighbours.end(),
                     [](const Neighbour& a, const Neighbour& b) { return a.cost < b.cost; });
    std::vector<Opts> candidates;
    for (Neighbour& neighbour : neighbours) candidates.push_back(std::move(neighbour.opts));
    return candidates;
  }

  // False where it was stopped.
  bool Rounds() {
    while (true) {
      const int64_t before_ns = beam_[0].time_ns;
      const std::vector<Opts> candidates = Candidates();
      std::vector<Opts> unknown;
      for (const Opts& opts : candidates)
        if (Known(opts) == nullptr) unknown.push_back(opts);
      device_.Expect(unknown);
      for (const Opts& opts : candidates) {
        if (!Try(opts)) return false;
        tried_[codegen::OptsToString(opts)] = true;
      }
      if (static_cast<double>(beam_[0].time_ns) * options_.least_gain >
          static_cast<double>(before_ns))
        return true;
    }
  }

  // False where the search must stop.
  bool Try(const Opts& opts) {
    // What an earlier, narrower search gave up on or did not verify may be worth it now.
    if (const Trial* known = Known(opts);
        known != nullptr && (IsDone(*known) || !known->works() || !HasRoomFor(known->time_ns))) {
      Enter(*known);
      return true;
    }
    if (new_trials_ >= options_.trials_max || (options_.stop && options_.stop())) return false;
    ++new_trials_;
    const auto kernel = device_.Compile(opts);
    if (absl::IsUnavailable(kernel.status()) || absl::IsCancelled(kernel.status())) return false;
    if (kernel.ok()) Announce(opts);
    const Trial trial = kernel.ok() ? Measure(opts, *kernel) : Trial{opts};
    Keep(trial);
    if (!device_.health().ok()) return false;  // the others would all fail
    Enter(trial);
    return true;
  }

  Trial Measure(const Opts& opts, const CompiledKernel& kernel) {
    Trial trial{opts};
    const int64_t most_ns = IsFull() ? beam_.back().time_ns / 10 * kGiveUpTenths : kForever;
    if (!TakeTime(kernel, most_ns, trial).ok()) return Trial{opts};
    trial.exact = trial.time_ns <= most_ns;
    const bool compared =
        device_compares_ || (target_.block_threads > 1 &&
                             verifier_->buffers().written_bytes() <= kComparedBytesMax);
    if (!compared && !Enters(trial)) return trial;
    const absl::Status checked = Check(kernel);
    trial.verified = checked.ok();
    // Of a device that lives on, other errors are those of whoever compares, not the candidate's.
    if (absl::IsDataLoss(checked) || !device_.health().ok()) trial.time_ns = 0;
    return trial;
  }

  absl::Status Check(const CompiledKernel& kernel) {
    return device_compares_ ? device_.Compare(kernel) : verifier_->Check(kernel);
  }

  // Sets the trial's time and conditions: the shorter of two times where the first was taken at
  // slow clocks, which a moment later may have risen.
  absl::Status TakeTime(const CompiledKernel& kernel, int64_t most_ns, Trial& trial) {
    for (int times = 0; times < 2; ++times) {
      OB_ASSIGN_OR_RETURN(const double seconds,
                          device_.Seconds(kernel, verifier_->buffers().pointers(),
                                          static_cast<double>(most_ns) / 1e9));
      const int64_t time_ns = std::max<int64_t>(1, std::llround(seconds * 1e9));
      const Conditions at = device_.conditions();
      if (times == 0 || time_ns <= trial.time_ns) {
        trial.time_ns = time_ns;
        trial.at = at;
      }
      fastest_mhz_ = std::max(fastest_mhz_, at.clock_mhz);
      if (!IsThrottled(at, fastest_mhz_)) break;
    }
    return absl::OkStatus();
  }

  static bool IsDone(const Trial& trial) { return trial.verified && trial.exact; }
  bool IsFull() const { return beam_.size() >= static_cast<size_t>(options_.width); }
  bool HasRoomFor(int64_t time_ns) const { return !IsFull() || time_ns < beam_.back().time_ns; }
  bool Enters(const Trial& trial) const {
    return trial.works() && trial.exact && HasRoomFor(trial.time_ns);
  }

  void Enter(const Trial& trial) {
    if (!trial.verified || !Enters(trial)) return;
    const auto at =
        std::upper_bound(beam_.begin(), beam_.end(), trial,
                         [](const Trial& a, const Trial& b) { return a.time_ns < b.time_ns; });
    beam_.insert(at, trial);
    if (beam_.size() > static_cast<size_t>(options_.width)) beam_.pop_back();
  }

  const Trial* Known(const Opts& opts) const {
    const auto it = place_.find(codegen::OptsToString(opts));
    return it == place_.end() ? nullptr : &result_.trials[it->second];
  }

  void Keep(const Trial& trial) {
    place_[codegen::OptsToString(trial.opts)] = result_.trials.size();
    result_.trials.push_back(trial);
    if (options_.on_trial) options_.on_trial(trial);
  }

  const UOp* const sink_;
  Measurer& device_;
  const BeamOptions& options_;
  const Target target_;       // of one copy
  Opts start_;                // that the compiler prefers
  std::vector<Opts> others_;  // that it would choose, if those before them were not possible
  std::optional<Verifier> verifier_;
  bool device_compares_ = false;
  BeamResult result_;
  absl::flat_hash_map<std::string, size_t> place_;  // of a trial, by its Opts; never walked
  absl::flat_hash_map<std::string, bool> tried_;    // in this call, known or new; never walked
  std::vector<Trial> beam_;                         // best first
  int64_t new_trials_ = 0;
  int fastest_mhz_ = 0;  // that a trial was made at
};

}  // namespace

absl::StatusOr<BeamResult> Beam(const UOp* sink, Measurer& device, const BeamOptions& options,
                                std::vector<Trial> known) {
  return Search(sink, device, options, std::move(known)).Run();
}

}  // namespace outboard::search
