#include "worker/engine/plans/group_plans.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "telemetry/log.h"
#include "worker/engine/memory_need.h"
#include "worker/engine/transfers.h"

namespace outboard::worker {
namespace {

// How often the ranks of a group plan one graph. A kernel is chosen, then simpler in three steps;
// those of a launch in copies in two more each time that it is divided.
constexpr int kPlanAttemptsMax = 6 + 2 * std::bit_width(uint64_t{limits::kCopiesMax});

// All ranks look for better kernels of a plan at the same Runs of it. The search finds most soon
// after a graph is new, so they are ever further apart.
bool IsTurnOfKernels(uint64_t runs) { return runs >= 64 && std::has_single_bit(runs); }

uint64_t NumberOf(const ExecutionPlan& plan) {
  VersionsNumber number;
  for (const Launch& launch : plan.launches)
    number.Add(launch.kernel->id, launch.kernel->source.opts);
  return number.Finish();
}

}  // namespace

absl::StatusOr<GroupPlans::Found> GroupPlans::PlanFor(collective::Collective& group,
                                                      const PlanKey& key,
                                                      const PlanWanted& wanted,
                                                      ExecutorTrace* trace,
                                                      const std::function<void()>& make_room) {
  ForgetOlderEpoch(group.member().epoch);
  if (!pinned_.empty()) OB_RETURN_IF_ERROR(SwitchToPinned(group));
  if (ExecutionPlan* const plan = plans_->Find(key); plan != nullptr) {
    if (IsTurnOfKernels(++plan->runs)) OB_RETURN_IF_ERROR(SwitchToBetter(group, *plan));
    return Found{plan, false};
  }
  for (int attempt = 1;; ++attempt) {
    OB_ASSIGN_OR_RETURN(Made made, MakeTogether(group, wanted, trace, make_room));
    // Not before all ranks have it: it takes the place of another one.
    if (!made.differs) return Found{plans_->Add(key, std::move(made.plan)), true};
    OB_RETURN_IF_ERROR(TakeSimpler(group, made, attempt));
  }
}

// A rank may have been within a Run when the last epoch ended, and another behind it.
void GroupPlans::ForgetOlderEpoch(uint64_t epoch) {
  if (std::exchange(epoch_, epoch) == epoch) return;
  plans_->Clear();
  simpler_.clear();
  pinned_.clear();  // no kernel is in use, and plans take what is pinned
}

absl::StatusOr<GroupPlans::Made> GroupPlans::MakeTogether(
    collective::Collective& group, const PlanWanted& wanted, ExecutorTrace* trace,
    const std::function<void()>& make_room) {
  bool is_shared = false;  // once: ranks may have several lists, and not the same number of them
  const auto share = [&](const std::vector<KernelVersion>& mine)
      -> absl::StatusOr<std::vector<KernelVersion>> {
    if (std::exchange(is_shared, true)) return std::vector<KernelVersion>();
    return ShareVersions(group, mine);
  };
  Made made;
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<ExecutionPlan>> {
    OB_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionPlan> plan,
                        maker_->Make({.sink = wanted.sink,
                                      .donated = wanted.donated,
                                      .tuned = group.member().rank == 0,
                                      .trace = trace,
                                      .share = share,
                                      .simpler = &simpler_,
                                      .made_simpler = &made.made_simpler}));
    OB_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> dims_of,
                        ResultDims(wanted.sink, wanted.bindings));
    OB_RETURN_IF_ERROR(
        CheckRoom(*plan, wanted.sink, dims_of, wanted.inputs, *device_, make_room));
    return plan;
  };
  absl::StatusOr<std::unique_ptr<ExecutionPlan>> plan = make();
  if (!is_shared) OB_RETURN_IF_ERROR(share({}).status());  // the others wait for it
  const uint64_t number = plan.ok() ? NumberOf(**plan) : 0;
  OB_ASSIGN_OR_RETURN(const Agreement all, AgreeOn(group, plan.status(), number));
  OB_RETURN_IF_ERROR(all.status);
  made.plan = *std::move(plan);
  made.differs = all.differs;
  return made;
}

// After a rank has made other kernels than rank 0: notes those that a rank could not make as they
// were asked for. Errors, equal on all ranks:
//   FAILED_PRECONDITION  each has made what it was asked for
//   ABORTED              they have tried kPlanAttemptsMax times, or nothing simpler is left
absl::Status GroupPlans::TakeSimpler(collective::Collective& group, const Made& made,
                                     int attempt) {
  OB_ASSIGN_OR_RETURN(const std::vector<SimplerKernel> told,
                      ShareSimpler(group, made.made_simpler));
  const std::string different =
      absl::StrCat("rank ", *made.differs, " made other kernels of this graph than rank 0");
  if (told.empty())
    return absl::FailedPreconditionError(absl::StrCat(
        different, ", and none was refused: their workers have different builds or devices"));
  bool is_simpler = false;
  for (const SimplerKernel& one : told) {
    const auto [known, is_new] = simpler_.try_emplace(one.kernel, one.how);
    is_simpler |= is_new || known->second < one.how;
    known->second = std::max(known->second, one.how);
  }
  if (is_simpler && attempt < kPlanAttemptsMax) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(different, ", after ", attempt,
                                         attempt == 1 ? " attempt" : " attempts"));
}

void GroupPlans::Pin(const KernelVersion& version) {
  kernels_->PinForPlans(version);
  pinned_.push_back(version.kernel);
}

// All ranks replay by rank 0's log of kernel uses, so all have pinned the same since their last
// Run. Kernels that are in use change on all ranks, or where one cannot make what the log says,
// on none.
// Errors: those of the group; on all ranks
//   FAILED_PRECONDITION  the log says different things, or ranks do not use the same kernels
absl::Status GroupPlans::SwitchToPinned(collective::Collective& group) {
  const std::vector<KernelVersion> versions = kernels_->NotAsPinned(pinned_);
  VersionsNumber number;
  for (const KernelId& kernel : pinned_) number.Add(kernel, *kernels_->PinnedOpts(kernel));
  for (const KernelVersion& version : versions)
    number.Add(version.kernel, kernels_->Find(version.kernel)->source.opts);
  absl::StatusOr<std::vector<ReadyKernel>> ready = kernels_->MakeReady(versions, compiler_);
  pinned_.clear();
  OB_ASSIGN_OR_RETURN(const Agreement all, AgreeOn(group, ready.status(), number.Finish()));
  if (all.differs)
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", *all.differs, " replays with other versions of kernels than rank 0"));
  if (all.status.ok()) {
    kernels_->Use(*std::move(ready));
  } else {
    telemetry::LogWarning("replay_keeps_kernels",
                          {{"message", std::string(all.status.message())}});
  }
  return absl::OkStatus();
}

// Where rank 0 knows better versions of the plan's kernels and all ranks can load them, all use
// them from now on. Errors: those of the group
absl::Status GroupPlans::SwitchToBetter(collective::Collective& group, const ExecutionPlan& plan) {
  std::vector<std::shared_ptr<KernelInUse>> kernels;
  for (const Launch& launch : plan.launches)
    if (std::ranges::find(kernels, launch.kernel) == kernels.end())
      kernels.push_back(launch.kernel);
  const bool chooses = group.member().rank == 0;
  OB_ASSIGN_OR_RETURN(const std::vector<KernelVersion> versions,
                      ShareVersions(group, chooses ? kernels_->FindBetter(kernels)
                                                   : std::vector<KernelVersion>()));
  if (versions.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<ReadyKernel>> ready = kernels_->MakeReady(versions, compiler_);
  if (Agree(group, ready.status()).ok()) {
    kernels_->Use(*std::move(ready));
  } else {
    kernels_->Refuse(versions);
  }
  return group.status();
}

}  // namespace outboard::worker
