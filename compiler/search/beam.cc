#include "compiler/search/beam.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/search/neighbours.h"
#include "compiler/search/verify.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;
using Opts = std::vector<Opt>;

// A candidate is given up on once it takes so much longer than the worst that goes on.
constexpr int64_t kGiveUpTenths = 13;
constexpr int64_t kForever = INT64_MAX;

class Search {
 public:
  Search(const UOp* sink, Measurer& device, const BeamOptions& options, std::vector<Trial> known)
      : sink_(sink), device_(device), options_(options) {
    result_.trials = std::move(known);
    for (size_t i = 0; i < result_.trials.size(); ++i)
      place_[codegen::OptsToString(result_.trials[i].opts)] = i;
  }

  absl::StatusOr<BeamResult> Run() {
    OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel, codegen::AnalyzeKernel(sink_));
    if (kernel.empty || kernel.stores.empty())
      return absl::InvalidArgumentError("search: the kernel has no work");
    if (!codegen::PanelsOf(kernel).empty())  // there is nothing quick enough to compare with
      return absl::InvalidArgumentError("search: plain loops would compute panels over and over");
    Opts plain;
    if (kernel.parallel_count > 0) plain.push_back({OptKind::kThread, 0, kernel.parallel_count});
    OB_ASSIGN_OR_RETURN(const CompiledKernel slow, device_.Compile(plain));
    OB_ASSIGN_OR_RETURN(
        verifier_, Verifier::Make(sink_, slow,
                                  [this](const CompiledKernel& k, std::span<void* const> buffers,
                                         int64_t begin, int64_t end) {
                                    return device_.Run(k, buffers, begin, end);
                                  }));
    OB_RETURN_IF_ERROR(TryHeuristic(codegen::HeuristicOpts(kernel, options_.target)));
    result_.finished = Rounds();
    result_.best = beam_[0];
    return std::move(result_);
  }

 private:
  absl::Status TryHeuristic(const Opts& opts) {
    if (const Trial* known = Known(opts); known != nullptr && known->verified) {
      beam_ = {*known};
    } else {
      OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, device_.Compile(opts));
      OB_RETURN_IF_ERROR(verifier_->Check(kernel));
      Trial trial{opts};
      OB_ASSIGN_OR_RETURN(trial.time_ns, TimeNs(kernel, kForever));
      trial.verified = true;
      Keep(trial);
      beam_ = {trial};
    }
    result_.heuristic_ns = beam_[0].time_ns;
    return absl::OkStatus();
  }

  // What is a move away from one of the best and was not tried, the cheapest by the estimate first:
  // a search that is stopped has tried those, and what is slower is given up on sooner.
  std::vector<Opts> Candidates() const {
    std::vector<Neighbour> neighbours;
    absl::flat_hash_map<std::string, bool> listed;
    for (const Trial& parent : beam_)
      for (Neighbour& neighbour : Neighbours(sink_, parent.opts, options_.target))
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
        known != nullptr && (known->verified || !known->works() || !HasRoomFor(known->time_ns))) {
      Enter(*known);
      return true;
    }
    if (new_trials_ >= options_.trials_max || (options_.stop && options_.stop())) return false;
    ++new_trials_;
    const auto kernel = device_.Compile(opts);
    if (absl::IsUnavailable(kernel.status()) || absl::IsCancelled(kernel.status())) return false;
    const Trial trial = kernel.ok() ? Measure(opts, *kernel) : Trial{opts};
    Keep(trial);
    Enter(trial);
    return true;
  }

  Trial Measure(const Opts& opts, const CompiledKernel& kernel) {
    Trial trial{opts};
    const int64_t most_ns = IsFull() ? beam_.back().time_ns / 10 * kGiveUpTenths : kForever;
    const auto time_ns = TimeNs(kernel, most_ns);
    if (!time_ns.ok()) return trial;
    trial.time_ns = *time_ns;
    trial.exact = *time_ns <= most_ns;
    if (!Enters(trial)) return trial;
    trial.verified = verifier_->Check(kernel).ok();
    if (!trial.verified) trial.time_ns = 0;
    return trial;
  }

  absl::StatusOr<int64_t> TimeNs(const CompiledKernel& kernel, int64_t most_ns) {
    OB_ASSIGN_OR_RETURN(const double seconds,
                        device_.Seconds(kernel, verifier_->buffers().pointers(),
                                        static_cast<double>(most_ns) / 1e9));
    return std::max<int64_t>(1, std::llround(seconds * 1e9));
  }

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
  std::optional<Verifier> verifier_;
  BeamResult result_;
  absl::flat_hash_map<std::string, size_t> place_;  // of a trial, by its Opts; never walked
  absl::flat_hash_map<std::string, bool> tried_;    // in this call, known or new; never walked
  std::vector<Trial> beam_;                         // best first
  int64_t new_trials_ = 0;
};

}  // namespace

absl::StatusOr<BeamResult> Beam(const UOp* sink, Measurer& device, const BeamOptions& options,
                                std::vector<Trial> known) {
  return Search(sink, device, options, std::move(known)).Run();
}

}  // namespace outboard::search
