// Accesses of several elements at once, and what threads of a warp give each other.
//
// An access of up to 16 bytes is one instruction if its address is a multiple of its size. That is
// known of buffers (runtime/limits.h, kBufferAlignment) and of the block's memory; what divides an
// index is known from its arithmetic.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "compiler/render/llvm/gpu_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Grid;
using program::Instruction;

Align GpuPrinter::AlignOf(ValueId memory, ValueId index, int lane) const {
  const int width = ByteWidth(at(memory).dtype);
  if (at(index).lanes > 1) return Align(static_cast<uint64_t>(width));
  const auto of_lane = static_cast<int64_t>(lane == 0 ? kDivisorMax : lane & -lane);
  const int64_t bytes = width * std::min(divisors_[index], of_lane);
  return Align(static_cast<uint64_t>(std::min<int64_t>(bytes, kAccessBytesMax)));
}

int GpuPrinter::Together(ValueId memory, ValueId index, int begin, int end, int most) const {
  if (at(index).lanes > 1) return 1;
  const int width = ByteWidth(at(memory).dtype);
  const auto aligned = static_cast<int>(AlignOf(memory, index, begin).value()) / width;
  int count = std::max(1, std::min(aligned, most));
  while (count > end - begin) count /= 2;
  return count;
}

namespace {

// Several elements in one access. LLVM puts some vectors of bytes on a thread's stack to take them
// apart, so bytes are one number.
Type* WholeOf(Type* element, int count) {
  if (count == 1) return element;
  if (element->getPrimitiveSizeInBits() == 8)
    return llvm::IntegerType::get(element->getContext(), 8 * static_cast<unsigned>(count));
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(count));
}

}  // namespace

void GpuPrinter::LoadLanes(ValueId memory, ValueId index, int begin, int end, Values& out) {
  const DType dtype = at(memory).dtype;
  Type* const type = MemoryType(b_.getContext(), dtype);
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    llvm::LoadInst* const value =
        b_.CreateAlignedLoad(WholeOf(type, count), Address(memory, Index(index, lane)),
                             AlignOf(memory, index, lane));
    // A parameter that nobody writes says so itself; an address from the table of copies cannot.
    if (HasCopies() && at(memory).code == program::Code::kBuffer &&
        !written_[static_cast<size_t>(at(memory).imm[0])])
      value->setMetadata(llvm::LLVMContext::MD_invariant_load,
                         llvm::MDNode::get(b_.getContext(), {}));
    for (int k = 0; k < count; ++k) {
      Value* element = value;
      if (count > 1 && value->getType()->isIntegerTy())
        element = b_.CreateTrunc(b_.CreateLShr(value, static_cast<uint64_t>(8 * k)), type);
      else if (count > 1)
        element = b_.CreateExtractElement(value, static_cast<uint64_t>(k));
      out.push_back(alu_.FromMemory(element, dtype));
    }
    lane += count;
  }
}

void GpuPrinter::StoreLanes(const Instruction& store, int begin, int end) {
  const ValueId memory = store.src[0], index = store.src[1], value = store.src[2];
  const bool swizzled = store.imm[0] != 0;
  const DType dtype = at(memory).dtype;
  Type* const type = MemoryType(b_.getContext(), dtype);
  for (int lane = begin; lane < end;) {
    // Of swizzled memory 16 bytes: threads with a row each meet no bank twice then.
    const int count = Together(memory, index, lane, end,
                               swizzled ? kAccessBytesMax / ByteWidth(dtype) : kElementsTogether);
    Value* whole = nullptr;
    if (count == 1) {
      whole = alu_.ToMemory(Lane(value, lane), dtype);
    } else {
      Type* const whole_type = WholeOf(type, count);
      const bool bytes = whole_type->isIntegerTy();
      whole = bytes ? static_cast<Value*>(llvm::ConstantInt::get(whole_type, 0))
                    : llvm::PoisonValue::get(whole_type);
      for (int k = 0; k < count; ++k) {
        Value* const element = alu_.ToMemory(Lane(value, lane + k), dtype);
        whole = bytes ? b_.CreateOr(whole, b_.CreateShl(b_.CreateZExt(element, whole_type),
                                                        static_cast<uint64_t>(8 * k)))
                      : b_.CreateInsertElement(whole, element, static_cast<uint64_t>(k));
      }
    }
    // A swizzle moves pieces of 16 bytes, which no access crosses.
    Value* const place = Index(index, lane);
    b_.CreateAlignedStore(whole, swizzled ? SwizzledAddress(memory, place) : Address(memory, place),
                          AlignOf(memory, index, lane));
    lane += count;
  }
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

// By all threads of the warp.
GpuPrinter::Values GpuPrinter::Shuffle(ValueId n) {
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
