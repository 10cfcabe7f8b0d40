#include <algorithm>
#include <bit>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::Piece;
using codegen::RangeSet;
using llvm::Type;
using llvm::Value;

namespace {

bool FitsI32(const UOp* node) { return node->vmin >= INT32_MIN && node->vmax <= INT32_MAX; }
// Low bits of the result depend on low bits of the operands only.
bool IsModular(Op op) {
  return op == Op::kAdd || op == Op::kMul || op == Op::kNeg || op == Op::kMulAcc;
}

}  // namespace

Value* KernelEmitter::Find(const UOp* node, Coords coords) {
  const RangeSet deps = kernel_.DepsOf(node);
  const auto& values = scopes_->at(ScopeOf(deps)).values;
  const auto it = values.find({node, coords & MaskOf(deps)});
  return it == values.end() ? nullptr : it->second;
}

// The nodes that Compute(node) reads through Find. Loads read the terms of their index, see
// memory.cc.
void KernelEmitter::Needs(const UOp* node, std::vector<const UOp*>& needs) {
  if (staged_.contains(node)) return;
  if (node->op == Op::kReduceLoop) {
    OB_CHECK(false && "a reduction is computed before it is used");
  } else if (node->op == Op::kLoad) {
    for (const auto& [term, coefficient] : forms_.Of(node->src[0]->src[1]).terms)
      needs.push_back(term);
    if (node->src.size() == 3) {
      needs.push_back(node->src[2]);
      for (const UOp* condition : Conjuncts(node->src[1]))
        if (!holds_.contains(condition)) needs.push_back(condition);
    }
  } else if (node->op != Op::kRange) {  // whose end is its loop's
    for (const UOp* source : node->src) needs.push_back(source);
  }
}

// By a stack of our own: an expression may be as deep as a client likes.
Value* KernelEmitter::Emit(const UOp* node, Coords coords) {
  std::vector<const UOp*> stack = {node}, needs;
  while (!stack.empty()) {
    const UOp* const top = stack.back();
    if (Find(top, coords) != nullptr) {
      stack.pop_back();
      continue;
    }
    needs.clear();
    Needs(top, needs);
    const size_t before = stack.size();
    for (size_t i = needs.size(); i-- > 0;)
      if (Find(needs[i], coords) == nullptr) stack.push_back(needs[i]);
    if (stack.size() != before) continue;
    stack.pop_back();
    const RangeSet deps = kernel_.DepsOf(top);
    const int scope = ScopeOf(deps);
    scopes_->Enter(scope);
    Value* const value = Compute(top, coords);
    scopes_->at(scope).values[{top, coords & MaskOf(deps)}] = value;
  }
  scopes_->EnterCurrent();
  return Find(node, coords);
}

Value* KernelEmitter::Splat(Value* value, int lanes) {
  if (lanes == 1 || value->getType()->isVectorTy()) return value;
  return b_.CreateVectorSplat(lanes, value);
}

DType KernelEmitter::LaneType(const UOp* node, int lanes) const {
  return node->dtype == DType::kI64 && lanes > 1 && FitsI32(node) ? DType::kI32 : node->dtype;
}

Value* KernelEmitter::AsType(Value* value, DType type) {
  Type* target = RegisterType(b_.getContext(), type);
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(value->getType()))
    target = llvm::VectorType::get(target, vector);
  return b_.CreateSExtOrTrunc(value, target);
}

Value* KernelEmitter::Compute(const UOp* node, Coords coords) {
  const int lanes = LanesOf(kernel_.DepsOf(node), coords);
  if (staged_.contains(node)) return LoadStaged(node, coords, lanes);
  switch (node->op) {
    case Op::kConst: return alu_.Const(node->dtype, ConstantBits(node));
    case Op::kRange: return RangeValue(node, coords, lanes);
    case Op::kVar: {
      const auto var = std::find(kernel_.vars.begin(), kernel_.vars.end(), node);
      const auto place = kernel_.slot_elements.size() + (var - kernel_.vars.begin());
      return function_->getArg(static_cast<unsigned>(place));
    }
    case Op::kLoad: return Load(node, coords, lanes);
    case Op::kCast: {
      const DType from = LaneType(node->src[0], lanes), to = LaneType(node, lanes);
      Value* value = Splat(Find(node->src[0], coords), lanes);
      if (node->src[0]->dtype == DType::kI64) value = AsType(value, from);
      return alu_.Cast(value, from, to);
    }
    case Op::kBitcast: {
      Value* value = Splat(Find(node->src[0], coords), lanes);
      if (node->src[0]->dtype == DType::kI64) value = AsType(value, DType::kI64);
      value = alu_.Bitcast(value, node->src[0]->dtype, node->dtype);
      return node->dtype == DType::kI64 ? AsType(value, LaneType(node, lanes)) : value;
    }
    default: return ComputeAlu(node, coords, lanes);
  }
}

Value* KernelEmitter::RangeValue(const UOp* node, Coords coords, int lanes) {
  const int range = kernel_.IndexOf(node);
  const Piece& piece = PieceOf(range, coords);
  Value* const first = b_.CreateAdd(bound_[range].base, b_.getInt64(piece.offset));
  if (lanes == 1) return first;
  const DType type = LaneType(node, lanes);
  Type* const element = RegisterType(b_.getContext(), type);
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < lanes; ++i) steps.push_back(llvm::ConstantInt::get(element, i));
  return b_.CreateAdd(Splat(AsType(first, type), lanes), llvm::ConstantVector::get(steps));
}

Value* KernelEmitter::ComputeAlu(const UOp* node, Coords coords, int lanes) {
  // The type to compute in: of the last source, since WHERE's first is its condition.
  const DType operand = node->src.back()->dtype;
  DType type = operand;
  if (operand == DType::kI64 && lanes > 1) {
    bool narrow = true;
    for (const UOp* source : node->src)
      narrow = narrow && (source->dtype != DType::kI64 || FitsI32(source));
    if (node->dtype == DType::kI64) narrow = FitsI32(node) && (narrow || IsModular(node->op));
    if (node->op == Op::kShl || node->op == Op::kShr) narrow = false;
    if (narrow) type = DType::kI32;
  }
  std::vector<Value*> args;
  for (const UOp* source : node->src) {
    Value* value = Find(source, coords);
    if (source->dtype == DType::kI64) value = AsType(value, type);
    args.push_back(Splat(value, lanes));
  }
  QuotientFacts known;
  if (node->op == Op::kIDiv || node->op == Op::kMod) {
    known.divisor_positive = node->dtype != DType::kU64 && node->src[1]->vmin > 0;
    known.dividend_not_negative = node->src[0]->vmin >= 0;
  }
  Value* const result = alu_.Alu(node->op, type, args, known);
  return node->dtype == DType::kI64 ? AsType(result, LaneType(node, lanes)) : result;
}

}  // namespace outboard::render
