#include "compiler/optimize/loop_plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"

namespace outboard::codegen {

LoopPlan PlainPlan(const LoopNest& kernel) {
  LoopPlan plan;
  for (int i = 0; i < kernel.output_count; ++i) {
    plan.tiles.push_back(PlainTile(i, kernel.ranges[i].extent));
    plan.loops.push_back({i});
  }
  for (const ReduceGroup& group : kernel.groups) {
    plan.groups.emplace_back();
    for (const int range : group.ranges)
      plan.groups.back().loops.push_back(PlainTile(range, kernel.ranges[range].extent));
  }
  return plan;
}

int LanesMax(const LoopNest& kernel, const Target& target) {
  int widest = 4;
  for (const DType dtype : kernel.slot_dtypes)
    if (dtype != DType::kVoid) widest = std::max(widest, ByteWidth(dtype));
  return target.vector_bytes / widest;
}

Tile PlainTile(int range, int64_t extent) {
  Tile tile;
  tile.range = range;
  tile.extent = extent;
  tile.trips = extent;
  return tile;
}

Tile ScalarTile(int range, int64_t extent, int64_t count) {
  Tile tile = PlainTile(range, extent);
  count = std::min(count, extent);
  if (count <= 1) return tile;
  tile.step = count;
  tile.trips = extent / count;
  tile.main.clear();
  for (int64_t i = 0; i < count; ++i) tile.main.push_back({i, 1, 1});
  for (int64_t i = 0; i < extent % count; ++i) tile.rest.push_back({i, 1, 1});
  return tile;
}

Tile VectorTile(int range, int64_t extent, int lanes, int64_t count, bool masked) {
  Tile tile = PlainTile(range, extent);
  if (extent == 0) return tile;
  const auto pieces = [&](int64_t length) {
    std::vector<Piece> out;
    for (int64_t i = 0; i < length; i += lanes) {
      const int active = static_cast<int>(std::min<int64_t>(lanes, length - i));
      const int width =
          masked ? lanes : static_cast<int>(std::bit_ceil(static_cast<unsigned>(active)));
      out.push_back({i, width, active});
    }
    return out;
  };
  tile.step = std::min<int64_t>(extent, lanes * count);
  tile.trips = extent / tile.step;
  tile.main = pieces(tile.step);
  tile.rest = pieces(extent % tile.step);
  return tile;
}

Tile ThreadTile(int range, int64_t extent, int lanes, int64_t inner, int64_t threads, int64_t outer,
                int64_t align, bool odd_begin) {
  Tile tile = PlainTile(range, extent);
  tile.threads = threads;
  tile.align = align;
  tile.odd_begin = odd_begin;
  tile.run = lanes * inner;
  tile.step = tile.run * threads * outer;
  const int64_t span = AlignedSpan(extent, align, lanes, odd_begin);
  tile.trips = align > 1 && span <= tile.step ? 0 : span / tile.step;
  const auto pieces = [&](int64_t length) {
    std::vector<Piece> out;
    for (int64_t k = 0; k < outer; ++k)
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t offset = k * tile.run * threads + i * lanes;
        if (offset < length) out.push_back({offset, lanes, lanes});
      }
    return out;
  };
  tile.main = pieces(tile.step);
  const int64_t left = span - tile.trips * tile.step;
  tile.rest = pieces(left);
  tile.rest_cut =
      align > 1 || (left % (tile.run * threads) != 0 && (threads > 1 || left % lanes != 0));
  return tile;
}

Tile::Edges Tile::EdgesOf(const Piece& piece) const {
  const int64_t first = trips * step + piece.offset;
  return {first<align - 1, first + (threads - 1) * run + piece.lanes> extent};
}

int Tile::lanes() const {
  int lanes = 1;
  for (const auto* pieces : {&main, &rest})
    for (const Piece& piece : *pieces) lanes = std::max(lanes, piece.lanes);
  return lanes;
}

int64_t LoopPlan::trips(const Loop& loop) const {
  const Tile& tile = tiles[loop.range];
  return loop.block > 0 ? (tile.extent + loop.block - 1) / loop.block : tile.blocks();
}

int64_t LoopPlan::tasks() const {
  int64_t tasks = 1;
  for (int i = 0; i < task_loops; ++i) tasks *= trips(loops[i]);
  return tasks;
}

int64_t LoopPlan::task_threads() const {
  int64_t count = 1;
  for (const ThreadAxis& axis : threads) count *= axis.count;
  return count;
}

int64_t LoopPlan::FreeThreads(const ReduceGroup& group) const {
  return int64_t{1} << std::popcount(FreeBits(group));
}

uint64_t LoopPlan::ThreadBits(int range) const {
  uint64_t bits = 0, first = 1;
  for (const ThreadAxis& axis : threads) {
    const auto count = static_cast<uint64_t>(axis.count);
    if (axis.range == range) bits |= (count - 1) * first;
    first *= count;
  }
  return bits;
}

uint64_t LoopPlan::FreeBits(const ReduceGroup& group) const {
  uint64_t bits = ThreadBits(-1);
  for (const ThreadAxis& axis : threads)
    if (axis.range >= 0 && !(group.deps >> axis.range & 1)) bits |= ThreadBits(axis.range);
  return bits;
}

size_t LoopPlan::LevelOf(RangeSet deps) const {
  size_t level = 0;
  for (size_t i = 0; i < loops.size(); ++i)
    if (loops[i].block == 0 && (deps >> loops[i].range & 1)) level = i + 1;
  return level;
}

size_t LoopPlan::LevelOfGroup(const ReduceGroup& group) const {
  const size_t level = LevelOf(group.deps);
  return level == 0 ? 0 : std::max(level, static_cast<size_t>(task_loops));
}

const CpuMatrixUnit* LoopPlan::CoreOf(const UOp* load) const {
  for (const GroupPlan& group : groups)
    if (group.core && (group.core->rows == load || group.core->columns == load))
      return &*group.core;
  return nullptr;
}

std::string PlanToString(const LoopNest& kernel, const LoopPlan& plan) {
  std::string out = absl::StrCat("tasks ", plan.tasks(), ", of ", plan.task_loops, " loops\n");
  if (plan.cluster > 1) absl::StrAppend(&out, "  by clusters of ", plan.cluster, " blocks\n");
  const auto line = [&](const char* what, const Tile& tile) {
    absl::StrAppend(&out, "  ", what, RangeOf(kernel.ranges[tile.range].node).id(), " extent ",
                    kernel.ranges[tile.range].extent, " step ", tile.step, " trips ", tile.trips);
    if (tile.threads > 1)
      absl::StrAppend(&out, " threads ", tile.threads, " of runs of ", tile.run);
    if (tile.align > 1) absl::StrAppend(&out, " aligned to ", tile.align);
    for (const auto* pieces : {&tile.main, &tile.rest}) {
      absl::StrAppend(&out, pieces == &tile.main ? " main" : " rest");
      for (const Piece& p : *pieces)
        absl::StrAppend(&out, " ", p.offset, ":", p.active, "/", p.lanes);
    }
    out += "\n";
  };
  for (size_t i = 0; i <= plan.loops.size(); ++i) {
    for (const Stage& stage : plan.stages)
      if (stage.level == i)
        absl::StrAppend(&out, "  copy of slot ", GlobalOfAccess(stage.load).slot(), "\n");
    if (i == plan.loops.size()) break;
    const Loop& loop = plan.loops[i];
    if (loop.block == 0) {
      line("r", plan.tiles[loop.range]);
    } else {
      absl::StrAppend(&out, "  r", RangeOf(kernel.ranges[loop.range].node).id(), " in blocks of ",
                      loop.block, "\n");
    }
  }
  for (const Panel& panel : plan.panels) line("panel over k", panel.tile);
  if (plan.online.range >= 0)
    absl::StrAppend(&out, "  online over k", RangeOf(kernel.ranges[plan.online.range].node).id(),
                    " in blocks of ", plan.online.block, ", ", plan.online.phases.size(),
                    " phases\n");
  if (plan.visible.range >= 0)
    absl::StrAppend(&out, "  visible steps of k",
                    RangeOf(kernel.ranges[plan.visible.range].node).id(), ", in ",
                    plan.visible.multiple, "s: ", plan.visible.first.size(), " begins, ",
                    plan.visible.last.size(), " ends, ", plan.visible.guards.size(), " guards\n");
  for (const GroupPlan& group : plan.groups) {
    absl::StrAppend(&out, " reduce, partials ", group.partials,
                    !group.core                              ? ""
                    : group.core->by == Bf16Products::kTiles ? ", tiles of bf16"
                                                             : ", vectors of bf16",
                    "\n");
    for (const Tile& tile : group.loops) line("k", tile);
  }
  return out;
}

}  // namespace outboard::codegen
