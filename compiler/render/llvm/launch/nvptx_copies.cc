// A kernel in several copies (compiler/copies.h): the entry finds the addresses of one copy by
// the block's number along the grid's third axis, and the kernel itself is inlined into it.
//
// The kernel's parameters say which buffers overlap no other one and which nobody writes. What is
// inlined says it on: LLVM makes scopes of the first, and loads of the second are invariant.
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/render/llvm/gpu_printer.h"

namespace outboard::render {

using llvm::Align;
using llvm::Type;
using llvm::Value;

namespace {

constexpr unsigned kGlobal = 1;  // the address space of NVPTX
constexpr uint64_t kMapBytes = 128, kMapAlign = 64;

}  // namespace

void GpuPrinter::AddEntry(const std::string& symbol) {
  llvm::LLVMContext& context = b_.getContext();
  kernel_->setName("copy");
  kernel_->setLinkage(llvm::GlobalValue::InternalLinkage);
  const auto copies = static_cast<uint64_t>(program_.copies);
  std::vector<Type*> types;   // of the parameters
  std::vector<Type*> arrays;  // of those in the parameters' own memory; else nullptr
  const auto add = [&](Type* type, Type* array) {
    types.push_back(type);
    arrays.push_back(array);
  };
  if (program_.buffer_count > 0)
    add(b_.getPtrTy(), llvm::ArrayType::get(b_.getInt64Ty(),
                                            copies * static_cast<uint64_t>(program_.buffer_count)));
  if (program_.reads_vars()) add(llvm::PointerType::get(context, kGlobal), nullptr);
  if (!program_.maps.empty())
    add(b_.getPtrTy(),
        llvm::ArrayType::get(b_.getInt8Ty(), copies * program_.maps.size() * kMapBytes));
  entry_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                  llvm::Function::ExternalLinkage, symbol, module_);
  entry_->addFnAttr(llvm::Attribute::NoUnwind);
  std::vector<llvm::Metadata*> numbers;  // from 1 on
  for (unsigned arg = 0; arg < entry_->arg_size(); ++arg) {
    if (arrays[arg] == nullptr) continue;
    const bool maps = !program_.maps.empty() && arg + 1 == entry_->arg_size();
    entry_->addParamAttr(arg, llvm::Attribute::getWithByValType(context, arrays[arg]));
    entry_->addParamAttr(arg, llvm::Attribute::getWithAlignment(
                                  context, Align(maps ? kMapAlign : sizeof(uint64_t))));
    numbers.push_back(llvm::ConstantAsMetadata::get(b_.getInt32(arg + 1)));
  }
  // Read where it lies, without a copy, which would be local memory.
  module_.getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(context, {llvm::ValueAsMetadata::get(entry_),
                                               llvm::MDString::get(context, "grid_constant"),
                                               llvm::MDNode::get(context, numbers)}));
}

void GpuPrinter::CallKernel() {
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", entry_));
  Value* const copy = b_.CreateZExt(
      b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z, {}, {}), b_.getInt64Ty());
  std::vector<Value*> args;
  unsigned next = 0;
  const auto slots = static_cast<uint64_t>(program_.buffer_count);
  if (slots > 0) {
    Value* const table = entry_->getArg(next++);
    Value* const first = b_.CreateMul(copy, b_.getInt64(slots));
    for (uint64_t slot = 0; slot < slots; ++slot) {
      Value* const place =
          b_.CreateGEP(b_.getInt64Ty(), table, b_.CreateAdd(first, b_.getInt64(slot)));
      args.push_back(
          b_.CreateIntToPtr(b_.CreateAlignedLoad(b_.getInt64Ty(), place, Align(sizeof(uint64_t))),
                            kernel_->getArg(static_cast<unsigned>(slot))->getType()));
    }
  }
  if (program_.reads_vars()) args.push_back(entry_->getArg(next++));
  if (!program_.maps.empty()) {
    const uint64_t bytes = program_.maps.size() * kMapBytes;
    Value* const first =
        b_.CreateGEP(b_.getInt8Ty(), entry_->getArg(next), b_.CreateMul(copy, b_.getInt64(bytes)));
    for (uint64_t map = 0; map < program_.maps.size(); ++map)
      args.push_back(b_.CreateConstGEP1_64(b_.getInt8Ty(), first, map * kMapBytes));
  }
  llvm::CallInst* const call = b_.CreateCall(kernel_, args);
  b_.CreateRetVoid();
  llvm::InlineFunctionInfo info;
  OB_CHECK(llvm::InlineFunction(*call, info).isSuccess());
  kernel_->eraseFromParent();
  kernel_ = entry_;
}

}  // namespace outboard::render
