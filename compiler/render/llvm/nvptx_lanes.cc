// Accesses of several elements at once, and what threads of a warp give each other.
//
// An access of up to 16 bytes is one instruction if its address is a multiple of its size. That is
// known of buffers (runtime/limits.h, kBufferAlignment) and of the block's memory; what divides an
// index is known from its arithmetic.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "compiler/render/llvm/nvptx_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Grid;
using program::Instruction;

Align NvptxPrinter::AlignOf(ValueId memory, ValueId index, int lane) const {
  const int width = ByteWidth(at(memory).dtype);
  // One by one: LLVM puts some vectors of bytes on a thread's stack to take them apart.
  if (at(index).lanes > 1 || width == 1) return Align(static_cast<uint64_t>(width));
  const auto of_lane = static_cast<int64_t>(lane == 0 ? kDivisorMax : lane & -lane);
  const int64_t bytes = width * std::min(divisors_[index], of_lane);
  return Align(static_cast<uint64_t>(std::min<int64_t>(bytes, kAccessBytesMax)));
}

int NvptxPrinter::Together(ValueId memory, ValueId index, int begin, int end) const {
  if (at(index).lanes > 1) return 1;
  const int width = ByteWidth(at(memory).dtype);
  const auto aligned = static_cast<int>(AlignOf(memory, index, begin).value()) / width;
  int count = std::max(1, std::min(aligned, 4));
  while (count > end - begin) count /= 2;
  return count;
}

void NvptxPrinter::LoadLanes(ValueId memory, ValueId index, int begin, int end, Values& out) {
  const DType dtype = at(memory).dtype;
  Type* const type = MemoryType(b_.getContext(), dtype);
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    Type* const whole =
        count == 1 ? type : llvm::FixedVectorType::get(type, static_cast<unsigned>(count));
    Value* const value = b_.CreateAlignedLoad(whole, Address(memory, Index(index, lane)),
                                              AlignOf(memory, index, lane));
    for (int k = 0; k < count; ++k)
      out.push_back(alu_.FromMemory(
          count == 1 ? value : b_.CreateExtractElement(value, static_cast<uint64_t>(k)), dtype));
    lane += count;
  }
}

void NvptxPrinter::StoreLanes(const Instruction& store, int begin, int end) {
  const ValueId memory = store.src[0], index = store.src[1], value = store.src[2];
  const bool swizzled = store.imm[0] != 0;
  const DType dtype = at(memory).dtype;
  Type* const type = MemoryType(b_.getContext(), dtype);
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    Value* whole = nullptr;
    if (count == 1) {
      whole = alu_.ToMemory(Lane(value, lane), dtype);
    } else {
      whole =
          llvm::PoisonValue::get(llvm::FixedVectorType::get(type, static_cast<unsigned>(count)));
      for (int k = 0; k < count; ++k)
        whole = b_.CreateInsertElement(whole, alu_.ToMemory(Lane(value, lane + k), dtype),
                                       static_cast<uint64_t>(k));
    }
    // A swizzle moves pieces of 16 bytes, which no access crosses.
    Value* const place = Index(index, lane);
    b_.CreateAlignedStore(whole, swizzled ? SwizzledAddress(memory, place) : Address(memory, place),
                          AlignOf(memory, index, lane));
    lane += count;
  }
}

// In pieces of 32 bits.
Value* NvptxPrinter::Exchanged(Value* value, absl::FunctionRef<Value*(Value* bits)> exchange) {
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

// By all threads of the warp.
NvptxPrinter::Values NvptxPrinter::Shuffle(ValueId n) {
  const Instruction& i = at(n);
  const int64_t threads = std::min<int64_t>(program_.Extent(Grid::kThread), 32);
  Value* const members = b_.getInt32(static_cast<uint32_t>((uint64_t{1} << threads) - 1));
  return {Exchanged(Lane(i.src[0], 0), [&](Value* bits) {
    return b_.CreateIntrinsic(
        llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
        {members, bits, b_.getInt32(static_cast<uint32_t>(i.imm[0])), b_.getInt32(31)});
  })};
}

}  // namespace outboard::render
