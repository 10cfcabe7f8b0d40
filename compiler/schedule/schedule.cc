#include "compiler/schedule/schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/assemble/assemble.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/collective/lower.h"
#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/schedule/keys/gradient_sums.h"
#include "compiler/schedule/keys/key_parts.h"
#include "compiler/schedule/keys/rounded_gradients.h"
#include "compiler/schedule/keys/score_kernels.h"
#include "compiler/schedule/launches/slots.h"
#include "compiler/schedule/launches/steady.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/schedule/materialize/products_apart.h"
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/split.h"

namespace outboard::schedule {
namespace {

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

// Puts sums of few results in parts, and drops what kernels are not lowered from. With
// `rewrites_attention` it also divides the keys of attention of few queries (keys/key_parts.h) and
// rounds gradients of scores (keys/rounded_gradients.h), but for sums and gradients in `unchanged`.
absl::StatusOr<Prepared> PreparedFrom(Graph& graph, const CutGraph& whole, const Request& request,
                                      const PartsOfSum& parts_of_sum,
                                      bool rewrites_attention,
                                      const absl::flat_hash_set<const UOp*>& unchanged) {
  const Target& target = request.target;
  Prepared out{.cut = whole};
  const UOp* sink = whole.sink;
  if (rewrites_attention) {
    OB_ASSIGN_OR_RETURN(KeysInParts keys, DivideKeys(graph, sink, target, unchanged));
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
  if (rewrites_attention) {
    const size_t results = out.cut.sink->src.size();
    const auto with_maxima = WithMaxima(graph, out.cut.sink, out.divided);
    auto rounded =
        with_maxima.ok()
            ? RoundGradients(graph, *with_maxima, request.options.scores, target, unchanged,
                             out.divided)
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

// Returns a schedule that stores no value of `scores`: all are computed again at each use. Returns
// nothing where the target does not compute the kernels of some attentions well; `refused` then has
// these attentions.
absl::StatusOr<std::optional<Schedule>> ScheduleWithoutScores(
    Graph& graph, CutGraph cut, const Request& request, const Scores& scores,
    ScoreKernels& score_kernels, MatrixUnitKernels& units, absl::flat_hash_set<int>& refused) {
  const UOp*& prepared = cut.sink;
  const Target& target = request.target;
  const absl::flat_hash_set<const UOp*> never = scores.All();
  OB_ASSIGN_OR_RETURN(Choice choice, ChooseMaterialized(graph, prepared, target, never));
  OB_ASSIGN_OR_RETURN(std::vector<LoweredKernel> kernels, LowerKernels(graph, choice, target));
  OB_RETURN_IF_ERROR(StoreProductsApart(graph, choice, kernels, never, target, units));
  const bool asks_target = score_kernels.AreAsked() && !scores.attention_of.empty();
  AttentionsOfKernels attentions;
  if (asks_target) attentions = AttentionsOf(choice, scores);
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
  if (asks_target) refused = score_kernels.Refused(merged, choice.kept, attentions, scores);
  if (!refused.empty()) return std::nullopt;
  Schedule schedule = Assemble(graph, {cut, sent, std::move(merged), pitches}, target,
                               request.donated, request.options);
  // What is written in place is another kernel.
  const auto computes = [&](const ScheduledKernel& k) { return score_kernels.Computes(k.ast); };
  if (asks_target && !std::all_of(schedule.kernels.begin(), schedule.kernels.end(), computes)) {
    refused = scores.Attentions();
    return std::nullopt;
  }
  return std::optional<Schedule>(std::move(schedule));
}

// Makes a schedule that stores the scores of no attention whose kernels the target computes well.
class ScheduleMaker {
 public:
  ScheduleMaker(Graph& graph, const Request& request)
      : graph_(graph),
        request_(request),
        score_kernels_(request.options.computes_scores),
        units_(request.options.uses_matrix_unit, request.allows_tf32) {
    if (request.options.parts_of_sum != nullptr)
      parts_of_sum_ = [this](const UOp* reduce) { return PartsOfSumAlone(reduce); };
  }

  absl::StatusOr<Schedule> Run(const UOp* sink) {
    std::optional<RecordedPass> pass(std::in_place, "prepare", Sources(), sink);
    OB_ASSIGN_OR_RETURN(const CutGraph whole, GraphBeforeSplits(graph_, sink));
    const bool rewrites_attention =
        score_kernels_.AreAsked() && request_.options.scores != ScorePolicy::kKeep;
    absl::flat_hash_set<const UOp*> unchanged;
    // Each round adds a sum, whose keys then stay whole, or a gradient, which is not rounded.
    for (;;) {
      if (!pass) pass.emplace("prepare", Sources(), whole.sink);
      OB_ASSIGN_OR_RETURN(const Prepared prepared,
                          PreparedFrom(graph_, whole, request_, parts_of_sum_, rewrites_attention,
                                       unchanged));
      pass->Made(prepared.cut.sink);
      pass.reset();
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> schedule, FromPrepared(prepared, unchanged));
      if (schedule) return *std::move(schedule);
    }
  }

 private:
  // Returns nothing where sums that were divided are better whole, or gradients better not rounded;
  // these are added to `unchanged`.
  absl::StatusOr<std::optional<Schedule>> FromPrepared(
      const Prepared& prepared, absl::flat_hash_set<const UOp*>& unchanged) {
    Scores scores = FindScores(prepared.cut.sink, request_.options.scores, request_.target,
                               ScoresOfParts(prepared.divided));
    // What was rewritten so that an attention need not store its scores saves nothing if it does.
    const size_t before = unchanged.size();
    std::vector<std::pair<const UOp*, int>> rewritten;  // as the graph has it, and its attention
    const auto add = [&](const UOp* original, const UOp* score) {
      const auto attention = scores.attention_of.find(score);
      if (attention == scores.attention_of.end())
        unchanged.insert(original);
      else
        rewritten.emplace_back(original, attention->second);
    };
    for (const DividedKeys& divided : prepared.divided) add(divided.sum, ScoresOf(divided));
    for (const auto& [written, rounded] : prepared.rounded) add(written, rounded);
    // Each round lets an attention store its scores, at least; all of them after kRoundsMax rounds.
    while (unchanged.size() == before) {
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> over, OverColumns(prepared, scores));
      if (over && over->arena_bytes < kLargeBytes) return over;
      absl::flat_hash_set<int> refused;
      absl::StatusOr<std::optional<Schedule>> plain = WithoutScores(prepared.cut, scores, refused);
      if (over && !plain.ok()) return over;
      OB_ASSIGN_OR_RETURN(std::optional<Schedule> schedule, std::move(plain));
      // Results that nothing else needs live until their gradients are known.
      constexpr int64_t kMoreMemoryPart = 16;
      if (over && (!schedule || over->arena_bytes - schedule->arena_bytes <=
                                    schedule->arena_bytes / kMoreMemoryPart))
        return over;
      if (schedule) return schedule;
      if (++rounds_ >= kRoundsMax) refused = scores.Attentions();
      for (const auto& [original, attention] : rewritten)
        if (refused.contains(attention)) unchanged.insert(original);
      scores.Store(refused);
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
      if (scores.stored.contains(node)) refused.insert(attention);
    over_columns.Store(std::exchange(refused, {}));
    return WithoutScores(cut, over_columns, refused);
  }

  absl::StatusOr<std::optional<Schedule>> WithoutScores(const CutGraph& cut, const Scores& scores,
                                                        absl::flat_hash_set<int>& refused) {
    return ScheduleWithoutScores(graph_, cut, request_, scores, score_kernels_, units_, refused);
  }

  // Of a graph that is nothing but this sum of products.
  int64_t PartsOfSumAlone(const UOp* reduce) {
    CutGraph alone;
    alone.sink = Sink(graph_, {reduce});
    alone.results = 1;
    const ScheduleOptions options;
    MatrixUnitKernels none(nullptr, false);
    absl::flat_hash_set<int> refused;
    const Request request{request_.target, {}, options, request_.allows_tf32};
    const auto kernels =
        ScheduleWithoutScores(graph_, alone, request, {}, score_kernels_, none, refused);
    return kernels.ok() && kernels->has_value() && (*kernels)->kernels.size() == 1
               ? request_.options.parts_of_sum((*kernels)->kernels[0].ast)
               : 1;
  }

  Graph& graph_;
  const Request& request_;
  ScoreKernels score_kernels_;
  MatrixUnitKernels units_;
  PartsOfSum parts_of_sum_;
  // Schedules that were not taken. What one attention stores may change what another one reads, but
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
  OB_ASSIGN_OR_RETURN(Schedule schedule, ScheduleMaker(graph, request).Run(sink));
  MarkSteady(graph, target, schedule);
  return schedule;
}

}  // namespace outboard::schedule
