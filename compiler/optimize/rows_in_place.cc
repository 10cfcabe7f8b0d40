#include "compiler/optimize/rows_in_place.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/threads/apply_threads.h"

namespace outboard::codegen {
namespace {

absl::Status Illegal(const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat("Opts: ", why...));
}

// The stored slots that the kernel also loads.
absl::flat_hash_set<int64_t> SlotsInPlace(const LoopNest& kernel) {
  absl::flat_hash_set<int64_t> stored, both;
  for (const UOp* store : kernel.stores) stored.insert(GlobalOfAccess(store).slot());
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kLoad && stored.contains(GlobalOfAccess(node).slot()))
      both.insert(GlobalOfAccess(node).slot());
  return both;
}

// The output ranges that a store of one of `slots` depends on.
RangeSet StoreRanges(const LoopNest& kernel, const absl::flat_hash_set<int64_t>& slots) {
  RangeSet deps = 0;
  for (const UOp* store : kernel.stores)
    if (slots.contains(GlobalOfAccess(store).slot())) deps |= kernel.DepsOf(store->src[0]);
  return deps & kernel.OutputSet();
}

// Whether what is reduced is made from one of `slots`.
bool Reads(const ReduceGroup& group, const absl::flat_hash_set<int64_t>& slots) {
  std::vector<const UOp*> bodies;
  for (const UOp* node : group.nodes) bodies.push_back(node->src[0]);
  return std::ranges::any_of(PostOrder(bodies), [&](const UOp* node) {
    return node->op == Op::kLoad && slots.contains(GlobalOfAccess(node).slot());
  });
}

// The groups that read rows of `slots`, which the kernel stores element by element.
std::vector<size_t> GroupsOfRows(const LoopNest& kernel,
                                 const absl::flat_hash_set<int64_t>& slots) {
  std::vector<size_t> groups;
  const RangeSet stored = StoreRanges(kernel, slots);
  for (size_t g = 0; g < kernel.groups.size(); ++g)
    if ((stored & ~kernel.groups[g].deps) != 0 && Reads(kernel.groups[g], slots))
      groups.push_back(g);
  return groups;
}

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
  int group = -1;     // that the range along the row is of
  uint64_t step = 0;  // along the row
  Affine outside;     // what is added to that
  Affine aligned;     // the same of what the tile is aligned for

  bool IsLike(const ReadOfRow& other) const {
    return threads == other.threads && step == other.step && SameTiles(*tile, *other.tile) &&
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
  // A loop that may end before its first step keeps nothing.
  if (kernel.ranges[static_cast<size_t>(range)].end() != nullptr) return std::nullopt;
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

}  // namespace

std::vector<KeptRow> KeptRowsOf(const LoopNest& kernel, const LoopPlan& plan) {
  std::vector<KeptRow> kept;
  if (!plan.blocks) return kept;
  const auto keep = [&](int64_t slot, RangeSet rows) {
    if (auto row = KeptRowOf(kernel, plan, slot, rows)) kept.push_back(*std::move(row));
  };
  absl::flat_hash_set<int64_t> over;  // slots that are stored over
  if (const std::optional<RangeSet> rows = RowsInPlace(kernel))
    for (const UOp* store : kernel.stores) {
      over.insert(GlobalOfAccess(store).slot());
      keep(GlobalOfAccess(store).slot(), *rows);
    }
  for (const KeptSlot& other : plan.kept) {
    if (over.contains(other.slot)) continue;
    RangeSet rows = 0;
    for (const ReduceGroup& group : kernel.groups)
      if (Reads(group, {other.slot})) rows |= group.deps;
    keep(other.slot, rows & kernel.OutputSet());
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const KeptRow& a, const KeptRow& b) { return a.group < b.group; });
  return kept;
}

std::optional<RangeSet> RowsInPlace(const LoopNest& kernel) {
  // The steps of a sequence are in order, and read what earlier ones stored.
  if (kernel.output_count > kernel.parallel_count) return std::nullopt;
  const absl::flat_hash_set<int64_t> slots = SlotsInPlace(kernel);
  if (slots.empty()) return std::nullopt;
  const std::vector<size_t> groups = GroupsOfRows(kernel, slots);
  if (groups.empty()) return std::nullopt;
  RangeSet rows = 0;
  for (const size_t g : groups) rows |= kernel.groups[g].deps;
  return rows & kernel.OutputSet();
}

absl::Status CheckRowsInPlace(const LoopNest& kernel, const LoopPlan& plan) {
  const std::optional<RangeSet> rows = RowsInPlace(kernel);
  if (!rows) return absl::OkStatus();
  if (plan.online.range >= 0 || !plan.panels.empty())
    return Illegal("panels of what the kernel stores");
  const absl::flat_hash_set<int64_t> slots = SlotsInPlace(kernel);
  for (const Stage& stage : plan.stages)
    if (slots.contains(GlobalOfAccess(stage.load).slot()))
      return Illegal("a copy of what the kernel stores");
  size_t along = plan.loops.size();  // the first loop along a row
  for (size_t i = 0; i < plan.loops.size(); ++i) {
    const bool of_rows = (*rows >> plan.loops[i].range & 1) != 0;
    if (!of_rows) along = std::min(along, i);
    if (of_rows && i > along) return Illegal("a loop over rows is inside of one along them");
  }
  if (static_cast<size_t>(plan.task_loops) > along)
    return Illegal("a row that is stored over is divided into tasks");
  for (const size_t g : GroupsOfRows(kernel, slots)) {
    const GroupPlan& group = plan.groups[g];
    if (group.core) return Illegal("a matrix unit reads what the kernel stores");
    const int64_t threads = plan.FreeThreads(kernel.groups[g]);
    if (threads == 1) continue;
    if (group.shared_by != threads)
      return Illegal("each of ", threads, " threads would read a row that all of them store");
    if (JoiningOf(kernel, plan, g).warps == 0)
      return Illegal("threads of one warp would not wait for each other");
  }
  return absl::OkStatus();
}

int64_t BytesInMemory(const KeptRow& row, const LoopNest& kernel, const LoopPlan& plan) {
  return row.in_memory * row.lanes * plan.block_threads() *
         ByteWidth(kernel.slot_dtypes[static_cast<size_t>(row.slot)]);
}

}  // namespace outboard::codegen
