// The values of a kernel at a point, and its stores.
#include <algorithm>
#include <bit>
#include <map>
#include <numbers>

#include "base/check.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

// By a stack of our own: an expression may be as deep as a client likes.
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
    if (staged_.contains(node) || copied_.contains(node) || of_kept_.contains(node) ||
        ShiftedOf(node) != nullptr) {
      // Read as it was copied.
    } else if (units_.contains(node) || together_.contains(node)) {
      // Not as arithmetic.
    } else if (node->op == Op::kLoad) {
      if (node->src.size() == 3) {
        need(node->src[2]);
        for (const UOp* condition : ConjunctsOf(node->src[1]))
          if (!held_.contains(condition)) need(condition);
      }
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

ValueId Lowering::Gate(const std::vector<const UOp*>& conditions) {
  ValueId all = -1;
  for (const UOp* condition : conditions)
    if (!held_.contains(condition)) all = And(all, Emit(condition));
  return all;
}

ValueId Lowering::Compute(const UOp* node) {
  const auto source = [&](int i) { return memo_.at(node->src[i]); };
  if (const auto it = copied_.find(node); it != copied_.end())
    return b_.Load(copies_[it->second], PlaceInBlock(it->second));
  if (const auto it = of_kept_.find(node); it != of_kept_.end()) {
    const auto [row, range] = it->second;
    const auto [memory, place] = PlaceOfKept(row, range);
    return b_.Load(memory, place);
  }
  if (const ShiftedCopy* copy = ShiftedOf(node)) return LoadShifted(*copy);
  if (const auto it = staged_.find(node); it != staged_.end()) {
    const Staged& staged = stages_[it->second];
    return b_.Cast(b_.Load(staged.memory, PlaceOf(staged)), node->dtype);  // of a sum: see SumType
  }
  if (const auto it = units_.find(node); it != units_.end())
    return ByUnit(it->second, Unscaled(it->second));
  if (by_inverse_.contains(node)) {
    const ValueId inverse = b_.Add({.code = Code::kAlu,
                                    .op = Op::kFDiv,
                                    .dtype = node->dtype,
                                    .src = {b_.Const(node->dtype, 1), source(1)},
                                    .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
    return b_.Alu(Op::kMul, node->dtype, {source(0), inverse});
  }
  // A matrix unit sums narrow floats in f32.
  if (const auto it = together_.find(node); it != together_.end())
    return b_.Cast(it->second, node->dtype);
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
    case Op::kLoad: return Load(node);
    case Op::kReduceLoop: {
      const ResultPlace& result = results_.at(node);
      return b_.Load(result.memory, PlaceIn(result.ranges));
    }
    case Op::kCast: return b_.Cast(source(0), node->dtype);
    case Op::kBitcast:
      return b_.Add({.code = Code::kBitcast, .dtype = node->dtype, .src = {source(0)}});
    default: break;
  }
  Instruction alu = AluOf(node);
  for (size_t i = 0; i < node->src.size(); ++i) alu.src.push_back(source(static_cast<int>(i)));
  if (node->op == Op::kAdd &&
      (by_inverse_.contains(node->src[0]) || by_inverse_.contains(node->src[1])))
    alu.imm[0] = static_cast<int64_t>(Precision::kWithProduct);
  return b_.Add(std::move(alu));
}

Instruction Lowering::AluOf(const UOp* node) {
  OB_CHECK(IsAlu(node->op));
  Instruction alu{.code = Code::kAlu, .op = node->op, .dtype = node->dtype};
  if (node->op == Op::kExp2 && Exp2Of(node).by_unit())
    alu.imm = {static_cast<int64_t>(Precision::kByUnit), Exp2Of(node).has_subnormals() ? 1 : 0, 0};
  return alu;
}

ValueId Lowering::Unscaled(const UnitExponential& unit) {
  ValueId y = Emit(unit.value);
  const ValueId none = Identity(Op::kMax, DType::kF32);
  for (size_t i = unit.hidden.size(); i-- > 0;) {
    const auto& [condition, hides] = unit.hidden[i];
    const ValueId hidden = Emit(condition);
    y = hides ? b_.Alu(Op::kWhere, DType::kF32, {hidden, none, y})
              : b_.Alu(Op::kWhere, DType::kF32, {hidden, y, none});
  }
  return y;
}

ValueId Lowering::ByUnit(const UnitExponential& unit, ValueId y) {
  const ValueId minus = b_.Alu(
      Op::kNeg, DType::kF32, {unit.loaded ? Emit(unit.max) : subtracted_.at(unit.max)});
  Instruction subtract{
      .code = Code::kAlu, .op = Op::kAdd, .dtype = DType::kF32, .src = {y, minus}};
  double scale = unit.factor * std::numbers::log2e;
  if (unit.loaded) {
    scale = std::numbers::log2e;
    if (unit.factor != 1) {
      subtract.src[0] =
          b_.Alu(Op::kMul, DType::kF32, {y, b_.Const(DType::kF32, unit.factor)});
      subtract.imm[0] = static_cast<int64_t>(Precision::kWithProduct);
    }
  }
  const ValueId distance = b_.Add(std::move(subtract));
  const ValueId factor = b_.Const(DType::kF32, static_cast<float>(scale));
  return b_.Add({.code = Code::kAlu,
                 .op = Op::kExp2,
                 .dtype = DType::kF32,
                 .src = {b_.Alu(Op::kMul, DType::kF32, {distance, factor})},
                 .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
}

ValueId Lowering::Load(const UOp* node) {
  Instruction load{.code = Code::kLoad, .dtype = node->dtype};
  load.src = {buffers_[GlobalOfAccess(node).slot()], memo_.at(node->src[0]->src[1])};
  ValueId mask = ActiveLanes(kernel_.DepsOf(node));
  if (node->src.size() == 3) mask = And(Gate(ConjunctsOf(node->src[1])), mask);
  mask = And(And(loads_if_, BelowEndsOf(kernel_.DepsOf(node))), mask);
  // The last element may be another thread's, which stores there.
  if (blocks_ && !b_.IsReadOnly(load.src[0])) mask = And(mask, WithinExtents(kernel_.DepsOf(node)));
  if (const auto rows = row_copies_.find(GlobalOfAccess(node).slot());
      rows != row_copies_.end() && rows->second.copied) {
    load.src[0] = rows->second.memory;
    load.src[1] = PlaceInRows(rows->second.layout, node->src[0]->src[1]);
  }
  if (mask >= 0) {
    load.src.push_back(mask);
    load.src.push_back(node->src.size() == 3 ? memo_.at(node->src[2]) : b_.Const(node->dtype, 0));
  }
  return b_.Add(std::move(load));
}

// Each store at the points that it depends on, those that depend on more first: a buffer that is
// updated in place is read at the same element, so what reads it depends on all that its store
// does.
void Lowering::Stores() {
  std::vector<std::pair<std::vector<int>, std::vector<const UOp*>>> by_points;
  for (const UOp* store : kernel_.stores) {
    if (SumsPoints(store)) continue;  // whoever has all of its rows stores it
    const RangeSet deps = kernel_.DepsOf(store);
    std::vector<int> points = TiledRanges(deps);
    const auto same = std::find_if(by_points.begin(), by_points.end(), [&](const auto& entry) {
      return entry.first == points && (!blocks_ || kernel_.DepsOf(entry.second.front()) == deps);
    });
    if (same != by_points.end()) {
      same->second.push_back(store);
    } else {
      by_points.push_back({std::move(points), {store}});
    }
  }
  std::stable_sort(by_points.begin(), by_points.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [points, stores] : by_points) {
    const RangeSet deps = kernel_.DepsOf(stores.front());
    stored_ = blocks_ ? &deps : nullptr;
    Statement(points, [&] { Store(stores); });
    stored_ = nullptr;
  }
}

// All values of a point before its stores.
void Lowering::Store(const std::vector<const UOp*>& stores) {
  std::vector<Instruction> made;
  for (const UOp* store : stores) {
    const UOp* const index = store->src[0];
    const RangeSet deps = kernel_.DepsOf(store);
    Instruction out{.code = Code::kStore};
    out.src = {buffers_[GlobalOfAccess(index).slot()], Emit(index->src[1]), Emit(store->src[1])};
    ValueId mask =
        And(store->src.size() == 3 ? Gate(ConjunctsOf(store->src[2])) : -1, ActiveLanes(deps));
    // Values that do not depend on the block or thread are stored by a single thread.
    for (RangeSet free = blocks_ ? 0 : mapped_ & ~deps; free != 0; free &= free - 1) {
      const int r = std::countr_zero(free);
      const ValueId value = bound_[r].base >= 0 ? bound_[r].base : block_[r].number;
      mask = And(mask, b_.Alu(Op::kCmpEq, DType::kBool, {value, b_.Int(0)}));
    }
    if (mask >= 0) out.src.push_back(mask);
    made.push_back(std::move(out));
  }
  for (Instruction& store : made) b_.Add(std::move(store));
}

}  // namespace outboard::program
