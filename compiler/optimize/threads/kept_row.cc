#include "compiler/optimize/threads/kept_row.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/rows_in_place.h"

namespace outboard::codegen {
namespace {

// The one range of a load that is not among those that number rows; -1: there are others.
int AlongRow(const LoopNest& kernel, const UOp* load, RangeSet rows) {
  const RangeSet along = kernel.DepsOf(load) & ~rows;
  return std::popcount(along) == 1 ? std::countr_zero(along) : -1;
}

// The tile of a range, the bits of the number of threads that divide it, and its group (-1: an
// output range).
const Tile* TileAlong(const LoopNest& kernel, const LoopPlan& plan, int range, uint64_t* threads,
                      int* group) {
  *group = -1;
  if (range < kernel.output_count) {
    *threads = plan.ThreadBits(range);
    return &plan.tiles[static_cast<size_t>(range)];
  }
  for (size_t g = 0; g < kernel.groups.size(); ++g)
    for (const Tile& tile : plan.groups[g].loops) {
      if (tile.range != range) continue;
      *threads = plan.FreeBits(kernel.groups[g]);
      *group = static_cast<int>(g);
      return &tile;
    }
  return nullptr;
}

// Whether threads have the same values of both.
bool SameTiles(const Tile& a, const Tile& b) {
  const auto same = [](const std::vector<Piece>& x, const std::vector<Piece>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const Piece& p, const Piece& q) {
      return p.offset == q.offset && p.lanes == q.lanes && p.active == q.active;
    });
  };
  return a.extent == b.extent && a.trips == b.trips && a.threads == b.threads && a.run == b.run &&
         a.align == b.align && same(a.main, b.main) && same(a.rest, b.rest);
}

bool SameForms(const Affine& a, const Affine& b) {
  return a.constant == b.constant && a.terms == b.terms;
}

// What an index adds to its place along a range.
Affine OutsideOf(AffineForms& forms, const UOp* index, const UOp* range) {
  Affine form = forms.Of(index);
  std::erase_if(form.terms, [&](const auto& term) { return term.first == range; });
  return form;
}

// Where a load of a row is, and by whom.
struct ReadOfRow {
  const Tile* tile = nullptr;
  uint64_t threads = 0;
  int group = -1;            // that the range along the row is of
  uint64_t step = 0;         // along the row
  const UOp* end = nullptr;  // where it ends, if that is a VAR
  Affine outside;            // what is added to that
  Affine aligned;            // the same of what the tile is aligned for

  bool IsLike(const ReadOfRow& other) const {
    // Loops that end at one place are run or not run together.
    return threads == other.threads && step == other.step && end == other.end &&
           SameTiles(*tile, *other.tile) &&
           SameForms(outside, other.outside) && SameForms(aligned, other.aligned);
  }
};

// nullopt: not as it would have to be to be kept.
std::optional<ReadOfRow> FindRead(const LoopNest& kernel, const LoopPlan& plan, RangeSet rows,
                                  AffineForms& forms, const UOp* load, int range) {
  ReadOfRow read;
  read.tile = TileAlong(kernel, plan, range, &read.threads, &read.group);
  if (read.tile == nullptr || read.tile->blocks() != 1) return std::nullopt;
  const UOp* const own = kernel.ranges[static_cast<size_t>(range)].node;
  const UOp* const index = load->src[0]->src[1];
  read.end = kernel.ranges[static_cast<size_t>(range)].end();
  read.step = forms.Of(index).CoefficientOf(own);
  read.outside = OutsideOf(forms, index, own);
  if (read.tile->align > 1) read.aligned = OutsideOf(forms, read.tile->aligned, own);
  for (const auto& [term, coefficient] : read.outside.terms)
    if ((kernel.DepsOf(term) & ~rows) != 0) return std::nullopt;
  if (read.group >= 0) {
    const ReduceGroup& group = kernel.groups[static_cast<size_t>(read.group)];
    if (group.deps != rows || group.ranges.size() != 1) return std::nullopt;
  }
  return read;
}

// The loads of one slot, if they may be kept.
std::optional<KeptRow> KeptRowOf(const LoopNest& kernel, const LoopPlan& plan, int64_t slot,
                                 RangeSet rows) {
  for (const Tile& tile : plan.tiles)
    if ((rows >> tile.range & 1) != 0 && !tile.plain()) return std::nullopt;
  KeptRow kept{.slot = slot, .group = kernel.groups.size()};
  AffineForms forms;
  std::optional<ReadOfRow> first;
  for (const UOp* load : kernel.nodes) {
    if (load->op != Op::kLoad || GlobalOfAccess(load).slot() != slot) continue;
    const int range = AlongRow(kernel, load, rows);
    if (range < 0 || load->src.size() != 1) return std::nullopt;
    const auto read = FindRead(kernel, plan, rows, forms, load, range);
    if (!read || read->step == 0 || (first && !read->IsLike(*first))) return std::nullopt;
    if (!first) first = read;
    if (read->group >= 0 && static_cast<size_t>(read->group) < kept.group) {
      kept.group = static_cast<size_t>(read->group);
      kept.range = range;
    }
    kept.loads.emplace_back(load, range);
  }
  if (kept.loads.size() < 2 || kept.group == kernel.groups.size()) return std::nullopt;
  kept.lanes = first->tile->lanes();
  const auto vectors = static_cast<int64_t>(first->tile->pieces().size());
  kept.in_registers = vectors;
  for (const KeptSlot& other : plan.kept)
    if (other.slot == slot) kept.in_registers = std::min(vectors, other.in_registers);
  kept.in_memory = vectors - kept.in_registers;
  return kept;
}

// Whether the load is of a row that is read behind branches, since it ends at a VAR or in an odd
// vector, and fits half of the registers of each thread.
bool IsBehindBranches(const LoopNest& kernel, const LoopPlan& plan, const UOp* load) {
  const int64_t of_thread = kCudaRegisters / plan.block_threads(),
                most = std::min(kCudaThreadRegistersMax, of_thread) / 2;
  for (RangeSet deps = kernel.DepsOf(load); deps != 0; deps &= deps - 1) {
    const int range = std::countr_zero(deps);
    uint64_t threads = 0;
    int group = -1;
    const Tile* const tile = TileAlong(kernel, plan, range, &threads, &group);
    const bool ends = kernel.ranges[static_cast<size_t>(range)].end() != nullptr;
    if (tile != nullptr && (ends || tile->odd()) && !tile->plain() &&
        static_cast<int64_t>(tile->pieces().size()) * tile->lanes() <= most)
      return true;
  }
  return false;
}

}  // namespace

std::vector<KeptRow> KeptRowsOf(const LoopNest& kernel, const LoopPlan& plan) {
  std::vector<KeptRow> kept;
  if (!plan.blocks) return kept;
  const auto keep = [&](int64_t slot, RangeSet rows) {
    if (auto row = KeptRowOf(kernel, plan, slot, rows)) kept.push_back(*std::move(row));
  };
  absl::flat_hash_set<int64_t> done;
  if (const std::optional<RangeSet> rows = RowsInPlace(kernel))
    for (const UOp* store : kernel.stores) {
      done.insert(GlobalOfAccess(store).slot());
      keep(GlobalOfAccess(store).slot(), *rows);
    }
  const auto keep_read = [&](int64_t slot) {
    if (!done.insert(slot).second) return;
    RangeSet rows = 0;
    for (const ReduceGroup& group : kernel.groups)
      if (ReadsAnyOf(group, {slot})) rows |= group.deps;
    keep(slot, rows & kernel.OutputSet());
  };
  for (const KeptSlot& other : plan.kept) keep_read(other.slot);
  const auto is_odd = [](const Tile& tile) { return tile.odd(); };
  const bool branches =
      std::ranges::any_of(kernel.ranges,
                          [](const Range& range) { return range.end() != nullptr; }) ||
      std::ranges::any_of(plan.tiles, is_odd) ||
      std::ranges::any_of(plan.groups, [&](const GroupPlan& group) {
        return std::ranges::any_of(group.loops, is_odd);
      });
  for (const UOp* node : kernel.nodes)
    if (branches && node->op == Op::kLoad && IsBehindBranches(kernel, plan, node))
      keep_read(GlobalOfAccess(node).slot());
  std::stable_sort(kept.begin(), kept.end(),
                   [](const KeptRow& a, const KeptRow& b) { return a.group < b.group; });
  return kept;
}

int64_t BytesInMemory(const KeptRow& row, const LoopNest& kernel, const LoopPlan& plan) {
  return row.in_memory * row.lanes * plan.block_threads() *
         ByteWidth(kernel.slot_dtypes[static_cast<size_t>(row.slot)]);
}

bool MayRunInSteps(const LoopNest& kernel, const LoopPlan& plan, const std::vector<KeptRow>& rows,
                   int range) {
  bool along = false;
  for (const KeptRow& row : rows)
    for (const auto& [load, own] : row.loads) {
      if (own != range) continue;
      if (row.in_memory == 0) return false;
      along = true;
    }
  for (size_t g = 0; g < kernel.groups.size(); ++g) {
    if ((kernel.groups[g].deps >> range & 1) != 0) return false;
    if (std::ranges::count(kernel.groups[g].ranges, range) > 0 && plan.groups[g].partials > 1)
      return false;
  }
  return along;
}

bool RunsInSteps(const Tile& tile) {
  return tile.run == tile.lanes() &&
         static_cast<int64_t>(tile.pieces().size()) > limits::kTilePointsMax;
}

int64_t PiecesWrittenOut(const LoopNest& kernel, const LoopPlan& plan,
                         const std::vector<KeptRow>& rows, const Tile& tile) {
  const auto all = static_cast<int64_t>(std::max(tile.main.size(), tile.rest.size()));
  if (!RunsInSteps(tile) || !MayRunInSteps(kernel, plan, rows, tile.range)) return all;
  int64_t in_registers = 0;
  for (const KeptRow& row : rows)
    for (const auto& [load, range] : row.loads)
      if (range == tile.range) in_registers = row.in_registers;
  // Those at the edges are apart, and what is less than a step.
  int64_t edges = 0;
  for (const Piece& piece : tile.rest) edges += tile.EdgesOf(piece).any();
  return std::min(all, in_registers + edges + 2 * VectorsOfStep(tile.lanes()));
}

}  // namespace outboard::codegen
