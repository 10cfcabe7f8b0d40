// Memories of a program, loads and stores.
#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/render/llvm/program_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Code;
using program::Instruction;
using program::Space;

namespace {

constexpr int kZeroBytes = 512;  // 64 lanes of 8 bytes
// Lanes whose elements lie within so many vectors are read as one run and picked apart.
constexpr int64_t kRunVectorsMax = 4;
// Parts of consecutive elements that a vector is put together from.
constexpr int kSegmentsMax = 4;
// Private memory beyond these is not the stack's, whose size is that of the caller's thread.
constexpr int64_t kStackBytesEach = 8 << 10;
constexpr int64_t kStackBytesMax = 64 << 10;
constexpr int64_t kLineBytes = 64;

bool IsSmallFloat(DType t) { return IsFloat(t) && t != DType::kF32 && t != DType::kF64; }
int64_t WholeLines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

}  // namespace

// Private memory lies in the entry block's stack, at constant places of which LLVM makes registers,
// or in the thread's scratch memory.
void ProgramPrinter::OpenMemories() {
  const auto count = static_cast<ValueId>(program_.code.size());
  std::vector<bool> raw(count, false);    // memories of which TILE instructions read the bytes
  std::vector<int64_t> beyond(count, 0);  // elements that masked lanes may touch behind the end
  bool masked_loads = false, masked_stores = false;
  for (ValueId n = 0; n < count; ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kTileLoad || i.code == Code::kTileStore) raw[i.src[1]] = true;
    if ((i.code != Code::kLoad && i.code != Code::kStore) || i.src.size() < 4) continue;
    (i.code == Code::kLoad ? masked_loads : masked_stores) = true;
    beyond[i.src[0]] = std::max<int64_t>(beyond[i.src[0]], i.lanes - 1);
  }
  std::vector<ValueId> on_scratch;
  int64_t stack_bytes = 0;
  for (ValueId n = 0; n < count; ++n) {
    const Instruction& i = at(n);
    if (i.code != Code::kBuffer && i.code != Code::kAlloc) continue;
    if (i.code == Code::kAlloc && i.imm[0] == static_cast<int64_t>(Space::kTile)) continue;
    Memory& memory = memories_[n];
    memory.is_private = i.code == Code::kAlloc;
    memory.as_register = memory.is_private && !raw[n] && IsSmallFloat(i.dtype);
    memory.element = memory.as_register ? RegisterType(b_.getContext(), i.dtype)
                                        : MemoryType(b_.getContext(), i.dtype);
    memory.width = memory.as_register ? 4 : ByteWidth(i.dtype);
    if (i.code == Code::kBuffer) {
      memory.base = function_->getArg(static_cast<unsigned>(i.imm[0]));
      continue;
    }
    memory.elements = i.imm[1] + beyond[n];
    const int64_t bytes = WholeLines(memory.elements * memory.width);
    if (bytes > kStackBytesEach || stack_bytes + bytes > kStackBytesMax) {
      on_scratch.push_back(n);
      continue;
    }
    stack_bytes += bytes;
    auto* const slot = b_.CreateAlloca(
        llvm::ArrayType::get(memory.element, static_cast<uint64_t>(memory.elements)));
    slot->setAlignment(Align(kLineBytes));
    memory.base = slot;
  }
  Type* const zeros = llvm::ArrayType::get(b_.getInt8Ty(), kZeroBytes);
  if (masked_loads) {
    auto* const memory = b_.CreateAlloca(zeros);
    memory->setAlignment(Align(kLineBytes));
    b_.CreateMemSet(memory, b_.getInt8(0), kZeroBytes, Align(kLineBytes));
    zeros_ = memory;
  }
  if (masked_stores) discard_ = b_.CreateAlloca(zeros);
  if (on_scratch.empty()) return;
  int64_t bytes = 0;
  for (const ValueId n : on_scratch)
    bytes += WholeLines(memories_.at(n).elements * memories_.at(n).width);
  const llvm::FunctionCallee scratch = module_.getOrInsertFunction(
      "outboard_scratch", llvm::FunctionType::get(b_.getPtrTy(), {b_.getInt64Ty()}, false));
  Value* const all = b_.CreateCall(scratch, {b_.getInt64(static_cast<uint64_t>(bytes))});
  bytes = 0;
  for (const ValueId n : on_scratch) {
    Memory& memory = memories_.at(n);
    memory.base = b_.CreateGEP(b_.getInt8Ty(), all, b_.getInt64(static_cast<uint64_t>(bytes)));
    bytes += WholeLines(memory.elements * memory.width);
  }
}

std::optional<int64_t> ProgramPrinter::ConstantOf(ValueId index) const {
  if (at(index).code != Code::kConst) return std::nullopt;
  return at(index).imm[0];
}

bool ProgramPrinter::IsZero(ValueId value) const {
  const Instruction& i = at(value);
  if (i.code == Code::kConst) return i.imm[0] == 0;
  if (i.code != Code::kLanes) return false;
  return std::all_of(i.src.begin(), i.src.end(), [&](ValueId s) { return IsZero(s); });
}

// ---- masks

ProgramPrinter::Mask ProgramPrinter::MaskOf(ValueId mask) const {
  Mask out;
  std::vector<ValueId> stack = {mask};
  absl::flat_hash_set<ValueId> seen;  // masks may share their parts
  while (!stack.empty()) {
    const ValueId top = stack.back();
    stack.pop_back();
    if (!seen.insert(top).second) continue;
    const Instruction& i = at(top);
    if (i.code == Code::kAlu && i.op == Op::kAnd) {
      stack.insert(stack.end(), {i.src[1], i.src[0]});
    } else if (i.lanes == 1) {
      out.uniform.push_back(top);
    } else if (i.code == Code::kLanes && i.src.size() == 1) {
      stack.push_back(i.src[0]);
    } else if (i.code == Code::kLanes && std::all_of(i.src.begin(), i.src.end(), [&](ValueId s) {
                 return at(s).code == Code::kConst;
               })) {
      if (out.on.empty()) out.on.assign(i.src.size(), true);
      for (size_t lane = 0; lane < i.src.size(); ++lane)
        if (at(i.src[lane]).imm[0] == 0) out.on[lane] = false;
    } else {
      out.varying.push_back(top);
    }
  }
  if (std::find(out.on.begin(), out.on.end(), false) == out.on.end()) out.on.clear();
  return out;
}

// What is known of a mask once its values are printed: LLVM folds what constants are compared with.
ProgramPrinter::Mask ProgramPrinter::PrintedMask(ValueId n) const {
  Mask mask = MaskOf(n);
  const int lanes = at(n).lanes;
  std::vector<ValueId> varying;
  for (const ValueId s : mask.varying) {
    const auto* const constant = llvm::dyn_cast<llvm::Constant>(Of(s));
    std::vector<bool> on(lanes, true);
    bool known = constant != nullptr;
    for (int lane = 0; known && lane < lanes; ++lane) {
      const auto* const element =
          llvm::dyn_cast_or_null<llvm::ConstantInt>(constant->getAggregateElement(lane));
      known = element != nullptr;
      on[lane] = known && !element->isZero() && (mask.all_on() || mask.on[lane]);
    }
    if (!known) {
      varying.push_back(s);
    } else if (std::find(on.begin(), on.end(), false) != on.end()) {
      mask.on = std::move(on);
    }
  }
  mask.varying = std::move(varying);
  std::erase_if(mask.uniform, [&](ValueId s) {
    const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(Of(s));
    return constant != nullptr && !constant->isZero();
  });
  return mask;
}

llvm::Constant* ProgramPrinter::OnLanes(const std::vector<bool>& on, int lanes) {
  std::vector<llvm::Constant*> mask;
  for (int lane = 0; lane < lanes; ++lane) mask.push_back(b_.getInt1(on.empty() || on[lane]));
  return llvm::ConstantVector::get(mask);
}

Value* ProgramPrinter::Uniform(const Mask& mask) {
  Value* all = nullptr;
  for (const ValueId s : mask.uniform) all = all == nullptr ? Of(s) : b_.CreateAnd(all, Of(s));
  return all;
}

Value* ProgramPrinter::LaneMask(const Mask& mask, int lanes, bool with_uniform) {
  Value* all = nullptr;
  const auto with = [&](Value* more) { all = all == nullptr ? more : b_.CreateAnd(all, more); };
  for (const ValueId s : mask.varying) with(Of(s));
  if (with_uniform)
    if (Value* const uniform = Uniform(mask)) with(Splat(uniform, lanes));
  if (!mask.all_on() || all == nullptr) with(OnLanes(mask.on, lanes));
  return all;
}

Value* ProgramPrinter::Condition(const Mask& mask, int lanes) {
  if (lanes > 1) return LaneMask(mask, lanes, /*with_uniform=*/true);
  Value* const uniform = Uniform(mask);
  return uniform == nullptr ? b_.getTrue() : uniform;
}

// ---- addresses

std::optional<ProgramPrinter::LaneIndex> ProgramPrinter::LaneIndexOf(ValueId index) const {
  const Instruction& top = at(index);
  LaneIndex out;
  out.offsets.assign(top.lanes, 0);
  std::vector<ValueId> stack = {index};
  while (!stack.empty()) {
    const Instruction& i = at(stack.back());
    stack.pop_back();
    if (i.code == Code::kAlu && i.op == Op::kAdd) {
      stack.insert(stack.end(), {i.src[1], i.src[0]});
      continue;
    }
    if (i.code != Code::kLanes) return std::nullopt;
    for (int lane = 0; lane < top.lanes; ++lane) {
      const ValueId s = i.src[i.src.size() == 1 ? 0 : lane];
      if (const auto number = ConstantOf(s)) {
        out.offsets[lane] = static_cast<int64_t>(static_cast<uint64_t>(out.offsets[lane]) +
                                                 static_cast<uint64_t>(*number));
      } else if (i.src.size() == 1 && out.base < 0) {
        out.base = s;
        break;
      } else {
        return std::nullopt;
      }
    }
  }
  return out;
}

void ProgramPrinter::MakePointer(ValueId memory, ValueId index) {
  const Instruction& i = at(index);
  Type* const element = memories_.at(memory).element;
  pointers_[{memory, index}] = i.code == Code::kAlu && i.op == Op::kAdd
                                   ? b_.CreateGEP(element, Address(memory, i.src[0]), Of(i.src[1]))
                                   : b_.CreateGEP(element, memories_.at(memory).base, Of(index));
}

Value* ProgramPrinter::Address(ValueId memory, ValueId index, int64_t extra) {
  auto constant = static_cast<uint64_t>(extra);
  Value* pointer = memories_.at(memory).base;
  while (index >= 0) {
    const Instruction& i = at(index);
    if (i.code == Code::kConst) {
      constant += static_cast<uint64_t>(i.imm[0]);
      break;
    }
    if (i.code == Code::kAlu && i.op == Op::kAdd && at(i.src[1]).code == Code::kConst) {
      constant += static_cast<uint64_t>(at(i.src[1]).imm[0]);
      index = i.src[0];
      continue;
    }
    pointer = pointers_.at({memory, index});
    break;
  }
  if (constant == 0) return pointer;
  return b_.CreateGEP(memories_.at(memory).element, pointer, b_.getInt64(constant));
}

Value* ProgramPrinter::LanePointers(ValueId memory, ValueId index) {
  Type* const element = memories_.at(memory).element;
  const auto known = LaneIndexOf(index);
  if (!known) return b_.CreateGEP(element, memories_.at(memory).base, Of(index));
  std::vector<llvm::Constant*> offsets;
  for (const int64_t offset : known->offsets)
    offsets.push_back(b_.getInt64(static_cast<uint64_t>(offset)));
  return b_.CreateGEP(element, Address(memory, known->base), llvm::ConstantVector::get(offsets));
}

// Whether all of `lanes` consecutive elements may be touched, those of masked lanes too.
bool ProgramPrinter::InPrivateReach(ValueId memory, ValueId index, int lanes,
                                    const Mask& mask) const {
  const Memory& m = memories_.at(memory);
  if (!m.is_private || at(index).lanes != 1) return false;
  if (const auto first = ConstantOf(index)) return *first >= 0 && *first + lanes <= m.elements;
  // The first lane is in use, and there is room behind the end for the others.
  return mask.uniform.empty() && mask.varying.empty() && (mask.all_on() || mask.on[0]);
}

// ---- loads

Value* ProgramPrinter::Load(ValueId n) {
  const Instruction& i = at(n);
  const Memory& memory = memories_.at(i.src[0]);
  const Mask mask = i.src.size() == 4 ? PrintedMask(i.src[2]) : Mask();
  if (i.src.size() == 4 && InPrivateReach(i.src[0], i.src[1], i.lanes, mask))
    return LoadPrivate(n, mask);
  Value* value = i.lanes == 1 ? LoadOne(n, mask) : LoadLanes(n, mask);
  if (!memory.as_register) value = alu_.FromMemory(value, i.dtype);
  if (i.src.size() < 4 || IsZero(i.src[3])) return value;
  return b_.CreateSelect(Condition(mask, i.lanes), value, Of(i.src[3]));
}

Value* ProgramPrinter::LoadOne(ValueId n, const Mask& mask) {
  const Instruction& i = at(n);
  const Memory& memory = memories_.at(i.src[0]);
  Value* pointer = Address(i.src[0], i.src[1]);
  // Without a branch: a load whose mask is off reads zeros instead.
  if (Value* const on = Uniform(mask)) pointer = b_.CreateSelect(on, pointer, zeros_);
  return b_.CreateAlignedLoad(memory.element, pointer, Align(memory.width));
}

// Without another pointer, so that the memory can become registers.
Value* ProgramPrinter::LoadPrivate(ValueId n, const Mask& mask) {
  const Instruction& i = at(n);
  const Memory& memory = memories_.at(i.src[0]);
  Type* type = memory.element;
  if (i.lanes > 1) type = llvm::FixedVectorType::get(type, i.lanes);
  Value* value = b_.CreateAlignedLoad(type, Address(i.src[0], i.src[1]), Align(memory.width));
  if (!memory.as_register) value = alu_.FromMemory(value, i.dtype);
  Value* const otherwise =
      IsZero(i.src[3]) ? llvm::Constant::getNullValue(value->getType()) : Of(i.src[3]);
  return b_.CreateSelect(Condition(mask, i.lanes), value, otherwise);
}

// The elements of the lanes, zero where the mask is off.
Value* ProgramPrinter::LoadLanes(ValueId n, const Mask& mask) {
  const Instruction& i = at(n);
  const ValueId memory = i.src[0];
  const int lanes = i.lanes;
  Type* const element = memories_.at(memory).element;
  const Align align(memories_.at(memory).width);
  auto* const type = llvm::FixedVectorType::get(element, lanes);
  Value* const zero = llvm::Constant::getNullValue(type);
  const bool varying = !mask.varying.empty();
  const auto is_on = [&](int lane) { return mask.all_on() || mask.on[lane]; };

  std::optional<LaneIndex> index;
  if (at(i.src[1]).lanes == 1) {
    index.emplace();
    index->base = i.src[1];
    for (int lane = 0; lane < lanes; ++lane) index->offsets.push_back(lane);
  } else {
    index = LaneIndexOf(i.src[1]);
  }
  if (!index)
    return b_.CreateMaskedGather(type, LanePointers(memory, i.src[1]), align,
                                 LaneMask(mask, lanes, true), zero);
  const std::vector<int64_t>& offsets = index->offsets;

  int first = -1, active = 0, segments = 0;
  int64_t lowest = 0, highest = 0;
  bool consecutive = true, reversed = true;
  for (int lane = 0; lane < lanes; ++lane) {
    if (!is_on(lane)) continue;
    if (first < 0) {
      first = lane;
      lowest = highest = offsets[lane];
    }
    ++active;
    segments += lane == first || !is_on(lane - 1) || offsets[lane] != offsets[lane - 1] + 1;
    lowest = std::min(lowest, offsets[lane]);
    highest = std::max(highest, offsets[lane]);
    consecutive = consecutive && offsets[lane] - offsets[first] == lane - first;
    reversed = reversed && offsets[lane] - offsets[first] == first - lane;
  }
  if (first < 0) return zero;
  // Without a branch: a load whose mask is off reads zeros instead.
  Value* const uniform = varying ? nullptr : Uniform(mask);
  const auto open = [&](int64_t extra) {
    Value* const pointer = Address(memory, index->base, extra);
    return uniform == nullptr ? pointer : b_.CreateSelect(uniform, pointer, zeros_);
  };
  if (consecutive || (reversed && varying)) {
    if (consecutive) {
      Value* const pointer = open(offsets[first] - first);
      if (!varying && mask.all_on()) return b_.CreateAlignedLoad(type, pointer, align);
      return b_.CreateMaskedLoad(type, pointer, align, LaneMask(mask, lanes, varying), zero);
    }
    std::vector<int> reversed;
    for (int lane = 0; lane < lanes; ++lane) reversed.push_back(lanes - 1 - lane);
    Value* const on = b_.CreateShuffleVector(LaneMask(mask, lanes, true), reversed);
    Value* const pointer = open(offsets[first] + first + 1 - lanes);
    return b_.CreateShuffleVector(b_.CreateMaskedLoad(type, pointer, align, on, zero), reversed);
  }
  if (!varying && segments <= kSegmentsMax && segments * 4 <= active) {
    // Rows: each part is loaded into its own lanes.
    Value* out = zero;
    for (int lane = 0; lane < lanes;) {
      if (!is_on(lane)) {
        ++lane;
        continue;
      }
      int end = lane + 1;
      while (end < lanes && is_on(end) && offsets[end] == offsets[end - 1] + 1) ++end;
      std::vector<bool> part(lanes, false);
      std::fill(part.begin() + lane, part.begin() + end, true);
      out = b_.CreateMaskedLoad(type, open(offsets[lane] - lane), align, OnLanes(part, lanes), out);
      lane = end;
    }
    return out;
  }
  const int64_t run = highest - lowest + 1;
  if (!varying && run <= kRunVectorsMax * lanes) {
    const int wide = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(run)));
    auto* const wide_type = llvm::FixedVectorType::get(element, wide);
    Value* const nothing = llvm::Constant::getNullValue(wide_type);
    std::vector<bool> within(wide, false);
    std::fill(within.begin(), within.begin() + run, true);
    Value* const pointer = open(lowest);
    Value* const all =
        run == wide
            ? static_cast<Value*>(b_.CreateAlignedLoad(wide_type, pointer, align))
            : b_.CreateMaskedLoad(wide_type, pointer, align, OnLanes(within, wide), nothing);
    std::vector<int> picked;  // lanes that are off from the second vector
    for (int lane = 0; lane < lanes; ++lane)
      picked.push_back(is_on(lane) ? static_cast<int>(offsets[lane] - lowest) : wide);
    return b_.CreateShuffleVector(all, nothing, picked);
  }
  if (varying)
    return b_.CreateMaskedGather(type, LanePointers(memory, i.src[1]), align,
                                 LaneMask(mask, lanes, true), zero);
  // One by one: quicker than the machine's own gather.
  Value* out = zero;
  for (int lane = 0; lane < lanes; ++lane)
    if (is_on(lane))
      out = b_.CreateInsertElement(out, b_.CreateAlignedLoad(element, open(offsets[lane]), align),
                                   b_.getInt64(lane));
  return out;
}

// ---- stores

void ProgramPrinter::StoreLater(ValueId n) { pending_stores_.push_back(n); }

void ProgramPrinter::FlushStores() {
  for (const ValueId n : pending_stores_) Store(n);
  pending_stores_.clear();
}

bool ProgramPrinter::MayTouchPending(ValueId load) const {
  struct Span {
    ValueId base = -1;
    int64_t first = 0;
    int64_t end = 0;
  };
  // Consecutive elements from a value and a constant; without a base where the index is neither.
  const auto span = [&](ValueId index, int lanes) -> std::optional<Span> {
    if (at(index).lanes != 1) return std::nullopt;
    Span out;
    if (const auto number = ConstantOf(index)) {
      out.first = *number;
    } else if (at(index).code == Code::kAlu && at(index).op == Op::kAdd &&
               ConstantOf(at(index).src[1])) {
      out.base = at(index).src[0];
      out.first = *ConstantOf(at(index).src[1]);
    } else {
      out.base = index;
    }
    if (out.first < 0 || out.first > INT32_MAX) return std::nullopt;
    out.end = out.first + lanes;
    return out;
  };
  return std::any_of(pending_stores_.begin(), pending_stores_.end(), [&](ValueId store) {
    const Instruction &a = at(load), &b = at(store);
    if (at(a.src[0]).code != Code::kBuffer || at(a.src[0]).imm[0] != at(b.src[0]).imm[0])
      return false;
    const auto read = span(a.src[1], a.lanes), written = span(b.src[1], at(b.src[2]).lanes);
    return !read || !written || read->base != written->base ||
           (read->first < written->end && written->first < read->end);
  });
}

void ProgramPrinter::Store(ValueId n) {
  const Instruction& i = at(n);
  const ValueId memory = i.src[0];
  const Memory& m = memories_.at(memory);
  const int lanes = at(i.src[2]).lanes;
  const Align align(m.width);
  const Mask mask = i.src.size() == 4 ? PrintedMask(i.src[3]) : Mask();
  Value* value = Of(i.src[2]);
  if (!m.as_register) value = alu_.ToMemory(value, at(memory).dtype);
  if (i.src.size() == 4 && InPrivateReach(memory, i.src[1], lanes, mask)) {
    // Without another pointer, so that the memory can become registers.
    Value* const pointer = Address(memory, i.src[1]);
    Value* const before = b_.CreateAlignedLoad(value->getType(), pointer, align);
    b_.CreateAlignedStore(b_.CreateSelect(Condition(mask, lanes), value, before), pointer, align);
    return;
  }
  // Without a branch: a store whose mask is off goes to memory that is never read.
  const bool varying = !mask.varying.empty();
  Value* const uniform = varying ? nullptr : Uniform(mask);
  const auto open = [&](Value* pointer) {
    return uniform == nullptr ? pointer : b_.CreateSelect(uniform, pointer, discard_);
  };
  if (lanes == 1) {
    b_.CreateAlignedStore(value, open(Address(memory, i.src[1])), align);
    return;
  }
  std::optional<LaneIndex> index;
  if (at(i.src[1]).lanes != 1) index = LaneIndexOf(i.src[1]);
  bool consecutive = at(i.src[1]).lanes == 1 || index.has_value();
  int64_t first = 0;
  if (index) {
    first = index->offsets[0];
    for (int lane = 0; lane < lanes; ++lane)
      consecutive = consecutive && index->offsets[lane] - first == lane;
  }
  if (consecutive) {
    Value* const pointer =
        open(index ? Address(memory, index->base, first) : Address(memory, i.src[1]));
    if (mask.all_on() && !varying) {
      b_.CreateAlignedStore(value, pointer, align);
    } else {
      b_.CreateMaskedStore(value, pointer, align, LaneMask(mask, lanes, varying));
    }
    return;
  }
  if (index && m.is_private && mask.uniform.empty() && !varying) {
    for (int lane = 0; lane < lanes; ++lane)
      if (mask.all_on() || mask.on[lane])
        b_.CreateAlignedStore(b_.CreateExtractElement(value, b_.getInt64(lane)),
                              Address(memory, index->base, index->offsets[lane]), align);
    return;
  }
  b_.CreateMaskedScatter(value, LanePointers(memory, i.src[1]), align, LaneMask(mask, lanes, true));
}

}  // namespace outboard::render
