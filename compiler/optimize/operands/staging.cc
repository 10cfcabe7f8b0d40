#include "compiler/optimize/operands/staging.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
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
void LayOutOperand(const CpuMatrixUnit& core, const UOp* load, StageLayout& layout) {
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

// What a factor of products is unpacked from; nothing where it is no such value.
std::optional<Unpacked> UnpackedFrom(const LoopNest& kernel, const UOp* factor) {
  constexpr size_t kNodesMax = 64, kLoadsMax = 8;
  if (factor->dtype != DType::kF32 || factor->op == Op::kLoad) return std::nullopt;
  // As wide in the copy as in memory: its load may be copied.
  if (factor->op == Op::kCast && factor->src[0]->op == Op::kLoad && IsFloat(factor->src[0]->dtype))
    return std::nullopt;
  Unpacked unpacked{factor};
  std::vector<const UOp*> open = {factor};
  absl::flat_hash_set<const UOp*> seen;
  double bytes = 0;
  const auto elements = [&](const UOp* load) {
    return kernel.slot_elements[GlobalOfAccess(load).slot()];
  };
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (seen.size() > kNodesMax) return std::nullopt;
    if (node->op == Op::kLoad) {
      unpacked.loads.push_back(node);
      bytes += static_cast<double>(elements(node) * ByteWidth(node->dtype));
      continue;
    }
    const bool computes = IsAlu(node->op) || node->op == Op::kCast || node->op == Op::kBitcast;
    if (!computes && node->op != Op::kConst && node->op != Op::kRange) return std::nullopt;
    if (computes && node->dtype != DType::kI64) unpacked.operations.push_back(node);
    if (computes) open.insert(open.end(), node->src.begin(), node->src.end());
  }
  if (unpacked.loads.empty() || unpacked.loads.size() > kLoadsMax) return std::nullopt;
  std::stable_sort(unpacked.loads.begin(), unpacked.loads.end(),
                   [&](const UOp* a, const UOp* b) { return elements(a) > elements(b); });
  double points = 1;
  for (size_t r = 0; r < kernel.ranges.size(); ++r)
    if (kernel.DepsOf(factor) >> r & 1) points *= static_cast<double>(kernel.ranges[r].extent);
  // A few elements of each one that is loaded, up to the eight of 4 bits in a u32, and not the view
  // that a window has of each.
  constexpr double kElementsOfOneMax = 8;
  if (bytes >= points * ByteWidth(factor->dtype) ||
      points > kElementsOfOneMax * static_cast<double>(elements(unpacked.loads[0])))
    return std::nullopt;
  return unpacked;
}

}  // namespace

std::vector<Unpacked> UnpackedOf(const LoopNest& kernel) {
  absl::flat_hash_set<const UOp*> factors;
  for (const ReduceGroup& group : kernel.groups)
    for (const UOp* sum : group.nodes) {
      if (ReduceOf(sum).op() != Op::kAdd || !IsFloat(sum->dtype)) continue;
      const UOp* term = sum->src[0];
      while (term->op == Op::kCast) term = term->src[0];
      if (term->op == Op::kMul) factors.insert(term->src.begin(), term->src.end());
    }
  std::vector<Unpacked> all;
  for (const UOp* node : kernel.nodes)
    if (factors.contains(node))
      if (std::optional<Unpacked> unpacked = UnpackedFrom(kernel, node))
        all.push_back(*std::move(unpacked));
  return all;
}

absl::Status CanStage(const LoopNest& kernel, const UOp* value) {
  const auto illegal = [](const char* why) { return absl::InvalidArgumentError(why); };
  if (!IsFloat(value->dtype)) return illegal("only floats are copied");
  for (const UOp* node : PostOrder(value)) {
    if (node->op == Op::kReduceLoop) return illegal("the load depends on a reduction");
    if (node->op != Op::kLoad) continue;
    for (const UOp* store : kernel.stores)
      if (store->src[0]->src[0] == node->src[0]->src[0])
        return illegal("the kernel writes what it loads");
  }
  const RangeSet deps = kernel.DepsOf(value);
  RangeSet seen = 0;
  for (const ReduceGroup& group : kernel.groups)
    for (const int range : group.ranges) {
      if (!(deps >> range & 1)) continue;
      if (seen >> range & 1) return illegal("the load is in several reductions");
      seen |= RangeSet{1} << range;
    }
  return absl::OkStatus();
}

int SquaresAlong(const LoopNest& kernel, const UOp* value, int64_t lanes) {
  if (value->dtype != DType::kF32) return -1;
  std::vector<const UOp*> loads = {value};
  if (value->op != Op::kLoad) {
    std::optional<Unpacked> unpacked = UnpackedFrom(kernel, value);
    if (!unpacked) return -1;
    loads = std::move(unpacked->loads);
  }
  AffineForms forms;
  // Whether each load has a place for each step of a range that lies next to the one before it, or
  // the same place for all.
  const auto is_along = [&](int range) {
    bool moves = false;
    for (const UOp* load : loads) {
      if (load->src.size() != 1) return false;
      const UOp* const node = kernel.ranges[range].node;
      int64_t coefficient = 0;
      for (const auto& [term, times] : forms.Of(load->src[0]->src[1]).terms) {
        if (term == node)
          coefficient = times;
        else if (kernel.DepsOf(term) >> range & 1)
          return false;
      }
      if (coefficient != 0 && coefficient != 1) return false;
      moves = moves || coefficient == 1;
    }
    return moves;
  };
  for (size_t r = kernel.output_count; r < kernel.ranges.size(); ++r) {
    const Range& range = kernel.ranges[r];
    if (range.extent % lanes == 0 && range.end() == nullptr && is_along(static_cast<int>(r)))
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
  if (const CpuMatrixUnit* const core = plan.CoreOf(stage.load)) {
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
