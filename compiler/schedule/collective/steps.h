// The order of kernels, starts of transfers and waits for them.
//
//   - A transfer is started when what it sends is stored, and waited for before the first kernel
//     that reads what it receives: the kernels between hide its time. FuseKernels orders kernels
//     for that: those that need no transfer first (fuse_kernels.h).
//   - Transfers of one group and pattern that nothing waits for yet are started together, as a
//     bucket, at kBucketBytes or when no other can join: gradients as backward produces them.
//   - Transfers of inputs (gathers of weights) could all be started at once, and would then all be
//     in memory. The next one is started when the one before is waited for: one layer ahead.
//
// All ranks run one graph, so they start the same buckets in the same order, and a rank that waits
// is never waited for by an earlier start: no two ranks wait for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse_kernels.h"

namespace outboard::schedule {

// Of one pattern and group: 4 MiB take 34 ms at 1 Gbit/s, so that messages cost little beside bytes
// and the last bucket of a backward pass is not long.
inline constexpr int64_t kBucketBytes = 4 << 20;

// One step of a schedule.
struct ScheduledStep {
  enum class Kind { kKernel, kStart, kWait };
  Kind kind = Kind::kKernel;
  int index = 0;  // of a kernel, or of a bucket
  friend bool operator==(const ScheduledStep&, const ScheduledStep&) = default;
};

// What the order depends on: a transfer as kernels see it.
struct TransferUse {
  const UOp* sent = nullptr;
  const UOp* received = nullptr;
  int64_t bytes = 0;  // sent
  // Transfers of one kind can be in one bucket.
  struct Kind {
    Op op = Op::kUnshard;
    int64_t count = 1, stride = 1, root = 0;
    friend auto operator<=>(const Kind&, const Kind&) = default;
  } kind;
};

struct StepPlan {
  std::vector<ScheduledStep> steps;
  std::vector<std::vector<int>> buckets;  // of transfers
};

// `kernels` and `transfers` are in a valid order. A transfer may send what an earlier one receives.
StepPlan PlanSteps(const std::vector<FusedKernel>& kernels,
                   const std::vector<TransferUse>& transfers);

}  // namespace outboard::schedule
