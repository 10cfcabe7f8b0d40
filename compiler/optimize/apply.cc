#include "compiler/optimize/apply.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/flatten.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/optimize/operands/visible.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/kept_row.h"

namespace outboard::codegen {
namespace {

bool In(RangeSet set, int range) { return set >> range & 1; }

class Applier {
 public:
  Applier(LoopNest kernel, const Target& target) : kernel_(std::move(kernel)), target_(target) {
    PlainLoops();
  }

  absl::Status Apply(const Opt& opt) {
    if (absl::Status status = Dispatch(opt); !status.ok())
      return absl::Status(status.code(),
                          absl::StrCat("Opt ", OptToString(opt), ": ", status.message()));
    first_ = false;
    return absl::OkStatus();
  }

  absl::Status Finish();
  absl::Status CheckSize() const;
  PlannedKernel Take() { return {std::move(kernel_), std::move(plan_)}; }

 private:
  static absl::Status Illegal(const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  }

  void PlainLoops();
  absl::Status Dispatch(const Opt& opt);
  absl::Status DispatchToThreads(const Opt& opt);
  absl::Status Flatten(int64_t axis);
  absl::Status Vector(int64_t axis, int64_t lanes);
  absl::Status Upcast(int64_t axis, int64_t count);
  absl::Status Unroll(int64_t axis, int64_t count);
  absl::Status Group(int64_t axis, int64_t count);
  absl::Status CpuMatrixUnit(int64_t axis, int64_t row_axis);
  absl::Status Block(int64_t axis, int64_t size);
  absl::Status Swap(int64_t a, int64_t b);
  absl::Status Thread(int64_t count);
  absl::Status Local(int64_t load, int64_t level);
  absl::Status Panel(int64_t value, int64_t count);
  absl::Status Online(int64_t axis, int64_t block);
  absl::Status CheckOnline() const;

  // The axis, if it is of the kind that is wanted.
  absl::StatusOr<Axis> Output(int64_t axis) const;
  absl::StatusOr<Axis> Reduced(int64_t axis) const;
  Tile& TileOf(const Axis& axis);

  LoopNest kernel_;
  const Target& target_;
  LoopPlan plan_;
  std::vector<Axis> axes_;
  std::optional<ThreadPlanner> threads_;  // of a device that runs blocks of threads
  bool first_ = true;
};

void Applier::PlainLoops() {
  plan_ = PlainPlan(kernel_);
  axes_ = AxesOf(kernel_);
  if (target_.block_threads > 1) threads_.emplace(kernel_, plan_, target_);
}

absl::StatusOr<Axis> Applier::Output(int64_t axis) const {
  if (axis < 0 || axis >= kernel_.output_count)
    return Illegal("the kernel has ", kernel_.output_count, " output ranges");
  if (axis >= kernel_.parallel_count) return Illegal("a sequence is one step after the other");
  return axes_[axis];
}

absl::StatusOr<Axis> Applier::Reduced(int64_t axis) const {
  if (axis < kernel_.output_count || axis >= static_cast<int64_t>(axes_.size()))
    return Illegal("the axes of reductions are ", kernel_.output_count, " to ", axes_.size() - 1);
  if (kernel_.IsNested(kernel_.groups[axes_[axis].group]))
    return Illegal("a reduction that is inside of another one, or around it, is left plain");
  return axes_[axis];
}

Tile& Applier::TileOf(const Axis& axis) {
  if (axis.group < 0) return plan_.tiles[axis.range];
  for (Tile& tile : plan_.groups[axis.group].loops)
    if (tile.range == axis.range) return tile;
  OB_CHECK(false && "an axis is a loop of its group");
  return plan_.tiles[0];
}

absl::Status Applier::DispatchToThreads(const Opt& opt) {
  const auto reduced = Reduced(opt.axis), output = Output(opt.axis);
  const bool of_group = opt.axis >= kernel_.output_count;
  const auto& axis = of_group ? reduced : output;
  switch (opt.kind) {
    case OptKind::kFlatten: return Flatten(opt.axis);
    case OptKind::kSwap: return Swap(opt.axis, opt.amount);
    case OptKind::kGroup: return Group(opt.axis, opt.amount);
    case OptKind::kGrid: return threads_->Grid(opt.amount);
    case OptKind::kLocal: {
      const std::vector<const UOp*> loads = LoadsOf(kernel_);
      if (opt.axis < 0 || opt.axis >= static_cast<int64_t>(loads.size()) || opt.amount != 0)
        return Illegal("the kernel has ", loads.size(), " loads, and no levels");
      return threads_->Local(loads[opt.axis]);
    }
    case OptKind::kVector:
      OB_RETURN_IF_ERROR(axis.status());
      return threads_->Vector(axis->group, axis->range, opt.amount);
    case OptKind::kUpcast:
      OB_RETURN_IF_ERROR(output.status());
      return threads_->Repeat(-1, output->range, opt.amount);
    case OptKind::kUnroll:
      OB_RETURN_IF_ERROR(reduced.status());
      return threads_->Repeat(reduced->group, reduced->range, opt.amount);
    case OptKind::kLane:
      OB_RETURN_IF_ERROR(output.status());
      return threads_->Lane(output->range, opt.amount);
    case OptKind::kWarp:
      OB_RETURN_IF_ERROR(output.status());
      return threads_->Warp(output->range, opt.amount);
    case OptKind::kShare:
      OB_RETURN_IF_ERROR(reduced.status());
      return threads_->Share(reduced->group, reduced->range, opt.amount);
    case OptKind::kCluster: return threads_->Cluster(opt.amount);
    case OptKind::kAlign:
      OB_RETURN_IF_ERROR(axis.status());
      return threads_->Align(axis->group, axis->range, opt.amount);
    case OptKind::kKeep: {
      const std::vector<const UOp*> loads = LoadsOf(kernel_);
      if (opt.axis < 0 || opt.axis >= static_cast<int64_t>(loads.size()))
        return Illegal("the kernel has ", loads.size(), " loads");
      return threads_->Keep(loads[opt.axis], opt.amount);
    }
    case OptKind::kCpuMatrixUnit:
    case OptKind::kBlock:
    case OptKind::kThread:
    case OptKind::kPanel:
    case OptKind::kOnline: return Illegal("is not for devices that run blocks of threads");
    case OptKind::kMma:
    case OptKind::kWgmma: return Illegal("makes no loop plan: it stands alone");
  }
  return Illegal("no such kind");
}

absl::Status Applier::Dispatch(const Opt& opt) {
  if (threads_) return DispatchToThreads(opt);
  if (opt.kind < OptKind::kCpuMatrixUnit)
    for (const GroupPlan& group : plan_.groups)
      if (group.core)
        return Illegal("must come before a CPU_MATRIX_UNIT, which counts on the tiles");
  switch (opt.kind) {
    case OptKind::kFlatten: return Flatten(opt.axis);
    case OptKind::kVector: return Vector(opt.axis, opt.amount);
    case OptKind::kUpcast: return Upcast(opt.axis, opt.amount);
    case OptKind::kUnroll: return Unroll(opt.axis, opt.amount);
    case OptKind::kGroup: return Group(opt.axis, opt.amount);
    case OptKind::kCpuMatrixUnit: return CpuMatrixUnit(opt.axis, opt.amount);
    case OptKind::kBlock: return Block(opt.axis, opt.amount);
    case OptKind::kSwap: return Swap(opt.axis, opt.amount);
    case OptKind::kThread: return Thread(opt.amount);
    case OptKind::kLocal: return Local(opt.axis, opt.amount);
    case OptKind::kPanel: return Panel(opt.axis, opt.amount);
    case OptKind::kOnline: return Online(opt.axis, opt.amount);
    case OptKind::kGrid:
    case OptKind::kLane:
    case OptKind::kWarp:
    case OptKind::kShare:
    case OptKind::kCluster:
    case OptKind::kAlign:
    case OptKind::kKeep: return Illegal("is for devices that run blocks of threads");
    case OptKind::kMma:
    case OptKind::kWgmma: return Illegal("makes no loop plan: it stands alone, on a GPU");
  }
  return Illegal("no such kind");
}

absl::Status Applier::Flatten(int64_t axis) {
  if (!first_) return Illegal("must be the first");
  if (axis < 0 || axis >= static_cast<int64_t>(axes_.size())) return Illegal("no such axis");
  Graph graph;
  const UOp* const flat = FlattenRows(graph, kernel_, axes_[axis].range, target_);
  if (flat == nullptr) return Illegal("the rows cannot be taken together, or gain nothing");
  OB_ASSIGN_OR_RETURN(kernel_, AnalyzeKernel(flat));
  PlainLoops();
  return absl::OkStatus();
}

absl::Status Applier::Vector(int64_t axis, int64_t lanes) {
  const int most = LanesMax(kernel_, target_);
  if (lanes < 2 || lanes > most || !std::has_single_bit(static_cast<uint64_t>(lanes)))
    return Illegal("lanes are a power of two up to ", most);
  const auto reduced = Reduced(axis);
  if (axis >= kernel_.output_count && !reduced.ok()) return reduced.status();
  const Axis which = reduced.ok() ? *reduced : axis < 0 ? Axis{} : axes_[axis];
  if (which.range < 0) return Illegal("no such axis");
  if (kernel_.ranges[which.range].sequence)
    return Illegal("a sequence is one step after the other");
  Tile& tile = TileOf(which);
  if (!tile.plain()) return Illegal("the axis is tiled already");
  if (tile.extent < 2 || lanes >= 2 * tile.extent)
    return Illegal("an extent of ", tile.extent, " leaves most lanes idle");
  // A value varies along one range in lanes, at most.
  for (const Tile& other : plan_.tiles) {
    if (other.lanes() == 1) continue;
    if (which.group < 0) return Illegal("another output range lies in lanes");
    if (In(kernel_.groups[which.group].deps, other.range))
      return Illegal("results of this reduction lie in lanes");
  }
  for (size_t g = 0; g < plan_.groups.size(); ++g)
    for (const Tile& other : plan_.groups[g].loops) {
      if (other.lanes() == 1) continue;
      if (which.group == static_cast<int>(g)) return Illegal("another range lies in lanes");
      if (which.group < 0 && In(kernel_.groups[g].deps, which.range))
        return Illegal("a reduction of the range has lanes of its own");
    }
  tile = VectorTile(tile.range, tile.extent, static_cast<int>(lanes), 1, which.group >= 0);
  if (which.group >= 0) {
    std::vector<Tile>& loops = plan_.groups[which.group].loops;
    std::rotate(loops.begin() + (&tile - loops.data()), loops.begin() + (&tile - loops.data()) + 1,
                loops.end());
  }
  return absl::OkStatus();
}

absl::Status Applier::Upcast(int64_t axis, int64_t count) {
  OB_ASSIGN_OR_RETURN(const Axis which, Output(axis));
  Tile& tile = TileOf(which);
  const int lanes = tile.lanes();
  if (count < 2 || lanes * (count - 1) >= tile.extent)
    return Illegal("the axis has ", tile.extent, " values in vectors of ", lanes);
  if (tile.main.size() > 1 || tile.step > lanes) return Illegal("the axis is upcast already");
  for (const Loop& loop : plan_.loops)
    if (loop.range == which.range && loop.block > 0) return Illegal("the axis is blocked already");
  tile = lanes > 1 ? VectorTile(tile.range, tile.extent, lanes, count, /*masked=*/false)
                   : ScalarTile(tile.range, tile.extent, count);
  return absl::OkStatus();
}

absl::Status Applier::Unroll(int64_t axis, int64_t count) {
  OB_ASSIGN_OR_RETURN(const Axis which, Reduced(axis));
  Tile& tile = TileOf(which);
  const int lanes = tile.lanes();
  if (count < 2 || lanes * (count - 1) >= tile.extent)
    return Illegal("the axis has ", tile.extent, " values in vectors of ", lanes);
  if (tile.main.size() > 1 || tile.step > lanes) return Illegal("the axis is unrolled already");
  tile = lanes > 1 ? VectorTile(tile.range, tile.extent, lanes, count, /*masked=*/true)
                   : ScalarTile(tile.range, tile.extent, count);
  return absl::OkStatus();
}

absl::Status Applier::Group(int64_t axis, int64_t count) {
  OB_ASSIGN_OR_RETURN(const Axis which, Reduced(axis));
  GroupPlan& group = plan_.groups[which.group];
  if (which.range != group.loops.back().range)
    return Illegal("the axis is not the innermost of its reduction");
  const Tile& tile = group.loops.back();
  const auto steps = static_cast<int64_t>(std::max(tile.main.size(), tile.rest.size()));
  if (count < 2 || count > steps) return Illegal("the axis has ", steps, " steps written out");
  group.partials = static_cast<int>(count);
  return absl::OkStatus();
}

absl::Status Applier::CpuMatrixUnit(int64_t axis, int64_t row_axis) {
  if (target_.bf16 == Bf16Products::kNone) return Illegal("the processor has no products of bf16");
  OB_ASSIGN_OR_RETURN(const Axis inner, Reduced(axis));
  OB_ASSIGN_OR_RETURN(const Axis row, Output(row_axis));
  GroupPlan& group = plan_.groups[inner.group];
  if (group.core) return Illegal("the reduction is done so already");
  int column = -1;
  for (const Tile& tile : plan_.tiles)
    if (tile.lanes() > 1) column = tile.range;
  if (column < 0) return Illegal("no output range lies in lanes");
  OB_ASSIGN_OR_RETURN(codegen::CpuMatrixUnit core,
                      FindCpuMatrixUnit(kernel_, kernel_.groups[inner.group], row.range, column,
                                        inner.range));
  core.by = target_.bf16;
  // Every vector has all its lanes, some of them idle.
  Tile& columns = plan_.tiles[column];
  if (columns.lanes() != kCoreColumns) return Illegal("columns are lanes of ", kCoreColumns);
  columns = VectorTile(column, columns.extent, kCoreColumns,
                       (columns.step + kCoreColumns - 1) / kCoreColumns, /*masked=*/true);
  Tile& steps = TileOf(inner);
  if (!steps.plain()) return Illegal("the axis is tiled already");
  steps.step = kCoreSteps;
  steps.trips = steps.extent / kCoreSteps;
  if (steps.extent % kCoreSteps != 0) steps.rest = {Piece{}};
  group.core = core;
  return absl::OkStatus();
}

absl::Status Applier::Block(int64_t axis, int64_t size) {
  OB_ASSIGN_OR_RETURN(const Axis which, Output(axis));
  const Tile& tile = TileOf(which);
  size_t blocks = 0;
  for (const Loop& loop : plan_.loops) {
    if (loop.block == 0) continue;
    if (loop.range == which.range) return Illegal("the axis is blocked already");
    ++blocks;
  }
  if (size <= 0 || size % tile.step != 0 || size >= tile.extent)
    return Illegal("a block is a multiple of ", tile.step, " below ", tile.extent);
  if (plan_.task_loops > 0 || !plan_.stages.empty())
    return Illegal("loops are counted already by a THREAD or LOCAL");
  for (size_t i = 0; i < blocks; ++i)
    if (plan_.loops[i].range == which.range)
      return Illegal("a loop over blocks would be inside of its tile's");
  plan_.loops.insert(plan_.loops.begin() + static_cast<int64_t>(blocks), {which.range, size});
  return absl::OkStatus();
}

absl::Status Applier::Swap(int64_t a, int64_t b) {
  const auto count = static_cast<int64_t>(plan_.loops.size());
  if (a < 0 || b <= a || b >= count)
    return Illegal("two of ", count, " loops, the outer one first");
  if (plan_.task_loops > 0 || !plan_.stages.empty())
    return Illegal("loops are counted already by a THREAD or LOCAL");
  for (const int64_t i : {a, b})
    if (kernel_.ranges[plan_.loops[i].range].sequence)
      return Illegal("a sequence is one step after the other");
  std::vector<Loop> loops = plan_.loops;
  std::swap(loops[a], loops[b]);
  for (size_t i = 0; i < loops.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (loops[i].range == loops[k].range && loops[k].block == 0)
        return Illegal("a loop over blocks would be inside of its tile's");
  plan_.loops = std::move(loops);
  return absl::OkStatus();
}

absl::Status Applier::Thread(int64_t count) {
  const auto loops = static_cast<int64_t>(plan_.loops.size());
  if (count < 1 || count > loops) return Illegal("the kernel has ", loops, " output loops");
  if (plan_.task_loops > 0) return Illegal("tasks are chosen already");
  for (int64_t i = 0; i < count; ++i) {
    if (kernel_.ranges[plan_.loops[i].range].sequence)
      return Illegal("the steps of a sequence are one task");
    for (int64_t k = 0; k < i; ++k)  // each task of the inner one would be done for each block
      if (plan_.loops[i].range == plan_.loops[k].range)
        return Illegal("blocks and what is in them are not both tasks");
  }
  for (const Stage& stage : plan_.stages)
    if (static_cast<int64_t>(stage.level) < count) return Illegal("a copy is outside of the tasks");
  plan_.task_loops = static_cast<int>(count);
  return absl::OkStatus();
}

absl::Status Applier::Local(int64_t number, int64_t level) {
  const std::vector<const UOp*> loads = CopyableOf(kernel_);
  if (number < 0 || number >= static_cast<int64_t>(loads.size()))
    return Illegal("the kernel has ", loads.size(), " loads and values to copy");
  if (level < plan_.task_loops || level > static_cast<int64_t>(plan_.loops.size()))
    return Illegal("a copy is inside of the ", plan_.task_loops, " loops of tasks");
  const UOp* const load = loads[number];
  for (const Stage& stage : plan_.stages)
    if (stage.load == load) return Illegal("the load is copied already");
  OB_RETURN_IF_ERROR(CanStage(kernel_, load));
  const Stage stage{load, static_cast<size_t>(level)};
  bool varies = false;
  for (const StageDim& dim : LayOut(kernel_, plan_, stage).dims) varies = varies || !dim.open;
  if (!varies) return Illegal("the load is one element inside of the copy");
  plan_.stages.push_back(stage);
  return absl::OkStatus();
}

// Operands of a CPU_MATRIX_UNIT are copied for each tile where no LOCAL said otherwise. Then what
// they need of the whole plan.
absl::Status Applier::Finish() {
  if (threads_) return threads_->Finish();
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupPlan& group = plan_.groups[g];
    if (!group.core) continue;
    const codegen::CpuMatrixUnit& core = *group.core;
    const size_t level = plan_.LevelOfGroup(kernel_.groups[g]);
    for (const UOp* load : {core.rows, core.columns}) {
      const auto stage = std::find_if(plan_.stages.begin(), plan_.stages.end(),
                                      [&](const Stage& s) { return s.load == load; });
      if (stage == plan_.stages.end()) {
        plan_.stages.push_back({load, level});
      } else if (stage->level > level) {
        return Illegal("Opts: an operand of a CPU_MATRIX_UNIT is copied after its use");
      }
    }
    for (const Tile& tile : plan_.tiles)
      if (In(kernel_.groups[g].deps, tile.range) && tile.range != core.row_range &&
          tile.range != core.column_range && !tile.plain())
        return Illegal("Opts: results of a CPU_MATRIX_UNIT are tiled along another axis");
    for (const Tile& tile : group.loops)
      if (tile.range != core.inner_range && !tile.plain())
        return Illegal("Opts: another axis of a CPU_MATRIX_UNIT is tiled");
    const Tile& rows = plan_.tiles[core.row_range];
    const auto tiles = [](int64_t size) { return (size + kCoreColumns - 1) / kCoreColumns; };
    const int64_t columns = tiles(plan_.tiles[core.column_range].step);
    if (rows.lanes() > 1 || group.partials > 1)
      return Illegal("Opts: a CPU_MATRIX_UNIT in lanes or groups");
    if (core.by == Bf16Products::kTiles &&
        (columns > kCoreColumnTilesMax || tiles(rows.step) * columns > kCoreTilesMax ||
         (rows.step % kCoreColumns != 0 && rows.blocks() > 1)))
      return Illegal("Opts: a CPU_MATRIX_UNIT of ", rows.step, " rows and ", columns,
                     " vectors is not so many tiles");
  }
  OB_RETURN_IF_ERROR(CheckRowsInPlace(kernel_, plan_));
  if (plan_.online.range >= 0) OB_RETURN_IF_ERROR(CheckOnline());
  if (!plan_.panels.empty())
    plan_.visible = VisibleStepsOf(kernel_, plan_, VarsOfSteps::kHideNothing);
  return absl::OkStatus();
}

absl::Status Applier::Panel(int64_t value, int64_t count) {
  const std::vector<const UOp*> panels = PanelsOf(kernel_);
  if (value < 0 || value >= static_cast<int64_t>(panels.size()))
    return Illegal("the kernel has ", panels.size(), " panels");
  for (const codegen::Panel& panel : plan_.panels)
    if (std::find(panels.begin(), panels.end(), panel.value) - panels.begin() >= value)
      return Illegal("panels are in order, each once");
  const int range = PanelRange(kernel_, panels[value]);
  const int64_t extent = kernel_.ranges[range].extent;
  if (count < 1 || count > extent) return Illegal("the loop has ", extent, " steps");
  plan_.panels.push_back({panels[value], ScalarTile(range, extent, count)});
  return absl::OkStatus();
}

absl::Status Applier::Online(int64_t axis, int64_t block) {
  if (!first_) return Illegal("must be the first");
  if (axis < kernel_.output_count || axis >= static_cast<int64_t>(axes_.size()))
    return Illegal("the axes of reductions are ", kernel_.output_count, " to ", axes_.size() - 1);
  const int range = axes_[axis].range;
  if (kernel_.ranges[range].end() != nullptr) return Illegal("the loop ends at a VAR");
  if (block < 1 || block >= kernel_.ranges[range].extent)
    return Illegal("a block is below ", kernel_.ranges[range].extent);
  const int64_t id = RangeOf(kernel_.ranges[range].node).id();
  Graph graph;
  OB_ASSIGN_OR_RETURN(kernel_, AnalyzeKernel(WithoutFactors(graph, kernel_, range)));
  PlainLoops();
  for (size_t i = kernel_.output_count; i < kernel_.ranges.size(); ++i)
    if (RangeOf(kernel_.ranges[i].node).id() == id) {
      OB_ASSIGN_OR_RETURN(plan_.online, PhasesOf(kernel_, static_cast<int>(i), block));
      return absl::OkStatus();
    }
  return Illegal("the axis is gone without factors of its sums");
}

// Every reduction over the loop reads panels of the same rows, inside the same output loops.
absl::Status Applier::CheckOnline() const {
  if (plan_.panels.empty()) return Illegal("Opts: an ONLINE without a PANEL");
  RangeSet rows = 0;
  for (const codegen::Panel& panel : plan_.panels) {
    const RangeSet own = kernel_.DepsOf(panel.value) & kernel_.OutputSet();
    if (panel.tile.range != plan_.online.range || (rows != 0 && own != rows))
      return Illegal("Opts: panels of an ONLINE are of other rows, or along another loop");
    rows = own;
    if (plan_.online.block % panel.tile.step != 0)
      return Illegal("Opts: a block of ONLINE is a multiple of its panels' steps");
  }
  for (const Loop& loop : plan_.loops)
    if (loop.block > 0) return Illegal("Opts: a BLOCK with an ONLINE");
  for (const auto& phase : plan_.online.phases)
    for (const size_t g : phase) {
      const RangeSet deps = kernel_.groups[g].deps;
      if ((deps & rows) != rows) return Illegal("Opts: a reduction of an ONLINE is of other rows");
      const GroupPlan& group = plan_.groups[g];
      if (group.partials > 1 || group.core || !group.loops[0].plain())
        return Illegal("Opts: a reduction of an ONLINE is left plain");
    }
  return absl::OkStatus();
}

// Limits of the whole, where the order of Opts does not matter.
absl::Status Applier::CheckSize() const {
  const auto over = [](const char* what, int64_t count, int64_t most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Opts: ", what, " ", count, " is over the limit of ", most));
  };
  int64_t points = 1, tiled = 0;
  const std::vector<codegen::KeptRow> kept = KeptRowsOf(kernel_, plan_);
  const auto count = [&](const Tile& tile) {
    return PiecesWrittenOut(kernel_, plan_, kept, tile);
  };
  for (const Tile& tile : plan_.tiles) {
    if (count(tile) > limits::kTilePointsMax)
      return over("an axis of", count(tile), limits::kTilePointsMax);
    points = std::min(points * count(tile), 2 * limits::kTilePointsMax);
    tiled += tile.plain() ? 0 : 1;
  }
  if (points > limits::kTilePointsMax) return over("a tile of", points, limits::kTilePointsMax);
  if (tiled > limits::kTiledLoopsMax) return over("tiled loops", tiled, limits::kTiledLoopsMax);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupPlan& group = plan_.groups[g];
    // Written out for each of the results that a tile has.
    int64_t unrolled = 1, loops = tiled;
    for (const Tile& tile : plan_.tiles)
      if (In(kernel_.groups[g].deps, tile.range))
        unrolled = std::min(unrolled * count(tile), 2 * limits::kUnrolledPointsMax);
    for (const Tile& tile : group.loops) {
      if (count(tile) > limits::kTilePiecesMax)
        return over("steps written out", count(tile), limits::kTilePiecesMax);
      unrolled = std::min(unrolled * count(tile), 2 * limits::kUnrolledPointsMax);
      loops += tile.plain() ? 0 : 1;
    }
    if (unrolled > limits::kUnrolledPointsMax)
      return over("an unrolled tile of", unrolled, limits::kUnrolledPointsMax);
    if (loops > limits::kTiledLoopsMax) return over("tiled loops", loops, limits::kTiledLoopsMax);
  }
  for (const codegen::Panel& panel : plan_.panels) {
    if (points * count(panel.tile) > limits::kUnrolledPointsMax)
      return over("a tile of a panel of", points * count(panel.tile), limits::kUnrolledPointsMax);
    if (tiled + 1 > limits::kTiledLoopsMax)
      return over("tiled loops", tiled + 1, limits::kTiledLoopsMax);
  }
  int64_t bytes = PlacePanels(kernel_, plan_).bytes;
  if (plan_.online.range >= 0) {
    const size_t level = OnlineLevel(kernel_, plan_);
    for (const auto& phase : plan_.online.phases)
      for (const size_t g : phase)
        for (const UOp* node : kernel_.groups[g].nodes)
          bytes += LayOutCarried(kernel_, plan_, node, level).bytes();
  }
  for (const Stage& stage : plan_.stages) bytes += LayOut(kernel_, plan_, stage).bytes();
  if (bytes > limits::kLocalBytesMax) return over("bytes of copies", bytes, limits::kLocalBytesMax);
  return absl::OkStatus();
}

}  // namespace

std::vector<Axis> AxesOf(const LoopNest& kernel) {
  std::vector<Axis> axes;
  for (int i = 0; i < kernel.output_count; ++i) axes.push_back({-1, i});
  for (size_t g = 0; g < kernel.groups.size(); ++g)
    for (const int range : kernel.groups[g].ranges) axes.push_back({static_cast<int>(g), range});
  return axes;
}

std::vector<const UOp*> LoadsOf(const LoopNest& kernel) {
  std::vector<const UOp*> loads;
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kLoad) loads.push_back(node);
  return loads;
}

std::vector<const UOp*> CopyableOf(const LoopNest& kernel) {
  std::vector<const UOp*> values = LoadsOf(kernel);
  for (const Unpacked& unpacked : UnpackedOf(kernel)) values.push_back(unpacked.value);
  return values;
}

absl::StatusOr<PlannedKernel> ApplyOpts(LoopNest kernel, std::span<const Opt> opts,
                                        const Target& target) {
  Applier applier(std::move(kernel), target);
  for (const Opt& opt : opts) OB_RETURN_IF_ERROR(applier.Apply(opt));
  OB_RETURN_IF_ERROR(applier.Finish());
  OB_RETURN_IF_ERROR(applier.CheckSize());
  return applier.Take();
}

}  // namespace outboard::codegen
