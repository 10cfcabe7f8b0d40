#include "compiler/search/beam.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/codegen/apply.h"
#include "compiler/codegen/heuristic.h"
#include "compiler/ir/check.h"
#include "compiler/search/neighbours.h"
#include "compiler/search/verify.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;
using Opts = std::vector<Opt>;

// A candidate is given up on once it takes so much longer than the worst that goes on.
constexpr double kGiveUp = 1.3;

class Search {
 public:
  Search(const UOp* sink, Device& device, const BeamOptions& options, std::vector<Trial> known)
      : sink_(sink), device_(device), options_(options) {
    result_.trials = std::move(known);
    for (size_t i = 0; i < result_.trials.size(); ++i)
      place_[codegen::OptsToString(result_.trials[i].opts)] = i;
  }

  absl::StatusOr<BeamResult> Run() {
    OB_ASSIGN_OR_RETURN(const codegen::Kernel kernel, codegen::AnalyzeKernel(sink_));
    if (kernel.empty || kernel.stores.empty())
      return absl::InvalidArgumentError("search: the kernel has no work");
    Opts plain;
    if (kernel.output_count > 0) plain.push_back({OptKind::kThread, 0, kernel.output_count});
    OB_ASSIGN_OR_RETURN(const CompiledKernel slow, device_.Compile(plain));
    OB_ASSIGN_OR_RETURN(
        verifier_, Verifier::Make(sink_, slow,
                                  [this](const CompiledKernel& k, std::span<void* const> buffers,
                                         int64_t begin, int64_t end) {
                                    return device_.Run(k, buffers, begin, end);
                                  }));
    OB_RETURN_IF_ERROR(TryHeuristic(codegen::HeuristicOpts(kernel, options_.machine)));
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
      OB_ASSIGN_OR_RETURN(trial.seconds,
                          device_.Seconds(kernel, verifier_->buffers().pointers(), 1e30));
      trial.verified = true;
      Keep(trial);
      beam_ = {trial};
    }
    result_.heuristic_seconds = beam_[0].seconds;
    return absl::OkStatus();
  }

  // False where it was stopped.
  bool Rounds() {
    while (true) {
      const double before = beam_[0].seconds;
      std::vector<Opts> candidates;
      absl::flat_hash_map<std::string, bool> listed;
      for (const Trial& parent : beam_)
        for (Opts& opts : Neighbours(sink_, parent.opts, options_.machine))
          if (const std::string text = codegen::OptsToString(opts);
              !tried_.contains(text) && listed.emplace(text, true).second)
            candidates.push_back(std::move(opts));
      std::vector<Opts> unknown;
      for (const Opts& opts : candidates)
        if (Known(opts) == nullptr) unknown.push_back(opts);
      device_.Expect(unknown);
      for (const Opts& opts : candidates) {
        if (!Try(opts)) return false;
        tried_[codegen::OptsToString(opts)] = true;
      }
      if (beam_[0].seconds * options_.least_gain > before) return true;
    }
  }

  // False where the search must stop.
  bool Try(const Opts& opts) {
    // What an earlier, narrower search gave up on or did not verify may be worth it now.
    if (const Trial* known = Known(opts);
        known != nullptr &&
        (known->verified || known->seconds < 0 || !HasRoomFor(known->seconds))) {
      Enter(*known);
      return true;
    }
    if (new_trials_ >= options_.trials_max || (options_.stop && options_.stop())) return false;
    ++new_trials_;
    const Trial trial = Measure(opts);
    Keep(trial);
    Enter(trial);
    return true;
  }

  Trial Measure(const Opts& opts) {
    Trial trial{opts, -1};
    const auto kernel = device_.Compile(opts);
    if (!kernel.ok()) return trial;
    const double most = IsFull() ? kGiveUp * beam_.back().seconds : 1e30;
    const auto seconds = device_.Seconds(*kernel, verifier_->buffers().pointers(), most);
    if (!seconds.ok()) return trial;
    trial.seconds = *seconds;
    trial.exact = *seconds <= most;
    if (!Enters(trial)) return trial;
    trial.verified = verifier_->Check(*kernel).ok();
    if (!trial.verified) trial.seconds = -1;
    return trial;
  }

  bool IsFull() const { return beam_.size() >= static_cast<size_t>(options_.width); }
  bool HasRoomFor(double seconds) const { return !IsFull() || seconds < beam_.back().seconds; }
  bool Enters(const Trial& trial) const {
    return trial.seconds >= 0 && trial.exact && HasRoomFor(trial.seconds);
  }

  void Enter(const Trial& trial) {
    if (!trial.verified || !Enters(trial)) return;
    const auto at =
        std::upper_bound(beam_.begin(), beam_.end(), trial,
                         [](const Trial& a, const Trial& b) { return a.seconds < b.seconds; });
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
  Device& device_;
  const BeamOptions& options_;
  std::optional<Verifier> verifier_;
  BeamResult result_;
  absl::flat_hash_map<std::string, size_t> place_;  // of a trial, by its Opts; never walked
  absl::flat_hash_map<std::string, bool> tried_;    // in this call, known or new; never walked
  std::vector<Trial> beam_;                         // best first
  int64_t new_trials_ = 0;
};

}  // namespace

absl::StatusOr<BeamResult> Beam(const UOp* sink, Device& device, const BeamOptions& options,
                                std::vector<Trial> known) {
  return Search(sink, device, options, std::move(known)).Run();
}

std::string TrialToString(const Trial& trial) {
  // 17 digits: the same double again.
  return absl::StrFormat("%.17g %s%s %s", trial.seconds, trial.exact ? "exact" : "over",
                         trial.verified ? ",verified" : "", codegen::OptsToString(trial.opts));
}

absl::StatusOr<Trial> ParseTrial(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  Trial trial;
  if (second == std::string_view::npos ||
      !absl::SimpleAtod(absl::string_view(line.data(), first), &trial.seconds))
    return absl::InvalidArgumentError("not a trial: seconds, flags and Opts are wanted");
  const std::string_view flags = line.substr(first + 1, second - first - 1);
  trial.exact = flags.starts_with("exact");
  trial.verified = flags.ends_with(",verified");
  if (flags != "exact" && flags != "over" && flags != "exact,verified" && flags != "over,verified")
    return absl::InvalidArgumentError(absl::StrCat("not a trial's flags: ", std::string(flags)));
  OB_ASSIGN_OR_RETURN(trial.opts, codegen::ParseOpts(line.substr(second + 1)));
  return trial;
}

}  // namespace outboard::search
