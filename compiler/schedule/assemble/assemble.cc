#include "compiler/schedule/assemble/assemble.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/schedule/assemble/memory_plan.h"
#include "compiler/schedule/collective/steps.h"
#include "compiler/schedule/in_place.h"
#include "compiler/schedule/launches/group.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

class Assembler {
 public:
  Assembler(KernelsOfGraph from, const Target& target, const MapsOfCopy& maps_of)
      : cut_(from.cut),
        results_(from.cut.sink->src.subspan(0, from.cut.results)),
        sent_(std::move(from.sent)),
        kernels_(std::move(from.kernels)),
        pitches_(from.pitches),
        target_(target) {
    if (maps_of != nullptr)  // asked for the same launches of several plans
      maps_of_ = [this, &maps_of](const UOp* kernel, int64_t copies) {
        const auto [place, fresh] = maps_.try_emplace({kernel, copies});
        if (fresh) place->second = maps_of(kernel, copies);
        return place->second;
      };
    for (size_t i = 0; i < results_.size(); ++i) outputs_.emplace(results_[i], static_cast<int>(i));
  }

  Schedule Run(Graph& graph, std::span<const int64_t> donated, OverwritePolicy overwrites) {
    DropCopies();
    const std::vector<int64_t> free = NotSent(donated);
    const bool divided_sums = target_.block_threads > 1;
    over_ = WriteInPlace(graph, kernels_, results_, free, divided_sums, sent_);
    Schedule apart = PlacedInLaunches();
    if (overwrites == OverwritePolicy::kNever) return apart;
    // Less would not be worth the kernels that are like no others then.
    constexpr int64_t kLargePart = 16, kGainPart = 32;
    const bool large = overwrites == OverwritePolicy::kLarge;
    const int64_t bytes_least = large ? std::max(kLargeBytes, apart.arena_bytes / kLargePart) : 1;
    over_ =
        WriteTemporariesInPlace(graph, kernels_, Fixed(), bytes_least, over_, divided_sums, sent_);
    Schedule in_place = PlacedInLaunches();
    const int64_t gain = apart.arena_bytes - in_place.arena_bytes;
    return large && gain <= apart.arena_bytes / kGainPart ? apart : in_place;
  }

 private:
  Schedule PlacedInLaunches() {
    // A launch of several kernels would wait for the transfers that all of them need.
    if (!cut_.transfers.empty()) return PlacedWithTransfers();
    Schedule single = Placed(SingleLaunches(kernels_.size()));
    if (target_.kind != TargetKind::kCuda) return single;
    Schedule grouped = Placed(GroupLaunches(kernels_, over_, maps_of_));
    // What waits for others keeps its inputs alive.
    constexpr int64_t kMoreMemoryPart = 8;
    const bool fits =
        grouped.arena_bytes <= single.arena_bytes + single.arena_bytes / kMoreMemoryPart;
    return fits ? grouped : single;
  }

  void Begin() {
    schedule_ = {};
    known_.clear();
    lifetimes_.clear();
    for (const UOp* result : results_) {
      const auto input = over_.find(result);
      schedule_.over.push_back(
          input == over_.end() ? kNoInput : static_cast<int>(ParamOf(input->second).slot()));
    }
  }

  Schedule Placed(const Launches& launches) {
    Begin();
    int step = -1;  // kernels of one launch are one: all that they use is alive together
    for (size_t place = 0; place < launches.order.size(); ++place) {
      const FusedKernel& merged = kernels_[launches.order[place]];
      ScheduledKernel kernel{merged.ast, {}, launches.together[place]};
      if (kernel.together > 0) ++step;
      for (const UOp* node : merged.buffers) kernel.buffers.push_back(BufferOf(node, step));
      schedule_.kernels.push_back(std::move(kernel));
      schedule_.steps.push_back({ScheduledStep::Kind::kKernel, static_cast<int>(place)});
    }
    PlaceTemporaries();
    return std::move(schedule_);
  }

  Schedule PlacedWithTransfers() {
    Begin();
    std::vector<TransferUse> transfers;
    for (const CutTransfer& t : cut_.transfers) {
      const UOp* const sent = Stored(t.place < 0 ? t.param : cut_.sink->src[t.place]);
      transfers.push_back({sent,
                           Stored(t.received),
                           PaddedSize(sent->shape) * ByteWidth(sent->dtype),
                           {t.op, t.count, t.stride, t.root}});
    }
    StepPlan plan = PlanSteps(kernels_, transfers);
    schedule_.kernels.resize(kernels_.size());
    schedule_.transfers.resize(transfers.size());
    for (int step = 0; step < static_cast<int>(plan.steps.size()); ++step) {
      const auto [kind, index] = plan.steps[step];
      if (kind == ScheduledStep::Kind::kKernel) {
        const FusedKernel& merged = kernels_[index];
        ScheduledKernel& kernel = schedule_.kernels[index];
        kernel.ast = merged.ast;
        for (const UOp* node : merged.buffers) kernel.buffers.push_back(BufferOf(node, step));
        continue;
      }
      for (const int t : plan.buckets[index]) {
        const TransferUse& use = transfers[t];
        schedule_.transfers[t] = {
            use.kind.op,   use.kind.count,           use.kind.stride,
            use.kind.root, BufferOf(use.sent, step), BufferOf(use.received, step)};
      }
    }
    schedule_.steps = std::move(plan.steps);
    schedule_.buckets = std::move(plan.buckets);
    PlaceTemporaries();
    return std::move(schedule_);
  }

  void DropCopies() {
    std::erase_if(kernels_, [&](const FusedKernel& kernel) {
      return IsCopy(kernel) && made_as_.emplace(kernel.buffers[1], kernel.buffers[0]).second;
    });
    for (FusedKernel& kernel : kernels_)
      for (const UOp*& node : kernel.buffers) node = Stored(node);
    for (auto& [received, sent] : sent_) sent = Stored(sent);
    for (const CutTransfer& transfer : cut_.transfers)
      if (const auto sent = sent_.find(transfer.received); sent != sent_.end())
        sent_[Stored(transfer.received)] = sent->second;
  }

  // The node whose buffer holds `node`.
  const UOp* Stored(const UOp* node) const {
    for (auto as = made_as_.find(node); as != made_as_.end(); as = made_as_.find(node))
      node = as->second;
    return node;
  }

  // Those of `donated` that no transfer sends: it may be under way while results are written.
  std::vector<int64_t> NotSent(std::span<const int64_t> donated) const {
    std::vector<int64_t> free(donated.begin(), donated.end());
    for (const CutTransfer& transfer : cut_.transfers)
      if (transfer.place < 0) std::erase(free, ParamOf(transfer.param).slot());
    return free;
  }

  // What has memory that others see.
  absl::flat_hash_set<const UOp*> Fixed() const {
    absl::flat_hash_set<const UOp*> fixed(results_.begin(), results_.end());
    for (const CutTransfer& t : cut_.transfers) {
      fixed.insert(Stored(t.place < 0 ? t.param : cut_.sink->src[t.place]));
      fixed.insert(Stored(t.received));
    }
    return fixed;
  }

  // Whether the kernel only copies a temporary, element by element: then that one is made where the
  // copy would be.
  bool IsCopy(const FusedKernel& kernel) const {
    if (kernel.buffers.size() != 2 || kernel.stores != 1) return false;
    const UOp &store = *kernel.ast->src[0], &load = *store.src[1];
    if (load.op != Op::kLoad || load.src.size() != 1 || load.src[0]->src[1] != store.src[0]->src[1])
      return false;
    const UOp *const copy = kernel.buffers[0], *const original = kernel.buffers[1];
    const bool input = original->op == Op::kParam && !cut_.IsReceived(original);
    if (input || outputs_.contains(original) || original->dtype != copy->dtype) return false;
    return ElementsInMemory(original, pitches_) == ElementsInMemory(copy, pitches_);
  }

  int BufferOf(const UOp* node, int step) {
    // Temporaries that are written over each other are one, from the first to the last.
    if (const UOp* const memory = MemoryOf(over_, node); memory->op != Op::kParam) node = memory;
    const auto [entry, inserted] = known_.emplace(node, static_cast<int>(schedule_.buffers.size()));
    if (inserted) {
      ScheduledBuffer buffer{ScheduledBuffer::Kind::kTemporary, 0, node->dtype,
                             ElementsInMemory(node, pitches_)};
      if (node->op == Op::kParam && !cut_.IsReceived(node)) {
        buffer.kind = ScheduledBuffer::Kind::kInput;
        buffer.index = ParamOf(node).slot();
      } else if (const auto output = outputs_.find(node); output != outputs_.end()) {
        buffer.kind = ScheduledBuffer::Kind::kOutput;
        buffer.index = output->second;
      }
      if (buffer.kind != ScheduledBuffer::Kind::kTemporary && !IsStatic(node->shape))
        for (const Dim& dim : node->shape) buffer.padded_dims.push_back(PaddedSize(dim));
      schedule_.buffers.push_back(buffer);
      lifetimes_.push_back({buffer.bytes(), step, step});
    }
    lifetimes_[entry->second].last = step;
    return entry->second;
  }

  void PlaceTemporaries() {
    std::vector<Lifetime> temporaries;
    std::vector<ScheduledBuffer*> buffers;
    for (size_t i = 0; i < schedule_.buffers.size(); ++i)
      if (schedule_.buffers[i].kind == ScheduledBuffer::Kind::kTemporary) {
        temporaries.push_back(lifetimes_[i]);
        buffers.push_back(&schedule_.buffers[i]);
      }
    const MemoryPlan plan = PlanMemory(temporaries);
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i]->index = plan.offsets[i];
    schedule_.arena_bytes = plan.bytes;
    schedule_.arena_bytes_least = plan.bytes_least;
  }

  const CutGraph& cut_;
  const Sources results_;
  SentBefore sent_;
  std::vector<FusedKernel> kernels_;
  const RowPitches& pitches_;
  const Target& target_;
  MapsOfCopy maps_of_;
  absl::flat_hash_map<std::pair<const UOp*, int64_t>, int64_t> maps_;  // that maps_of_ has counted
  WrittenOver over_;
  absl::flat_hash_map<const UOp*, const UOp*> made_as_;  // a temporary -> what is a copy of it
  absl::flat_hash_map<const UOp*, int> outputs_;  // the first place of a result
  absl::flat_hash_map<const UOp*, int> known_;    // places in Schedule::buffers
  std::vector<Lifetime> lifetimes_;
  Schedule schedule_;
};

}  // namespace

Schedule Assemble(Graph& graph, KernelsOfGraph from, const Target& target,
                  std::span<const int64_t> donated, const ScheduleOptions& options) {
  return Assembler(std::move(from), target, options.maps_of)
      .Run(graph, donated, options.overwrites);
}

}  // namespace outboard::schedule
