// Matrix units of a GPU, and copies to shared memory that go on while their thread does: mma.sync,
// ldmatrix and cp.async (PTX ISA, chapter 9.7).
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/render/llvm/gpu_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Code;
using program::Instruction;

// What LDMATRIX has read stays as it is: its numbers are taken apart only where a program does so.
Value* GpuPrinter::Packed(ValueId n, int lane) {
  const DType type = at(n).dtype;
  const int packed = program::MmaPacked(type);
  if (const auto it = packed_.find(n); it != packed_.end())
    return it->second[static_cast<size_t>(lane / packed)];
  Value* all = nullptr;
  for (int l = lane; l < lane + packed; ++l) {
    Value* const bits =
        b_.CreateZExt(alu_.Bitcast(Lane(n, l), type, BitsOf(type)), b_.getInt32Ty());
    const auto shift = static_cast<uint64_t>(8 * ByteWidth(type) * (l - lane));
    all = all == nullptr ? bits : b_.CreateOr(all, b_.CreateShl(bits, shift));
  }
  return all;
}

// mma.sync.m16n8k16, of f32 m16n8k8, of 8-bit floats m16n8k32: its fragments are MmaElement's.
GpuPrinter::Values GpuPrinter::MatrixProduct(ValueId n) {
  const Instruction& i = at(n);
  const DType type = at(i.src[0]).dtype;
  const int packed = program::MmaPacked(type);
  std::vector<Value*> args;
  const auto add = [&](ValueId operand, int first, int lanes) {
    for (int lane = first; lane < first + lanes; lane += packed) {
      Value* const bits = Packed(operand, lane);
      args.push_back(type == DType::kF16
                         ? b_.CreateBitCast(bits, llvm::FixedVectorType::get(b_.getHalfTy(), 2))
                         : bits);
    }
  };
  add(i.src[0], 0, 4 * packed);
  add(i.src[1], static_cast<int>(2 * packed * i.imm[0]), 2 * packed);
  for (int lane = 0; lane < 4; ++lane) args.push_back(Lane(i.src[2], lane));
  Value* product = nullptr;
  switch (type) {
    case DType::kF32:
      product = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32, {}, args);
      break;
    case DType::kBF16:
      product = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16, {}, args);
      break;
    case DType::kF16:
      product = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32, {}, args);
      break;
    default: product = SmallProduct(type, args);
  }
  Values out;
  for (unsigned lane = 0; lane < 4; ++lane) out.push_back(b_.CreateExtractValue(product, {lane}));
  return out;
}

// Of 8-bit floats. LLVM has no intrinsic for it.
Value* GpuPrinter::SmallProduct(DType type, llvm::ArrayRef<Value*> args) {
  const char* const name = type == DType::kF8E4M3 ? "e4m3" : "e5m2";
  std::vector<Type*> types;
  for (const Value* arg : args) types.push_back(arg->getType());
  Type* const sums = llvm::StructType::get(
      b_.getContext(), std::vector<Type*>(4, Type::getFloatTy(b_.getContext())));
  llvm::CallInst* const call = b_.CreateCall(
      llvm::InlineAsm::get(
          llvm::FunctionType::get(sums, types, false),
          absl::StrCat("mma.sync.aligned.m16n8k32.row.col.f32.", name, ".", name,
                       ".f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"),
          "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", /*hasSideEffects=*/false),
      args);
  call->setConvergent();
  call->setDoesNotAccessMemory();
  return call;
}

// cvt.rn.bf16x2.f32, or f16x2: what is rounded for MMA is there as it takes it.
GpuPrinter::Values GpuPrinter::NarrowToPairs(ValueId n) {
  const Instruction& i = at(n);
  Values pairs, out;
  for (int lane = 0; lane < i.lanes; lane += 2) {
    Value* const both =
        b_.CreateIntrinsic(i.dtype == DType::kBF16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn
                                                   : llvm::Intrinsic::nvvm_ff2f16x2_rn,
                           {}, {Lane(i.src[0], lane + 1), Lane(i.src[0], lane)});
    Value* const pair = b_.CreateBitCast(both, b_.getInt32Ty());
    pairs.push_back(pair);
    for (const uint64_t shift : {uint64_t{0}, uint64_t{16}})
      out.push_back(alu_.Bitcast(b_.CreateTrunc(b_.CreateLShr(pair, shift), b_.getInt16Ty()),
                                 DType::kU16, i.dtype));
  }
  packed_[n] = std::move(pairs);
  return out;
}

GpuPrinter::Values GpuPrinter::LoadMatrices(ValueId n) {
  const Instruction& i = at(n);
  Value* const address =
      i.imm[0] == 2 ? SwizzledAddress(i.src[0], Low(i.src[1], 0)) : Address(i.src[0], i.src[1], 0);
  Value* const loaded = b_.CreateIntrinsic(
      i.imm[0] == 1 ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                    : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16,
      {address->getType()}, {address});
  Values& registers = packed_[n];
  Values out;
  const int bits = 8 * ByteWidth(i.dtype);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    Value* const all = b_.CreateExtractValue(loaded, {matrix});
    registers.push_back(all);
    for (int shift = 0; shift < 32; shift += bits)
      out.push_back(alu_.Bitcast(b_.CreateTrunc(b_.CreateLShr(all, static_cast<uint64_t>(shift)),
                                                b_.getIntNTy(static_cast<unsigned>(bits))),
                                 BitsOf(i.dtype), i.dtype));
  }
  return out;
}

// ---- copies

// In pieces as large as their alignment allows. cp.async takes 4, 8 or 16 bytes; what is smaller is
// a load and a store, which may arrive before the others.
void GpuPrinter::Copy(ValueId n) {
  const Instruction& i = at(n);
  constexpr int64_t kAsyncBytesLeast = 4;
  const int width = ByteWidth(at(i.src[0]).dtype);
  for (int64_t k = 0; k < i.imm[0];) {
    const auto lane = static_cast<int>(k);
    auto aligned = static_cast<int64_t>(
        std::min(AlignOf(i.src[0], i.src[1], lane), AlignOf(i.src[2], i.src[3], lane)).value());
    if (i.imm[1] == 1) {  // both indices are multiples of the count
      const int64_t least = (i.imm[0] | k) * width;
      aligned = std::max(aligned, least & -least);
    }
    int64_t bytes = kAccessBytesMax;
    while (bytes > aligned || bytes > (i.imm[0] - k) * width) bytes /= 2;
    if (bytes >= kAsyncBytesLeast) {
      CopyAsynchronously(n, lane, bytes);
      k += bytes / width;
    } else {
      CopyAtOnce(n, lane);
      ++k;
    }
  }
}

// Sixteen bytes bypass the first cache: other warps read them from shared memory. With a mask the
// instruction is told how many bytes to read; it fills the rest with zeros.
void GpuPrinter::CopyAsynchronously(ValueId n, int lane, int64_t bytes) {
  const Instruction& i = at(n);
  std::vector<Value*> args = {
      i.imm[2] != 0 ? SwizzledTarget(n, lane) : Address(i.src[0], i.src[1], lane),
      Address(i.src[2], i.src[3], lane)};
  const bool masked = i.src.size() == 5;
  if (masked)
    args.push_back(b_.CreateSelect(Lane(i.src[4], 0), b_.getInt32(static_cast<uint32_t>(bytes)),
                                   b_.getInt32(0)));
  using llvm::Intrinsic::ID;
  const ID four = masked ? llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4_s
                         : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4;
  const ID eight = masked ? llvm::Intrinsic::nvvm_cp_async_ca_shared_global_8_s
                          : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_8;
  const ID sixteen = masked ? llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16_s
                            : llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16;
  b_.CreateIntrinsic(bytes == 4 ? four : bytes == 8 ? eight : sixteen, {}, args);
}

// One element.
void GpuPrinter::CopyAtOnce(ValueId n, int lane) {
  const Instruction& i = at(n);
  Type* const type = MemoryType(b_.getContext(), at(i.src[0]).dtype);
  const Align align(static_cast<uint64_t>(ByteWidth(at(i.src[0]).dtype)));
  Value* const condition = i.src.size() == 5 ? Lane(i.src[4], 0) : nullptr;
  llvm::BasicBlock* const before = b_.GetInsertBlock();
  if (condition != nullptr) OpenIf(condition);
  Value* value = b_.CreateAlignedLoad(type, Address(i.src[2], i.src[3], lane), align);
  if (condition != nullptr) {
    llvm::BasicBlock* const body = b_.GetInsertBlock();
    CloseIf();
    llvm::PHINode* const either = b_.CreatePHI(type, 2);
    either->addIncoming(value, body);
    either->addIncoming(llvm::Constant::getNullValue(type), before);
    value = either;
  }
  b_.CreateAlignedStore(
      value, i.imm[2] != 0 ? SwizzledTarget(n, lane) : Address(i.src[0], i.src[1], lane), align);
}

void GpuPrinter::Await(ValueId n) {
  if (at(n).code == Code::kCommit) {
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {});
  } else {
    const int64_t groups = std::min<int64_t>(at(n).imm[0], INT32_MAX);
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {},
                       {b_.getInt32(static_cast<uint32_t>(groups))});
  }
}

}  // namespace outboard::render
