#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/llvm/program_printer.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;
using program::Code;
using program::Grid;
using program::Instruction;
using program::Program;
using program::Space;
using program::ValueId;

namespace {

absl::Status NoFormFor(const std::string& what) {
  return absl::UnimplementedError(absl::StrCat("x86-64 has no form for ", what));
}

// Errors: UNIMPLEMENTED, names what of a program runs on other devices only.
absl::Status Supports(const Program& program) {
  constexpr int64_t kTilesMax = 8;
  if (program.Extent(Grid::kThread) > 1) return NoFormFor("blocks of several threads");
  int64_t tiles = 0;
  for (const Instruction& i : program.code) {
    if (program::IsHopper(i.code)) return NoFormFor(std::string(Name(i.code)));
    switch (i.code) {
      case Code::kBarrier:
      case Code::kCopy:
      case Code::kCommit:
      case Code::kWait:
      case Code::kShuffle:
      case Code::kMma:
      case Code::kLdmatrix: return NoFormFor(std::string(Name(i.code)));
      case Code::kAlloc:
        if (i.imm[0] == static_cast<int64_t>(Space::kShared)) return NoFormFor("shared memory");
        if (i.imm[0] == static_cast<int64_t>(Space::kTile) && ++tiles > kTilesMax)
          return NoFormFor("more than eight tiles");
        break;
      case Code::kDot:
        if (i.lanes != 4 && i.lanes != 8 && i.lanes != 16)
          return NoFormFor(absl::StrCat("DOT of ", i.lanes, " lanes"));
        break;
      case Code::kAlu:
        if (absl::Status status = AluEmitter::Supports(i.op, i.dtype); !status.ok()) return status;
        break;
      default: break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

ProgramPrinter::ProgramPrinter(const Program& program, const std::vector<int64_t>& vars,
                               llvm::Module& module, llvm::Function* function)
    : ScopePrinter(module.getContext(), Counters::kWide),
      program_(program),
      module_(module),
      function_(function),
      alu_(b_),
      bounds_(BoundsOf(program)),
      vars_(vars),
      used_(program.code.size(), false),
      addressed_(program.code.size()),
      values_(program.code.size(), nullptr) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  b_.setFastMathFlags(flags);
}

void ProgramPrinter::Run() {
  FindUses();
  b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
  OpenMemories();
  OpenTiles();
  Value* const begin = function_->getArg(function_->arg_size() - 2);
  Value* const end = function_->getArg(function_->arg_size() - 1);
  const ValueId first = program_.FirstOfBlocks();
  const bool loops = program_.Extent(Grid::kBlock) > 1;
  const auto count = static_cast<ValueId>(program_.code.size());
  for (ValueId n = 0; n < count; ++n) {
    if (n == first) {
      // One task is a branch: a call with an empty range of tasks must write nothing.
      if (loops) {
        task_ = OpenLoop(begin, end, /*sure=*/false);
      } else {
        task_ = b_.getInt64(0);
        OpenIf(b_.CreateICmpSLT(begin, end));
      }
    }
    Print(n);
  }
  FlushStores();
  if (first < count) {
    if (loops)
      CloseLoop();
    else
      CloseIf();
  }
  CloseTiles();
  b_.CreateRetVoid();
}

void ProgramPrinter::NeedAddress(ValueId memory, ValueId index) {
  // Constants are added at the access.
  while (true) {
    const Instruction& i = at(index);
    if (i.code == Code::kConst) return;
    if (i.code != Code::kAlu || i.op != Op::kAdd || at(i.src[1]).code != Code::kConst) break;
    index = i.src[0];
  }
  auto& memories = addressed_[index];
  if (std::find(memories.begin(), memories.end(), memory) == memories.end())
    memories.push_back(memory);
}

void ProgramPrinter::FindUses() {
  const auto use = [&](ValueId n) { used_[n] = true; };
  const auto use_mask = [&](ValueId n) {
    const Mask mask = MaskOf(n);
    for (const ValueId s : mask.uniform) use(s);
    for (const ValueId s : mask.varying) use(s);
  };
  // Sources come before what uses them.
  for (size_t number = program_.code.size(); number-- > 0;) {
    const auto n = static_cast<ValueId>(number);
    const Instruction& i = at(n);
    for (const ValueId memory : addressed_[n]) {
      if (i.code == Code::kAlu && i.op == Op::kAdd) {
        NeedAddress(memory, i.src[0]);
        use(i.src[1]);
      } else {
        use(n);
      }
    }
    if (!used_[n] && (program::IsPure(i.code) || i.code == Code::kLoad)) continue;
    switch (i.code) {
      case Code::kLoad:
      case Code::kStore: {
        if (at(i.src[1]).lanes == 1) {
          NeedAddress(i.src[0], i.src[1]);
        } else if (const auto lanes = LaneIndexOf(i.src[1])) {
          if (lanes->base >= 0) NeedAddress(i.src[0], lanes->base);
        } else {
          use(i.src[1]);
        }
        const size_t mask = i.code == Code::kLoad ? 2 : 3;
        if (i.code == Code::kStore) use(i.src[2]);
        if (i.src.size() > mask) use_mask(i.src[mask]);
        if (i.src.size() > 3 && i.code == Code::kLoad && !IsZero(i.src[3])) use(i.src[3]);
        break;
      }
      case Code::kTileLoad:
      case Code::kTileStore: NeedAddress(i.src[1], i.src[2]); break;
      case Code::kLanes:
        if (const auto shuffle = ShuffleOf(n)) {
          use(shuffle->first);
          if (shuffle->second >= 0) use(shuffle->second);
          break;
        }
        for (const ValueId s : i.src) use(s);
        break;
      default:
        for (const ValueId s : i.src) use(s);
        break;
    }
  }
}

void ProgramPrinter::Print(ValueId n) {
  const Instruction& i = at(n);
  switch (i.code) {
    case Code::kLoop:
    case Code::kEnd:
    case Code::kIf:
    case Code::kEndIf: FlushStores(); break;
    case Code::kLoad:
      if (MayTouchPending(n)) FlushStores();
      break;
    default: break;
  }
  switch (i.code) {
    case Code::kBuffer:
    case Code::kAlloc: return;
    case Code::kLoop:
      values_[n] = OpenLoopOf(i, i.src.empty() ? nullptr : Of(i.src[0]));
      break;
    case Code::kEnd: CloseLoop(); return;
    case Code::kIf: OpenIf(Of(i.src[0])); return;
    case Code::kEndIf: CloseIf(); return;
    case Code::kStore: memories_.at(i.src[0]).is_private ? Store(n) : StoreLater(n); return;
    case Code::kTileZero:
    case Code::kTileLoad:
    case Code::kTileStore:
    case Code::kTileDot: TileInstruction(n); return;
    default:
      if (used_[n]) values_[n] = Compute(n);
      break;
  }
  for (const ValueId memory : addressed_[n]) MakePointer(memory, n);
}

// ---- the function

absl::Status PrintProgram(const Program& program, const std::string& name, llvm::Module& module) {
  if (absl::Status status = Supports(program); !status.ok()) return status;
  llvm::LLVMContext& context = module.getContext();
  Type *const ptr = llvm::PointerType::get(context, 0), *const i64 = Type::getInt64Ty(context);
  Type* const nothing = Type::getVoidTy(context);
  std::vector<bool> has_slot(program.buffer_count, false);
  std::vector<int64_t> vars;
  for (const Instruction& i : program.code) {
    if (i.code == Code::kBuffer) has_slot[i.imm[0]] = true;
    if (i.code == Code::kVar && std::find(vars.begin(), vars.end(), i.imm[0]) == vars.end())
      vars.push_back(i.imm[0]);
  }

  // The loops are a function of their own, whose arguments can say that buffers do not overlap.
  std::vector<Type*> types(program.buffer_count, ptr);
  types.insert(types.end(), vars.size() + 2, i64);
  auto* const body =
      llvm::Function::Create(llvm::FunctionType::get(nothing, types, false),
                             llvm::Function::InternalLinkage, name + ".body", module);
  for (int slot = 0; slot < program.buffer_count; ++slot)
    body->addParamAttr(slot, llvm::Attribute::NoAlias);
  auto* const entry =
      llvm::Function::Create(llvm::FunctionType::get(nothing, {ptr, i64, i64}, false),
                             llvm::Function::ExternalLinkage, name, module);
  for (llvm::Function* f : {body, entry}) {
    f->addFnAttr(llvm::Attribute::NoUnwind);
    f->addFnAttr("prefer-vector-width", "512");
  }
  body->addFnAttr(llvm::Attribute::NoInline);

  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "entry", entry));
  std::vector<Value*> arguments;
  for (int slot = 0; slot < program.buffer_count; ++slot)
    arguments.push_back(has_slot[slot]
                            ? static_cast<Value*>(b.CreateLoad(
                                  ptr, b.CreateGEP(ptr, entry->getArg(0), b.getInt64(slot))))
                            : llvm::ConstantPointerNull::get(b.getPtrTy()));
  if (!vars.empty()) {
    Value* const values =
        b.CreateLoad(ptr, b.CreateGEP(ptr, entry->getArg(0), b.getInt64(program.buffer_count)));
    for (const int64_t var : vars)
      arguments.push_back(b.CreateLoad(i64, b.CreateGEP(i64, values, b.getInt64(var))));
  }
  arguments.push_back(entry->getArg(1));
  arguments.push_back(entry->getArg(2));
  b.CreateCall(body, arguments);
  b.CreateRetVoid();

  ProgramPrinter(program, vars, module, body).Run();
  return absl::OkStatus();
}

}  // namespace outboard::render
