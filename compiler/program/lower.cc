// Lowers a kernel to loops, and emits the values in them.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/lowering.h"

namespace outboard::program {
namespace {

// Pieces of a tile that differ by their number only.
struct Segment {
  int64_t first = 0;  // number of the first piece
  int64_t count = 1;
  int64_t offset = 0;  // of the first piece
  int lanes = 1;
  int active = 1;
};

std::vector<Segment> SegmentsOf(const std::vector<Piece>& pieces) {
  std::vector<Segment> out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    if (!out.empty()) {
      Segment& last = out.back();
      if (last.lanes == p.lanes && last.active == p.active &&
          p.offset == last.offset + last.count * last.lanes) {
        ++last.count;
        continue;
      }
    }
    out.push_back({static_cast<int64_t>(i), 1, p.offset, p.lanes, p.active});
  }
  return out;
}

}  // namespace

Lowering::Lowering(const LoopNest& kernel, const LoopPlan* plan) : kernel_(kernel), plan_(plan) {
  const size_t ranges = kernel.ranges.size();
  bound_.resize(ranges);
  value_.assign(ranges, -1);
  local_.assign(ranges, -1);
  lane_.assign(ranges, -1);
  piece_.assign(ranges, -1);
  done_.assign(kernel.groups.size(), false);
  for (size_t slot = 0; slot < kernel.slot_elements.size(); ++slot)
    buffers_.push_back(kernel.slot_elements[slot] < 0
                           ? -1
                           : b_.Buffer(kernel.slot_dtypes[slot], static_cast<int64_t>(slot),
                                       kernel.slot_elements[slot]));
  std::vector<bool> read_only(kernel.slot_elements.size(), true);
  for (const UOp* store : kernel.stores) read_only[GlobalOfAccess(store).slot()] = false;
  b_.SetReadOnly(std::move(read_only));
}

Program Lowering::RunPlan() {
  for (const ReduceGroup& group : kernel_.groups)
    level_.push_back(kernel_.IsNested(group) && (group.deps & ~kernel_.OutputSet())
                         ? SIZE_MAX
                         : plan_->LevelOfGroup(group));
  if (plan_->task_loops == 0) {
    GroupsAt(0);
    Outputs(0);
  } else {
    const ValueId task = plan_->tasks() > 1 ? b_.Special(Grid::kBlock, plan_->tasks()) : b_.Int(0);
    GroupsAt(0);
    std::vector<ValueId> steps(plan_->task_loops);
    ValueId left = task;
    for (int i = plan_->task_loops - 1; i > 0; --i) {
      const int64_t count = plan_->trips(plan_->loops[i]);
      steps[i] = b_.Modulo(left, count);
      left = b_.Divide(left, count);
    }
    steps[0] = left;
    TaskLoops(0, steps);
  }
  return b_.Take(static_cast<int>(kernel_.slot_elements.size()));
}

Program Lowering::RunThreads(const ThreadMapping& mapping) {
  threads_ = mapping.threads;
  const int split = mapping.block_ranges;
  RangeSet of_blocks = 0;
  std::vector<int> outer, inner;
  for (int r = 0; r < kernel_.parallel_count; ++r) {
    (r < split ? outer : inner).push_back(r);
    mapped_ |= RangeSet{1} << r;
    if (r < split) of_blocks |= RangeSet{1} << r;
  }
  const int64_t points = Points(inner);
  const int64_t chunks = mapping.stride ? 1 : (points + threads_ - 1) / threads_;
  const int64_t blocks = Points(outer) * chunks;
  const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
  thread_ = threads_ > 1 ? b_.Special(Grid::kThread, threads_) : b_.Int(0);
  const auto together = [&](const ReduceGroup& group) {
    return mapping.together && threads_ > 1 && !kernel_.IsNested(group) &&
           (group.deps & ~of_blocks) == 0;
  };
  shared_.resize(kernel_.groups.size());
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (together(kernel_.groups[g]))
      for (const UOp* node : kernel_.groups[g].nodes)
        shared_[g].push_back(b_.Alloc(Space::kShared, SumType(node->dtype), threads_));

  BindAll(outer, b_.Divide(block, chunks));
  std::vector<ValueId> conditions = BelowEnds(outer);
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    if (!IsBound(group.deps)) continue;
    done_[g] = true;
    together(group) ? GroupTogether(static_cast<int>(g)) : Group(static_cast<int>(g));
  }
  const ValueId chunk = b_.Modulo(block, chunks);
  ValueId loop = -1, index = -1;
  Enter();
  if (mapping.stride) {
    const int64_t steps = (points + threads_ - 1) / threads_;
    if (steps > 1) loop = b_.Loop(steps);
    index = b_.Plus(steps > 1 ? b_.Times(loop, threads_) : b_.Int(0), thread_);
  } else {
    index = b_.Plus(b_.Times(chunk, threads_), thread_);
  }
  ValueId inside = points % threads_ == 0 ? -1 : b_.Less(index, b_.Int(points));
  const ValueId branch = inside < 0 ? -1 : b_.If(inside);
  BindAll(inner, index);
  const std::vector<ValueId> more = BelowEnds(inner);
  Sequences(kernel_.parallel_count);
  for (size_t i = more.size(); i-- > 0;) b_.EndIf(more[i]);
  if (branch >= 0) b_.EndIf(branch);
  if (loop >= 0) b_.End(loop);
  Leave();
  for (size_t i = conditions.size(); i-- > 0;) b_.EndIf(conditions[i]);
  return b_.Take(static_cast<int>(kernel_.slot_elements.size()));
}

void Lowering::TaskLoops(size_t level, const std::vector<ValueId>& steps) {
  if (level == steps.size()) {
    Inside(level);
    return;
  }
  const Tile& tile = plan_->tiles[plan_->loops[level].range];
  mapped_ |= RangeSet{1} << tile.range;
  const UOp* const end = kernel_.ranges[tile.range].end();
  const auto with = [&](ValueId condition, ValueId base, const std::vector<Piece>& pieces) {
    Enter();
    const ValueId branch = condition < 0 ? -1 : b_.If(condition);
    const ValueId limit = end == nullptr ? -1 : b_.If(b_.Less(base, Emit(end)));
    BindTile(tile.range, base, pieces);
    TaskLoops(level + 1, steps);
    Unbind(tile.range);
    if (limit >= 0) b_.EndIf(limit);
    if (branch >= 0) b_.EndIf(branch);
    Leave();
  };
  const bool both = tile.trips > 0 && !tile.rest.empty();
  const ValueId trips = b_.Int(tile.trips);
  if (tile.trips > 0)
    with(both ? b_.Less(steps[level], trips) : -1,
         tile.trips == 1 && !both ? b_.Int(0) : b_.Times(steps[level], tile.step), tile.main);
  if (!tile.rest.empty())
    with(both ? b_.Alu(Op::kCmpEq, DType::kBool, {steps[level], trips}) : -1,
         b_.Int(tile.trips * tile.step), tile.rest);
}

void Lowering::OverTile(const Tile& tile, const std::function<void()>& inside) {
  const auto bound = [&](ValueId base, const std::vector<Piece>& pieces) {
    BindTile(tile.range, base, pieces);
    inside();
    Unbind(tile.range);
  };
  const UOp* const end = kernel_.ranges[tile.range].end();
  if (tile.trips > 0) {
    Enter();
    if (tile.trips == 1 && end == nullptr) {
      bound(b_.Int(0), tile.main);
    } else {
      const ValueId limit =
          end == nullptr ? -1 : b_.Divide(b_.Plus(Emit(end), b_.Int(tile.step - 1)), tile.step);
      const ValueId loop = b_.Loop(tile.trips, How::kPlain, 1, limit);
      bound(b_.Times(loop, tile.step), tile.main);
      b_.End(loop);
    }
    Leave();
  }
  if (tile.rest.empty()) return;
  Enter();
  const ValueId whole = b_.Int(tile.trips * tile.step);
  const ValueId branch = end == nullptr ? -1 : b_.If(b_.Less(whole, Emit(end)));
  bound(whole, tile.rest);
  if (branch >= 0) b_.EndIf(branch);
  Leave();
}

void Lowering::Sequences(int range) {
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (!done_[g] && IsBound(kernel_.groups[g].deps)) {
      done_[g] = true;
      Group(static_cast<int>(g));
    }
  if (range == kernel_.output_count) {
    Stores();
    return;
  }
  Enter();
  const UOp* const end = kernel_.ranges[range].end();
  const ValueId loop =
      b_.Loop(kernel_.ranges[range].extent, How::kPlain, 1, end == nullptr ? -1 : Emit(end));
  BindPlain(range, loop);
  Sequences(range + 1);
  Unbind(range);
  b_.End(loop);
  Leave();
}

int Lowering::VectorRange(RangeSet ranges) const {
  for (; ranges != 0; ranges &= ranges - 1) {
    const int r = std::countr_zero(ranges);
    if (!bound_[r].tiled()) continue;
    for (const Piece& piece : *bound_[r].pieces)
      if (piece.lanes > 1) return r;
  }
  return -1;
}

std::vector<int> Lowering::TiledRanges(RangeSet ranges, int last) const {
  std::vector<int> out;
  for (RangeSet left = ranges; left != 0; left &= left - 1) {
    const int r = std::countr_zero(left);
    if (bound_[r].tiled() && r != last) out.push_back(r);
  }
  if (last >= 0 && (ranges >> last & 1)) out.push_back(last);
  return out;
}

void Lowering::OverPoints(const std::vector<int>& ranges, size_t next, int vector,
                          const std::function<void()>& body) {
  if (next == ranges.size()) {
    body();
    return;
  }
  const int r = ranges[next];
  for (const Segment& s : SegmentsOf(*bound_[r].pieces)) {
    Enter();
    ValueId local = b_.Int(s.offset), piece = b_.Int(s.first), lane = b_.Int(0);
    ValueId pieces = -1, lanes = -1;
    if (s.count > 1) {
      pieces = b_.Loop(s.count, How::kUnroll);
      local = b_.Plus(local, b_.Times(pieces, s.lanes));
      piece = b_.Plus(piece, pieces);
    }
    if (s.lanes > 1) {
      lanes = lane = b_.Loop(s.active, r == vector ? How::kVector : How::kUnroll, s.lanes);
      local = b_.Plus(local, lanes);
    }
    local_[r] = local;
    piece_[r] = piece;
    lane_[r] = lane;
    value_[r] = b_.Plus(bound_[r].base, local);
    OverPoints(ranges, next + 1, vector, body);
    local_[r] = piece_[r] = lane_[r] = value_[r] = -1;
    if (lanes >= 0) b_.End(lanes);
    if (pieces >= 0) b_.End(pieces);
    Leave();
  }
}

ValueId Lowering::Emit(const UOp* root) {
  std::vector<const UOp*> stack = {root};
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    if (memo_.contains(node)) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    const auto need = [&](const UOp* source) {
      if (!memo_.contains(source)) stack.push_back(source);
    };
    if (node->op == Op::kLoad) {
      for (size_t i = node->src.size(); i-- > 1;) need(node->src[i]);
      need(node->src[0]->src[1]);
    } else if (node->op != Op::kReduceLoop && node->op != Op::kRange) {
      for (size_t i = node->src.size(); i-- > 0;) need(node->src[i]);
    }
    if (stack.size() > before) continue;
    stack.pop_back();
    memo_[node] = Compute(node);
    if (!memo_scopes_.empty()) memo_scopes_.back().push_back(node);
  }
  return memo_.at(root);
}

ValueId Lowering::Compute(const UOp* node) {
  const auto source = [&](int i) { return memo_.at(node->src[i]); };
  switch (node->op) {
    case Op::kConst:
      return b_.Add(
          {.code = Code::kConst, .dtype = node->dtype, .imm = {ConstantBits(node), 0, 0}});
    case Op::kVar:
      return b_.Add({.code = Code::kVar,
                     .dtype = DType::kI64,
                     .imm = {VarOf(node).slot(), VarOf(node).min(), VarOf(node).max()}});
    case Op::kRange: {
      const ValueId value = value_[kernel_.IndexOf(node)];
      OB_CHECK(value >= 0);
      return value;
    }
    case Op::kLoad: {
      Instruction load{.code = Code::kLoad, .dtype = node->dtype};
      load.src = {buffers_[GlobalOfAccess(node).slot()], memo_.at(node->src[0]->src[1])};
      if (node->src.size() == 3) {
        load.src.push_back(source(1));
        load.src.push_back(source(2));
      }
      return b_.Add(std::move(load));
    }
    case Op::kReduceLoop: {
      if (const auto it = together_.find(node); it != together_.end()) return it->second;
      const ResultPlace& result = results_.at(node);
      return b_.Load(result.memory, PlaceIn(result.ranges));
    }
    case Op::kCast: return b_.Cast(source(0), node->dtype);
    case Op::kBitcast:
      return b_.Add({.code = Code::kBitcast, .dtype = node->dtype, .src = {source(0)}});
    default: break;
  }
  OB_CHECK(IsAlu(node->op));
  Instruction alu{.code = Code::kAlu, .op = node->op, .dtype = node->dtype};
  for (size_t i = 0; i < node->src.size(); ++i) alu.src.push_back(source(static_cast<int>(i)));
  return b_.Add(std::move(alu));
}

void Lowering::Stores() {
  RangeSet all = 0;
  for (const UOp* store : kernel_.stores) all |= kernel_.DepsOf(store);
  Statement(all, [&] {
    std::vector<Instruction> stores;
    for (const UOp* store : kernel_.stores) {
      Instruction out{.code = Code::kStore};
      const UOp* const index = store->src[0];
      out.src = {buffers_[GlobalOfAccess(index).slot()], Emit(index->src[1]), Emit(store->src[1])};
      ValueId mask = store->src.size() == 3 ? Emit(store->src[2]) : -1;
      // Values that do not depend on the block or thread are stored by a single thread.
      for (RangeSet free = mapped_ & ~kernel_.DepsOf(store); free != 0; free &= free - 1) {
        const int r = std::countr_zero(free);
        const ValueId value = bound_[r].tiled() ? bound_[r].base : value_[r];
        const ValueId first = b_.Alu(Op::kCmpEq, DType::kBool, {value, b_.Int(0)});
        mask = mask < 0 ? first : b_.Alu(Op::kAnd, DType::kBool, {mask, first});
      }
      if (mask >= 0) out.src.push_back(mask);
      stores.push_back(std::move(out));
    }
    for (Instruction& store : stores) b_.Add(std::move(store));
  });
}

namespace {

absl::Status NoFormFor(std::string_view what) {
  return absl::UnimplementedError(absl::StrCat("program: no form for ", std::string(what)));
}

}  // namespace

absl::StatusOr<Program> LowerPlan(const LoopNest& kernel, const LoopPlan& plan) {
  if (kernel.empty) return Program{{}, static_cast<int>(kernel.slot_elements.size())};
  if (!plan.stages.empty()) return NoFormFor("copies of operands (LOCAL)");
  if (!plan.panels.empty()) return NoFormFor("panels (PANEL)");
  for (const Loop& loop : plan.loops)
    if (loop.block > 0) return NoFormFor("blocks of loops (BLOCK)");
  for (const GroupPlan& group : plan.groups)
    if (group.core) return NoFormFor("matrix units (TC)");
  return Lowering(kernel, &plan).RunPlan();
}

absl::StatusOr<Program> LowerThreads(const LoopNest& kernel, const ThreadMapping& mapping) {
  if (kernel.empty) return Program{{}, static_cast<int>(kernel.slot_elements.size())};
  if (mapping.threads < 1 || !std::has_single_bit(static_cast<uint64_t>(mapping.threads)) ||
      mapping.block_ranges < 0 || mapping.block_ranges > kernel.parallel_count)
    return absl::InvalidArgumentError("program: no such mapping to threads");
  return Lowering(kernel, nullptr).RunThreads(mapping);
}

ThreadMapping MapToThreads(const LoopNest& kernel, int64_t threads_max) {
  // Where so few threads could have a point each, or so long a reduction is to be computed by one,
  // a block computes it together.
  constexpr double kPointsEnough = 2048;
  constexpr double kTermsMany = 64;
  double points = 1;
  RangeSet parallel = 0;
  for (int r = 0; r < kernel.parallel_count; ++r) {
    points *= static_cast<double>(kernel.ranges[r].extent);
    parallel |= RangeSet{1} << r;
  }
  ThreadMapping mapping;
  double longest = 0;  // of the reductions that fewer threads than points need
  int block_ranges = 0;
  for (const ReduceGroup& group : kernel.groups) {
    if (kernel.IsNested(group) || (group.deps & ~parallel)) continue;
    double terms = 1;
    for (const int r : group.ranges) terms *= static_cast<double>(kernel.ranges[r].extent);
    const bool of_all = (parallel & ~group.deps) == 0;
    if (terms < kTermsMany && of_all) continue;
    if (of_all && points >= kPointsEnough) continue;
    longest = std::max(longest, terms);
    block_ranges = std::max(block_ranges, static_cast<int>(std::bit_width(group.deps)));
  }
  double inner = 1;
  for (int r = longest > 0 ? block_ranges : 0; r < kernel.parallel_count; ++r)
    inner *= static_cast<double>(kernel.ranges[r].extent);
  if (longest > 0) {
    mapping.block_ranges = block_ranges;
    mapping.stride = mapping.together = true;
  }
  const double work = std::max(longest, inner);
  mapping.threads = 1;
  while (mapping.threads < threads_max && static_cast<double>(mapping.threads) < work)
    mapping.threads *= 2;
  return mapping;
}

}  // namespace outboard::program
