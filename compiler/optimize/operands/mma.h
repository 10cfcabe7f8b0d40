// Finds kernels that a GPU's matrix unit can compute: REDUCE_LOOP(ADD) of MUL(CAST f32(a), CAST
// f32(b)) with a and b both of bf16 or f16, or each of an 8-bit float, or of MUL(a, b) of f32,
// whatever they are computed from; and several such sums that are added to each other, whose ADDs
// may stand behind the reductions or inside of one. They are one sum of all of their products, each
// addend's after those of the one before (docs/semantics.md).
//
// Of an f32 the unit takes the first 19 bits, a TF32. So a product of two is three: each operand is
// the sum of two TF32, and what is left out of the sum of their products is less than what an f32
// rounds off. A program may say that one product of rounded operands will do (SINK's argument).
//
// Terms may be rounded to a narrow float before they are added in it, as a gradient's are: that is
// left out. They may be 0 where a condition is false that gates a LOAD among the operands, too.
//
// Output ranges that a alone depends on are the rows of the product, those of b its columns, those
// of both its batch. Several ranges of one kind are one index, the last one varying fastest, and so
// are the reduced ranges, the steps: a convolution is a product, too. What the kernel stores may be
// any function of the sum, and sums of such functions over 16 rows each (kernel/row_sums.h).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

// What the unit multiplies for each product of the kernel.
enum class MmaParts {
  kWhole,    // the operands as they are: they are no f32
  kRounded,  // f32, rounded to TF32
  kThree,    // f32, by three products
};

// From so many steps on three products are within the bound of f32: docs/semantics.md, "Matrix
// units of GPUs", where n is the number of steps: 40 + n / 8 <= n.
inline constexpr int64_t kThreeStepsMin = 48;

// One operand of an addend.
struct MmaFactor {
  const UOp* value = nullptr;  // of MmaProduct::dtype or columns_dtype
  // Whether it lies in shared memory with its rows or columns side by side, instead of its steps.
  bool across = false;
  // Whether it is a LOAD whose elements can be copied as they are, with zeros where its gate is
  // false; and how many at a time, of 16 bytes at most, which lie side by side from a multiple on.
  bool copied = false;
  int64_t run = 1;
  // Whether all taps of a window are copied by one thread (MmaProduct::window), `run` being its
  // slots; and two taps that share 4 bytes together.
  bool by_windows = false, pairs = false;
};

// One of the products that are added.
struct MmaAddend {
  const UOp* term = nullptr;  // what is summed over its steps, where all of `gates` hold
  std::vector<const UOp*> gates;  // of ADDs that it is a part of
  MmaFactor rows, columns;
  std::vector<int> reduced;  // ranges
  int64_t steps = 1;
};

// The rows or columns of all addends.
struct MmaSide {
  std::vector<int> ranges;  // into LoopNest::ranges
  int64_t count = 1;        // of these
};

// The taps of a range, of steps or of one side, that are counted in slots (mma_window.h). Slot s is
// tap s - front; those before and behind have no tap.
struct MmaWindow {
  int range = -1;  // the last one of the steps, or of a side; -1: there is none
  int64_t taps = 0, slots = 0, front = 0;
};

struct MmaProduct {
  const UOp* sum = nullptr;  // of all addends: a REDUCE_LOOP, or an ADD of some
  // What the unit multiplies, of all rows and of all columns. Two 8-bit floats may be of two types.
  DType dtype = DType::kVoid, columns_dtype = DType::kVoid;
  MmaParts parts = MmaParts::kWhole;
  MmaSide rows, columns;
  std::vector<int> batch;  // ranges
  int64_t batches = 1;
  std::vector<MmaAddend> addends;  // in the order in which they are added
  int64_t steps = 0;               // of all of them
  bool adds_rows = false;          // has stores of sums (kernel/row_sums.h)
  int64_t block_steps = 1;  // of a block of packed numbers, among what computed operands load
  MmaWindow window;         // set by PadWindows alone
};

// How an index moves with a range that it divides: by range / divisor * of_quotients, and by
// range % divisor * of_remainders, in elements. `divisor`, in steps of the range, is 0 where it
// does no such thing.
struct PeriodicMoves {
  int64_t divisor = 0;
  uint64_t of_quotients = 0, of_remainders = 0;
};
PeriodicMoves PeriodicMovesOf(const Affine& index, const UOp* range);

// What products of two 8-bit floats of two types are: as they are, or of f32. All of a sum are
// alike: where rows have two types in it, they are of f32, too.
enum class MixedBytes { kAsTheyAre, kWidened };

// Errors: INVALID_ARGUMENT, names the condition that fails.
absl::StatusOr<MmaProduct> FindMmaProduct(const LoopNest& kernel,
                                          MixedBytes mixed = MixedBytes::kAsTheyAre);

}  // namespace outboard::codegen
