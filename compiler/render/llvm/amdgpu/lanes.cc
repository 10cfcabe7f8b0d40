// Accesses of several elements at once, lanes as the bits of other lanes, and what threads that run
// together give each other.
//
// An access of up to 16 bytes is one instruction if its address is a multiple of its size. That is
// known of buffers (runtime/limits.h, kBufferAlignment) and of the block's memory; what divides an
// index is known from its arithmetic.
#include <algorithm>

#include "compiler/render/llvm/amdgpu/gpu_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Instruction;

Align GpuPrinter::AlignOf(ValueId memory, ValueId index, int lane) const {
  const int width = ByteWidth(at(memory).dtype);
  if (at(index).lanes > 1) return Align(static_cast<uint64_t>(width));
  const auto of_lane = static_cast<int64_t>(lane == 0 ? kDivisorMax : lane & -lane);
  const int64_t bytes = width * std::min(divisors_[index], of_lane);
  return Align(static_cast<uint64_t>(std::min<int64_t>(bytes, kAccessBytesMax)));
}

int GpuPrinter::Together(ValueId memory, ValueId index, int begin, int end) const {
  if (at(index).lanes > 1) return 1;
  const int width = ByteWidth(at(memory).dtype);
  int count = std::max(1, static_cast<int>(AlignOf(memory, index, begin).value()) / width);
  while (count > end - begin) count /= 2;
  return count;
}

namespace {

constexpr int kWordBytes = 4;

// Several elements in one access. Those of fewer than 32 bits are packed in words, as they lie in
// registers: LLVM puts some vectors of them on a thread's stack to take them apart.
Type* WholeOf(Type* element, int count) {
  if (count == 1) return element;
  const unsigned bits = element->getPrimitiveSizeInBits() * static_cast<unsigned>(count);
  llvm::LLVMContext& context = element->getContext();
  constexpr unsigned kWordBits = 8 * kWordBytes;
  if (element->getPrimitiveSizeInBits() >= kWordBits)
    return llvm::FixedVectorType::get(element, static_cast<unsigned>(count));
  if (bits <= kWordBits) return llvm::IntegerType::get(context, bits);
  return llvm::FixedVectorType::get(llvm::Type::getInt32Ty(context), bits / kWordBits);
}

}  // namespace

// The value of element `k` of a word, or of what is smaller than one.
Value* GpuPrinter::Unpacked(Value* word, int k, DType dtype) {
  const auto shift = static_cast<uint64_t>(8 * ByteWidth(dtype) * k);
  if (dtype == DType::kBF16) {
    Value* const bits = shift == 0 ? b_.CreateShl(word, 16) : b_.CreateAnd(word, 0xffff0000u);
    return b_.CreateBitCast(bits, b_.getFloatTy());
  }
  return alu_.FromMemory(
      b_.CreateTrunc(b_.CreateLShr(word, shift), MemoryType(b_.getContext(), dtype)), dtype);
}

void GpuPrinter::LoadLanes(ValueId memory, ValueId index, int begin, int end, Values& out) {
  const DType dtype = at(memory).dtype;
  const int width = ByteWidth(dtype), packed = std::max(1, kWordBytes / width);
  Type* const type = MemoryType(b_.getContext(), dtype);
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    llvm::LoadInst* const value = b_.CreateAlignedLoad(
        WholeOf(type, count), Address(memory, index, lane), AlignOf(memory, index, lane));
    const bool is_vector = value->getType()->isVectorTy();
    Value* word = value;
    for (int k = 0; k < count; ++k) {
      if (is_vector && k % packed == 0)
        word = b_.CreateExtractElement(value, static_cast<uint64_t>(k / packed));
      out.push_back(count == 1 || packed == 1 ? alu_.FromMemory(word, dtype)
                                              : Unpacked(word, k % packed, dtype));
    }
    lane += count;
  }
}

// Lanes of a value from `lane` on, as they lie together in memory.
Value* GpuPrinter::PackedLanes(ValueId value, int lane, int count, DType dtype) {
  const int width = ByteWidth(dtype), packed = std::max(1, kWordBytes / width);
  Type* const whole_type = WholeOf(MemoryType(b_.getContext(), dtype), count);
  const auto word_from = [&](int first, Type* type) -> Value* {
    if (packed == 1) return alu_.ToMemory(Lane(value, first), dtype);
    Value* word = llvm::ConstantInt::get(type, 0);
    const auto parts = static_cast<int>(type->getPrimitiveSizeInBits()) / (8 * width);
    for (int k = 0; k < parts; ++k) {
      Value* const element = alu_.ToMemory(Lane(value, first + k), dtype);
      word = b_.CreateOr(
          word, b_.CreateShl(b_.CreateZExt(element, type), static_cast<uint64_t>(8 * width * k)));
    }
    return word;
  };
  if (count == 1) return alu_.ToMemory(Lane(value, lane), dtype);
  if (!whole_type->isVectorTy()) return word_from(lane, whole_type);
  Value* whole = llvm::PoisonValue::get(whole_type);
  for (int k = 0; k < count; k += packed)
    whole = b_.CreateInsertElement(
        whole, word_from(lane + k, llvm::cast<llvm::VectorType>(whole_type)->getElementType()),
        static_cast<uint64_t>(k / packed));
  return whole;
}

void GpuPrinter::StoreLanes(const Instruction& store, int begin, int end) {
  const ValueId memory = store.src[0], index = store.src[1], value = store.src[2];
  const DType dtype = at(memory).dtype;
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    Value* const whole = PackedLanes(value, lane, count, dtype);
    b_.CreateAlignedStore(whole, Address(memory, index, lane), AlignOf(memory, index, lane));
    lane += count;
  }
}

// The bytes as they lie in memory, by arithmetic: LLVM would cast some vectors through the stack.
GpuPrinter::Values GpuPrinter::Bitcast(ValueId n) {
  const Instruction& i = at(n);
  const DType from = at(i.src[0]).dtype;
  const int lanes = at(i.src[0]).lanes, width = ByteWidth(from), out_width = ByteWidth(i.dtype);
  Values out;
  if (width == out_width) {
    for (int lane = 0; lane < i.lanes; ++lane)
      out.push_back(alu_.Bitcast(Lane(i.src[0], lane), from, i.dtype));
    return out;
  }
  Type* const type = b_.getIntNTy(8 * static_cast<unsigned>(out_width));
  for (int lane = 0; lane < i.lanes; ++lane) {
    Value* bits = nullptr;
    if (width > out_width) {
      const int ratio = width / out_width;
      Value* const whole = alu_.Bitcast(Lane(i.src[0], lane / ratio), from, BitsOf(from));
      bits = b_.CreateTrunc(
          b_.CreateLShr(whole, static_cast<uint64_t>(8 * out_width * (lane % ratio))), type);
    } else {
      const int ratio = out_width / width;
      bits = llvm::ConstantInt::get(type, 0);
      for (int part = 0; part < ratio && lane * ratio + part < lanes; ++part) {
        Value* const piece = b_.CreateZExt(
            alu_.Bitcast(Lane(i.src[0], lane * ratio + part), from, BitsOf(from)), type);
        bits = b_.CreateOr(bits, b_.CreateShl(piece, static_cast<uint64_t>(8 * width * part)));
      }
    }
    out.push_back(alu_.Bitcast(bits, BitsOf(i.dtype), i.dtype));
  }
  return out;
}

// In pieces of 32 bits.
Value* GpuPrinter::Exchanged(Value* value, absl::FunctionRef<Value*(Value* bits)> exchange) {
  const unsigned width = value->getType()->getPrimitiveSizeInBits();
  Value* bits = b_.CreateBitCast(value, b_.getIntNTy(width));
  if (width <= 32) {
    bits = b_.CreateTrunc(exchange(b_.CreateZExt(bits, b_.getInt32Ty())), b_.getIntNTy(width));
  } else {
    Value* const low = exchange(b_.CreateTrunc(bits, b_.getInt32Ty()));
    Value* const high = exchange(b_.CreateTrunc(b_.CreateLShr(bits, 32), b_.getInt32Ty()));
    bits = b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()),
                       b_.CreateShl(b_.CreateZExt(high, b_.getInt64Ty()), 32));
  }
  return b_.CreateBitCast(bits, value->getType());
}

}  // namespace outboard::render
