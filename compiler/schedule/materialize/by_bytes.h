// Decides which elementwise values a GPU stores in memory. A value that several kernels need is
// either stored once and loaded by each of them, or computed again by each from its sources. The
// choice that moves fewer bytes wins. Computing it again moves no bytes in a kernel that loads the
// sources anyway.
//
// An example of each: GELU and its gradient both load GELU's argument, so its tanh is computed
// twice and not stored. The gradient of a residual connection is a sum of two arrays that three
// kernels need: it is stored, since otherwise each of the three would load both arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// The most kernels that one value is decided for.
inline constexpr size_t kReadersByBytesMax = 16;
// The most steps for one graph, in all rounds. A training step of GPT-2 124M takes some 200,000; a
// hostile graph within the limits of the protocol could take 10^9, by an estimate.
inline constexpr int64_t kStepsByBytesMax = int64_t{1} << 24;

// A choice of what is stored, as ChooseMaterialized has it.
struct StoredValues {
  const std::vector<const UOp*>& order;           // all values, sources before users
  const absl::flat_hash_set<const UOp*>& stored;  // PARAMs are loaded without being in it
  const absl::flat_hash_set<const UOp*>& fixed;   // stored or not, they stay as they are
  const absl::flat_hash_set<const UOp*>& seen;    // of `stored`: never loaded
  // Whether a REDUCE loads at offsets that depend on data, or stores at such: what is below it is
  // left as it is.
  std::function<bool(const UOp* reduce)> gathers;
};

struct ByBytes {
  absl::flat_hash_set<const UOp*> store, compute;  // what to change
};

// Returns the changes that save bytes. Each value is decided for with those before it: in `order`.
// Values of fewer than 64 KiB stay as they are, and those whose kernels are too large to look at.
// Cost: O(order), and at most `steps_left` steps of walks around values, which are taken from it.
// Once none is left, the values that were not looked at yet stay as they are.
ByBytes ChooseByBytes(const StoredValues& values, const CostTable& costs, int64_t& steps_left);

}  // namespace outboard::schedule
