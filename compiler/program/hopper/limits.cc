// What products by warpgroups may be (CheckHopperShape of product.h).
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/divide_up.h"
#include "compiler/program/hopper/product.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kColumnsLeast = 64;  // a tile has a multiple of them

int64_t ColumnsMax(const HopperShape& shape) {
  // Sums in f32 take as many registers as those of a stage; loads of elements many, too, and so do
  // the places of as many columns.
  const bool half = SumsByStage(shape) || GathersElements(shape) || shape.addends[0].b.gathered();
  return half ? kWgmmaColumnsMax / 2 : kWgmmaColumnsMax;
}

// What a block of a cluster copies of B is a multiple of these columns.
int64_t PartOfColumns(const HopperShape& shape) {
  return AnyBAlongRows(shape) ? DepthOf(shape.dtype) : 8;
}

int64_t SharedBytesOf(const HopperShape& shape, const HopperTile& tile) {
  const int64_t columns = tile.columns * (shape.three_tf32 ? 2 : 1);
  const int64_t ring = tile.stages * (tile.rows + columns) * MappedTensor::kSwizzleBytes;
  const int64_t parts = tile.split > 1 ? tile.rows * tile.columns * ByteWidth(DType::kF32) : 0;
  return ring + parts + ResultWriter::SharedBytes(shape.results) + kSwizzleAlign;
}

absl::Status NoneFor(const auto&... what) {
  return absl::UnimplementedError(absl::StrCat("product by warpgroups: ", what...));
}

// `rows` of a tile.
absl::Status CheckOperand(const HopperShape& shape, const HopperTile& tile, const char* name,
                          const HopperOperand& operand, int64_t rows) {
  const int width = ByteWidth(shape.dtype);
  const MappedTensor& view = operand.view;
  if (operand.gathered()) {
    if (shape.addends.size() > 1)
      return NoneFor(shape.addends.size(), " products that are added; ", name, " is gathered");
    if (width != 2 || shape.three_tf32)
      return NoneFor(name, " is gathered in elements of ", width, " bytes; they have two");
    if (tile.cluster > 1)
      return NoneFor("clusters of ", tile.cluster, " blocks; ", name,
                     " is gathered, by each block for itself");
    if (operand.run != 1 && operand.run != 2 && operand.run != 4 && operand.run != 8)
      return NoneFor(name, " is gathered ", operand.run, " elements at a time");
    return absl::OkStatus();
  }
  if (operand.along_rows && !MayLieAlongRows(shape.dtype))
    return NoneFor(name, " is stored by columns in elements of ", width,
                   " bytes, which the unit does not read, and nothing transposes it");
  if (view.rank() > MappedTensor::kRankMax)
    return NoneFor(name, " has ", view.rank(), " dimensions; a view has ", MappedTensor::kRankMax);
  for (const int64_t bytes : view.strides)
    if (bytes < 1 || bytes % MappedTensor::kStrideAlign != 0)
      return NoneFor("rows of ", name, " are ", bytes, " bytes apart, no multiple of ",
                     MappedTensor::kStrideAlign);
  if (operand.inner_k % DepthOf(shape.dtype) != 0)
    return NoneFor(operand.inner_k, " steps of ", name, " lie together, no multiple of ",
                   DepthOf(shape.dtype));
  if (operand.inner_rows % rows != 0)
    return NoneFor(operand.inner_rows, " rows of ", name, " lie together; a tile has ", rows);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHopperShape(const HopperShape& shape, const HopperTile& tile) {
  if (!IsFloat(shape.dtype) || shape.dtype == DType::kF64)
    return NoneFor("of ", std::string(Name(shape.dtype)),
                   "; bf16, f16, 8-bit floats and TF32 have a form");
  if (!AreMultiplied(shape.dtype, shape.columns_dtype))
    return NoneFor("of ", std::string(Name(shape.dtype)), " and ",
                   std::string(Name(shape.columns_dtype)), "; two 8-bit floats alone may differ");
  if (shape.three_tf32 && shape.dtype != DType::kF32)
    return NoneFor("of ", std::string(Name(shape.dtype)), " by three products; f32 has two parts");
  if (shape.m < 1 || shape.n < 1 || shape.steps() < 1 || shape.batches() < 1)
    return NoneFor("of nothing");
  if (shape.three_tf32 && shape.steps() < kThreeProductsStepsMin)
    return NoneFor("of f32 with ", shape.steps(), " steps; the bound of its sums holds from ",
                   kThreeProductsStepsMin, " on");
  for (const HopperAddend& addend : shape.addends) {
    if (addend.k < 1) return NoneFor("of nothing");
    OB_RETURN_IF_ERROR(CheckOperand(shape, tile, "A", addend.a, tile.rows));
    OB_RETURN_IF_ERROR(CheckOperand(shape, tile, "B", addend.b, tile.columns));
  }
  if (tile.rows != kConsumers * kWgmmaRows || tile.columns < kColumnsLeast ||
      tile.columns > ColumnsMax(shape) || tile.columns % kColumnsLeast != 0)
    return NoneFor("tiles of ", tile.rows, " x ", tile.columns, "; they have 128 rows and 64 to ",
                   ColumnsMax(shape), " columns");
  // The place in the ring is then some bits of a count.
  if (tile.stages != 2 && tile.stages != 4 && tile.stages != 8)
    return NoneFor(tile.stages, " stages; there are 2, 4 or 8");
  const auto is_part = [](int64_t parts) { return parts == 1 || parts == 2 || parts == 4; };
  if (!is_part(tile.cluster) || !is_part(tile.split) || (tile.cluster > 1 && tile.split > 1))
    return NoneFor("clusters of ", tile.cluster, " blocks, and sums in ", tile.split,
                   " parts; one of them is 1, the other 1, 2 or 4");
  if (tile.order < 1 || tile.order % tile.cluster != 0)
    return NoneFor("an order of ", tile.order, " rows of tiles, no multiple of the cluster's ",
                   tile.cluster);
  if (const int64_t tiles = DivideUp(shape.m, tile.rows); tiles % tile.cluster != 0)
    return NoneFor(tiles, " rows of tiles; a cluster has ", tile.cluster);
  if (const int64_t part = tile.columns / tile.cluster;
      tile.cluster > 1 && part % PartOfColumns(shape) != 0)
    return NoneFor("parts of ", part, " columns, no multiple of ", PartOfColumns(shape));
  if (shape.results.size() > 2) return NoneFor(shape.results.size(), " results in boxes");
  for (const HopperResult& result : shape.results) {
    if (const int64_t columns = tile.columns / tile.split; columns % result.columns() != 0)
      return NoneFor("results of ", columns, " columns in boxes of ", result.columns());
    for (const int64_t bytes : result.view.strides)
      if (bytes < 1 || bytes % MappedTensor::kStrideAlign != 0)
        return NoneFor("rows of a result are ", bytes, " bytes apart, no multiple of ",
                       MappedTensor::kStrideAlign);
  }
  if (const int64_t bytes = SharedBytesOf(shape, tile); bytes > kHopperSharedBytesMax)
    return NoneFor("stages and results of ", bytes, " bytes; a block has ", kHopperSharedBytesMax);
  return absl::OkStatus();
}

}  // namespace outboard::program
