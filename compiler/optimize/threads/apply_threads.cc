#include "compiler/optimize/threads/apply_threads.h"

#include <algorithm>
#include <bit>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/threads/kept_row.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"

namespace outboard::codegen {
namespace {

absl::Status Illegal(const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat(why...));
}

bool In(RangeSet set, int range) { return set >> range & 1; }

int64_t PointsOf(const Tile& tile) {
  return static_cast<int64_t>(std::max(tile.main.size(), tile.rest.size())) * tile.lanes();
}

bool Contains(const UOp* root, const UOp* wanted) {
  absl::flat_hash_set<const UOp*> seen;
  std::vector<const UOp*> stack = {root};
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (node == wanted) return true;
    if (seen.insert(node).second) stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  return false;
}

// The elements that the kernel may hold in one thread's registers, of 255: beside these there are
// addresses and what is being computed.
constexpr int64_t kThreadElementsMax = 160;

}  // namespace

Tile& ThreadPlanner::TileOf(int group, int range) {
  if (group < 0) return plan_.tiles[range];
  for (Tile& tile : plan_.groups[group].loops)
    if (tile.range == range) return tile;
  OB_CHECK(false && "an axis is a loop of its group");
  return plan_.tiles[0];
}

void ThreadPlanner::Rebuild(int group, int range) {
  const Nest& nest = nests_[range];
  Tile& tile = TileOf(group, range);
  tile = ThreadTile(range, kernel_.ranges[range].extent, nest.lanes, nest.inner, nest.threads,
                    nest.outer, nest.align, nest.odd_begin);
  tile.aligned = nest.aligned;
}

absl::Status ThreadPlanner::Fits(int range, int64_t count) const {
  const Nest& nest = nests_[range];
  const int64_t extent = AlignedSpan(kernel_.ranges[range].extent, nest.align, nest.lanes,
                                     nest.odd_begin),
                step = nest.step();
  if (step * (count - 1) >= extent)
    return Illegal("of ", count, " times ", step, " values, most are beyond the extent of ",
                   extent);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Vector(int group, int range, int64_t lanes) {
  // Values of wider types take several accesses.
  int narrowest = target_.vector_bytes;
  for (const DType dtype : kernel_.slot_dtypes)
    if (dtype != DType::kVoid) narrowest = std::min(narrowest, ByteWidth(dtype));
  const int64_t most = target_.vector_bytes / narrowest;
  if (lanes < 2 || lanes > most || !std::has_single_bit(static_cast<uint64_t>(lanes)))
    return Illegal("lanes are a power of two up to ", most);
  Nest& nest = nests_[range];
  if (nest.step() > 1) return Illegal("the axis is tiled already");
  // Odd ones are for PTX, where a branch around a vector costs no more than what is in it.
  if (const int64_t extent = kernel_.ranges[range].extent;
      extent % lanes != 0 && (target_.kind != TargetKind::kCuda || extent < lanes ||
                              kernel_.ranges[range].end() != nullptr))
    return Illegal("an extent of ", extent, " is no whole number of vectors");
  for (const Tile& other : plan_.tiles) {
    if (other.lanes() == 1) continue;
    if (group < 0) return Illegal("another output range lies in lanes");
    if (In(kernel_.groups[group].deps, other.range))
      return Illegal("results of this reduction lie in lanes");
  }
  for (size_t g = 0; g < plan_.groups.size(); ++g)
    for (const Tile& other : plan_.groups[g].loops) {
      if (other.lanes() == 1) continue;
      if (group == static_cast<int>(g)) return Illegal("another range lies in lanes");
      if (group < 0 && In(kernel_.groups[g].deps, range))
        return Illegal("a reduction of the range has lanes of its own");
    }
  nest.lanes = static_cast<int>(lanes);
  Rebuild(group, range);
  if (group >= 0) {
    std::vector<Tile>& loops = plan_.groups[group].loops;
    const auto tile = loops.begin() + (&TileOf(group, range) - loops.data());
    std::rotate(tile, tile + 1, loops.end());
  }
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Repeat(int group, int range, int64_t count) {
  Nest& nest = nests_[range];
  if (count < 2) return Illegal("of fewer than two");
  int64_t& where = nest.threads > 1 ? nest.outer : nest.inner;
  if (where > 1) return Illegal("the axis is tiled so already");
  OB_RETURN_IF_ERROR(Fits(range, count));
  where = count;
  Rebuild(group, range);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::MayHaveThreads(int64_t count) const {
  if (kernel_.output_count > kernel_.parallel_count)
    return Illegal("the steps of a sequence may read what another thread stored");
  if (count < 2 || !std::has_single_bit(static_cast<uint64_t>(count)))
    return Illegal("threads are a power of two from 2 on");
  return absl::OkStatus();
}

absl::Status ThreadPlanner::AddThreads(int range, int64_t count) {
  if (const int64_t most = target_.block_threads_max() * plan_.cluster;
      plan_.task_threads() * count > most)
    return Illegal("a block, or a cluster, has at most ", most, " threads");
  plan_.threads.push_back({range, count});
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Lane(int range, int64_t count) {
  OB_RETURN_IF_ERROR(MayHaveThreads(count));
  OB_RETURN_IF_ERROR(Fits(range, count / 2 + 1));
  if (nests_[range].outer > 1) return Illegal("must come before an UPCAST around it");
  if (plan_.task_threads() * count > kWarpThreads)
    return Illegal("a warp has ", kWarpThreads, " threads");
  OB_RETURN_IF_ERROR(AddThreads(range, count));
  nests_[range].threads *= count;
  Rebuild(-1, range);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Warp(int range, int64_t count) {
  OB_RETURN_IF_ERROR(MayHaveThreads(count));
  OB_RETURN_IF_ERROR(Fits(range, count / 2 + 1));
  if (nests_[range].outer > 1) return Illegal("must come before an UPCAST around it");
  if (plan_.task_threads() % kWarpThreads != 0)
    return Illegal("the ", plan_.task_threads(), " threads so far are no whole warps");
  OB_RETURN_IF_ERROR(AddThreads(range, count));
  nests_[range].threads *= count;
  Rebuild(-1, range);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Share(int group, int range, int64_t count) {
  OB_RETURN_IF_ERROR(MayHaveThreads(count));
  GroupPlan& plan = plan_.groups[group];
  if (plan.shared_by > 1) return Illegal("the reduction is divided already");
  if (nests_[range].outer > 1) return Illegal("must come before an UNROLL around it");
  const int64_t have = plan_.FreeThreads(kernel_.groups[group]);
  if (count % have != 0)
    return Illegal(have, " threads compute the same result; a multiple of these can divide it");
  if (count > have) OB_RETURN_IF_ERROR(AddThreads(-1, count / have));
  plan.shared_by = count;
  nests_[range].threads = count;
  Rebuild(group, range);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Cluster(int64_t blocks) {
  const int64_t most = target_.cluster_blocks_max();
  if (blocks < 2 || blocks > most || !std::has_single_bit(static_cast<uint64_t>(blocks)))
    return Illegal("a cluster has a power of two of blocks, of ", most, " at most");
  OB_RETURN_IF_ERROR(MayHaveThreads(blocks));
  if (plan_.cluster > 1) return Illegal("there is a cluster already");
  if (!plan_.threads.empty()) return Illegal("must come before the threads of its blocks");
  plan_.cluster = blocks;
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Align(int group, int range, int64_t count) {
  Nest& nest = nests_[range];
  if (count < 2 || count > kSectorBytes || !std::has_single_bit(static_cast<uint64_t>(count)))
    return Illegal("a sector has a power of two of values, of ", kSectorBytes, " at most");
  if (nest.align > 1) return Illegal("the axis is aligned already");
  if (nest.lanes > count || nest.threads == 1 || nest.inner > 1 || nest.outer > 1)
    return Illegal("is for an axis that threads divide in shorter vectors, before it is unrolled");
  if (kernel_.ranges[range].end() != nullptr) return Illegal("the axis may end before its extent");
  // An access of the most elements: what kernels load and store along one axis lies in rows of the
  // same length, or is one for all rows.
  AffineForms forms;
  double most = 0;
  bool is_odd = false;
  for (const UOp* node : kernel_.nodes) {
    if (node->op != Op::kLoad && node->op != Op::kStore) continue;
    const UOp* const index = node->src[0]->src[1];
    if (!In(kernel_.DepsOf(index), range)) continue;
    const UOp* const own = kernel_.ranges[range].node;
    const RangeSet outside = kernel_.OutputSet() & ~(RangeSet{1} << range);
    const auto lanes = static_cast<uint64_t>(nest.lanes);
    const Affine& form = forms.Of(index);
    bool linear = form.CoefficientOf(own) == 1, odd = form.constant % lanes != 0,
         counts_up = static_cast<int64_t>(form.constant) >= 0;
    for (const auto& [term, coefficient] : form.terms) {
      if (term == own) continue;
      linear = linear && (kernel_.DepsOf(term) & ~outside) == 0;
      odd = odd || coefficient % lanes != 0;
      counts_up =
          counts_up && term->op == Op::kRange && static_cast<int64_t>(coefficient) > 0;
    }
    linear = linear && (!odd || (counts_up && target_.kind == TargetKind::kCuda));
    double elements = 1;
    for (RangeSet deps = kernel_.DepsOf(index); deps != 0; deps &= deps - 1)
      elements *= static_cast<double>(kernel_.ranges[std::countr_zero(deps)].extent);
    if (!linear || elements <= most) continue;
    most = elements;
    is_odd = odd;
    nest.aligned = index;
  }
  if (nest.aligned == nullptr) return Illegal("no access has the axis next to each other");
  if (!is_odd && nest.lanes == count) return Illegal("all vectors of the axis begin so already");
  nest.align = count;
  nest.odd_begin = is_odd;
  Rebuild(group, range);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Grid(int64_t count) {
  const auto loops = static_cast<int64_t>(plan_.loops.size());
  if (count < 1 || count > loops) return Illegal("the kernel has ", loops, " output loops");
  if (plan_.task_loops > 0) return Illegal("blocks are chosen already");
  for (int64_t i = 0; i < count; ++i)
    if (kernel_.ranges[plan_.loops[i].range].sequence)
      return Illegal("the steps of a sequence are one block's");
  plan_.task_loops = static_cast<int>(count);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Local(const UOp* load) {
  for (const BlockCopy& copy : plan_.copies)
    if (copy.load == load) return Illegal("the load is copied already");
  const RangeSet deps = kernel_.DepsOf(load), reduced = deps & ~kernel_.OutputSet();
  for (const UOp* store : kernel_.stores)
    if (GlobalOfAccess(store).slot() == GlobalOfAccess(load).slot())
      return Illegal("the kernel stores where it loads");
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    RangeSet own = 0;
    for (const int r : group.ranges) own |= RangeSet{1} << r;
    if (reduced == 0 || (reduced & ~own) != 0 || kernel_.IsNested(group)) continue;
    if (std::none_of(group.nodes.begin(), group.nodes.end(),
                     [&](const UOp* node) { return Contains(node->src[0], load); }))
      continue;
    if (plan_.groups[g].shared_by > 1) return Rows(GlobalOfAccess(load).slot());
    plan_.copies.push_back({load, g});
    return absl::OkStatus();
  }
  if (reduced != 0) return Illegal("no single reduction reads it in its loops");
  if (std::find(plan_.shifted_copies.begin(), plan_.shifted_copies.end(), load) !=
      plan_.shifted_copies.end())
    return Illegal("the load is copied already");
  OB_RETURN_IF_ERROR(LayOutShifted(kernel_, plan_, load).status());
  plan_.shifted_copies.push_back(load);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Keep(const UOp* load, int64_t count) {
  const int64_t slot = GlobalOfAccess(load).slot();
  if (target_.kind != TargetKind::kCuda) return Illegal("the device keeps no rows");
  if (count < 1) return Illegal("of no vector");
  for (const KeptSlot& kept : plan_.kept) {
    if (kept.slot == slot) return Illegal("the row is kept already");
    if (kept.in_registers != count) return Illegal("other rows have other registers");
  }
  plan_.kept.push_back({slot, count});
  return absl::OkStatus();
}

absl::Status ThreadPlanner::CheckCopy(const BlockCopy& copy) const {
  if (plan_.groups[copy.group].shared_by > 1)
    return Illegal("Opts: operands of a divided reduction are not copied");
  const RangeSet deps = kernel_.DepsOf(copy.load);
  for (const Tile& tile : plan_.tiles)
    if (tile.align > 1 && In(deps, tile.range))
      return Illegal("Opts: operands along an aligned axis are not copied");
  // A copy reads the buffer, and not the block's rows of it.
  if (std::find(plan_.row_copies.begin(), plan_.row_copies.end(),
                GlobalOfAccess(copy.load).slot()) != plan_.row_copies.end())
    return Illegal("Opts: a buffer whose rows are copied is copied once more");
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Rows(int64_t slot) {
  if (target_.kind != TargetKind::kCuda) return Illegal("the device copies no rows");
  if (std::find(plan_.row_copies.begin(), plan_.row_copies.end(), slot) != plan_.row_copies.end())
    return Illegal("the rows are copied already");
  plan_.row_copies.push_back(slot);
  return absl::OkStatus();
}

// The one thread that stores an element has read it, and nobody else has, after a join.
absl::Status ThreadPlanner::CheckInPlace() const {
  for (const UOp* store : kernel_.stores) {
    const int64_t slot = GlobalOfAccess(store).slot();
    if (std::none_of(kernel_.nodes.begin(), kernel_.nodes.end(), [&](const UOp* node) {
          return node->op == Op::kLoad && GlobalOfAccess(node).slot() == slot;
        }))
      continue;
    const RangeSet deps = kernel_.DepsOf(store);
    for (const ThreadAxis& axis : plan_.threads)
      if (axis.range >= 0 && !In(deps, axis.range))
        return Illegal("Opts: several threads would read what one of them stores");
    if (RowsInPlace(kernel_)) continue;  // checked as such
    for (const ReduceGroup& group : kernel_.groups)
      if (plan_.FreeThreads(group) > 1 && ReadsAnyOf(group, {slot}))
        return Illegal("Opts: a divided reduction reads what the kernel stores");
  }
  return absl::OkStatus();
}

std::vector<std::pair<DType, int64_t>> JoinMemory(const LoopNest& kernel, const LoopPlan& plan) {
  std::vector<std::pair<DType, int64_t>> memory;
  for (size_t g = 0; g < kernel.groups.size(); ++g) {
    if (plan.groups[g].shared_by == 1) continue;
    const int64_t one = JoiningOf(kernel, plan, g).elements();
    if (one == 0) continue;
    for (const UOp* node : kernel.groups[g].nodes) {
      const DType type = JoinTypeOf(node->dtype);
      const int64_t nodes =
          std::count_if(kernel.groups[g].nodes.begin(), kernel.groups[g].nodes.end(),
                        [&](const UOp* other) { return JoinTypeOf(other->dtype) == type; });
      auto at = std::find_if(memory.begin(), memory.end(),
                             [&](const auto& entry) { return entry.first == type; });
      if (at == memory.end()) at = memory.insert(at, {type, 0});
      at->second = std::max(at->second, one * std::min(nodes, JoinedAtOnce(one, type)));
    }
  }
  return memory;
}

// Blocks of a cluster do one task, and each reduction once: what they leave for each other is
// written once.
absl::Status ThreadPlanner::CheckCluster() const {
  if (plan_.cluster == 1) return absl::OkStatus();
  constexpr int64_t kLeast = 128;  // whole warpgroups, which wait for each other
  if (plan_.task_threads() < kLeast * plan_.cluster)
    return Illegal("Opts: a block of a cluster has at least ", kLeast, " threads");
  if (!plan_.copies.empty() || !plan_.row_copies.empty())
    return Illegal("Opts: operands of a cluster are not copied");
  if (kernel_.groups.empty()) return Illegal("Opts: a cluster without a reduction");
  const auto within = static_cast<uint64_t>(plan_.block_threads()) - 1;
  const uint64_t blocks = (static_cast<uint64_t>(plan_.task_threads()) - 1) & ~within;
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    if (plan_.groups[g].shared_by == 1 || (plan_.FreeBits(group) & blocks) != blocks)
      return Illegal("Opts: a reduction is not divided among the blocks of a cluster");
    for (const UOp* node : group.nodes)
      if (JoinTypeOf(node->dtype) != DType::kF32)
        return Illegal("Opts: blocks of a cluster join results of f32 alone");
    const size_t level = plan_.LevelOfGroup(group);
    for (size_t i = static_cast<size_t>(plan_.task_loops); i < level; ++i)
      if (plan_.trips(plan_.loops[i]) > 1)
        return Illegal("Opts: the blocks of a cluster would join a reduction more than once");
  }
  return absl::OkStatus();
}

// All of it is written out, and the row that it is aligned for is one, which is known where the
// loop along it begins.
absl::Status ThreadPlanner::CheckAligned(const Tile& tile) const {
  if (tile.align == 1) return absl::OkStatus();
  if (tile.trips > 0 && !IsTaskLoop(tile.range))
    return Illegal("Opts: an axis that is aligned is not written out");
  const auto loop_of = [&](int range) {
    return std::find_if(plan_.loops.begin(), plan_.loops.end(),
                        [&](const Loop& loop) { return loop.range == range; });
  };
  for (RangeSet rows = kernel_.DepsOf(tile.aligned) & ~(RangeSet{1} << tile.range); rows != 0;
       rows &= rows - 1)
    if (const int row = std::countr_zero(rows);
        !plan_.tiles[row].plain() ||
        (tile.range < kernel_.output_count && loop_of(tile.range) < loop_of(row)))
      return Illegal("Opts: an axis is aligned for several rows");
  return absl::OkStatus();
}

bool ThreadPlanner::IsTaskLoop(int range) const {
  const auto tasks = std::span(plan_.loops).first(static_cast<size_t>(plan_.task_loops));
  return std::ranges::any_of(
      tasks, [&](const Loop& loop) { return loop.range == range && loop.block == 0; });
}

// Copies of operands have whole vectors of the axis.
absl::Status ThreadPlanner::CheckOdd(const Tile& tile) const {
  if (tile.lanes() > 1 && tile.extent % tile.lanes() != 0 && tile.threads == 1)
    return Illegal("Opts: an odd axis in lanes that threads do not divide");
  if (tile.odd() && (!plan_.copies.empty() || !plan_.row_copies.empty()))
    return Illegal("Opts: operands along odd vectors are copied");
  if (tile.odd() && std::ranges::any_of(kernel_.groups, [&](const ReduceGroup& group) {
        return In(group.deps, tile.range);
      }))
    return Illegal("Opts: threads would join results of odd vectors");
  return absl::OkStatus();
}

// Vectors are counted the same way wherever a range along a row is in steps.
absl::Status ThreadPlanner::CheckKept() const {
  if (plan_.kept.empty()) return absl::OkStatus();
  const std::vector<KeptRow> rows = KeptRowsOf(kernel_, plan_);
  for (const KeptSlot& kept : plan_.kept) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const KeptRow& r) { return r.slot == kept.slot; });
    if (row == rows.end())
      return Illegal("Opts: threads have not the same elements of a kept row wherever it is read");
    if (row->in_memory == 0) return Illegal("Opts: registers hold all of a kept row");
  }
  return absl::OkStatus();
}

absl::Status ThreadPlanner::CheckSize() const {
  const auto over = [](const char* what, int64_t count, int64_t most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Opts: ", what, " ", count, " is over the limit of ", most));
  };
  int64_t held = 0, join = 0, copied = 0;
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const GroupPlan& group = plan_.groups[g];
    const auto nodes = static_cast<int64_t>(kernel_.groups[g].nodes.size());
    const Joining joining = JoiningOf(kernel_, plan_, g);
    int64_t lanes = 1;
    for (const Tile& tile : group.loops) lanes = std::max<int64_t>(lanes, tile.lanes());
    held += joining.points * nodes * group.partials * lanes;
    if (group.shared_by > 1)
      for (const UOp* node : kernel_.groups[g].nodes)
        join = std::max(join, joining.elements() * std::max(4, ByteWidth(node->dtype)));
  }
  int64_t shared = 0;
  for (const KeptRow& row : KeptRowsOf(kernel_, plan_)) {
    if (row.in_memory > 0) held += row.in_registers * row.lanes;
    shared += BytesInMemory(row, kernel_, plan_);
  }
  if (held > kThreadElementsMax)
    return over("running values of a thread,", held, kThreadElementsMax);
  if (join > kJoinBytesMax) return over("bytes to join a reduction,", join, kJoinBytesMax);
  for (const BlockCopy& copy : plan_.copies)
    copied += LayOutCopy(kernel_, plan_, copy).elements * ByteWidth(copy.load->dtype);
  shared += copied + ClusterJoinElements(kernel_, plan_) * ByteWidth(DType::kF32);
  for (const int64_t slot : plan_.row_copies) {
    OB_ASSIGN_OR_RETURN(const RowLayout layout, LayOutRows(kernel_, plan_, slot));
    shared += layout.elements * ByteWidth(kernel_.slot_dtypes[static_cast<size_t>(slot)]);
  }
  for (const auto& [type, elements] : JoinMemory(kernel_, plan_))
    shared += elements * std::max(4, ByteWidth(type));
  for (const UOp* load : plan_.shifted_copies) {
    OB_ASSIGN_OR_RETURN(const ShiftedLayout layout, LayOutShifted(kernel_, plan_, load));
    shared += layout.elements() * ByteWidth(load->dtype);
  }
  // What long rows need is asked for at launch.
  const bool asks = !plan_.kept.empty() || !plan_.shifted_copies.empty();
  const int64_t most = asks ? target_.block_bytes_max() : target_.shared_bytes;
  if (shared > most) return over("bytes of a block,", shared, most);
  return absl::OkStatus();
}

absl::Status ThreadPlanner::Finish() {
  for (int i = 0; i < plan_.task_loops; ++i) {
    Tile& tile = plan_.tiles[plan_.loops[i].range];
    tile.cut = tile.cut || (tile.align > 1 && tile.trips > 0);
    if (tile.rest.empty() || tile.trips == 0) continue;  // there is one block, which is its rest
    ++tile.trips;
    tile.rest.clear();
    tile.cut = true;
  }
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const int64_t have = plan_.FreeThreads(kernel_.groups[g]), shared = plan_.groups[g].shared_by;
    if (shared > 1 && have != shared)
      return Illegal("Opts: a reduction is divided among ", shared, " of ", have, " threads");
  }
  for (const BlockCopy& copy : plan_.copies) OB_RETURN_IF_ERROR(CheckCopy(copy));
  OB_RETURN_IF_ERROR(CheckCluster());
  const auto check = [&](const Tile& tile) {
    OB_RETURN_IF_ERROR(CheckAligned(tile));
    return CheckOdd(tile);
  };
  for (const Tile& tile : plan_.tiles) OB_RETURN_IF_ERROR(check(tile));
  for (const GroupPlan& group : plan_.groups)
    for (const Tile& tile : group.loops) OB_RETURN_IF_ERROR(check(tile));
  OB_RETURN_IF_ERROR(CheckKept());
  OB_RETURN_IF_ERROR(CheckInPlace());
  OB_RETURN_IF_ERROR(CheckRowsInPlace(kernel_, plan_));
  return CheckSize();
}

int64_t Joining::elements() const {
  return warps == 0 ? 0 : points << (std::popcount(warps) + std::popcount(rest));
}

int64_t Joining::left_elements() const { return blocks == 0 ? 0 : points << std::popcount(rest); }

int64_t ClusterJoinElements(const LoopNest& kernel, const LoopPlan& plan) {
  int64_t elements = 0;
  for (size_t g = 0; g < kernel.groups.size(); ++g)
    elements += JoiningOf(kernel, plan, g).left_elements() *
                static_cast<int64_t>(kernel.groups[g].nodes.size());
  return elements;
}

Joining JoiningOf(const LoopNest& kernel, const LoopPlan& plan, size_t group) {
  Joining out;
  const RangeSet deps = kernel.groups[group].deps;
  for (const Tile& tile : plan.tiles)
    if (In(deps, tile.range)) out.points *= PointsOf(tile);
  const uint64_t all = static_cast<uint64_t>(plan.task_threads()) - 1,
                 block = static_cast<uint64_t>(plan.block_threads()) - 1;
  out.rest = all;
  if (plan.groups[group].shared_by == 1) return out;
  const uint64_t free = plan.FreeBits(kernel.groups[group]);
  out.lanes = free & (kWarpThreads - 1);
  out.warps = free & block & ~static_cast<uint64_t>(kWarpThreads - 1);
  out.blocks = free & ~block;
  out.rest = all & ~free;
  return out;
}

CopyLayout LayOutCopy(const LoopNest& kernel, const LoopPlan& plan, const BlockCopy& copy) {
  CopyLayout out;
  const RangeSet deps = kernel.DepsOf(copy.load);
  const auto add = [&](const Tile& tile, bool reduced) {
    if (tile.step > 1 && In(deps, tile.range))
      // Threads beyond the extent read, too, what nobody needs.
      out.dims.push_back(
          {tile.range, reduced ? std::min(tile.step, tile.extent) : tile.step, 1, reduced});
  };
  for (const Tile& tile : plan.groups[copy.group].loops) add(tile, true);
  const Tile* last = nullptr;  // the one in lanes lies together
  for (const Tile& tile : plan.tiles)
    if (tile.lanes() > 1) last = &tile;
  for (const Tile& tile : plan.tiles)
    if (&tile != last) add(tile, false);
  if (last != nullptr) add(*last, false);
  AffineForms forms;
  const Affine& form = forms.Of(copy.load->src[0]->src[1]);
  for (size_t i = 0; i < out.dims.size(); ++i) {
    const UOp* const range = kernel.ranges[out.dims[i].range].node;
    if (form.CoefficientOf(range) != 1) continue;
    bool only = true;
    for (const auto& [term, coefficient] : form.terms)
      only = only && (term == range || !In(kernel.DepsOf(term), out.dims[i].range));
    if (only) out.along = static_cast<int>(i);
  }
  const int64_t most = 16 / ByteWidth(copy.load->dtype);
  if (out.along >= 0) {
    const CopyDim& dim = out.dims[out.along];
    out.lanes = static_cast<int>(most);
    while (out.lanes > 1 &&
           (dim.extent % out.lanes != 0 || kernel.ranges[dim.range].extent % out.lanes != 0))
      out.lanes /= 2;
  }
  for (size_t i = out.dims.size(); i-- > 0;) {
    out.dims[i].stride = out.elements;
    out.elements *= out.dims[i].extent;
    // Rows that are stored by columns: neighbours in memory go to other banks.
    const bool transposed = out.along >= 0 && out.along + 1 < static_cast<int>(out.dims.size());
    if (i > 0 && transposed && static_cast<int>(i) == out.along + 1) out.elements += most;
  }
  return out;
}

}  // namespace outboard::codegen
