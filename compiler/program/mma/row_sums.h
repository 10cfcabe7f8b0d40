// Sums over rows beside a product by matrix units (compiler/kernel/row_sums.h).
//
// MMA and WGMMA leave the same in a warp: of 16 rows and 8 columns each thread has rows t / 4 and
// t / 4 + 8 of two neighbouring columns. They are added in the same order, which depends on nothing
// else: rows r and r + 8, then what threads have whose numbers differ by 16, by 8 and by 4. By 16
// two threads exchange a column each, so that three shuffles do for both columns.
#pragma once

#include <vector>

#include "compiler/optimize/operands/mma.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/program.h"

namespace outboard::program {

class RowSums {
 public:
  // Of the kernel's stores of sums, over these rows and columns. Outside of all scopes. Places lie
  // within tiles of so many rows and columns, which may reach beyond the product; 0: anywhere.
  RowSums(PointLowering& point, codegen::MmaSide rows, codegen::MmaSide columns,
          int64_t tile_rows, int64_t tile_columns);

  bool any() const { return !stores_.empty(); }

  // Before the values of 16 rows and 8 columns: what is not kept is 0.
  void Clear();
  // The values at the point that is open: of the thread's row `half` and its column `lane`.
  // `inside`, unless it is -1, says whether the point is within the product.
  void Keep(int64_t half, ValueId lane, ValueId inside = -1);
  // Adds and stores, by all threads of a warp. `row`: the first of the 16 rows. `column`: the
  // first of the thread's two. The batch is open.
  void Store(ValueId thread, ValueId row, ValueId column);

 private:
  ValueId Added(const std::vector<ValueId>& values, ValueId keeps_second);

  PointLowering& point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const codegen::MmaSide rows_, columns_;
  const bool cut_rows_, cut_columns_;
  std::vector<const UOp*> stores_;
  std::vector<ValueId> kept_;  // by store: [half][lane]
};

}  // namespace outboard::program
