#include "compiler/schedule/schedule.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/schedule/in_place.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/padded_dims.h"
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/split.h"

namespace outboard::schedule {
namespace {

// Numbers the buffers of merged kernels: a PARAM is an input, a result of the SINK an output, the
// rest temporaries.
class Assembler {
 public:
  Assembler(const UOp* sink, std::vector<FusedKernel> kernels)
      : sink_(sink), kernels_(std::move(kernels)) {
    for (size_t i = 0; i < sink->src.size(); ++i)
      outputs_.emplace(sink->src[i], static_cast<int>(i));
  }

  Schedule Run(Graph& graph, std::span<const int64_t> donated) {
    DropCopies();
    const WrittenOver over = WriteInPlace(graph, kernels_, sink_->src, donated);
    for (const UOp* result : sink_->src) {
      const auto input = over.find(result);
      schedule_.over.push_back(
          input == over.end() ? kNoInput : static_cast<int>(ParamOf(input->second).slot()));
    }
    for (int step = 0; step < static_cast<int>(kernels_.size()); ++step) {
      const FusedKernel& merged = kernels_[step];
      ScheduledKernel kernel{merged.ast, {}};
      for (const UOp* node : merged.buffers) kernel.buffers.push_back(BufferOf(node, step));
      schedule_.kernels.push_back(std::move(kernel));
    }
    PlaceTemporaries();
    return std::move(schedule_);
  }

 private:
  void DropCopies() {
    absl::flat_hash_map<const UOp*, const UOp*> made_as;  // a temporary -> what is a copy of it
    std::erase_if(kernels_, [&](const FusedKernel& kernel) {
      return IsCopy(kernel) && made_as.emplace(kernel.buffers[1], kernel.buffers[0]).second;
    });
    for (FusedKernel& kernel : kernels_)
      for (const UOp*& node : kernel.buffers)
        while (made_as.contains(node)) node = made_as.at(node);
  }

  // Whether the kernel only copies a temporary, element by element: then that one is made where the
  // copy would be.
  bool IsCopy(const FusedKernel& kernel) const {
    if (kernel.buffers.size() != 2 || kernel.stores != 1) return false;
    const UOp &store = *kernel.ast->src[0], &load = *store.src[1];
    if (load.op != Op::kLoad || load.src.size() != 1 || load.src[0]->src[1] != store.src[0]->src[1])
      return false;
    const UOp *const copy = kernel.buffers[0], *const original = kernel.buffers[1];
    if (original->op == Op::kParam || outputs_.contains(original) || original->dtype != copy->dtype)
      return false;
    return PaddedSize(original->shape) == PaddedSize(copy->shape);
  }

  int BufferOf(const UOp* node, int step) {
    const auto [entry, inserted] = known_.emplace(node, static_cast<int>(schedule_.buffers.size()));
    if (inserted) {
      ScheduledBuffer buffer{ScheduledBuffer::Kind::kTemporary, 0, node->dtype,
                             PaddedSize(node->shape)};
      if (node->op == Op::kParam) {
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

  const UOp* sink_;
  std::vector<FusedKernel> kernels_;
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

absl::StatusOr<const UOp*> Prepared(Graph& graph, const UOp* sink, const Target& target) {
  RecordedPass pass("prepare", {}, sink);
  OB_ASSIGN_OR_RETURN(const UOp* prepared, Prepare(graph, sink));
  OB_ASSIGN_OR_RETURN(prepared, SplitReductions(graph, Simplify(graph, prepared), target));
  return pass.Made(WithDistinctResults(graph, prepared));
}

absl::StatusOr<std::vector<LoweredKernel>> LowerKernels(Graph& graph, const Choice& choice) {
  std::vector<LoweredKernel> kernels;
  for (const UOp* value : choice.kept) {
    if (choice.scattered.contains(value)) {
      OB_ASSIGN_OR_RETURN(auto scatter, LowerScatter(graph, value, choice.read_again));
      if (scatter) {
        kernels.push_back(*std::move(scatter));
        continue;
      }
    }
    OB_ASSIGN_OR_RETURN(LoweredKernel kernel, LowerKernel(graph, value, choice.read_again));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

// Without values of `scores` in memory.
absl::StatusOr<Schedule> ScheduleWithout(Graph& graph, const UOp* prepared, const Target& target,
                                         std::span<const int64_t> donated,
                                         const absl::flat_hash_set<const UOp*>& scores) {
  OB_ASSIGN_OR_RETURN(Choice choice, ChooseMaterialized(graph, prepared, target, scores));
  OB_ASSIGN_OR_RETURN(std::vector<LoweredKernel> kernels, LowerKernels(graph, choice));
  if (const Layouts layouts = ChooseLayouts(prepared, choice, kernels, target); !layouts.empty()) {
    LaidOut laid_out = ApplyLayouts(graph, prepared, choice, layouts);
    prepared = laid_out.sink;
    choice = std::move(laid_out.choice);
    OB_ASSIGN_OR_RETURN(kernels, LowerKernels(graph, choice));
  }
  const absl::flat_hash_set<const UOp*> results(prepared->src.begin(), prepared->src.end());
  OB_ASSIGN_OR_RETURN(std::vector<FusedKernel> merged,
                      FuseKernels(graph, std::move(kernels), results, target));
  return Assembler(prepared, std::move(merged)).Run(graph, donated);
}

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(Graph& graph, const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated,
                                      const ScheduleOptions& options) {
  const RecordedPass pass("schedule", {}, sink);
  OB_ASSIGN_OR_RETURN(const UOp* prepared, Prepared(graph, sink, target));

  const auto scores = FindScores(prepared, options.scores, target);
  OB_ASSIGN_OR_RETURN(Schedule schedule,
                      ScheduleWithout(graph, prepared, target, donated, scores));
  if (scores.empty() || options.computes_scores == nullptr) return schedule;
  for (const ScheduledKernel& kernel : schedule.kernels)
    if (!options.computes_scores(kernel.ast))
      return ScheduleWithout(graph, prepared, target, donated, {});
  return schedule;
}

std::string KernelToString(const Schedule& schedule, size_t index) {
  const auto name = [&](int i) {
    const ScheduledBuffer& buffer = schedule.buffers[i];
    const char* const kind = buffer.kind == ScheduledBuffer::Kind::kInput    ? "in"
                             : buffer.kind == ScheduledBuffer::Kind::kOutput ? "out"
                                                                             : "t";
    if (buffer.kind == ScheduledBuffer::Kind::kTemporary) return absl::StrCat(kind, i);
    const int over =
        buffer.kind == ScheduledBuffer::Kind::kOutput ? schedule.over[buffer.index] : kNoInput;
    return absl::StrCat(kind, buffer.index, over == kNoInput ? "" : absl::StrCat(">in", over));
  };
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
    (slot < stores ? writes : reads).push_back(name(kernel.buffers[slot]));
  return absl::StrCat("out ", absl::StrJoin(output_ranges, "x"), " loop ",
                      absl::StrJoin(reduce_ranges, "x"), " reads ", absl::StrJoin(reads, " "),
                      " writes ", absl::StrJoin(writes, " "));
}

std::string ScheduleToString(const Schedule& schedule) {
  std::string out;
  for (size_t i = 0; i < schedule.kernels.size(); ++i)
    absl::StrAppend(&out, "kernel ", i, ": ", KernelToString(schedule, i), "\n");
  return out;
}

}  // namespace outboard::schedule
