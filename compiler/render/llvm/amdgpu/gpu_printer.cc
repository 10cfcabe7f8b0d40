#include "compiler/render/llvm/amdgpu/gpu_printer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;
using program::Code;
using program::Grid;
using program::Instruction;
using program::Precision;
using program::Space;

namespace {

// Address spaces.
constexpr unsigned kGlobal = 1, kShared = 3;
// Products by matrix units keep 64 bits but in divisions and comparisons.
bool HasSmallIndices(const program::Program& program) {
  return std::none_of(program.code.begin(), program.code.end(),
                      [](const Instruction& i) { return i.code == Code::kMma; });
}

bool IsOn(Value* condition) {
  const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(condition);
  return constant != nullptr && !constant->isZero();
}
bool IsOff(Value* condition) {
  const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(condition);
  return constant != nullptr && constant->isZero();
}

}  // namespace

GpuPrinter::GpuPrinter(const program::Program& program, const Target& target, const GridShape& grid,
                       llvm::Module& module)
    : ScopePrinter(module.getContext(), Counters::kNarrow),
      program_(program),
      small_indices_(HasSmallIndices(program)),
      target_(target),
      grid_(grid),
      module_(module),
      alu_(b_),
      bounds_(BoundsOf(program)),
      divisors_(DivisorsOf(program)),
      values_(program.code.size()) {}

absl::Status GpuPrinter::Run(const std::string& symbol) {
  OB_RETURN_IF_ERROR(CheckForGpu(program_, target_));
  OB_RETURN_IF_ERROR(CheckUnits());
  llvm::LLVMContext& context = module_.getContext();
  Type* const pointer = llvm::PointerType::get(context, kGlobal);
  std::vector<Type*> types(program_.buffer_count + (program_.reads_vars() ? 1 : 0), pointer);
  kernel_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                   llvm::Function::ExternalLinkage, symbol, module_);
  kernel_->addFnAttr(llvm::Attribute::NoUnwind);
  MarkKernel(program_.Extent(Grid::kThread));
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", kernel_));
  OpenMemories();
  LeaveBehindGrid();
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) Print(n);
  b_.CreateRetVoid();
  return absl::OkStatus();
}

void GpuPrinter::OpenMemories() {
  std::vector<bool> read(program_.buffer_count, false), written(program_.buffer_count, false);
  const auto touch = [&](std::vector<bool>& slots, ValueId memory) {
    if (at(memory).code == Code::kBuffer) slots[at(memory).imm[0]] = true;
  };
  bool has_barriers = false;
  for (const Instruction& i : program_.code) {
    if (i.code == Code::kLoad) touch(read, i.src[0]);
    if (i.code == Code::kCopy) touch(read, i.src[2]);
    if (i.code == Code::kStore) touch(written, i.src[0]);
    has_barriers = has_barriers || i.code == Code::kBarrier;
  }
  for (int slot = 0; slot < program_.buffer_count; ++slot) {
    if (!written[slot]) kernel_->addParamAttr(slot, llvm::Attribute::ReadOnly);
    // LLVM moves accesses of such an argument across barriers, behind which other threads of the
    // block may read what was stored.
    if (!(has_barriers && read[slot] && written[slot]))
      kernel_->addParamAttr(slot, llvm::Attribute::NoAlias);
  }
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kBuffer) bases_[n] = kernel_->getArg(static_cast<unsigned>(i.imm[0]));
    if (i.code != Code::kAlloc) continue;
    if (i.imm[0] == static_cast<int64_t>(Space::kPrivate)) {
      Type* const type = RegisterType(b_.getContext(), i.dtype);
      Elements& elements = privates_[n];
      for (int64_t k = 0; k < i.imm[1]; ++k) elements.push_back(b_.CreateAlloca(type));
      continue;
    }
    auto* const array =
        llvm::ArrayType::get(MemoryType(b_.getContext(), i.dtype), static_cast<uint64_t>(i.imm[1]));
    auto* const shared = new llvm::GlobalVariable(
        module_, array, /*isConstant=*/false, llvm::GlobalValue::InternalLinkage,
        llvm::PoisonValue::get(array), absl::StrCat("shared", n), nullptr,
        llvm::GlobalValue::NotThreadLocal, kShared);
    constexpr uint64_t kSharedAlign = 16;  // of the widest access
    shared->setAlignment(Align(kSharedAlign));
    bases_[n] = shared;
  }
}

void GpuPrinter::Print(ValueId n) {
  const Instruction& i = at(n);
  switch (i.code) {
    case Code::kBuffer:
    case Code::kAlloc:
    case Code::kCommit:
    case Code::kWait: return;  // all copies arrive at once
    case Code::kLoop:
      values_[n] = {Printed(OpenLoopOf(i, i.src.empty() ? nullptr : Lane(i.src[0], 0)))};
      return;
    case Code::kEnd: CloseLoop(); return;
    case Code::kIf: OpenIf(Lane(i.src[0], 0)); return;
    case Code::kEndIf: CloseIf(); return;
    case Code::kStore: Store(n); return;
    case Code::kCopy: Copy(n); return;
    case Code::kBarrier: Barrier(); return;
    default: values_[n] = Compute(n); return;
  }
}

// ---- values

// Before anything else: what follows relies on the number being one of the program's.
void GpuPrinter::LeaveBehindGrid() {
  if (grid_.rows == 1) return;
  const auto wide = [&](int64_t number) { return b_.getInt64(static_cast<uint64_t>(number)); };
  Value* const first = b_.CreateMul(b_.CreateZExt(Row(), b_.getInt64Ty()), wide(grid_.columns));
  block_ = b_.CreateAdd(first, b_.CreateZExt(Number(Grid::kBlock), b_.getInt64Ty()));
  llvm::BasicBlock *const leaves = NewBlock("leaves"), *const stays = NewBlock("stays");
  b_.CreateCondBr(b_.CreateICmpULT(block_, wide(program_.Extent(Grid::kBlock))), stays, leaves);
  b_.SetInsertPoint(leaves);
  b_.CreateRetVoid();
  b_.SetInsertPoint(stays);
}

Value* GpuPrinter::Special(ValueId n) {
  const Instruction& i = at(n);
  if (i.imm[1] == 1) return Printed(b_.getInt32(0));
  const auto axis = static_cast<Grid>(i.imm[0]);
  if (axis != Grid::kBlock || block_ == nullptr) return Printed(Number(axis));
  return IsPrintedSmall(n) ? b_.CreateTrunc(block_, b_.getInt32Ty()) : block_;
}

GpuPrinter::Values GpuPrinter::Compute(ValueId n) {
  const Instruction& i = at(n);
  Values out;
  switch (i.code) {
    case Code::kConst: return {alu_.Const(IsPrintedSmall(n) ? DType::kI32 : i.dtype, i.imm[0])};
    case Code::kVar: {
      auto* const load =
          b_.CreateAlignedLoad(b_.getInt64Ty(),
                               b_.CreateGEP(b_.getInt64Ty(), kernel_->getArg(program_.buffer_count),
                                            b_.getInt64(static_cast<uint64_t>(i.imm[0]))),
                               Align(sizeof(int64_t)));
      load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                        llvm::MDNode::get(b_.getContext(), {}));
      return {load};
    }
    case Code::kSpecial: return {Special(n)};
    case Code::kAlu: return Arithmetic(n);
    case Code::kCast:
      for (int lane = 0; lane < i.lanes; ++lane)
        out.push_back(IsPrintedSmall(i.src[0])
                          ? alu_.Cast(Low(i.src[0], lane), DType::kI32, i.dtype)
                          : alu_.Cast(Lane(i.src[0], lane), at(i.src[0]).dtype,
                                      IsPrintedSmall(n) ? DType::kI32 : i.dtype));
      return out;
    case Code::kBitcast: return Bitcast(n);
    case Code::kLanes:
      for (int lane = 0; lane < i.lanes; ++lane)
        out.push_back(AsPrinted(i.src[i.src.size() == 1 ? 0 : static_cast<size_t>(lane)], 0));
      return out;
    case Code::kLane: return {AsPrinted(i.src[0], static_cast<int>(i.imm[0]))};
    case Code::kLoad: return Load(n);
    case Code::kMma: return MatrixProduct(n);
    case Code::kShuffle: return Shuffle(n);
    default: OB_CHECK(false && "no value"); return {};
  }
}

Value* GpuPrinter::SumWithProduct(ValueId n, int lane) {
  const Instruction& i = at(n);
  if (i.dtype != DType::kF32 && i.dtype != DType::kF64) return nullptr;
  for (int k = 0; k < 2; ++k) {
    const Instruction& x = at(i.src[k]);
    if (x.code != Code::kAlu || x.op != Op::kMul) continue;
    Value* const a = Lane(x.src[0], lane);
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()},
                              {a, Lane(x.src[1], lane), Lane(i.src[1 - k], lane)});
  }
  return nullptr;
}

// ---- integers of 64 bits that fit in 32
//
// A GPU adds and compares 64 bits in two steps, multiplies them in four and divides them in a
// hundred. So every i64 that cannot leave 32 bits, by the bounds of all that it is computed from,
// is an i32 in LLVM's code, and is extended where an address or another instruction takes it as 64.
//
// Products by matrix units keep 64 bits but in divisions and comparisons: in their loops many
// addresses go up by steps, which LLVM makes additions of
// (docs/decisions/185-accesses-and-indices.md).

Value* GpuPrinter::Printed(Value* index) {
  return small_indices_ ? index : b_.CreateZExt(index, b_.getInt64Ty());
}

bool GpuPrinter::IsSmall(ValueId n) const { return FitsIn32Bits(at(n), bounds_[n]); }

// Shifts keep 64 bits.
bool GpuPrinter::IsComputedSmall(ValueId n) const {
  const Instruction& i = at(n);
  const bool divides = i.op == Op::kIDiv || i.op == Op::kMod;
  if (!small_indices_ && i.op != Op::kCmpLt &&
      !(divides && bounds_[i.src[0]].min >= 0 && bounds_[i.src[1]].min > 0))
    return false;
  return i.op != Op::kShr && IsComputedIn32Bits(program_, bounds_, n);
}

Value* GpuPrinter::SmallArithmetic(ValueId n, int lane, const QuotientFacts& known) {
  const Instruction& i = at(n);
  std::vector<Value*> args;
  bool is_signed = false;
  for (const ValueId s : i.src) {
    args.push_back(IsBool(at(s).dtype) ? Lane(s, lane) : Low(s, lane));
    is_signed = is_signed || bounds_[s].min < 0;
  }
  if (i.op == Op::kCmpLt)
    return b_.CreateICmp(is_signed ? llvm::CmpInst::ICMP_SLT : llvm::CmpInst::ICMP_ULT, args[0],
                         args[1]);
  Value* const value = alu_.Alu(i.op, DType::kI32, args, known);
  return IsCompare(i.op) ? value : Printed(value);
}

Value* GpuPrinter::Lane(ValueId n, int lane) {
  Value* const value = AsPrinted(n, lane);
  if (at(n).dtype != DType::kI64 || value->getType()->isIntegerTy(64)) return value;
  return bounds_[n].min >= 0 ? b_.CreateZExt(value, b_.getInt64Ty())
                             : b_.CreateSExt(value, b_.getInt64Ty());
}

Value* GpuPrinter::Low(ValueId n, int lane) {
  return b_.CreateTrunc(AsPrinted(n, lane), b_.getInt32Ty());
}

GpuPrinter::Values GpuPrinter::Arithmetic(ValueId n) {
  const Instruction& i = at(n);
  const DType type = at(i.src.back()).dtype;
  QuotientFacts known;
  if ((i.op == Op::kIDiv || i.op == Op::kMod) && type != DType::kU64) {
    known.divisor_positive = bounds_[i.src[1]].min > 0;
    known.dividend_not_negative = bounds_[i.src[0]].min >= 0;
  }
  const bool with_product =
      i.op == Op::kAdd && i.imm[0] == static_cast<int64_t>(Precision::kWithProduct);
  Values out;
  for (int lane = 0; lane < i.lanes; ++lane) {
    Value* value = with_product ? SumWithProduct(n, lane) : nullptr;
    if (IsComputedSmall(n)) value = SmallArithmetic(n, lane, known);
    if (value == nullptr) {
      std::vector<Value*> args;
      for (const ValueId s : i.src) args.push_back(Lane(s, lane));
      value = alu_.Alu(i.op, type, args, known);
    }
    out.push_back(value);
  }
  return out;
}

// ---- memory

Value* GpuPrinter::Index(ValueId index, int lane) {
  if (at(index).lanes > 1 || lane == 0) return AsPrinted(index, lane);
  Value* const first = AsPrinted(index, 0);
  return b_.CreateAdd(first, llvm::ConstantInt::get(first->getType(), static_cast<uint64_t>(lane)));
}

// A constant is added to the pointer: accesses that differ by it then share what is before it, and
// have it in their instruction.
Value* GpuPrinter::Address(ValueId memory, ValueId index, int lane) {
  const Instruction& i = at(index);
  Type* const element = MemoryType(b_.getContext(), at(memory).dtype);
  if (i.lanes > 1 || !small_indices_)
    return b_.CreateGEP(element, bases_.at(memory), Index(index, lane));
  int64_t constant = lane;
  if (i.code == Code::kAlu && i.op == Op::kAdd && at(i.src[1]).code == Code::kConst) {
    constant += at(i.src[1]).imm[0];
    index = i.src[0];
  }
  Value* const pointer = b_.CreateGEP(element, bases_.at(memory), Lane(index, 0));
  if (constant == 0) return pointer;
  return b_.CreateGEP(element, pointer, b_.getInt64(static_cast<uint64_t>(constant)));
}

Value* GpuPrinter::LoadPrivate(const Elements& elements, Value* index) {
  const auto load = [&](size_t k) {
    return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(elements[k])->getAllocatedType(),
                         elements[k]);
  };
  Type* const type = llvm::cast<llvm::AllocaInst>(elements[0])->getAllocatedType();
  if (const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(index)) {
    // A lane that is off may be beyond the end.
    if (constant->getValue().uge(elements.size())) return llvm::Constant::getNullValue(type);
    return load(constant->getZExtValue());
  }
  Value* value = load(0);
  for (size_t k = 1; k < elements.size(); ++k)
    value = b_.CreateSelect(b_.CreateICmpEQ(index, llvm::ConstantInt::get(index->getType(), k)),
                            load(k), value);
  return value;
}

void GpuPrinter::StorePrivate(const Elements& elements, Value* index, Value* value,
                              Value* condition) {
  const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(index);
  for (size_t k = 0; k < elements.size(); ++k) {
    Value* here = condition;
    if (constant == nullptr) {
      Value* const same = b_.CreateICmpEQ(index, llvm::ConstantInt::get(index->getType(), k));
      here = condition == nullptr ? same : b_.CreateAnd(condition, same);
    } else if (constant->getValue() != k) {
      continue;
    }
    Value* const stored =
        here == nullptr
            ? value
            : b_.CreateSelect(here, value, b_.CreateLoad(value->getType(), elements[k]));
    b_.CreateStore(stored, elements[k]);
  }
}

void GpuPrinter::Guarded(ValueId mask, int lanes, absl::FunctionRef<void(int, int, Value*)> body) {
  for (int begin = 0; begin < lanes;) {
    Value* const condition = mask < 0 ? nullptr : Lane(mask, begin);
    int end = begin + 1;
    while (end < lanes && (mask < 0 || Lane(mask, end) == condition)) ++end;
    body(begin, end, condition == nullptr || IsOn(condition) ? nullptr : condition);
    begin = end;
  }
}

GpuPrinter::Values GpuPrinter::Load(ValueId n) {
  const Instruction& i = at(n);
  const ValueId memory = i.src[0], mask = i.src.size() == 4 ? i.src[2] : -1;
  Values out;
  if (IsPrivate(memory)) {
    for (int lane = 0; lane < i.lanes; ++lane) {
      Value* const value = LoadPrivate(privates_.at(memory), Index(i.src[1], lane));
      out.push_back(mask < 0 ? value
                             : b_.CreateSelect(Lane(mask, lane), value, Lane(i.src[3], lane)));
    }
    return out;
  }
  Guarded(mask, i.lanes, [&](int begin, int end, Value* condition) {
    if (condition != nullptr && IsOff(condition)) {
      for (int lane = begin; lane < end; ++lane) out.push_back(Lane(i.src[3], lane));
      return;
    }
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    if (condition != nullptr) OpenIf(condition);
    Values loaded;
    LoadLanes(memory, i.src[1], begin, end, loaded);
    if (condition != nullptr) {
      llvm::BasicBlock* const body = b_.GetInsertBlock();
      CloseIf();
      for (int lane = begin; lane < end; ++lane) {
        Value*& value = loaded[static_cast<size_t>(lane - begin)];
        llvm::PHINode* const either = b_.CreatePHI(value->getType(), 2);
        either->addIncoming(value, body);
        either->addIncoming(Lane(i.src[3], lane), before);
        value = either;
      }
    }
    out.insert(out.end(), loaded.begin(), loaded.end());
  });
  return out;
}

void GpuPrinter::Store(ValueId n) {
  const Instruction& i = at(n);
  const ValueId memory = i.src[0], mask = i.src.size() == 4 ? i.src[3] : -1;
  Guarded(mask, at(i.src[2]).lanes, [&](int begin, int end, Value* condition) {
    if (condition != nullptr && IsOff(condition)) return;
    if (IsPrivate(memory)) {
      for (int lane = begin; lane < end; ++lane)
        StorePrivate(privates_.at(memory), Index(i.src[1], lane), Lane(i.src[2], lane), condition);
      return;
    }
    if (condition != nullptr) OpenIf(condition);
    StoreLanes(i, begin, end);
    if (condition != nullptr) CloseIf();
  });
}

void GpuPrinter::Copy(ValueId n) {
  const Instruction& i = at(n);
  Type* const type = MemoryType(b_.getContext(), at(i.src[0]).dtype);
  const Align align(static_cast<uint64_t>(ByteWidth(at(i.src[0]).dtype)));
  Value* const condition = i.src.size() == 5 ? Lane(i.src[4], 0) : nullptr;
  for (int lane = 0; lane < i.imm[0]; ++lane) {
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
    b_.CreateAlignedStore(value, Address(i.src[0], i.src[1], lane), align);
  }
}

}  // namespace outboard::render
