// Stores more values where a kernel would be too long: chains of thousands of operations, sums or
// concatenations of thousands of tensors, and movements on top of hundreds of others.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// The most steps of counting what is in the kernels of one graph, each part of a kernel once. A
// training step of GPT-2 124M takes none; a hostile graph within the limits of the protocol could
// take 10^10, by an estimate.
inline constexpr int64_t kKernelSizeStepsMax = int64_t{1} << 26;

// A choice of what is stored, as ChooseMaterialized has it, and what may be added to it.
struct KernelValues {
  const std::vector<const UOp*>& order;  // all values, sources before users
  const CostTable& costs;
  int64_t buffers_max;  // of one kernel, with the one that it stores
  std::function<bool(const UOp* reduce)> is_loop;       // its kernel has a loop for it
  std::function<bool(const UOp* value)> may_be_stored;  // where it is not yet
};

// Adds to `stored` where a kernel would have more operations than optimize::kKernelSizeMax, more
// loops than optimize::kKernelLoopsMax, more movements on top of each other than
// optimize::kKernelMovementsMax, or as many buffers as a launch has room for. Where nothing may be
// stored, the kernel stays as long as it is: to be refused by the code generator.
// Cost: O(order), and at most `steps_left` steps, which are taken from it. Once none is left, what
// several values of a kernel share counts once for each of them, and more is stored.
void SplitLongKernels(const KernelValues& values, absl::flat_hash_set<const UOp*>& stored,
                      int64_t& steps_left);

}  // namespace outboard::schedule
