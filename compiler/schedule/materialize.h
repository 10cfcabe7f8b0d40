// Decides which values to materialise; all others are recomputed (inlined) at each use.
//
// One walk from results to inputs estimates how often each value would be computed if it were
// inlined: a REDUCE multiplies the count of its source, an EXPAND leaves its source with more reads
// than elements, counts of several users add up. A value is materialised if inlining costs more
// than a store and loads:
//
//   - a REDUCE with several users, or read more often than it has elements, or under another loop
//     that it cannot share;
//   - a value that contains such a REDUCE (its bias, its activation), once it has several users;
//   - a scatter, that is a sum at data-dependent offsets (gather/scatter.h), which cannot be
//     inlined;
//   - arithmetic that would be repeated many times per element (the operand of a convolution);
//   - long arithmetic that two kernels would repeat;
//   - a kernel that would otherwise have more operations, buffers or loops than one may (a sum of
//     hundreds of tensors, or of their norms).
//
// On GPUs elementwise values that several kernels read are then looked at again, by the bytes that
// these move (materialize/by_bytes.h).
//
// One-hot sums (gather/gather.h) are loads, not loops, and are never a reason to materialise. They
// collapse only if their condition is visible, so what a condition computes from positions is
// inlined even if it is also a result.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

struct Choice {
  std::vector<const UOp*> kept;               // materialised; sources before users, no PARAMs
  absl::flat_hash_set<const UOp*> scattered;  // those of `kept` that LowerScatter lowers
  absl::flat_hash_set<const UOp*>
      read_again;  // values that users load: `kept` without conditions, and without PARAMs
};

// Chooses for all values of `sink`. Materialises every result that has elements, and none of
// `never` (attention.h). Requires a prepared graph (prepare.h). Errors: RESOURCE_EXHAUSTED  a limit
// of the graph
absl::StatusOr<Choice> ChooseMaterialized(Graph& graph, const UOp* sink, const Target& target,
                                          const absl::flat_hash_set<const UOp*>& never = {});

}  // namespace outboard::schedule
