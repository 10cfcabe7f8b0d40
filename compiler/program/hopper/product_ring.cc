#include "compiler/program/hopper/product_ring.h"

#include <algorithm>

#include "compiler/program/hopper/tf32_stage.h"

namespace outboard::program {
namespace {

constexpr int64_t kThreads = (1 + kConsumers) * kWarpgroupThreads;

std::vector<RingAddend> AddendsOf(const HopperShape& shape, int64_t depth, int64_t split) {
  std::vector<RingAddend> all;
  int64_t before = 0;
  for (const HopperAddend& addend : shape.addends) {
    all.push_back({.before = before, .steps = DivideUp(DivideUp(addend.k, depth), split)});
    before += all.back().steps;
  }
  return all;
}

// A cluster's blocks have tiles of one round.
int64_t BlocksOf(const HopperTile& tile, int64_t tiles) {
  if (tile.persistent_blocks == 0 || tile.split > 1) return tiles * tile.split;
  return std::min(BlocksAtOnce(tile.persistent_blocks, tile.cluster), tiles);
}

}  // namespace

ProductRing::ProductRing(ProgramBuilder& b, const HopperShape& of, const HopperTile& in_tiles)
    : shape(of),
      tile(in_tiles),
      depth(DepthOf(shape.dtype)),
      addends(AddendsOf(shape, depth, tile.split)),
      steps(addends.back().before + addends.back().steps),
      transposes_b(shape.dtype == DType::kF32 && AnyBAlongRows(shape)),
      makes_parts(shape.three_tf32 || transposes_b),
      b_(b),
      tiles_m_(DivideUp(shape.m, tile.rows)),
      tiles_n_(DivideUp(shape.n, tile.columns)),
      tiles_(tiles_m_ * tiles_n_ * shape.batches()),
      blocks_(BlocksOf(tile, tiles_)) {}

int64_t ProductRing::Order() const { return std::min(tile.order, tiles_m_); }

// `shared` is the memory of the addends before, which one after another uses; -1: there is none
// yet.
RingOperand ProductRing::Open(const HopperOperand& operand, DType dtype, int64_t tile_rows,
                              bool shared_by_cluster, ValueId shared) {
  RingOperand staged{.shared = shared,
                     .tile_rows = tile_rows,
                     .along_rows = operand.along_rows,
                     .depth = depth,
                     .transposed = shape.dtype == DType::kF32,
                     .gathered = operand.gathered()};
  if (shared < 0)
    staged.shared = b_.Alloc(Space::kShared, dtype, tile.stages * staged.elements());
  if (staged.gathered) return staged;
  MappedTensor view = operand.view;
  view.swizzled = true;
  view.box.assign(view.dims.size(), 1);
  view.box[0] = operand.along_rows ? staged.wide() : depth;
  // A block of a cluster copies its part for all.
  if (shared_by_cluster && !operand.along_rows) tile_rows /= Partners();
  view.box[1] = operand.along_rows ? depth : tile_rows;
  staged.map = b_.Map(b_.Buffer(dtype, view.slot, operand.elements), view);
  return staged;
}

void ProductRing::OpenOperands() {
  block = b_.Special(Grid::kBlock, blocks_);
  thread = b_.Special(Grid::kThread, kThreads);
  rank = b_.Modulo(block, tile.cluster * tile.split);
  for (size_t i = 0; i < addends.size(); ++i) {
    const HopperAddend& addend = shape.addends[i];
    addends[i].a = Open(addend.a, shape.dtype, tile.rows, false, addends[0].a.shared);
    addends[i].b = Open(addend.b, shape.columns_dtype, tile.columns, Partners() > 1,
                        addends[0].b.shared);
    if (i > 0 && runs_of_equal_layout.back().LiesAs(addends[i]))
      runs_of_equal_layout.back().steps += addends[i].steps;
    else
      runs_of_equal_layout.push_back(addends[i]);
  }
}

// Of who expects boxes, and of all who gather.
int64_t ProductRing::ArrivalsOfStage() const {
  const HopperAddend& first = shape.addends[0];
  return (first.a.gathered() && first.b.gathered() ? 0 : 1) + (Gathers() ? kWarpgroupThreads : 0);
}

void ProductRing::OpenBarriers() {
  if (shape.three_tf32)
    low_of_b = b_.Alloc(Space::kShared, DType::kF32, tile.stages * addends[0].b.elements());
  barriers = b_.Alloc(Space::kBarriers, DType::kU64, (makes_parts ? 3 : 2) * tile.stages);
  const ValueId one = b_.If(b_.Less(thread, b_.Int(1)));
  for (int64_t stage = 0; stage < tile.stages; ++stage) {
    b_.Do(Code::kMbInit, {barriers, Full(b_.Int(stage))}, {ArrivalsOfStage(), 0, 0});
    b_.Do(Code::kMbInit, {barriers, Empty(b_.Int(stage))}, {kConsumers * Partners(), 0, 0});
    if (makes_parts)
      b_.Do(Code::kMbInit, {barriers, PartsMade(b_.Int(stage))}, {kPartMakers, 0, 0});
  }
  b_.EndIf(one);
  if (tile.cluster * tile.split > 1)
    MeetCluster();
  else
    b_.Barrier();
}

TilePlace ProductRing::PlaceOf(ValueId tile_number) {
  const int64_t group = Order(), last = tiles_m_ % group;
  const ValueId in_batch = b_.Modulo(tile_number, tiles_m_ * tiles_n_);
  const ValueId in_group = b_.Modulo(in_batch, group * tiles_n_);
  const ValueId number = b_.Divide(in_batch, group * tiles_n_);
  ValueId row = b_.Plus(b_.Times(number, group), b_.Modulo(in_group, group)),
          column = b_.Divide(in_group, group);
  if (last != 0) {
    // As the prover needs it: each side is below tiles_m_ where it is taken.
    const ValueId is_whole = b_.Less(number, b_.Int(tiles_m_ / group));
    row = b_.Alu(Op::kWhere, DType::kI64,
                 {is_whole, row, b_.Plus(b_.Modulo(in_group, last), b_.Int(tiles_m_ - last))});
    // MODULO changes nothing: the last group has no tiles beyond its columns. The prover needs it.
    const ValueId of_last = b_.Modulo(b_.Divide(in_group, last), tiles_n_);
    column = b_.Alu(Op::kWhere, DType::kI64, {is_whole, column, of_last});
  }
  return {b_.Divide(tile_number, tiles_m_ * tiles_n_), b_.Times(row, tile.rows),
          b_.Times(column, tile.columns)};
}

}  // namespace outboard::program
