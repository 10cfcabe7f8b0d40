// Schedules as text, for people and golden tests.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/schedule/schedule.h"

namespace outboard::schedule {
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
