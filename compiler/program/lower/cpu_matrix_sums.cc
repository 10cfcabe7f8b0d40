// A loop over steps of products, in tiles or in vectors.
#include <algorithm>

#include "compiler/program/lower/cpu_matrix_lowering.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

using codegen::Bf16Products;
using codegen::kCoreColumns;
using codegen::kCoreColumnTilesMax;
using codegen::kCoreSteps;
using codegen::kCoreTilesMax;
using codegen::CpuMatrixUnit;

namespace {

constexpr int64_t kTileRows = 16, kTileElements = 256;
constexpr int64_t kPairs = kCoreSteps / 2;
constexpr int kFirstColumnTile = kCoreTilesMax;
constexpr int kFirstRowTile = kFirstColumnTile + kCoreColumnTilesMax;

int64_t TilesOf(int64_t count) { return (count + kTileRows - 1) / kTileRows; }

}  // namespace

struct CpuMatrixLowering::Sums {
  const GroupPlan* plan = nullptr;
  int64_t rows = 0, vectors = 0;  // of the tile of results
  ValueId memory = -1;            // [row][column]
  int64_t width() const { return vectors * kCoreColumns; }
};

// 0 to 3 for sums, 4 and 5 for a step's columns, 6 and 7 for its rows in turn.
CpuMatrixLowering::CpuMatrixLowering(Lowering& lowering, const codegen::LoopPlan& plan)
    : lowering_(lowering),
      kernel_(lowering.kernel()),
      plan_(plan),
      b_(lowering.builder()),
      ranges_(lowering.ranges()) {
  const bool used = std::any_of(plan_.groups.begin(), plan_.groups.end(), [](const auto& group) {
    return group.core && group.core->by == Bf16Products::kTiles;
  });
  for (int tile = 0; used && tile < kFirstRowTile + 2; ++tile)
    tiles_.push_back(
        b_.Alloc(Space::kTile, tile < kCoreTilesMax ? DType::kF32 : DType::kU32, kTileElements));
}

void CpuMatrixLowering::Reduce(int index) {
  const ReduceGroup& group = kernel_.groups[index];
  Sums sums;
  sums.plan = &plan_.groups[index];
  const CpuMatrixUnit& core = *sums.plan->core;
  sums.rows = static_cast<int64_t>(ranges_[core.row_range].pieces->size());
  sums.vectors = static_cast<int64_t>(ranges_[core.column_range].pieces->size());
  const bool tiles = core.by == Bf16Products::kTiles;
  const int64_t squares = TilesOf(sums.rows) * sums.vectors;
  const int64_t rows = tiles ? TilesOf(sums.rows) * kTileRows : sums.rows;
  sums.memory = b_.Alloc(Space::kPrivate, DType::kF32, rows * sums.width());
  if (tiles) {
    for (int64_t i = 0; i < squares; ++i) b_.Add({.code = Code::kTileZero, .src = {tiles_[i]}});
  } else {
    const ValueId zero = b_.Splat(b_.Const(DType::kF32, 0), kCoreColumns);
    for (int64_t i = 0; i < rows * sums.vectors; ++i)
      b_.Store(sums.memory, b_.Int(i * kCoreColumns), zero);
  }
  Loops(sums, 0);
  for (int64_t i = 0; tiles && i < squares; ++i) {
    const int64_t first =
        i / sums.vectors * kTileRows * sums.width() + i % sums.vectors * kCoreColumns;
    b_.Add({.code = Code::kTileStore,
            .src = {tiles_[i], sums.memory, b_.Int(first)},
            .imm = {sums.width(), 0, 0}});
  }
  const RangeSet both = RangeSet{1} << core.row_range | RangeSet{1} << core.column_range;
  lowering_.PutResult(group.nodes[0], {sums.memory, ranges_.Tiled(both, core.column_range)});
}

void CpuMatrixLowering::Loops(const Sums& sums, size_t level) {
  if (level < sums.plan->loops.size()) {
    lowering_.OverTile(sums.plan->loops[level], [&] { Loops(sums, level + 1); });
  } else if (sums.plan->core->by == Bf16Products::kTiles) {
    TileStep(sums);
  } else {
    VectorStep(sums);
  }
}

namespace {

// Elements of u32 from one pair of steps of the columns' operand to the next.
int64_t PairStride(const CpuMatrixUnit& core, const codegen::StageLayout& columns) {
  for (const codegen::StageDim& dim : columns.dims)
    if (dim.range == core.inner_range) return dim.inside;
  return 0;
}

}  // namespace

void CpuMatrixLowering::TileStep(const Sums& sums) {
  const CpuMatrixUnit& core = *sums.plan->core;
  const Staged &rows = lowering_.StagedOf(core.rows), &columns = lowering_.StagedOf(core.columns);
  const ValueId row_block = lowering_.BlockOf(rows, 2),
                column_block = lowering_.BlockOf(columns, 2);
  const auto load = [&](ValueId tile, const Staged& staged, ValueId first, int64_t stride) {
    b_.Add({.code = Code::kTileLoad, .src = {tile, staged.memory, first}, .imm = {stride, 0, 0}});
  };
  for (int64_t column = 0; column < sums.vectors; ++column)
    load(tiles_[kFirstColumnTile + column], columns,
         b_.Plus(column_block, b_.Int(column * kCoreColumns)), PairStride(core, columns.layout));
  for (int64_t row = 0; row < TilesOf(sums.rows); ++row) {
    const ValueId tile = tiles_[kFirstRowTile + row % 2];
    load(tile, rows, b_.Plus(row_block, b_.Int(row * kTileRows * kPairs)), kPairs);
    for (int64_t column = 0; column < sums.vectors; ++column)
      b_.Add(
          {.code = Code::kTileDot,
           .src = {tiles_[row * sums.vectors + column], tile, tiles_[kFirstColumnTile + column]}});
  }
}

// A loop over the pairs of the step: a row's pair goes to all lanes.
void CpuMatrixLowering::VectorStep(const Sums& sums) {
  const CpuMatrixUnit& core = *sums.plan->core;
  const Staged &rows = lowering_.StagedOf(core.rows), &columns = lowering_.StagedOf(core.columns);
  const ValueId row_block = lowering_.BlockOf(rows, 2),
                column_block = lowering_.BlockOf(columns, 2);
  const ValueId pair = b_.Loop(kPairs);
  const ValueId of_pair = b_.Plus(column_block, b_.Times(pair, PairStride(core, columns.layout)));
  std::vector<ValueId> loaded;
  for (int64_t column = 0; column < sums.vectors; ++column)
    loaded.push_back(lowering_.VectorAt(
        columns.memory, b_.Plus(of_pair, b_.Int(column * kCoreColumns)), kCoreColumns));
  for (int64_t row = 0; row < sums.rows; ++row) {
    const ValueId place = b_.Plus(b_.Plus(row_block, pair), b_.Int(row * kPairs));
    const ValueId all = b_.Splat(b_.Load(rows.memory, place), kCoreColumns);
    for (int64_t column = 0; column < sums.vectors; ++column) {
      const ValueId sum = b_.Int(row * sums.width() + column * kCoreColumns);
      b_.Store(sums.memory, sum,
               b_.Add({.code = Code::kDot,
                       .dtype = DType::kF32,
                       .lanes = kCoreColumns,
                       .src = {lowering_.VectorAt(sums.memory, sum, kCoreColumns), all,
                               loaded[column]}}));
    }
  }
  b_.End(pair);
}

}  // namespace outboard::program
