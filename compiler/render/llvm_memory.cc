// Loads and stores. An address is built outside in: the terms of its index are added scope by scope, so that inside a
// loop only that loop's own terms are left, and pieces of a tile differ by a constant.
#include <bit>

#include "compiler/ir/check.h"
#include "compiler/render/llvm_emitter.h"

namespace outboard::render {

using codegen::Affine;
using codegen::Piece;
using codegen::RangeSet;
using llvm::Align;
using llvm::Type;
using llvm::Value;

namespace {

// Strides up to this are read as a run of vectors and picked apart.
constexpr int64_t kPickedStrideMax = 4;

bool IsZeroConst(const UOp* node) {
  if (!node->is_const()) return false;
  return IsFloat(node->dtype) ? node->arg[0] == 0 : node->int_value() == 0;  // +0.0 has all bits 0
}

}  // namespace

struct KernelEmitter::Place {
  bool regular = true;   // lane i is at stride * i; else each lane has its own address
  int64_t stride = 0;
};

KernelEmitter::Place KernelEmitter::PlaceOf(const UOp* index, Coords coords, int lanes, int range) {
  if (lanes == 1) return {};
  Place place;
  for (const auto& [term, coefficient] : forms_.Of(index->src[1]).terms) {
    if (term == kernel_.ranges[range].node) {
      place.stride = static_cast<int64_t>(coefficient);
    } else if (kernel_.DepsOf(term) >> range & 1) {
      place.regular = false;
    }
  }
  return place;
}

Value* KernelEmitter::Pointer(const UOp* index, Coords coords, int range, int64_t extra) {
  const UOp* const global = index->src[0];
  Type* const element = MemoryType(b_.getContext(), global->dtype);
  const Affine& form = forms_.Of(index->src[1]);
  uint64_t constant = form.constant + static_cast<uint64_t>(extra);
  // Terms by the scope that they are known in.
  std::map<int, std::vector<std::pair<Value*, uint64_t>>> by_scope;
  for (const auto& [term, coefficient] : form.terms) {
    const RangeSet deps = kernel_.DepsOf(term);
    if (term->op == Op::kRange) {
      const int r = kernel_.IndexOf(term);
      constant += coefficient * static_cast<uint64_t>(PieceOf(r, coords).offset);
      Value* const base = bound_[r].base;
      if (auto* number = llvm::dyn_cast<llvm::ConstantInt>(base)) {
        constant += coefficient * number->getZExtValue();
      } else {
        by_scope[bound_[r].scope].emplace_back(base, coefficient);
      }
    } else if (range < 0 || !(deps >> range & 1)) {
      by_scope[ScopeOf(deps)].emplace_back(Find(term, coords), coefficient);
    }
  }
  const llvm::IRBuilder<>::InsertPoint here = b_.saveIP();
  Value* pointer = function_->getArg(global->arg[0]);
  for (const auto& [scope, terms] : by_scope) {
    std::vector<uint64_t> key = {reinterpret_cast<uint64_t>(pointer)};
    for (const auto& [value, coefficient] : terms) {
      key.push_back(reinterpret_cast<uint64_t>(value));
      key.push_back(coefficient);
    }
    Value*& known = scopes_->at(scope).pointers[key];
    if (known == nullptr) {
      scopes_->Enter(scope);
      Value* sum = nullptr;
      for (const auto& [value, coefficient] : terms) {
        Value* const product = coefficient == 1 ? value : b_.CreateMul(value, b_.getInt64(coefficient));
        sum = sum == nullptr ? product : b_.CreateAdd(sum, product);
      }
      known = b_.CreateGEP(element, pointer, sum);
    }
    pointer = known;
  }
  b_.restoreIP(here);
  return constant == 0 ? pointer : b_.CreateGEP(element, pointer, b_.getInt64(constant));
}

Value* KernelEmitter::LanePointers(const UOp* index, Coords coords, int lanes, int range) {
  Value* const pointer = Pointer(index, coords, range, 0);
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < lanes; ++i) steps.push_back(b_.getInt64(i));
  Value* const lane = llvm::ConstantVector::get(steps);
  Value* offsets = llvm::Constant::getNullValue(lane->getType());
  for (const auto& [term, coefficient] : forms_.Of(index->src[1]).terms) {
    if (!(kernel_.DepsOf(term) >> range & 1)) continue;
    Value* const value = term->op == Op::kRange ? lane : Splat(AsType(Find(term, coords), DType::kI64), lanes);
    offsets = b_.CreateAdd(offsets, b_.CreateMul(value, Splat(b_.getInt64(coefficient), lanes)));
  }
  return b_.CreateGEP(MemoryType(b_.getContext(), index->dtype), pointer, offsets);
}

Value* KernelEmitter::Gate(const UOp* gate, Coords coords) {
  Value* all = nullptr;
  for (const UOp* condition : Conjuncts(gate)) {
    if (holds_.contains(condition)) continue;
    Value* value = Find(condition, coords);
    if (all != nullptr && all->getType() != value->getType()) {
      const RangeSet deps = kernel_.DepsOf(gate);
      const int lanes = LanesOf(deps, coords);
      all = Splat(all, lanes);
      value = Splat(value, lanes);
    }
    all = all == nullptr ? value : b_.CreateAnd(all, value);
  }
  return all;
}

Value* KernelEmitter::Load(const UOp* node, Coords coords, int lanes) {
  const UOp* const index = node->src[0];
  const DType dtype = node->dtype;
  Type* const element = MemoryType(b_.getContext(), dtype);
  const Align align(ByteWidth(dtype));
  const bool gated = node->src.size() == 3;
  Value* const gate = gated ? Gate(node->src[1], coords) : nullptr;
  int range = -1;
  LanesOf(kernel_.DepsOf(node), coords, &range);

  Value* loaded = nullptr;
  if (lanes == 1) {
    Value* pointer = Pointer(index, coords, -1, 0);
    // Without a branch: what may not be read is read from zeros instead.
    if (gate != nullptr) pointer = b_.CreateSelect(gate, pointer, zeros_);
    loaded = b_.CreateAlignedLoad(element, pointer, align);
  } else {
    const int active = PieceOf(range, coords).active;
    const Place place = PlaceOf(index, coords, lanes, range);
    auto* const type = llvm::FixedVectorType::get(element, lanes);
    Value* const zero = llvm::Constant::getNullValue(type);
    Value* mask = active < lanes ? ActiveMask(lanes, active) : nullptr;
    const bool varying = gate != nullptr && gate->getType()->isVectorTy();
    if (varying) mask = mask == nullptr ? gate : b_.CreateAnd(mask, gate);
    if (place.regular && (place.stride == 1 || place.stride == -1)) {
      // Downwards, the last lane is the lowest address; a mask is turned round with the lanes.
      const bool down = place.stride < 0;
      Value* pointer = Pointer(index, coords, range, down ? -(lanes - 1) : 0);
      std::vector<int> turned;
      for (int i = 0; i < lanes; ++i) turned.push_back(lanes - 1 - i);
      if (gate != nullptr && !varying) pointer = b_.CreateSelect(gate, pointer, zeros_);
      if (down && mask != nullptr) mask = b_.CreateShuffleVector(mask, turned);
      loaded = mask == nullptr ? static_cast<Value*>(b_.CreateAlignedLoad(type, pointer, align))
                               : b_.CreateMaskedLoad(type, pointer, align, mask, zero);
      if (down) loaded = b_.CreateShuffleVector(loaded, turned);
    } else if (place.regular && place.stride >= 2 && place.stride <= kPickedStrideMax && !varying) {
      const int run = static_cast<int>(place.stride) * (active - 1) + 1;
      const int wide = std::bit_ceil(static_cast<unsigned>(run));
      Value* pointer = Pointer(index, coords, range, 0);
      Value* run_mask = ActiveMask(wide, run);
      if (gate != nullptr) run_mask = b_.CreateAnd(run_mask, Splat(gate, wide));
      auto* const wide_type = llvm::FixedVectorType::get(element, wide);
      Value* const all = b_.CreateMaskedLoad(wide_type, pointer, align, run_mask, llvm::Constant::getNullValue(wide_type));
      std::vector<int> picked;
      // Idle lanes are zero, as ZeroInIdleLanes promises: from the second vector.
      for (int i = 0; i < lanes; ++i) picked.push_back(i < active ? i * static_cast<int>(place.stride) : wide);
      loaded = b_.CreateShuffleVector(all, llvm::Constant::getNullValue(wide_type), picked);
    } else {
      Value* const pointers = LanePointers(index, coords, lanes, range);
      if (mask == nullptr) mask = ActiveMask(lanes, active);
      if (gate != nullptr && !varying) mask = b_.CreateAnd(mask, Splat(gate, lanes));
      loaded = b_.CreateMaskedGather(type, pointers, align, mask, zero);
    }
  }
  Value* value = alu_.FromMemory(loaded, dtype);
  if (gate != nullptr && !IsZeroConst(node->src[2])) {
    Value* otherwise = Find(node->src[2], coords);
    const DType type = LaneType(node, lanes);
    if (dtype == DType::kI64) otherwise = AsType(otherwise, DType::kI64), value = AsType(value, DType::kI64);
    value = b_.CreateSelect(Splat(gate, lanes), value, Splat(otherwise, lanes));
    if (dtype == DType::kI64) value = AsType(value, type);
  } else if (dtype == DType::kI64) {
    value = AsType(value, LaneType(node, lanes));
  }
  return value;
}

void KernelEmitter::Store(const UOp* node, Coords coords, Value* value) {
  const UOp* const index = node->src[0];
  const DType dtype = index->dtype;
  const Align align(ByteWidth(dtype));
  int range = -1;
  const int lanes = LanesOf(kernel_.DepsOf(node), coords, &range);
  if (dtype == DType::kI64) value = AsType(value, DType::kI64);
  value = alu_.ToMemory(Splat(value, lanes), dtype);
  if (lanes == 1) {
    b_.CreateAlignedStore(value, Pointer(index, coords, -1, 0), align);
    return;
  }
  const int active = PieceOf(range, coords).active;
  const Place place = PlaceOf(index, coords, lanes, range);
  if (place.regular && place.stride == 1) {
    Value* const pointer = Pointer(index, coords, range, 0);
    if (active == lanes) {
      b_.CreateAlignedStore(value, pointer, align);
    } else {
      b_.CreateMaskedStore(value, pointer, align, ActiveMask(lanes, active));
    }
  } else {
    b_.CreateMaskedScatter(value, LanePointers(index, coords, lanes, range), align, ActiveMask(lanes, active));
  }
}

}  // namespace outboard::render
