#include "compiler/program/lower/point_lowering.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "compiler/optimize/operands/mma.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

PointLowering::PointLowering(const LoopNest& kernel) : kernel_(kernel), ranges_(kernel, b_) {
  for (size_t slot = 0; slot < kernel.slot_elements.size(); ++slot)
    buffers_.push_back(kernel.slot_elements[slot] < 0
                           ? -1
                           : b_.Buffer(kernel.slot_dtypes[slot], static_cast<int64_t>(slot),
                                       kernel.slot_elements[slot]));
  std::vector<bool> read_only(kernel.slot_elements.size(), true);
  for (const UOp* store : kernel.stores) read_only[GlobalOfAccess(store).slot()] = false;
  b_.SetReadOnly(std::move(read_only));
}

// ---- values

// By a stack of our own: an expression may be as deep as a client likes.
ValueId PointLowering::Emit(const UOp* root) {
  std::vector<const UOp*> stack = {root};
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    if (computed_.Knows(node)) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    const auto need = [&](const UOp* source) {
      if (!computed_.Knows(source)) stack.push_back(source);
    };
    if (provided_.contains(node)) {
      // Not from its sources.
    } else if (node->op == Op::kLoad) {
      if (node->src.size() == 3) {
        need(node->src[2]);
        for (const UOp* condition : ConjunctsOf(node->src[1]))
          if (!IsAssumed(condition)) need(condition);
      }
      need(node->src[0]->src[1]);
    } else if (node->op != Op::kReduceLoop && node->op != Op::kRange) {
      for (size_t i = node->src.size(); i-- > 0;) need(node->src[i]);
    }
    if (stack.size() > before) continue;
    stack.pop_back();
    computed_.Set(node, Compute(node));
  }
  return computed_.Of(root);
}

ValueId PointLowering::Compute(const UOp* node) {
  const auto source = [&](int i) { return computed_.Of(node->src[i]); };
  if (const auto it = provided_.find(node); it != provided_.end()) {
    const Provided& provided = it->second;
    return provided.read ? provided.read() : b_.Cast(provided.value, node->dtype);
  }
  if (by_inverse_.contains(node)) {
    const ValueId inverse = b_.Add({.code = Code::kAlu,
                                    .op = Op::kFDiv,
                                    .dtype = node->dtype,
                                    .src = {b_.Const(node->dtype, 1), source(1)},
                                    .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
    return b_.Alu(Op::kMul, node->dtype, {source(0), inverse});
  }
  switch (node->op) {
    case Op::kConst:
      return b_.Add(
          {.code = Code::kConst, .dtype = node->dtype, .imm = {ConstantBits(node), 0, 0}});
    case Op::kVar:
      return b_.Add({.code = Code::kVar,
                     .dtype = DType::kI64,
                     .imm = {VarOf(node).slot(), VarOf(node).min(), VarOf(node).max()}});
    case Op::kRange: {
      const ValueId value = ranges_[kernel_.IndexOf(node)].value;
      OB_CHECK(value >= 0);
      return value;
    }
    case Op::kLoad: return Load(node);
    case Op::kReduceLoop: {
      const ResultPlace& result = results_.at(node);
      return b_.Load(result.memory, ranges_.PlaceIn(result.ranges));
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

ValueId PointLowering::Load(const UOp* node) {
  Instruction load{.code = Code::kLoad, .dtype = node->dtype};
  load.src = {BufferOf(node), computed_.Of(node->src[0]->src[1])};
  const RangeSet deps = kernel_.DepsOf(node);
  ValueId mask = ranges_.ActiveLanes(deps);
  if (node->src.size() == 3) mask = b_.And(Gate(ConjunctsOf(node->src[1])), mask);
  mask = b_.And(loads_if_, mask);
  if (deps != 0 && (deps & again_for_) == 0) load.imm[0] = again_;
  AdaptLoad(node, load, mask);
  if (mask >= 0) {
    load.src.push_back(mask);
    load.src.push_back(node->src.size() == 3 ? computed_.Of(node->src[2])
                                             : b_.Const(node->dtype, 0));
  }
  return b_.Add(std::move(load));
}

// ---- arithmetic

Instruction PointLowering::AluOf(const UOp* node) {
  OB_CHECK(IsAlu(node->op));
  Instruction alu{.code = Code::kAlu, .op = node->op, .dtype = node->dtype};
  if (node->op == Op::kExp2 && Exp2Of(node).by_unit())
    alu.imm = {static_cast<int64_t>(Precision::kByUnit), Exp2Of(node).has_subnormals() ? 1 : 0, 0};
  return alu;
}

ValueId PointLowering::Identity(Op op, DType dtype) {
  if (op != Op::kMax) return b_.Const(dtype, op == Op::kAdd ? 0 : 1);
  if (IsFloat(dtype)) return b_.Const(dtype, -std::numeric_limits<double>::infinity());
  return b_.Add({.code = Code::kConst, .dtype = dtype, .imm = {IntMin(dtype), 0, 0}});
}

ValueId PointLowering::Combine(Op op, ValueId a, ValueId b) {
  Instruction out{.code = Code::kAlu, .op = op, .dtype = b_.at(a).dtype, .lanes = b_.at(a).lanes};
  out.src = {a, b};
  if (op == Op::kAdd && IsFloat(out.dtype))
    out.imm[0] = static_cast<int64_t>(Precision::kWithProduct);
  return b_.Add(std::move(out));
}

// ---- conditions

ValueId PointLowering::Gate(const std::vector<const UOp*>& conditions) {
  ValueId all = -1;
  for (const UOp* condition : conditions)
    if (!IsAssumed(condition)) all = b_.And(all, Emit(condition));
  return all;
}

ValueId PointLowering::IfBelowEnds(const codegen::MmaProduct& product, ValueId row, int64_t rows,
                                   ValueId column, int64_t columns) {
  const ValueId tile = b_.And(ReachesBelowEnds(product.rows.ranges, row, rows),
                              ReachesBelowEnds(product.columns.ranges, column, columns));
  const ValueId all = AndBelowEnds(tile, product.batch);
  return all < 0 ? -1 : b_.If(all);
}

ValueId PointLowering::ReachesBelowEnds(const std::vector<int>& ranges, ValueId first,
                                        int64_t size) {
  ValueId all = -1;
  int64_t below = 1;
  for (size_t i = ranges.size(); i-- > 0;) {
    const int64_t extent = kernel_.ranges[ranges[i]].extent;
    const UOp* const end = kernel_.ranges[ranges[i]].end();
    // Whether the range only grows within a tile: an inner one may wrap around to 0.
    const bool grows = i == 0 || extent * below % size == 0;
    if (end != nullptr && grows) {
      const ValueId value = b_.Divide(first, below);
      all = b_.And(all, b_.Less(i == 0 ? value : b_.Modulo(value, extent), Emit(end)));
    }
    below *= extent;
  }
  return all;
}

ValueId PointLowering::AndBelowEnds(ValueId condition, const std::vector<int>& ranges) {
  for (const int r : ranges)
    if (const UOp* const end = kernel_.ranges[r].end())
      condition = b_.And(condition, b_.Less(ranges_[r].value, Emit(end)));
  return condition;
}

// ---- stores

void PointLowering::Store(const std::vector<const UOp*>& stores) {
  std::vector<Instruction> made;
  for (const UOp* store : stores) {
    const UOp* const index = store->src[0];
    const RangeSet deps = kernel_.DepsOf(store);
    Instruction out{.code = Code::kStore};
    out.src = {BufferOf(index), Emit(index->src[1]), Emit(store->src[1])};
    ValueId mask = b_.And(store->src.size() == 3 ? Gate(ConjunctsOf(store->src[2])) : -1,
                          ranges_.ActiveLanes(deps));
    // By a single block or thread.
    for (RangeSet free = divided_ & ~deps; free != 0; free &= free - 1) {
      const int r = std::countr_zero(free);
      const ValueId value =
          ranges_[r].is_open() ? ranges_[r].base : ranges_.long_block(r).number;
      mask = b_.And(mask, b_.Alu(Op::kCmpEq, DType::kBool, {value, b_.Int(0)}));
    }
    if (mask >= 0) out.src.push_back(mask);
    made.push_back(std::move(out));
  }
  for (Instruction& store : made) b_.Add(std::move(store));
}

}  // namespace outboard::program
