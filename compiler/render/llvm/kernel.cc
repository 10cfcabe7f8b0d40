#include "compiler/render/llvm/kernel.h"

#include <bit>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::Loop;
using codegen::Piece;
using codegen::RangeSet;
using codegen::Tile;
using llvm::Type;
using llvm::Value;

namespace {

constexpr int kZeroBytes = 512;  // 64 lanes of 8 bytes

// Operations other than arithmetic that this class emits itself.
bool IsValueOp(Op op) {
  switch (op) {
    case Op::kSink:
    case Op::kStore:
    case Op::kLoad:
    case Op::kIndex:
    case Op::kGlobal:
    case Op::kRange:
    case Op::kVar:
    case Op::kReduceLoop:
    case Op::kConst:
    case Op::kCast:
    case Op::kBitcast: return true;
    default: return false;
  }
}

}  // namespace

KernelEmitter::KernelEmitter(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                             llvm::Module& module, llvm::Function* function)
    : kernel_(kernel),
      plan_(plan),
      module_(module),
      function_(function),
      b_(module.getContext()),
      alu_(b_) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  b_.setFastMathFlags(flags);
  bound_.resize(kernel.ranges.size());
  block_.resize(kernel.ranges.size());
  for (const codegen::ReduceGroup& group : kernel.groups) {
    size_t level = plan.LevelOfGroup(group);
    if (group.deps & ~kernel.OutputSet()) level = SIZE_MAX;  // see ReduceLoops
    group_level_.push_back(level);
  }
}

void KernelEmitter::Run() {
  scopes_ = std::make_unique<Scopes>(
      b_, llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
  Value* const begin = function_->getArg(function_->arg_size() - 2);
  Value* const end = function_->getArg(function_->arg_size() - 1);
  Type* const zeros = llvm::ArrayType::get(b_.getInt8Ty(), kZeroBytes);
  for (const UOp* node : kernel_.nodes)
    if (node->op == Op::kLoad && node->src.size() == 3 && zeros_ == nullptr) {
      auto* const memory = b_.CreateAlloca(zeros);
      memory->setAlignment(llvm::Align(64));
      b_.CreateMemSet(memory, b_.getInt8(0), kZeroBytes, llvm::Align(64));
      zeros_ = memory;
    }
  for (const UOp* store : kernel_.stores)
    if (store->src.size() == 3 && discard_ == nullptr) discard_ = b_.CreateAlloca(zeros);
  OpenScratch();
  OpenTiles();
  GroupsAt(0);
  if (plan_.task_loops == 0) {
    // One task; a call with an empty range of tasks must write nothing.
    scopes_->EnterCurrent();
    scopes_->OpenIf(b_.CreateICmpSLT(begin, end));
    StagesAt(0);
    Outputs(0);
    scopes_->CloseIf();
  } else {
    OpenTasks(begin, end);
  }
  scopes_->EnterCurrent();
  CloseTiles();
  b_.CreateRetVoid();
}

// Task t is a step of each of the first loops: t = (step0 * steps1 + step1) * steps2 + ...
void KernelEmitter::OpenTasks(Value* begin, Value* end) {
  Value* const task = scopes_->OpenLoop(begin, end, 1, /*sure=*/false);
  std::vector<std::pair<Value*, bool>> blocks(plan_.task_loops);
  Value* left = task;
  for (int i = plan_.task_loops - 1; i > 0; --i) {
    Value* const count = b_.getInt64(plan_.trips(plan_.loops[i]));
    blocks[i].first = b_.CreateURem(left, count);
    left = b_.CreateUDiv(left, count);
  }
  blocks[0].first = left;
  TaskBlock(task, 0, blocks);
  scopes_->CloseLoop();
}

// Branches on which of the tiles' blocks is the short one at the end of its range, then binds the
// ranges, all in one scope. Depth: the number of task loops.
void KernelEmitter::TaskBlock(Value* task, size_t level,
                              std::vector<std::pair<Value*, bool>>& blocks) {
  if (level < blocks.size()) {
    const Tile& tile = plan_.tiles[plan_.loops[level].range];
    blocks[level].second = tile.trips == 0;
    if (plan_.loops[level].block > 0 || tile.rest.empty() || tile.trips == 0) {
      TaskBlock(task, level + 1, blocks);
      return;
    }
    scopes_->EnterCurrent();
    scopes_->OpenIf(b_.CreateICmpULT(blocks[level].first, b_.getInt64(tile.trips)));
    TaskBlock(task, level + 1, blocks);
    scopes_->Else();
    blocks[level].second = true;
    TaskBlock(task, level + 1, blocks);
    scopes_->CloseIf();
    return;
  }
  scopes_->EnterCurrent();
  std::vector<Value*> bases;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Loop& loop = plan_.loops[i];
    const Tile& tile = plan_.tiles[loop.range];
    const int64_t step = loop.block > 0 ? loop.block : tile.step;
    bases.push_back(plan_.trips(loop) == 1 ? b_.getInt64(0)
                                           : b_.CreateMul(blocks[i].first, b_.getInt64(step)));
  }
  Value* needed = nullptr;  // the task lies before the end of each range; null: no range has one
  for (size_t i = 0; i < blocks.size(); ++i)
    if (Value* const end = EndOf(plan_.loops[i].range)) {
      Value* const before = b_.CreateICmpSLT(bases[i], end);
      needed = needed == nullptr ? before : b_.CreateAnd(needed, before);
    }
  if (needed != nullptr) scopes_->OpenIf(needed);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Loop& loop = plan_.loops[i];
    const Tile& tile = plan_.tiles[loop.range];
    if (loop.block > 0) {
      BindBlock(loop, bases[i]);
    } else {
      Bind(tile, bases[i], blocks[i].second ? tile.rest : tile.main);
    }
  }
  Inside(blocks.size());
  for (size_t i = blocks.size(); i-- > 0;) {
    const Loop& loop = plan_.loops[i];
    if (loop.block > 0) {
      block_[loop.range] = {};
    } else {
      Unbind(loop.range);
    }
  }
  if (needed != nullptr) scopes_->CloseIf();
}

void KernelEmitter::Inside(size_t level) {
  StagesAt(level);
  GroupsAt(level);
  Outputs(level);
  EndStagesAt(level);
}

// Depth: the number of output loops.
void KernelEmitter::Outputs(size_t level) {
  if (level == plan_.loops.size()) {
    Stores();
    return;
  }
  const Loop& loop = plan_.loops[level];
  const Tile& tile = plan_.tiles[loop.range];
  if (loop.block == 0) {
    OverTile(tile, [&] { Inside(level + 1); });
    return;
  }
  Value* const range_end = EndOf(loop.range);
  scopes_->EnterCurrent();
  BindBlock(loop, scopes_->OpenLoop(b_.getInt64(0),
                                    range_end == nullptr ? b_.getInt64(tile.extent) : range_end,
                                    loop.block, /*sure=*/range_end == nullptr));
  Inside(level + 1);
  block_[loop.range] = {};
  scopes_->CloseLoop();
}

void KernelEmitter::BindBlock(const Loop& loop, Value* begin) {
  Value* const extent = b_.getInt64(plan_.tiles[loop.range].extent);
  Value* const end = b_.CreateAdd(begin, b_.getInt64(loop.block));
  block_[loop.range] = {begin, b_.CreateSelect(b_.CreateICmpSLT(end, extent), end, extent),
                        scopes_->current()};
}

Value* KernelEmitter::EndOf(int range) {
  const UOp* const end = kernel_.ranges[range].end();
  if (end == nullptr) return nullptr;
  Value *const value = Emit(end, 0), *const extent = b_.getInt64(kernel_.ranges[range].extent);
  return b_.CreateSelect(b_.CreateICmpSLT(value, extent), value, extent);
}

// Inside of a longer block of the tile's range, that part of the tile's blocks. A range that has an
// end stops with the block in which that lies: what a block computes beyond is within the extent,
// and nobody's.
void KernelEmitter::OverTile(const Tile& tile, const std::function<void()>& inside) {
  const auto bound = [&](Value* base, const std::vector<Piece>& pieces) {
    Bind(tile, base, pieces);
    inside();
    Unbind(tile.range);
  };
  const Block block = block_[tile.range];
  const int64_t whole = tile.trips * tile.step;
  Value* const range_end = EndOf(tile.range);
  if (block.begin != nullptr) {
    scopes_->EnterCurrent();
    Value* end = block.end;
    if (!tile.rest.empty()) {
      Value* const most = b_.getInt64(whole);
      end = b_.CreateSelect(b_.CreateICmpSLT(end, most), end, most);
    }
    bound(scopes_->OpenLoop(block.begin, end, tile.step, /*sure=*/tile.rest.empty()), tile.main);
    scopes_->CloseLoop();
  } else if (tile.trips == 1) {
    bound(b_.getInt64(0), tile.main);
  } else if (tile.trips > 1) {
    Value* const most = b_.getInt64(whole);
    const bool sure = range_end == nullptr;
    Value* const end =
        sure ? most : b_.CreateSelect(b_.CreateICmpSLT(range_end, most), range_end, most);
    bound(scopes_->OpenLoop(b_.getInt64(0), end, tile.step, sure), tile.main);
    scopes_->CloseLoop();
  }
  if (tile.rest.empty()) return;
  if (block.begin != nullptr || range_end != nullptr) {
    scopes_->EnterCurrent();
    scopes_->OpenIf(block.begin != nullptr ? b_.CreateICmpEQ(block.end, b_.getInt64(tile.extent))
                                           : b_.CreateICmpSGT(range_end, b_.getInt64(whole)));
    bound(b_.getInt64(whole), tile.rest);
    scopes_->CloseIf();
  } else {
    bound(b_.getInt64(whole), tile.rest);
  }
}

void KernelEmitter::Bind(const Tile& tile, Value* base, const std::vector<Piece>& pieces) {
  Bound& bound = bound_[tile.range];
  OB_CHECK(bound.base == nullptr);
  bound = {base, scopes_->current(), &pieces, -1, tile.step};
  if (pieces.size() == 1 && pieces[0].lanes == 1) return;
  bound.number = static_cast<int>(range_of_number_.size());
  OB_CHECK(bound.number < 8 && pieces.size() < 256);
  range_of_number_.push_back(tile.range);
}

void KernelEmitter::Unbind(int range) {
  if (bound_[range].number >= 0) {
    OB_CHECK(range_of_number_.back() == range);
    range_of_number_.pop_back();
  }
  bound_[range] = {};
  // A value of the same scope may have been made for this binding (a range run in one block opens
  // no scope), and another binding of the range would find it.
  absl::erase_if(scopes_->at(scopes_->current()).values,
                 [&](const auto& entry) { return kernel_.DepsOf(entry.first.first) >> range & 1; });
}

void KernelEmitter::GroupsAt(size_t level) {
  for (size_t i = 0; i < kernel_.groups.size(); ++i) {
    PanelsAt(level, i);
    if (group_level_[i] == level) Group(static_cast<int>(i));
  }
  PanelsAt(level, kernel_.groups.size());
}

// All values before all stores: a buffer may be updated in place, where it is read at the same
// element.
void KernelEmitter::Stores() {
  std::vector<std::pair<const UOp*, std::pair<Coords, Value*>>> pending;
  for (const UOp* store : kernel_.stores)
    for (const Coords coords : Points(kernel_.DepsOf(store))) {
      pending.push_back({store, {coords, Emit(store->src[1], coords)}});
      for (const auto& [term, coefficient] : forms_.Of(store->src[0]->src[1]).terms)
        if (term->op != Op::kRange) Emit(term, coords);
      if (store->src.size() < 3) continue;
      for (const UOp* condition : Conjuncts(store->src[2])) Emit(condition, coords);
    }
  scopes_->EnterCurrent();
  for (const auto& [store, value] : pending) Store(store, value.first, value.second);
}

// ---- dependences
// -------------------------------------------------------------------------------------------

int KernelEmitter::ScopeOf(RangeSet deps) const {
  int scope = 0;
  for (; deps != 0; deps &= deps - 1) scope = std::max(scope, bound_[std::countr_zero(deps)].scope);
  return scope;
}

Coords KernelEmitter::MaskOf(RangeSet deps) const {
  Coords mask = 0;
  for (; deps != 0; deps &= deps - 1) {
    const int number = bound_[std::countr_zero(deps)].number;
    if (number >= 0) mask |= Coords{255} << (8 * number);
  }
  return mask;
}

const Piece& KernelEmitter::PieceOf(int range, Coords coords) const {
  const Bound& bound = bound_[range];
  OB_CHECK(bound.base != nullptr);
  return (*bound.pieces)[bound.number < 0 ? 0 : coords >> (8 * bound.number) & 255];
}

int KernelEmitter::LanesOf(RangeSet deps, Coords coords, int* range) const {
  for (; deps != 0; deps &= deps - 1) {
    const int r = std::countr_zero(deps);
    if (bound_[r].number < 0) continue;
    const int lanes = PieceOf(r, coords).lanes;
    if (lanes == 1) continue;
    if (range != nullptr) *range = r;
    return lanes;
  }
  return 1;
}

std::vector<Coords> KernelEmitter::Points(RangeSet ranges) const {
  std::vector<Coords> points = {0};
  for (const int range : range_of_number_) {
    if (!(ranges >> range & 1)) continue;
    std::vector<Coords> more;
    for (const Coords point : points)
      for (size_t i = 0; i < bound_[range].pieces->size(); ++i)
        more.push_back(point | Coords{i} << (8 * bound_[range].number));
    points = std::move(more);
  }
  return points;
}

Value* KernelEmitter::ActiveMask(int lanes, int active) {
  std::vector<llvm::Constant*> mask;
  for (int i = 0; i < lanes; ++i) mask.push_back(b_.getInt1(i < active));
  return llvm::ConstantVector::get(mask);
}

std::vector<const UOp*> Conjuncts(const UOp* gate) {
  std::vector<const UOp*> out, stack = {gate};
  while (!stack.empty()) {
    const UOp* const top = stack.back();
    stack.pop_back();
    if (top->op == Op::kAnd && IsBool(top->dtype)) {
      stack.push_back(top->src[1]);
      stack.push_back(top->src[0]);
    } else {
      out.push_back(top);
    }
  }
  return out;
}

// ---- the function
// -------------------------------------------------------------------------------------------------

absl::Status EmitKernel(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                        const std::string& name, llvm::Module& module) {
  for (const UOp* node : kernel.nodes)
    if (!IsValueOp(node->op))
      if (absl::Status status = AluEmitter::Supports(node->op, node->dtype); !status.ok())
        return status;
  llvm::LLVMContext& context = module.getContext();
  Type *const ptr = llvm::PointerType::get(context, 0), *const i64 = Type::getInt64Ty(context);
  Type* const nothing = Type::getVoidTy(context);

  // The loops are a function of their own, whose arguments can say that buffers do not overlap.
  std::vector<int64_t> slots;
  for (size_t slot = 0; slot < kernel.slot_elements.size(); ++slot)
    if (kernel.slot_elements[slot] >= 0) slots.push_back(static_cast<int64_t>(slot));
  std::vector<Type*> types(kernel.slot_elements.size(), ptr);
  types.insert(types.end(), kernel.vars.size() + 2, i64);
  auto* const body =
      llvm::Function::Create(llvm::FunctionType::get(nothing, types, false),
                             llvm::Function::InternalLinkage, name + ".body", module);
  for (size_t i = 0; i < kernel.slot_elements.size(); ++i)
    body->addParamAttr(i, llvm::Attribute::NoAlias);
  auto* const entry =
      llvm::Function::Create(llvm::FunctionType::get(nothing, {ptr, i64, i64}, false),
                             llvm::Function::ExternalLinkage, name, module);
  for (llvm::Function* f : {body, entry}) {
    f->addFnAttr(llvm::Attribute::NoUnwind);
    f->addFnAttr("prefer-vector-width", "512");
  }
  body->addFnAttr(llvm::Attribute::NoInline);

  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "entry", entry));
  std::vector<Value*> arguments(kernel.slot_elements.size(),
                                llvm::ConstantPointerNull::get(b.getPtrTy()));
  for (const int64_t slot : slots)
    arguments[slot] = b.CreateLoad(ptr, b.CreateGEP(ptr, entry->getArg(0), b.getInt64(slot)));
  if (!kernel.vars.empty()) {
    const auto count = static_cast<int64_t>(kernel.slot_elements.size());
    Value* const values = b.CreateLoad(ptr, b.CreateGEP(ptr, entry->getArg(0), b.getInt64(count)));
    for (const UOp* var : kernel.vars)
      arguments.push_back(
          b.CreateLoad(i64, b.CreateGEP(i64, values, b.getInt64(VarOf(var).slot()))));
  }
  arguments.push_back(entry->getArg(1));
  arguments.push_back(entry->getArg(2));
  b.CreateCall(body, arguments);
  b.CreateRetVoid();

  KernelEmitter(kernel, plan, module, body).Run();
  return absl::OkStatus();
}

}  // namespace outboard::render
