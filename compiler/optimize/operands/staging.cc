#include "compiler/optimize/operands/staging.h"

#include <algorithm>

#include "compiler/kernel/affine.h"

namespace outboard::codegen {
namespace {

// Values of the range that lie next to each other in one block of its tile, idle lanes included.
int64_t WidthOf(const Tile& tile) {
  int64_t width = 1;
  for (const auto* pieces : {&tile.main, &tile.rest})
    for (const Piece& piece : *pieces) width = std::max(width, piece.offset + piece.lanes);
  return width;
}

// Inside of a block: the pieces of tiles, those in lanes last.
void LayOutPieces(StageLayout& layout) {
  for (const bool lanes : {true, false})
    for (size_t i = layout.dims.size(); i-- > 0;) {
      StageDim& dim = layout.dims[i];
      if ((dim.tile->lanes() > 1) != lanes) continue;
      dim.inside = layout.elements;
      layout.elements *= WidthOf(*dim.tile);
    }
}

// Inside of a block: as the instructions want it. All other ranges are in tiles of one value.
void LayOutOperand(const TensorCore& core, const UOp* load, StageLayout& layout) {
  const bool rows = load == core.rows;
  int64_t width = 0;  // whole tiles of rows, unless blocks of other sizes follow each other
  for (const StageDim& dim : layout.dims)
    if (dim.range == (rows ? core.row_range : core.column_range))
      width = dim.tile->blocks() > 1
                  ? dim.tile->step
                  : (WidthOf(*dim.tile) + kCoreColumns - 1) / kCoreColumns * kCoreColumns;
  for (StageDim& dim : layout.dims) {
    if (dim.range == core.inner_range) {
      dim.inside = rows ? 1 : width;  // of columns: of a pair's first step
    } else if (dim.range == (rows ? core.row_range : core.column_range)) {
      dim.inside = rows ? kCoreSteps : 2;
    }
  }
  layout.element_bytes = ByteWidth(DType::kBF16);
  layout.elements = width * kCoreSteps;
}

}  // namespace

absl::Status CanStage(const LoopNest& kernel, const UOp* load) {
  const auto illegal = [](const char* why) { return absl::InvalidArgumentError(why); };
  if (!IsFloat(load->dtype)) return illegal("only floats are copied");
  for (const UOp* store : kernel.stores)
    if (store->src[0]->src[0] == load->src[0]->src[0])
      return illegal("the kernel writes what it loads");
  for (const UOp* node : PostOrder(load))
    if (node->op == Op::kReduceLoop) return illegal("the load depends on a reduction");
  const RangeSet deps = kernel.DepsOf(load);
  RangeSet seen = 0;
  for (const ReduceGroup& group : kernel.groups)
    for (const int range : group.ranges) {
      if (!(deps >> range & 1)) continue;
      if (seen >> range & 1) return illegal("the load is in several reductions");
      seen |= RangeSet{1} << range;
    }
  return absl::OkStatus();
}

int SquaresAlong(const LoopNest& kernel, const UOp* load, int64_t lanes) {
  if (load->src.size() != 1 || load->dtype != DType::kF32) return -1;
  AffineForms forms;
  const Affine& form = forms.Of(load->src[0]->src[1]);
  for (size_t r = kernel.output_count; r < kernel.ranges.size(); ++r) {
    const Range& range = kernel.ranges[r];
    if (range.extent % lanes == 0 && range.end() == nullptr && form.CoefficientOf(range.node) == 1)
      return static_cast<int>(r);
  }
  return -1;
}

StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Stage& stage) {
  const RangeSet deps = kernel.DepsOf(stage.load);
  StageLayout layout;
  std::vector<int64_t> blocks;  // by dim
  for (size_t i = 0; i < plan.loops.size(); ++i) {
    const Loop& loop = plan.loops[i];
    if (loop.block > 0 || !(deps >> loop.range & 1)) continue;
    StageDim dim{loop.range, &plan.tiles[loop.range], i < stage.level};
    int64_t extent = dim.tile->extent;
    for (size_t k = 0; k < std::min(i, stage.level); ++k)
      if (plan.loops[k].range == loop.range) {
        dim.blocked = true;
        extent = std::min(extent, plan.loops[k].block);
      }
    layout.dims.push_back(dim);
    blocks.push_back(dim.open ? 1 : (extent + dim.tile->step - 1) / dim.tile->step);
  }
  for (const GroupPlan& group : plan.groups)
    for (const Tile& tile : group.loops)
      if (deps >> tile.range & 1) {
        layout.dims.push_back({tile.range, &tile});
        blocks.push_back((tile.extent + tile.step - 1) / tile.step);
      }

  layout.elements = 1;
  if (const TensorCore* const core = plan.CoreOf(stage.load)) {
    LayOutOperand(*core, stage.load, layout);
  } else {
    LayOutPieces(layout);
    layout.element_bytes = std::max(4, ByteWidth(stage.load->dtype));
  }
  for (size_t i = layout.dims.size(); i-- > 0;) {
    StageDim& dim = layout.dims[i];
    // With more than one block a block is as wide as its step, which divides what is inside.
    if (blocks[i] > 1) dim.per_value = layout.elements / dim.tile->step;
    layout.elements *= blocks[i];
  }
  return layout;
}

StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Panel& panel) {
  const RangeSet deps = kernel.DepsOf(panel.value);
  StageLayout layout;
  layout.element_bytes = std::max(4, ByteWidth(panel.value->dtype));
  layout.elements = 1;
  for (const bool lanes : {true, false})
    for (const Loop& loop : plan.loops) {
      const Tile& tile = plan.tiles[loop.range];
      if (loop.block > 0 || !(deps >> loop.range & 1) || (tile.lanes() > 1) != lanes) continue;
      layout.dims.push_back({loop.range, &tile, /*open=*/true, false, 0, layout.elements});
      layout.elements *= WidthOf(tile);
    }
  const bool blocked = plan.online.range == panel.tile.range;  // of those, one at a time
  layout.dims.push_back(
      {panel.tile.range, &panel.tile, false, blocked, layout.elements, layout.elements});
  layout.elements *= blocked ? std::min(plan.online.block, panel.tile.extent) : panel.tile.extent;
  return layout;
}

}  // namespace outboard::codegen
