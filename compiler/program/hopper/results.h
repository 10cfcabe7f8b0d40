// What becomes of the sums of a product by warpgroups: values are computed from them in the thread
// that has them, and leave in boxes or pair by pair.
//
// A box has 64 rows of 128 bytes. A warpgroup writes it to shared memory, with a swizzle, so that
// neither its stores nor the accelerator's reads meet a bank twice; then one thread begins its
// BOXSTORE, which writes whole sectors and leaves out what is beyond the result. Each warpgroup has
// two boxes in turn: one is written while the other leaves.
//
//   BOXWAIT (the box of two turns ago was read)   by the thread that stores
//   WGSYNC
//   STORE, swizzled                               by all
//   PROXYFENCE, WGSYNC
//   BOXSTORE, BOXCOMMIT                           by the thread that stores
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// Of f32, bf16, f16 or an 8-bit float.
inline MappedTensor::Element ElementOf(DType dtype) {
  if (ByteWidth(dtype) == 1) return MappedTensor::Element::kByte;
  if (dtype == DType::kF32) return MappedTensor::Element::kF32;
  return dtype == DType::kBF16 ? MappedTensor::Element::kBF16 : MappedTensor::Element::kF16;
}

// A result of which a view exists: its dimensions are columns and rows, then those of the batch as
// in an operand. Of f32, bf16 or f16. Its box is the writer's to choose.
struct HopperResult {
  MappedTensor view;
  DType dtype = DType::kF32;
  int64_t elements = 0;  // of the buffer

  // Of one box.
  int64_t columns() const { return MappedTensor::kSwizzleBytes / ByteWidth(dtype); }
};

// Where a sum is, as i64; `inside`, unless it is -1, says whether it is within C.
struct SumPlace {
  ValueId batch = -1, row = -1, column = -1, inside = -1;
  ValueId next_column = -1;  // of the sum beside it; -1: column + 1
};

struct ProductStores {
  // Returns the value of a result in its type, of two lanes, for the sums of two neighbouring
  // columns, the first of which is at `place`. Beyond C, its columns are within it: what is
  // computed there goes nowhere.
  std::function<ValueId(size_t result, SumPlace place, ValueId first, ValueId second)> boxed;
  // Stores what else becomes of them. Null: nothing does. `inside` is of both columns. Of one alone
  // (`second` is -1) where C has an odd number of columns.
  std::function<void(SumPlace place, ValueId first, ValueId second)> direct;
  // Loads what `direct` will read for a pair, in the order of the pairs: for `pairs_ahead` of them
  // before the first of these is stored, so that as much is in flight. Null: `direct` loads it. Not
  // called where C has an odd number of columns.
  std::function<void(SumPlace place, ValueId first, ValueId second)> ahead;
  int64_t pairs_ahead = 1;
  // What is summed over 16 rows each, before `direct` or, without that, beside the first result in
  // boxes. Null: nothing is.
  //   keep   of a row `half` of two: `place` as for `boxed`, `inside` of the row
  //   add    of both rows; `place` is that of the first of the 16 rows and of the two columns
  std::function<void(int64_t half, SumPlace place, ValueId first, ValueId second)> keep;
  std::function<void(ValueId thread, SumPlace place)> add;
  // Opens a branch around all of a tile, from its first element on, that may be left out, and
  // returns it; -1, or null: none may. Only where a block has one tile, and copies for itself.
  std::function<ValueId(ValueId batch, ValueId row, ValueId column)> needed;
};

// Sums of a warpgroup: 64 rows from `first.row` on, and so many columns.
struct SumTile {
  ValueId sums = -1;      // private memory, in the order of WgmmaElement
  ValueId consumer = -1;  // the warpgroup's number among those that multiply
  SumPlace first;         // of the tile; `inside` is not set
  int64_t columns = 0;
};

class ResultWriter {
 public:
  // m, n: of C. `cut_rows`, `cut_columns`: whether tiles may reach beyond it.
  ResultWriter(ProgramBuilder& b, const std::vector<HopperResult>& results,
               const ProductStores& stores, int64_t m, int64_t n, bool cut_rows, bool cut_columns)
      : b_(b),
        results_(results),
        stores_(stores),
        m_(m),
        n_(n),
        cut_rows_(cut_rows),
        cut_columns_(cut_columns) {}

  // Bytes of shared memory that the boxes take.
  static int64_t SharedBytes(const std::vector<HopperResult>& results);

  // Makes views and memory, outside of all scopes. `batch`: extents, outermost first.
  void Open(ValueId thread, const std::vector<int64_t>& batch);
  // By all threads of a warpgroup.
  void Write(const SumTile& tile);
  // Waits for what Write has begun.
  void Finish();

 private:
  struct Opened {
    ValueId map = -1, shared = -1;
  };
  void WriteBox(size_t result, const SumTile& tile, int64_t box, int64_t turn, int64_t left);
  void WriteDirectly(const SumTile& tile);
  SumPlace PlaceOfDirect(const SumTile& tile, int64_t element);
  SumPlace WithColumns(SumPlace place, int64_t columns);
  SumPlace PlaceOf(const SumTile& tile, int64_t element);
  SumPlace Within(SumPlace place);
  void KeepForSums(const SumTile& tile, int64_t element);
  ValueId Speaks();
  ValueId Least(ValueId a, int64_t b);

  ProgramBuilder& b_;
  const std::vector<HopperResult>& results_;
  const ProductStores& stores_;
  const int64_t m_, n_;
  const bool cut_rows_, cut_columns_;
  std::vector<int64_t> batch_;
  std::vector<Opened> opened_;
  ValueId thread_ = -1;
};

}  // namespace outboard::program
