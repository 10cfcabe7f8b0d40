#include "compiler/schedule/schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/collective/lower.h"
#include "compiler/schedule/collective/steps.h"
#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/schedule/in_place.h"
#include "compiler/schedule/keys/gradient_sums.h"
#include "compiler/schedule/keys/key_parts.h"
#include "compiler/schedule/keys/rounded_gradients.h"
#include "compiler/schedule/keys/score_kernels.h"
#include "compiler/schedule/launches/group.h"
#include "compiler/schedule/launches/slots.h"
#include "compiler/schedule/launches/steady.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/schedule/materialize/products_apart.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/padded_dims.h"
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/split.h"

namespace outboard::schedule {
namespace {

constexpr int64_t kLargeBytes = 1 << 24;  // a step of fewer is not short of memory

// From fused kernels to a schedule: drops copies, writes in place, groups launches, plans when
// transfers are made, numbers the buffers and places temporaries. Of the buffers a PARAM is an
// input, a result of the SINK an output, the rest temporaries, also what transfers receive.
class Assembler {
 public:
  Assembler(const CutGraph& cut, SentBefore sent, std::vector<FusedKernel> kernels,
            const RowPitches& pitches, const Target& target)
      : cut_(cut),
        results_(cut.sink->src.subspan(0, cut.results)),
        sent_(std::move(sent)),
        kernels_(std::move(kernels)),
        pitches_(pitches),
        target_(target) {
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
    Schedule grouped = Placed(GroupLaunches(kernels_, over_));
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
  WrittenOver over_;
  absl::flat_hash_map<const UOp*, const UOp*> made_as_;  // a temporary -> what is a copy of it
  absl::flat_hash_map<const UOp*, int> outputs_;  // the first place of a result
  absl::flat_hash_map<const UOp*, int> known_;    // places in Schedule::buffers
  std::vector<Lifetime> lifetimes_;
  Schedule schedule_;
};

// Every result as a value of its own: one that stands in the SINK twice, or is an input, becomes a
// copy of it.
const UOp* WithDistinctResults(Graph& graph, const UOp* sink) {
  absl::flat_hash_set<const UOp*> seen;
  std::vector<const UOp*> results;
  for (const UOp* result : sink->src) {
    while (result->op == Op::kParam || !seen.insert(result).second)
      result = graph.MakeChecked(Op::kContiguous, DType::kVoid, {result});
    results.push_back(result);
  }
  return graph.MakeChecked(Op::kSink, DType::kVoid, results);
}

// The graph before any sum is in parts.
absl::StatusOr<CutGraph> GraphBeforeSplits(Graph& graph, const UOp* sink) {
  OB_ASSIGN_OR_RETURN(const UOp* prepared, Prepare(graph, sink));
  OB_ASSIGN_OR_RETURN(prepared, LowerCollectives(graph, prepared));
  OB_ASSIGN_OR_RETURN(CutGraph whole, CutAtTransfers(graph, prepared));
  whole.sink = Simplify(graph, whole.sink);
  return whole;
}

// What a schedule is made for.
struct Request {
  const Target& target;
  std::span<const int64_t> donated;
  const ScheduleOptions& options;
  bool allows_tf32 = false;
};

// A graph that kernels are lowered from.
struct Prepared {
  CutGraph cut;
  std::vector<DividedKeys> divided;  // attention of few queries; the maxima are those of `cut`
  std::vector<RoundedGradient> rounded;  // of `cut` those that products have
};

// Sums of few results in parts, and what else kernels are not lowered from. With `asks` attention
// of few queries has its keys divided (keys/key_parts.h), and gradients of scores are rounded
// (keys/rounded_gradients.h), but for sums and gradients of `as_written`.
absl::StatusOr<Prepared> PreparedFrom(Graph& graph, const CutGraph& whole, const Request& request,
                                      const PartsOfSum& parts_of_sum, bool asks,
                                      const absl::flat_hash_set<const UOp*>& as_written) {
  const Target& target = request.target;
  Prepared out{.cut = whole};
  const UOp* sink = whole.sink;
  if (asks) {
    OB_ASSIGN_OR_RETURN(KeysInParts keys, DivideKeys(graph, sink, target, as_written));
    const auto with_maxima = WithMaxima(graph, keys.sink, keys.divided);
    if (!keys.divided.empty() && with_maxima.ok()) {
      out.divided = std::move(keys.divided);
      sink = Simplify(graph, *with_maxima);
    }
  }
  const size_t own = whole.sink->src.size();
  for (size_t i = 0; i < out.divided.size(); ++i) out.divided[i].maxima = sink->src[own + i];
  OB_ASSIGN_OR_RETURN(
      sink, SplitReductions(graph, sink, target, parts_of_sum, ScoresOfParts(out.divided),
                            /*shares_launches=*/whole.transfers.empty()));
  OB_ASSIGN_OR_RETURN(sink, TakeMaxima(graph, sink, own, out.divided));
  out.cut.sink = sink;
  OB_ASSIGN_OR_RETURN(out.cut, WithoutCopies(graph, std::move(out.cut)));
  if (asks) {
    const size_t results = out.cut.sink->src.size();
    const auto with_maxima = WithMaxima(graph, out.cut.sink, out.divided);
    auto rounded =
        with_maxima.ok()
            ? RoundGradients(graph, *with_maxima, request.options.scores, target, as_written)
            : absl::StatusOr<RoundedGradients>(with_maxima.status());
    // Without room for it the graph stays as it was.
    if (!absl::IsResourceExhausted(rounded.status())) {
      OB_RETURN_IF_ERROR(rounded.status());
      OB_ASSIGN_OR_RETURN(out.cut.sink, TakeMaxima(graph, rounded->sink, results, out.divided));
      out.rounded = std::move(rounded->all);
    }
  }
  out.cut.sink = WithDistinctResults(graph, out.cut.sink);
  return out;
}

absl::StatusOr<std::vector<LoweredKernel>> LowerKernels(Graph& graph, const Choice& choice,
                                                        const Target& target,
                                                        const RowPitches& pitches = {}) {
  std::vector<LoweredKernel> kernels;
  for (const UOp* value : choice.kept) {
    if (choice.scattered.contains(value)) {
      OB_ASSIGN_OR_RETURN(auto scatter,
                          LowerScatter(graph, value, target, choice.read_again, pitches));
      if (scatter) {
        kernels.push_back(*std::move(scatter));
        continue;
      }
    }
    OB_ASSIGN_OR_RETURN(LoweredKernel kernel,
                        LowerKernel(graph, value, choice.read_again, pitches));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

// Without values of `scores` in memory. Returns nothing where the target does not compute kernels
// of some attentions, which are added to `refused`.
absl::StatusOr<std::optional<Schedule>> ScheduleWithout(Graph& graph, CutGraph cut,
                                                        const Request& request,
                                                        const Scores& scores,
                                                        ScoreKernels& score_kernels,
                                                        MatrixUnitKernels& units,
                                                        absl::flat_hash_set<int>& refused) {
  const UOp*& prepared = cut.sink;
  const Target& target = request.target;
  const absl::flat_hash_set<const UOp*> never = scores.All();
  OB_ASSIGN_OR_RETURN(Choice choice, ChooseMaterialized(graph, prepared, target, never));
  OB_ASSIGN_OR_RETURN(std::vector<LoweredKernel> kernels, LowerKernels(graph, choice, target));
  OB_RETURN_IF_ERROR(StoreProductsApart(graph, choice, kernels, never, target, units));
  const bool asks = score_kernels.AreAsked() && !scores.attention_of.empty();
  AttentionsOfKernels attentions;
  if (asks) attentions = AttentionsOf(choice, scores);
  if (const Layouts layouts = ChooseLayouts(prepared, choice, kernels, target); !layouts.empty()) {
    LaidOut laid_out = ApplyLayouts(graph, prepared, choice, layouts);
    prepared = laid_out.sink;
    choice = std::move(laid_out.choice);
    OB_ASSIGN_OR_RETURN(kernels, LowerKernels(graph, choice, target));
  }
  const RowPitches pitches = ChoosePitches(prepared, choice, kernels, target);
  if (!pitches.empty()) {
    OB_ASSIGN_OR_RETURN(kernels, LowerKernels(graph, choice, target, pitches));
  }
  const absl::flat_hash_set<const UOp*> results(prepared->src.begin(), prepared->src.end());
  const SentBefore sent = FindSentBefore(cut);
  OB_ASSIGN_OR_RETURN(
      std::vector<FusedKernel> merged,
      FuseKernels(graph, std::move(kernels), results, target, sent, request.options.computes_sums));
  if (target.kind == TargetKind::kCuda) {
    if (request.allows_tf32) AllowTf32(graph, merged);
    NumberSlotsAlike(graph, merged);
  }
  if (asks) refused = score_kernels.Refused(merged, choice.kept, attentions, scores);
  if (!refused.empty()) return std::nullopt;
  Schedule schedule = Assembler(cut, sent, std::move(merged), pitches, target)
                          .Run(graph, request.donated, request.options.overwrites);
  // What is written in place is another kernel.
  const auto computes = [&](const ScheduledKernel& k) { return score_kernels.Computes(k.ast); };
  if (asks && !std::all_of(schedule.kernels.begin(), schedule.kernels.end(), computes)) {
    refused = scores.Attentions();
    return std::nullopt;
  }
  return std::optional<Schedule>(std::move(schedule));
}

// Makes a schedule in which every attention keeps no scores whose kernels the target computes.
class Maker {
 public:
  Maker(Graph& graph, const Request& request)
      : graph_(graph),
        request_(request),
        score_kernels_(request.options.computes_scores),
        units_(request.options.multiplies, request.allows_tf32) {
    if (request.options.parts_of_sum != nullptr)
      parts_of_sum_ = [this](const UOp* reduce) { return PartsOfSumAlone(reduce); };
  }

  absl::StatusOr<Schedule> Run(const UOp* sink) {
    std::optional<RecordedPass> pass(std::in_place, "prepare", Sources(), sink);
    OB_ASSIGN_OR_RETURN(const CutGraph whole, GraphBeforeSplits(graph_, sink));
    const bool asks = score_kernels_.AreAsked() && request_.options.scores != ScorePolicy::kKeep;
    absl::flat_hash_set<const UOp*> as_written;
    // Each time another sum stays whole, at least, or another gradient is not rounded.
    for (;;) {
      if (!pass) pass.emplace("prepare", Sources(), whole.sink);
      OB_ASSIGN_OR_RETURN(const Prepared prepared, PreparedFrom(graph_, whole, request_,
                                                                parts_of_sum_, asks, as_written));
      pass->Made(prepared.cut.sink);
      pass.reset();
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> schedule, FromPrepared(prepared, as_written));
      if (schedule) return *std::move(schedule);
    }
  }

 private:
  // Returns nothing where sums that were divided are better whole, or gradients better not rounded;
  // these are added to `as_written`.
  absl::StatusOr<std::optional<Schedule>> FromPrepared(
      const Prepared& prepared, absl::flat_hash_set<const UOp*>& as_written) {
    Scores scores = FindScores(prepared.cut.sink, request_.options.scores, request_.target,
                               ScoresOfParts(prepared.divided));
    // What was changed for attentions without scores would save nothing where they are kept.
    const size_t before = as_written.size();
    std::vector<std::pair<const UOp*, int>> changed;  // as it was written, and its attention
    const auto add = [&](const UOp* written, const UOp* score) {
      const auto attention = scores.attention_of.find(score);
      if (attention == scores.attention_of.end())
        as_written.insert(written);
      else
        changed.emplace_back(written, attention->second);
    };
    for (const DividedKeys& divided : prepared.divided) add(divided.sum, ScoresOf(divided));
    for (const auto& [written, rounded] : prepared.rounded) add(written, rounded);
    // Each time an attention keeps its scores, at least; all of them where that takes too long.
    while (as_written.size() == before) {
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> over, OverColumns(prepared, scores));
      if (over && over->arena_bytes < kLargeBytes) return over;
      absl::flat_hash_set<int> refused;
      absl::StatusOr<std::optional<Schedule>> plain =
          ScheduleWithout(graph_, prepared.cut, request_, scores, score_kernels_, units_, refused);
      if (over && !plain.ok()) return over;
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> schedule, std::move(plain));
      // Results that nothing else needs live until their gradients are known.
      constexpr int64_t kMoreMemoryPart = 16;
      if (over && (!schedule || over->arena_bytes - schedule->arena_bytes <=
                                    schedule->arena_bytes / kMoreMemoryPart))
        return over;
      if (schedule) return schedule;
      if (++rounds_ >= kRoundsMax) refused = scores.Attentions();
      for (const auto& [written, attention] : changed)
        if (refused.contains(attention)) as_written.insert(written);
      scores.Keep(refused);
    }
    return std::nullopt;
  }

  // With sums over keys as sums over columns (keys/gradient_sums.h). Returns nothing where there is
  // none, or where the target then does not compute some kernel with scores.
  absl::StatusOr<std::optional<Schedule>> OverColumns(const Prepared& prepared,
                                                      const Scores& scores) {
    CutGraph cut = prepared.cut;
    std::vector<DividedKeys> divided = prepared.divided;
    const auto before = WithMaxima(graph_, cut.sink, divided);
    const auto over = before.ok() ? SumOverColumns(graph_, *before, scores,
                                                   request_.options.scores, request_.target)
                                  : before;
    // Without room for it the graph stays as it was.
    if (absl::IsResourceExhausted(over.status())) return std::nullopt;
    OB_RETURN_IF_ERROR(over.status());
    if (*over == *before) return std::nullopt;
    OB_ASSIGN_OR_RETURN(cut.sink, TakeMaxima(graph_, *over, cut.sink->src.size(), divided));
    cut.sink = WithDistinctResults(graph_, cut.sink);  // two sums may be one now
    Scores over_columns =
        FindScores(cut.sink, request_.options.scores, request_.target, ScoresOfParts(divided));
    absl::flat_hash_set<int> refused;
    for (const auto& [node, attention] : over_columns.attention_of)
      if (scores.kept.contains(node)) refused.insert(attention);
    over_columns.Keep(std::exchange(refused, {}));
    return ScheduleWithout(graph_, cut, request_, over_columns, score_kernels_, units_, refused);
  }

  // Of a graph that is nothing but this sum of products.
  int64_t PartsOfSumAlone(const UOp* reduce) {
    CutGraph alone;
    alone.sink = Sink(graph_, {reduce});
    alone.results = 1;
    const ScheduleOptions options;
    MatrixUnitKernels none(nullptr, false);
    absl::flat_hash_set<int> refused;
    const auto kernels =
        ScheduleWithout(graph_, alone, {request_.target, {}, options, request_.allows_tf32}, {},
                        score_kernels_, none, refused);
    return kernels.ok() && kernels->has_value() && (*kernels)->kernels.size() == 1
               ? request_.options.parts_of_sum((*kernels)->kernels[0].ast)
               : 1;
  }

  Graph& graph_;
  const Request& request_;
  ScoreKernels score_kernels_;
  MatrixUnitKernels units_;
  PartsOfSum parts_of_sum_;
  // Schedules that were not taken. What one attention keeps may change what another one reads, but
  // hardly ever in a long chain.
  static constexpr int kRoundsMax = 8;
  int rounds_ = 0;
};

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(Graph& graph, const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated,
                                      const ScheduleOptions& options) {
  const RecordedPass pass("schedule", {}, sink);
  const Request request{target, donated, options, AllowsTf32(sink)};
  OB_ASSIGN_OR_RETURN(Schedule schedule, Maker(graph, request).Run(sink));
  MarkSteady(graph, target, schedule);
  return schedule;
}

namespace {

std::string BufferName(const Schedule& schedule, int index) {
  const ScheduledBuffer& buffer = schedule.buffers[index];
  if (buffer.kind == ScheduledBuffer::Kind::kTemporary) return absl::StrCat("t", index);
  if (buffer.kind == ScheduledBuffer::Kind::kInput) return absl::StrCat("in", buffer.index);
  const int over = schedule.over[buffer.index];
  return absl::StrCat("out", buffer.index, over == kNoInput ? "" : absl::StrCat(">in", over));
}

std::string TransferToString(const Schedule& schedule, int index) {
  const ScheduledTransfer& transfer = schedule.transfers[index];
  return absl::StrCat(std::string(Name(transfer.op)), " of ", transfer.count, " ranks, stride ",
                      transfer.stride, ", sends ", BufferName(schedule, transfer.send),
                      " receives ", BufferName(schedule, transfer.receive));
}

std::string TogetherToString(int together) {
  if (together == 1) return "";
  return together == 0 ? ", in the launch above"
                       : absl::StrCat(", one launch with the next ", together - 1);
}

}  // namespace

std::string KernelToString(const Schedule& schedule, size_t index) {
  const ScheduledKernel& kernel = schedule.kernels[index];
  std::vector<std::string> output_ranges, reduce_ranges, reads, writes;
  for (const UOp* node : PostOrder(kernel.ast)) {
    if (node->op != Op::kRange) continue;
    auto& ranges = IsRange(node, RangeKind::kReduce) ? reduce_ranges : output_ranges;
    ranges.push_back(node->src.empty() ? absl::StrCat(RangeOf(node).extent())
                                       : ExpressionToString(node->src[0]));
  }
  const size_t stores = kernel.ast->src.size();
  for (size_t slot = 0; slot < kernel.buffers.size(); ++slot)
    (slot < stores ? writes : reads).push_back(BufferName(schedule, kernel.buffers[slot]));
  return absl::StrCat("out ", absl::StrJoin(output_ranges, "x"), " loop ",
                      absl::StrJoin(reduce_ranges, "x"), " reads ", absl::StrJoin(reads, " "),
                      " writes ", absl::StrJoin(writes, " "));
}

std::string ScheduleToString(const Schedule& schedule) {
  std::string out;
  for (const ScheduledStep& step : schedule.steps) {
    if (step.kind == ScheduledStep::Kind::kKernel) {
      absl::StrAppend(&out, "kernel ", step.index, ": ", KernelToString(schedule, step.index),
                      TogetherToString(schedule.kernels[step.index].together), "\n");
    } else if (step.kind == ScheduledStep::Kind::kWait) {
      absl::StrAppend(&out, "wait ", step.index, "\n");
    } else {
      for (const int transfer : schedule.buckets[step.index])
        absl::StrAppend(&out, "start ", step.index, ": ", TransferToString(schedule, transfer),
                        "\n");
    }
  }
  return out;
}

}  // namespace outboard::schedule
