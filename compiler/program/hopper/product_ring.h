// The ring of stages of a product by warpgroups (product.h): its memories and barriers, which tiles
// a block has, and in which stage and phase a step of them is. Who copies (product_copies.h) and
// who multiplies (product.cc) agree by it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/divide_up.h"
#include "compiler/program/hopper/product.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/program/program.h"

namespace outboard::program {

// One operand in memory and in shared memory; `rows` are those of A, or columns of B.
struct RingOperand {
  ValueId map = -1, shared = -1;
  int64_t tile_rows = 0;
  bool along_rows = false;
  int64_t depth = 0;  // k of a stage
  int64_t elements() const { return tile_rows * depth; }
  bool transposed = false;  // before it is multiplied
  bool gathered = false;
  // Stored by columns, 128 bytes of rows follow each other, then the next k.
  int64_t wide() const { return depth; }
  int64_t piece() const { return along_rows ? wide() * depth : 0; }
  int64_t leading() const { return transposed ? 0 : piece(); }
};

// One of the products that are added, in the ring; or several in a row that lie there alike.
struct RingAddend {
  RingOperand a, b;
  int64_t before = 0, steps = 0;  // of a block: of the addends before, and its own

  bool LiesAs(const RingAddend& other) const {
    return a.along_rows == other.a.along_rows && b.along_rows == other.b.along_rows;
  }
};

struct StepPlace {
  ValueId stage, parity;  // of the barriers' phase
};
struct TilePlace {
  ValueId batch, row, column;  // of the first element
};

class ProductRing {
 public:
  ProductRing(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile);

  // Before everything else of the block: its numbers, and memory for operands.
  void OpenOperands();
  // Memory for low parts, and barriers. All threads of the block, or of the cluster.
  void OpenBarriers();

  // Others copy to this block's memory, arrive at its barriers or read its parts until they are
  // done. Each warpgroup does so where it is: behind both branches a thread would have no more
  // registers than the one that copies.
  void MeetCluster() {
    if (tile.cluster * tile.split > 1) b_.Do(Code::kClusterSync);
  }
  int64_t Partners() const { return tile.cluster; }
  bool Gathers() const { return shape.gathers(); }

  ValueId Full(ValueId stage) { return stage; }
  ValueId Empty(ValueId stage) { return b_.Plus(stage, b_.Int(tile.stages)); }
  // B is transposed, and its low parts are there.
  ValueId PartsMade(ValueId stage) { return b_.Plus(stage, b_.Int(2 * tile.stages)); }

  // Stages and phases of step `step` of this block's round `round`: both follow from how many steps
  // came before, so that nothing has to be remembered.
  StepPlace PlaceOfStep(ValueId round, const RingAddend& addend, ValueId step) {
    return PlaceOfStep(round, b_.Plus(step, b_.Int(addend.before)));
  }
  StepPlace PlaceOfStep(ValueId round, ValueId step) {
    const ValueId count = b_.Plus(b_.Times(round, steps), step);
    return {b_.Modulo(count, tile.stages), b_.Modulo(b_.Divide(count, tile.stages), 2)};
  }
  // Steps are counted on by a multiple of the stages, so that no number is negative.
  ValueId StageBefore(ValueId round, ValueId step, int64_t steps = 1) {
    return PlaceOfStep(round, b_.Plus(step, b_.Int(tile.stages - steps))).stage;
  }

  // Tiles in groups of rows, column by column; the last group may have fewer rows.
  TilePlace PlaceOf(ValueId tile_number);
  // With `split`: the tile that the blocks of the cluster share.
  TilePlace PlaceOfCluster() { return PlaceOf(b_.Divide(block, tile.split)); }
  // Whether tiles may reach beyond the last row, or column.
  bool CutsRows() const { return shape.m % tile.rows != 0 || tiles_m_ % Order() != 0; }
  bool CutsColumns() const { return shape.n % tile.columns != 0; }

  // Runs `body` for each tile of this block.
  template <class Body>
  void ForTiles(const Body& body) {
    if (tile.split > 1) return body(b_.Int(0), PlaceOfCluster());
    if (blocks_ == tiles_) return body(b_.Int(0), PlaceOf(block));
    const ValueId round = b_.Loop(DivideUp(tiles_, blocks_));
    const ValueId number = b_.Plus(b_.Times(round, blocks_), block);
    const ValueId more = b_.If(b_.Less(number, b_.Int(tiles_)));
    body(round, PlaceOf(number));
    b_.EndIf(more);
    b_.End(round);
  }

  const HopperShape& shape;
  const HopperTile& tile;
  const int64_t depth;  // of a stage
  std::vector<RingAddend> addends;
  std::vector<RingAddend> runs_of_equal_layout;  // addends in a row, for who multiplies
  const int64_t steps;                           // of a block
  const bool transposes_b, makes_parts;          // whether B is transposed, or written otherwise
  ValueId block = -1, thread = -1, rank = -1, barriers = -1;
  ValueId low_of_b = -1;  // with three products

 private:
  int64_t Order() const;
  int64_t ArrivalsOfStage() const;
  RingOperand Open(const HopperOperand& operand, DType dtype, int64_t tile_rows,
                   bool shared_by_cluster, ValueId shared);

  ProgramBuilder& b_;
  const int64_t tiles_m_, tiles_n_, tiles_, blocks_;
};

}  // namespace outboard::program
