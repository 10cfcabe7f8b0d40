// Products by warpgroups (compiler/program/hopper/product.h) of whole matrices in buffers of their
// own, without a kernel that they come from.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "compiler/program/hopper/product.h"

namespace outboard::program {

struct HopperProduct {
  DType dtype = DType::kBF16;  // of A, and of B unless there is another
  DType columns_dtype = DType::kVoid;
  bool three_tf32 = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;          // of equal products, whose matrices follow each other
  bool a_by_columns = false;  // A is stored [k][m], otherwise [m][k]
  bool b_by_columns = false;  // B is stored [n][k], otherwise [k][n]
  int a_slot = 1, b_slot = 2, c_slot = 0;
  DType c_dtype = DType::kBF16;
  bool c_in_boxes = true;  // where C's rows are a multiple of 16 bytes
  int buffer_count = 3;
};

// Returns the value to store for `sum`, of f32, in the type of C.
using ProductEpilogue = std::function<ValueId(ProgramBuilder& b, SumPlace place, ValueId sum)>;

// Returns a program that is checked and proved to stay within its buffers. Without an epilogue the
// sums are converted to C's type.
// Errors: as CheckHopperShape; INTERNAL if the program is refused (an epilogue out of range)
absl::StatusOr<Program> MakeHopperProduct(const HopperProduct& product, const HopperTile& tile,
                                          const ProductEpilogue& epilogue = nullptr);

}  // namespace outboard::program
