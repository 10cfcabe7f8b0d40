// Loads and stores. An address is built outside in: the terms of its index are added scope by
// scope, so that inside a loop only that loop's own terms are left, and pieces of a tile differ by
// a constant.
#include <bit>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::Affine;
using codegen::Piece;
using codegen::RangeSet;
using llvm::Align;
using llvm::Type;
using llvm::Value;

namespace {

// Lanes whose elements lie within so many vectors are read as one run and picked apart.
constexpr int64_t kRunVectorsMax = 4;
// Parts of consecutive elements that a vector is put together from.
constexpr int kSegmentsMax = 4;

// How much x / divisor or x % divisor is more in lane `i` than in lane 0, where x is `offset`
// there, up to a multiple.
int64_t StepOf(const UOp* term, int64_t offset, int64_t i, int64_t divisor) {
  if (term->op == Op::kIDiv) return (offset + i) / divisor - offset / divisor;
  return (offset + i) % divisor - offset % divisor;
}

}  // namespace

int64_t KernelEmitter::DivisorOf(const UOp* term, Coords coords, int range) const {
  if ((term->op != Op::kIDiv && term->op != Op::kMod) || term->src[0] != kernel_.ranges[range].node)
    return 0;
  if (!term->src[1]->is_const() || term->src[1]->int_value() <= 0) return 0;
  const int64_t divisor = term->src[1]->int_value();
  const Bound& bound = bound_[range];
  const auto* const number = llvm::dyn_cast<llvm::ConstantInt>(bound.base);
  const int64_t base_multiple = number != nullptr ? number->getSExtValue() : bound.step;
  return base_multiple % divisor == 0 ? divisor : 0;
}

std::vector<int64_t> KernelEmitter::LaneOffsets(const UOp* index, Coords coords, int lanes,
                                                int range) {
  std::vector<int64_t> offsets(lanes, 0);
  for (const auto& [term, coefficient] : forms_.Of(index->src[1]).terms) {
    if (!(kernel_.DepsOf(term) >> range & 1)) continue;
    const int64_t divisor = DivisorOf(term, coords, range);
    if (term->op != Op::kRange && divisor == 0) return {};
    for (int i = 0; i < lanes; ++i) {
      const int64_t step =
          term->op == Op::kRange ? i : StepOf(term, PieceOf(range, coords).offset, i, divisor);
      offsets[i] = static_cast<int64_t>(static_cast<uint64_t>(offsets[i]) +
                                        coefficient * static_cast<uint64_t>(step));
    }
  }
  return offsets;
}

Value* KernelEmitter::Pointer(const UOp* index, Coords coords, int range, int64_t extra) {
  const UOp* const global = index->src[0];
  Type* const element = MemoryType(b_.getContext(), global->dtype);
  const Affine& form = forms_.Of(index->src[1]);
  uint64_t constant = form.constant + static_cast<uint64_t>(extra);
  TermsByScope by_scope;
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
    } else if (const int64_t divisor = range < 0 ? 0 : DivisorOf(term, coords, range);
               divisor != 0) {
      // The base is a multiple of the divisor.
      const Bound& bound = bound_[range];
      const int64_t offset = PieceOf(range, coords).offset;
      constant += coefficient *
                  static_cast<uint64_t>(term->op == Op::kMod ? offset % divisor : offset / divisor);
      if (term->op == Op::kMod) continue;
      const llvm::IRBuilder<>::InsertPoint here = b_.saveIP();
      scopes_->Enter(bound.scope);
      by_scope[bound.scope].emplace_back(b_.CreateUDiv(bound.base, b_.getInt64(divisor)),
                                         coefficient);
      b_.restoreIP(here);
    } else if (range < 0 || !(deps >> range & 1)) {
      by_scope[ScopeOf(deps)].emplace_back(Find(term, coords), coefficient);
    }
  }
  return PointerBy(function_->getArg(GlobalOf(global).slot()), element, by_scope, constant);
}

Value* KernelEmitter::PointerBy(Value* pointer, Type* element, const TermsByScope& by_scope,
                                uint64_t constant) {
  const llvm::IRBuilder<>::InsertPoint here = b_.saveIP();
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
        Value* const product =
            coefficient == 1 ? value : b_.CreateMul(value, b_.getInt64(coefficient));
        sum = sum == nullptr ? product : b_.CreateAdd(sum, product);
      }
      known = b_.CreateGEP(element, pointer, sum);
      if (packing_) known = b_.CreateLaunderInvariantGroup(known);
    }
    pointer = known;
  }
  b_.restoreIP(here);
  return constant == 0 ? pointer : b_.CreateGEP(element, pointer, b_.getInt64(constant));
}

Value* KernelEmitter::LanePointers(const UOp* index, Coords coords, int lanes, int range) {
  Value* const pointer = Pointer(index, coords, range, 0);
  Type* const element = MemoryType(b_.getContext(), index->dtype);
  if (const std::vector<int64_t> known = LaneOffsets(index, coords, lanes, range); !known.empty()) {
    std::vector<llvm::Constant*> constants;
    for (const int64_t offset : known) constants.push_back(b_.getInt64(offset));
    return b_.CreateGEP(element, pointer, llvm::ConstantVector::get(constants));
  }
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < lanes; ++i) steps.push_back(b_.getInt64(i));
  Value* const lane = llvm::ConstantVector::get(steps);
  Value* offsets = llvm::Constant::getNullValue(lane->getType());
  for (const auto& [term, coefficient] : forms_.Of(index->src[1]).terms) {
    if (!(kernel_.DepsOf(term) >> range & 1)) continue;
    if (const int64_t divisor = DivisorOf(term, coords, range);
        divisor != 0) {  // Pointer has that of the first lane
      std::vector<llvm::Constant*> constants;
      for (int i = 0; i < lanes; ++i) {
        const int64_t step = StepOf(term, PieceOf(range, coords).offset, i, divisor);
        constants.push_back(b_.getInt64(coefficient * static_cast<uint64_t>(step)));
      }
      offsets = b_.CreateAdd(offsets, llvm::ConstantVector::get(constants));
      continue;
    }
    Value* const value =
        term->op == Op::kRange ? lane : Splat(AsType(Find(term, coords), DType::kI64), lanes);
    offsets = b_.CreateAdd(offsets, b_.CreateMul(value, Splat(b_.getInt64(coefficient), lanes)));
  }
  return b_.CreateGEP(element, pointer, offsets);
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

// The stored elements of the lanes, zero in lanes that are idle or whose gate is off.
Value* KernelEmitter::LoadLanes(const UOp* node, Coords coords, int lanes, int range, Value* gate) {
  const UOp* const index = node->src[0];
  Type* const element = MemoryType(b_.getContext(), node->dtype);
  const Align align(ByteWidth(node->dtype));
  const int active = PieceOf(range, coords).active;
  const bool varying = gate != nullptr && gate->getType()->isVectorTy();
  auto* const type = llvm::FixedVectorType::get(element, lanes);
  Value* const zero = llvm::Constant::getNullValue(type);
  const std::vector<int64_t> offsets = LaneOffsets(index, coords, lanes, range);

  const auto gather = [&]() -> Value* {
    Value* mask = ActiveMask(lanes, active);
    if (gate != nullptr) mask = b_.CreateAnd(mask, Splat(gate, lanes));
    return b_.CreateMaskedGather(type, LanePointers(index, coords, lanes, range), align, mask,
                                 zero);
  };
  if (offsets.empty()) return gather();

  int64_t lowest = 0, highest = 0;
  bool consecutive = true, reversed = true;
  int segments = 1;
  for (int i = 0; i < active; ++i) {
    if (i > 0) segments += offsets[i] != offsets[i - 1] + 1;
    lowest = std::min(lowest, offsets[i]);
    highest = std::max(highest, offsets[i]);
    consecutive = consecutive && offsets[i] == i;
    reversed = reversed && offsets[i] == -i;
  }
  // Without a branch: a gated-off load reads zeros instead.
  const auto open = [&](Value* pointer) {
    return gate == nullptr || varying ? pointer : b_.CreateSelect(gate, pointer, zeros_);
  };
  if (consecutive || (reversed && varying)) {
    Value* mask = active < lanes ? ActiveMask(lanes, active) : nullptr;
    if (varying) mask = mask == nullptr ? gate : b_.CreateAnd(mask, gate);
    Value* const pointer = open(Pointer(index, coords, range, consecutive ? 0 : 1 - lanes));
    if (consecutive)
      return mask == nullptr ? static_cast<Value*>(b_.CreateAlignedLoad(type, pointer, align))
                             : b_.CreateMaskedLoad(type, pointer, align, mask, zero);
    std::vector<int> turned;
    for (int i = 0; i < lanes; ++i) turned.push_back(lanes - 1 - i);
    mask = b_.CreateShuffleVector(mask, turned);
    return b_.CreateShuffleVector(b_.CreateMaskedLoad(type, pointer, align, mask, zero), turned);
  }
  if (!varying && segments <= kSegmentsMax && segments * 4 <= active) {
    // Rows: each part is loaded into its own lanes.
    Value* out = zero;
    for (int i = 0; i < active;) {
      int end = i + 1;
      while (end < active && offsets[end] == offsets[end - 1] + 1) ++end;
      std::vector<llvm::Constant*> mask;
      for (int k = 0; k < lanes; ++k) mask.push_back(b_.getInt1(k >= i && k < end));
      Value* const pointer = open(Pointer(index, coords, range, offsets[i] - i));
      out = b_.CreateMaskedLoad(type, pointer, align, llvm::ConstantVector::get(mask), out);
      i = end;
    }
    return out;
  }
  const int64_t run = highest - lowest + 1;
  if (!varying && run <= kRunVectorsMax * lanes) {
    const int wide = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(run)));
    auto* const wide_type = llvm::FixedVectorType::get(element, wide);
    Value* const nothing = llvm::Constant::getNullValue(wide_type);
    Value* const pointer = open(Pointer(index, coords, range, lowest));
    Value* const all = run == wide
                           ? static_cast<Value*>(b_.CreateAlignedLoad(wide_type, pointer, align))
                           : b_.CreateMaskedLoad(wide_type, pointer, align,
                                                 ActiveMask(wide, static_cast<int>(run)), nothing);
    std::vector<int> picked;  // idle lanes from the second vector
    for (int i = 0; i < lanes; ++i)
      picked.push_back(i < active ? static_cast<int>(offsets[i] - lowest) : wide);
    return b_.CreateShuffleVector(all, nothing, picked);
  }
  if (varying) return gather();
  // One by one: quicker than the machine's own gather.
  Value* const pointer = Pointer(index, coords, range, 0);
  Value* out = zero;
  for (int i = 0; i < active; ++i) {
    Value* const place = open(b_.CreateGEP(element, pointer, b_.getInt64(offsets[i])));
    out = b_.CreateInsertElement(out, b_.CreateAlignedLoad(element, place, align), b_.getInt64(i));
  }
  return out;
}

Value* KernelEmitter::Load(const UOp* node, Coords coords, int lanes) {
  const DType dtype = node->dtype;
  Value* const gate = node->src.size() == 3 ? Gate(node->src[1], coords) : nullptr;
  Value* loaded = nullptr;
  if (lanes == 1) {
    Value* pointer = Pointer(node->src[0], coords, -1, 0);
    if (gate != nullptr) pointer = b_.CreateSelect(gate, pointer, zeros_);
    loaded =
        b_.CreateAlignedLoad(MemoryType(b_.getContext(), dtype), pointer, Align(ByteWidth(dtype)));
  } else {
    int range = -1;
    LanesOf(kernel_.DepsOf(node), coords, &range);
    loaded = LoadLanes(node, coords, lanes, range, gate);
  }
  Value* value = alu_.FromMemory(loaded, dtype);
  if (gate != nullptr && !IsPositiveZero(node->src[2])) {
    Value* otherwise = Find(node->src[2], coords);
    const DType type = LaneType(node, lanes);
    if (dtype == DType::kI64)
      otherwise = AsType(otherwise, DType::kI64), value = AsType(value, DType::kI64);
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
  Value* const gate = node->src.size() == 3 ? Gate(node->src[2], coords) : nullptr;
  // Without a branch: a gated-off store goes to memory that is never read.
  const bool varying = gate != nullptr && gate->getType()->isVectorTy();
  const auto open = [&](Value* pointer) {
    return gate == nullptr || varying ? pointer : b_.CreateSelect(gate, pointer, discard_);
  };
  if (lanes == 1) {
    b_.CreateAlignedStore(value, open(Pointer(index, coords, -1, 0)), align);
    return;
  }
  const int active = PieceOf(range, coords).active;
  Value* mask = ActiveMask(lanes, active);
  const std::vector<int64_t> offsets = LaneOffsets(index, coords, lanes, range);
  bool consecutive = !offsets.empty();
  for (size_t i = 0; i < offsets.size(); ++i)
    consecutive = consecutive && offsets[i] == static_cast<int64_t>(i);
  if (consecutive) {
    Value* const pointer = open(Pointer(index, coords, range, 0));
    if (active == lanes && !varying) {
      b_.CreateAlignedStore(value, pointer, align);
    } else {
      if (varying) mask = b_.CreateAnd(mask, gate);
      b_.CreateMaskedStore(value, pointer, align, mask);
    }
  } else {
    if (gate != nullptr) mask = b_.CreateAnd(mask, Splat(gate, lanes));
    b_.CreateMaskedScatter(value, LanePointers(index, coords, lanes, range), align, mask);
  }
}

}  // namespace outboard::render
