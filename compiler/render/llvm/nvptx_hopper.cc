// What sm_90a alone has: barriers with phases, copies of boxes, products of warpgroups. LLVM 19 has
// intrinsics for few of these, so all are inline assembly.
//
// Accumulators go through the assembly as results that are tied to arguments: LLVM then neither
// moves nor copies them between a product and the wait for it. Addresses in shared memory are i32.
// Instructions that warps run together are convergent: LLVM must not put them on other paths.
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/llvm/gpu_printer.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;
using program::Code;
using program::Grid;
using program::Instruction;

namespace {

constexpr unsigned kShared = 3;  // the address space of NVPTX
constexpr uint64_t kMapBytes = 128, kMapAlign = 64;
// Of a matrix descriptor (PTX ISA, "Matrix Descriptor Format"), whose units are 16 bytes.
constexpr int64_t kUnit = 16;
constexpr uint32_t kSwizzle128 = 1u << 30;                    // of the upper word
constexpr uint32_t kStride = program::kSwizzleAlign / kUnit;  // of eight rows
constexpr unsigned kLeadingShift = 16;

// As wgmma names what it multiplies.
const char* GroupTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF32: return "tf32";
    case DType::kF8E4M3: return "e4m3";
    default: return "e5m2";
  }
}

std::string Repeated(const char* constraint, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&text, i > 0 ? "," : "", constraint);
  return text;
}

}  // namespace

void GpuPrinter::AddMaps() {
  if (program_.maps.empty()) return;
  llvm::LLVMContext& context = b_.getContext();
  std::vector<llvm::Metadata*> numbers;  // from 1 on
  const auto count = static_cast<unsigned>(program_.maps.size());
  for (unsigned arg = kernel_->arg_size() - count; arg < kernel_->arg_size(); ++arg) {
    kernel_->addParamAttr(arg, llvm::Attribute::getWithByValType(
                                   context, llvm::ArrayType::get(b_.getInt8Ty(), kMapBytes)));
    kernel_->addParamAttr(arg, llvm::Attribute::getWithAlignment(context, llvm::Align(kMapAlign)));
    numbers.push_back(llvm::ConstantAsMetadata::get(b_.getInt32(arg + 1)));
  }
  // Its address may be taken without a copy, which would be local memory.
  module_.getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(context, {llvm::ValueAsMetadata::get(kernel_),
                                               llvm::MDString::get(context, "grid_constant"),
                                               llvm::MDNode::get(context, numbers)}));
}

void GpuPrinter::OpenBlockMemory() {
  block_memory_ =
      new llvm::GlobalVariable(module_, llvm::ArrayType::get(b_.getInt8Ty(), 0),
                               /*isConstant=*/false, llvm::GlobalValue::ExternalLinkage, nullptr,
                               "block_memory", nullptr, llvm::GlobalValue::NotThreadLocal, kShared);
  block_memory_->setAlignment(llvm::Align(program::kSwizzleAlign));
  for (const Instruction& i : program_.code) {
    if (i.code != Code::kMaxRegisters) continue;
    // The assembler then gives a thread all registers that one block leaves room for. Warpgroups
    // divide those among themselves.
    module_.getOrInsertNamedMetadata("nvvm.annotations")
        ->addOperand(llvm::MDNode::get(
            b_.getContext(),
            {llvm::ValueAsMetadata::get(entry_), llvm::MDString::get(b_.getContext(), "minctasm"),
             llvm::ConstantAsMetadata::get(b_.getInt32(1))}));
    return;
  }
}

// Where warpgroups divide registers, few are left beside the sums: loads of several passes together
// would spill.
bool GpuPrinter::IsKeptRolled(ValueId loop, ValueId end) const {
  if (!divides_registers_) return false;
  return std::any_of(program_.code.begin() + loop, program_.code.begin() + end,
                     [&](const Instruction& i) {
                       return i.code == Code::kLoad && at(i.src[0]).code == Code::kBuffer;
                     });
}

void GpuPrinter::KeepRolled(llvm::BranchInst* back) {
  llvm::LLVMContext& context = b_.getContext();
  llvm::MDNode* const rolled =
      llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
  llvm::MDNode* const loop = llvm::MDNode::getDistinct(context, {nullptr, rolled});
  loop->replaceOperandWith(0, loop);
  back->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

Value* GpuPrinter::Asm(Type* result, const std::string& text, const std::string& constraints,
                       llvm::ArrayRef<Value*> args) {
  std::vector<Type*> types;
  for (const Value* arg : args) types.push_back(arg->getType());
  llvm::CallInst* const call = b_.CreateCall(
      llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text,
                           absl::StrCat(constraints, constraints.empty() ? "" : ",", "~{memory}"),
                           /*hasSideEffects=*/true),
      args);
  call->setConvergent();
  return call;
}

// `text` names accumulators by $0, $1, ... and `args` by the numbers after them.
void GpuPrinter::WithAccumulators(llvm::ArrayRef<ValueId> memories, const std::string& text,
                                  llvm::ArrayRef<Value*> args) {
  Elements elements;
  std::vector<Type*> types;
  std::string constraints;
  for (const ValueId memory : memories) {
    const Elements& more = privates_.at(memory);
    elements.insert(elements.end(), more.begin(), more.end());
    // An operand's registers are integers: the assembler takes no others.
    const bool sums = at(memory).dtype == DType::kF32;
    types.resize(elements.size(), sums ? b_.getFloatTy() : b_.getInt32Ty());
    absl::StrAppend(&constraints, constraints.empty() ? "" : ",",
                    Repeated(sums ? "=f" : "=r", more.size()));
  }
  std::vector<Value*> all;
  for (Value* const arg : args) {
    absl::StrAppend(&constraints, arg->getType()->isIntegerTy(64) ? ",l" : ",r");
    all.push_back(arg);
  }
  for (size_t e = 0; e < elements.size(); ++e) {
    absl::StrAppend(&constraints, ",", e);
    all.push_back(b_.CreateLoad(types[e], elements[e]));
  }
  Type* const result = llvm::StructType::get(b_.getContext(), types);
  Value* const sums = Asm(result, text, constraints, all);
  for (size_t e = 0; e < elements.size(); ++e)
    b_.CreateStore(b_.CreateExtractValue(sums, {static_cast<unsigned>(e)}), elements[e]);
}

Value* GpuPrinter::BlockAddress(ValueId memory, ValueId index) {
  Value* const place =
      b_.CreateMul(Low(index, 0), b_.getInt32(static_cast<uint32_t>(ByteWidth(at(memory).dtype))));
  Value* const base =
      b_.CreateAdd(b_.CreatePtrToInt(block_memory_, b_.getInt32Ty()),
                   b_.getInt32(static_cast<uint32_t>(program_.SharedOffset(memory))));
  return b_.CreateAdd(base, place);
}

// Bits 4 to 6 of a byte's place are mixed with bits 7 to 9; memories begin at a multiple of 1,024.
Value* GpuPrinter::SwizzledAddress(ValueId memory, Value* index) {
  const auto width = static_cast<uint32_t>(ByteWidth(at(memory).dtype));
  Value* const place = b_.CreateMul(b_.CreateTrunc(index, b_.getInt32Ty()), b_.getInt32(width));
  Value* const mixed =
      b_.CreateXor(place, b_.CreateAnd(b_.CreateLShr(place, uint64_t{3}), b_.getInt32(0x70)));
  return b_.CreateGEP(b_.getInt8Ty(), bases_.at(memory), mixed);
}

Value* GpuPrinter::SwizzledTarget(ValueId copy, int lane) {
  const ValueId memory = at(copy).src[0];
  const int64_t width = ByteWidth(at(memory).dtype);
  Value *whole = b_.getInt64(0), *rest = b_.getInt64(static_cast<uint64_t>(lane));
  std::vector<ValueId> open = {at(copy).src[1]};
  while (!open.empty()) {
    const ValueId part = open.back();
    open.pop_back();
    if (at(part).code == Code::kAlu && at(part).op == Op::kAdd) {
      open.insert(open.end(), at(part).src.begin(), at(part).src.end());
      continue;
    }
    const bool is_whole = divisors_[part] * width % program::kSwizzleAlign == 0;
    Value*& sum = is_whole ? whole : rest;
    sum = b_.CreateAdd(sum, Lane(part, 0));
  }
  Value* const bytes = b_.CreateMul(whole, b_.getInt64(static_cast<uint64_t>(width)));
  return b_.CreateGEP(b_.getInt8Ty(), SwizzledAddress(memory, rest), bytes);
}

// Without a scope: with `.release.cluster`, ptxas puts a fence of the whole GPU into the loop, for
// writes that no consumer has. It has read the stage by wgmma alone, and has waited for that.
void GpuPrinter::ArriveInCluster(ValueId n) {
  const Instruction& i = at(n);
  Asm(b_.getVoidTy(),
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }",
      "r,r", {BlockAddress(i.src[0], i.src[1]), Low(i.src[2], 0)});
}

GpuPrinter::Values GpuPrinter::LoadOfCluster(ValueId n) {
  const Instruction& i = at(n);
  const auto lanes = static_cast<size_t>(i.lanes);
  std::string registers;
  for (size_t lane = 0; lane < lanes; ++lane)
    absl::StrAppend(&registers, lane > 0 ? ", $" : "$", lane);
  const std::string text =
      absl::StrCat("{ .reg .b32 there; mapa.shared::cluster.u32 there, $", lanes, ", $", lanes + 1,
                   "; ld.shared::cluster.", lanes == 1 ? "" : absl::StrCat("v", lanes, "."), "f32 ",
                   lanes == 1 ? registers : absl::StrCat("{", registers, "}"), ", [there]; }");
  Type* const element = b_.getFloatTy();
  Type* const result =
      lanes == 1 ? element
                 : llvm::StructType::get(b_.getContext(), std::vector<Type*>(lanes, element));
  Value* const loaded = Asm(result, text, absl::StrCat(Repeated("=f", lanes), ",r,r"),
                            {BlockAddress(i.src[0], i.src[1]), Low(i.src[2], 0)});
  Values out;
  for (unsigned lane = 0; lane < lanes; ++lane)
    out.push_back(lanes == 1 ? loaded : b_.CreateExtractValue(loaded, {lane}));
  return out;
}

// Constants are added to the descriptor, not to the address: operands of the products of one stage
// then differ by one addition. Addresses are below 2^18, so that nothing overflows its field.
Value* GpuPrinter::MatrixDescriptor(ValueId memory, ValueId index, int64_t leading) {
  const int64_t width = ByteWidth(at(memory).dtype);
  const int64_t beyond = std::max<int64_t>(leading * width / kUnit, 1) << kLeadingShift;
  int64_t offset = 0;
  const Instruction& i = at(index);
  if (i.code == Code::kAlu && i.op == Op::kAdd && at(i.src[1]).code == Code::kConst &&
      at(i.src[1]).imm[0] * width % kUnit == 0) {
    offset = at(i.src[1]).imm[0] * width / kUnit;
    index = i.src[0];
  }
  Value* const low =
      b_.CreateAdd(FirstUnit(memory, index), b_.getInt32(static_cast<uint32_t>(beyond + offset)));
  return b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()),
                     b_.getInt64(uint64_t{kSwizzle128 | kStride} << 32));
}

// The address in units of 16 bytes. Where it is the same each time of a loop, it is hidden from
// LLVM there: else all descriptors that differ from it by a constant would be computed before the
// loop, and each would have a register in it.
Value* GpuPrinter::FirstUnit(ValueId memory, ValueId index) {
  if (loops_.empty() || index > loops_.back())
    return b_.CreateLShr(BlockAddress(memory, index), uint64_t{4});
  Value*& hidden = hidden_units_[{memory, index}];
  if (hidden == nullptr)
    hidden = Asm(b_.getInt32Ty(), "mov.b32 $0, $1;", "=r,r",
                 {b_.CreateLShr(BlockAddress(memory, index), uint64_t{4})});
  return hidden;
}

void GpuPrinter::BoxCopy(ValueId n) {
  const Instruction& i = at(n);
  const bool loads = i.code == Code::kBoxLoad;
  const size_t map = loads ? 4 : 2;
  const int64_t number = at(i.src[map]).imm[0];
  const int rank = program_.maps[static_cast<size_t>(number)].rank();
  std::vector<Value*> args = {
      BlockAddress(i.src[0], i.src[1]),
      kernel_->getArg(static_cast<unsigned>(kernel_->arg_size() - program_.maps.size() +
                                            static_cast<size_t>(number)))};
  std::string coordinates, constraints = "r,l";
  for (int c = 0; c < rank; ++c) {
    absl::StrAppend(&coordinates, c > 0 ? ", " : "", "$", 2 + c);
    absl::StrAppend(&constraints, ",r");
    args.push_back(Low(i.src[map + 1 + static_cast<size_t>(c)], 0));
  }
  std::string text;
  if (loads) {
    args.push_back(BlockAddress(i.src[2], i.src[3]));
    absl::StrAppend(&constraints, ",r");
    const bool several = i.imm[0] != 0;
    text = absl::StrCat("cp.async.bulk.tensor.", rank,
                        "d.shared::cluster.global.mbarrier::complete_tx::bytes",
                        several ? ".multicast::cluster" : "", " [$0], [$1, {", coordinates,
                        "}], [$", 2 + rank, "]", several ? absl::StrCat(", $", 3 + rank) : "", ";");
    if (several) {
      args.push_back(b_.getInt16(static_cast<uint16_t>(i.imm[0])));
      absl::StrAppend(&constraints, ",h");
    }
  } else {
    text = absl::StrCat("cp.async.bulk.tensor.", rank, "d.global.shared::cta.bulk_group [$1, {",
                        coordinates, "}], [$0];");
  }
  Asm(b_.getVoidTy(), text, constraints, args);
}

void GpuPrinter::GroupProduct(ValueId n) {
  const Instruction& i = at(n);
  const int64_t columns = i.imm[0], sums = columns / 2;
  const DType operand = at(i.src[3]).dtype;  // a may be registers
  const std::string type = GroupTypeName(operand);
  const int width = ByteWidth(operand);
  std::string registers;
  for (int64_t e = 0; e < sums; ++e) absl::StrAppend(&registers, e > 0 ? "," : "", "$", e);
  std::vector<Value*> args;
  std::string a = absl::StrCat("$", sums), turned = absl::StrCat(", ", i.imm[1] != 0 ? 1 : 0);
  if (at(i.src[1]).imm[0] == static_cast<int64_t>(program::Space::kPrivate)) {
    const Elements& elements = privates_.at(i.src[1]);
    const int64_t first = at(i.src[2]).imm[0];
    a = "{";
    for (int64_t e = 0; e < program::kWgmmaRegistersOfA; ++e) {
      absl::StrAppend(&a, e > 0 ? ", $" : "$", sums + e);
      args.push_back(b_.CreateLoad(b_.getInt32Ty(), elements[static_cast<size_t>(first + e)]));
    }
    a += "}";
    turned.clear();
  } else {
    args.push_back(MatrixDescriptor(i.src[1], i.src[2], i.imm[1]));
  }
  const auto b = static_cast<int64_t>(sums + static_cast<int64_t>(args.size()));
  args.push_back(MatrixDescriptor(i.src[3], i.src[4], i.imm[2]));
  // Whether the sums are added to is a predicate, here a constant. Operands of 16 bits alone may
  // lie by columns, so only these say whether they do; registers do not.
  const std::string text = absl::StrCat(
      "{ .reg .pred p; setp.", i.imm[3] != 0 ? "ne" : "eq",
      ".u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n", columns, "k", program::WgmmaDepth(width),
      ".f32.", type, ".", type, " {", registers, "}, ", a, ", $", b, ", p, 1, 1",
      width == 2 ? absl::StrCat(turned, ", ", i.imm[2] != 0 ? 1 : 0) : "", "; }");
  WithAccumulators({i.src[0]}, text, args);
}

bool GpuPrinter::IsAccumulator(ValueId value) const {
  const Instruction& load = at(value);
  return load.code == Code::kLoad && load.lanes == 1 && IsPrivate(load.src[0]) &&
         std::any_of(program_.code.begin(), program_.code.end(), [&](const Instruction& i) {
           return i.code == Code::kGroupMma && i.src[0] == load.src[0];
         });
}

// Where a conversion to f16 reads an accumulator in a loop, ptxas 13.0 waits for each product
// ("serialized"), wherever the wait for them is. Behind a product by 1 it does not.
Value* GpuPrinter::NotAccumulator(Value* value) {
  return b_.CreateCall(
      llvm::InlineAsm::get(llvm::FunctionType::get(b_.getFloatTy(), {b_.getFloatTy()}, false),
                           "mul.rn.f32 $0, $1, 0f3F800000;", "=f,f", /*hasSideEffects=*/false),
      {value});
}

void GpuPrinter::PrintHopper(ValueId n) {
  const Instruction& i = at(n);
  Type* const nothing = b_.getVoidTy();
  const auto barrier = [&] { return BlockAddress(i.src[0], i.src[1]); };
  switch (i.code) {
    case Code::kBarrierInit:
      Asm(nothing,
          absl::StrCat("mbarrier.init.shared::cta.b64 [$0], ", i.imm[0],
                       "; fence.mbarrier_init.release.cluster;"),
          "r", {barrier()});
      return;
    case Code::kBarrierExpect:
      Asm(nothing,
          absl::StrCat("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], ", i.imm[0], ";"), "r",
          {barrier()});
      return;
    case Code::kBarrierArrive:
      if (i.src.size() == 3) return ArriveInCluster(n);
      Asm(nothing, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r", {barrier()});
      return;
    case Code::kBarrierWait:
      // The instruction itself sleeps for a while, and may end early.
      Asm(nothing,
          "{ .reg .pred p; WAIT_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
          "@p bra DONE_${:uid}; bra WAIT_${:uid}; DONE_${:uid}: }",
          "r,r", {barrier(), Low(i.src[2], 0)});
      return;
    case Code::kBoxLoad:
    case Code::kBoxStore: BoxCopy(n); return;
    case Code::kBoxCommit: Asm(nothing, "cp.async.bulk.commit_group;", "", {}); return;
    case Code::kBoxWait:
      Asm(nothing,
          absl::StrCat("cp.async.bulk.wait_group", i.imm[1] != 0 ? ".read " : " ", i.imm[0], ";"),
          "", {});
      return;
    case Code::kProxyFence: Asm(nothing, "fence.proxy.async.shared::cta;", "", {}); return;
    case Code::kWarpSync:
      b_.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {b_.getInt32(~0u)});
      return;
    case Code::kClusterSync:
      Asm(nothing, "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", "", {});
      return;
    case Code::kGroupFence:
      hidden_units_.clear();
      WithAccumulators(llvm::ArrayRef<ValueId>(i.src.data(), i.src.size()),
                       "wgmma.fence.sync.aligned;", {});
      return;
    case Code::kGroupMma: GroupProduct(n); return;
    case Code::kGroupCommit: Asm(nothing, "wgmma.commit_group.sync.aligned;", "", {}); return;
    case Code::kGroupWait:
      WithAccumulators(llvm::ArrayRef<ValueId>(i.src.data(), i.src.size()),
                       absl::StrCat("wgmma.wait_group.sync.aligned ", i.imm[0], ";"), {});
      return;
    case Code::kGroupSync: {
      // Barrier 0 is the block's.
      Value* const number = b_.CreateAdd(
          b_.CreateLShr(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {}),
                        uint64_t{7}),
          b_.getInt32(1));
      Asm(nothing, absl::StrCat("bar.sync $0, ", program::kWarpgroupThreads, ";"), "r", {number});
      return;
    }
    case Code::kMaxRegisters:
      Asm(nothing,
          absl::StrCat("setmaxnreg.", i.imm[1] != 0 ? "inc" : "dec", ".sync.aligned.u32 ", i.imm[0],
                       ";"),
          "", {});
      return;
    default: OB_CHECK(false && "no such instruction");
  }
}

}  // namespace outboard::render
