#include "tests/compiler/whole_product.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/program/expand.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"

namespace outboard::program {
namespace {

// A matrix of `rows` by k, in a buffer of its own.
HopperOperand WholeMatrix(const HopperProduct& product, int slot, int64_t rows, bool along_rows) {
  const int64_t width = ByteWidth(product.dtype);
  HopperOperand operand{.elements = product.batch * rows * product.k, .along_rows = along_rows};
  operand.view = {.slot = slot,
                  .element = ElementOf(product.dtype),
                  .dims = along_rows ? std::vector<int64_t>{rows, product.k}
                                     : std::vector<int64_t>{product.k, rows}};
  operand.view.strides = {operand.view.dims[0] * width};
  if (product.batch > 1) {
    operand.view.dims.push_back(product.batch);
    operand.view.strides.push_back(rows * product.k * width);
  }
  return operand;
}

}  // namespace

absl::StatusOr<Program> MakeHopperProduct(const HopperProduct& product, const HopperTile& tile,
                                          const ProductEpilogue& epilogue) {
  HopperShape shape{.dtype = product.dtype,
                    .columns_dtype = product.columns_dtype == DType::kVoid ? product.dtype
                                                                           : product.columns_dtype,
                    .three_tf32 = product.three_tf32,
                    .m = product.m,
                    .n = product.n};
  if (product.batch > 1) shape.batch = {product.batch};
  shape.addends = {{WholeMatrix(product, product.a_slot, product.m, product.a_by_columns),
                    WholeMatrix(product, product.b_slot, product.n, !product.b_by_columns),
                    product.k}};
  const int64_t row_bytes = product.n * ByteWidth(product.c_dtype);
  const int64_t c_elements = product.batch * product.m * product.n;
  if (product.c_in_boxes && row_bytes % MappedTensor::kStrideAlign == 0) {
    HopperResult c{.dtype = product.c_dtype, .elements = c_elements};
    c.view = {.slot = product.c_slot,
              .element = ElementOf(product.c_dtype),
              .dims = {product.n, product.m},
              .strides = {row_bytes}};
    if (product.batch > 1) {
      c.view.dims.push_back(product.batch);
      c.view.strides.push_back(product.m * row_bytes);
    }
    if ((tile.columns / std::max<int64_t>(1, tile.split)) % c.columns() == 0)
      shape.results.push_back(std::move(c));
  }
  if (absl::Status status = CheckHopperShape(shape, tile); !status.ok()) return status;
  ProgramBuilder b;
  const auto values = [&](SumPlace place, ValueId first, ValueId second) {
    Instruction lanes{.code = Code::kLanes, .dtype = product.c_dtype, .lanes = 2};
    for (const ValueId sum : {first, second}) {
      SumPlace at = place;
      if (sum == second) at.column = b.Plus(place.column, b.Int(1));
      lanes.src.push_back(epilogue != nullptr ? epilogue(b, at, sum)
                                              : b.Cast(sum, product.c_dtype));
    }
    return b.Add(std::move(lanes));
  };
  ProductStores stores;
  if (!shape.results.empty()) {
    stores.boxed = [&](size_t, SumPlace place, ValueId first, ValueId second) {
      return values(place, first, second);
    };
  } else {
    const ValueId c = b.Buffer(product.c_dtype, product.c_slot, c_elements);
    stores.direct = [&, c](SumPlace place, ValueId first, ValueId second) {
      const ValueId to = b.Plus(
          b.Times(b.Plus(b.Times(place.batch, product.m), place.row), product.n), place.column);
      Instruction store{.code = Code::kStore, .lanes = 2, .src = {c, to}};
      store.src.push_back(values(place, first, second));
      if (place.inside >= 0) store.src.push_back(b.Splat(place.inside, 2));
      b.Add(std::move(store));
    };
  }
  AddHopperProduct(b, shape, tile, stores);
  Program program = b.Take(product.buffer_count);
  if (absl::Status status = CheckProgram(program, "product by warpgroups"); !status.ok())
    return status;
  program = DropUnused(Hoist(program));
  if (absl::Status status = CheckProgram(program, "hoist"); !status.ok()) return status;
  if (absl::Status status = proof::CheckInRange(program); !status.ok()) return status;
  return program;
}

}  // namespace outboard::program
