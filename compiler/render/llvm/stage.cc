// Staged loads and panels: the copy, and loads from it.
#include "base/check.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::RangeSet;
using codegen::StageDim;
using llvm::Align;
using llvm::Type;
using llvm::Value;

void KernelEmitter::OpenScratch() {
  int64_t bytes = 0;
  for (const codegen::Stage& stage : plan_.stages) {
    stages_.push_back({stage.load, codegen::LayOut(kernel_, plan_, stage), bytes, nullptr});
    bytes += stages_.back().layout.bytes();
  }
  codegen::PanelPlaces panels = codegen::PlacePanels(kernel_, plan_);
  for (size_t i = 0; i < panels.places.size(); ++i)
    stages_.push_back({plan_.panels[i].value, panels.places[i].layout,
                       bytes + panels.places[i].first_byte, nullptr});
  panels_ = std::move(panels.places);
  bytes += panels.bytes;
  if (bytes == 0) return;
  Type* const ptr = b_.getPtrTy();
  const llvm::FunctionCallee scratch = module_.getOrInsertFunction(
      "outboard_scratch", llvm::FunctionType::get(ptr, {b_.getInt64Ty()}, false));
  Value* const memory = b_.CreateCall(scratch, {b_.getInt64(bytes)});
  for (Staged& stage : stages_)
    stage.memory = b_.CreateGEP(b_.getInt8Ty(), memory, b_.getInt64(stage.first_byte));
}

void KernelEmitter::StagesAt(size_t level) {
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    if (plan_.stages[i].level != level) continue;
    std::vector<const StageDim*> order;  // reductions outside: as the source mostly lies in memory
    for (const bool reduced : {true, false})
      for (const StageDim& dim : stages_[i].layout.dims)
        if (!dim.open && kernel_.ranges[dim.range].reduce == reduced) order.push_back(&dim);
    if (plan_.CoreOf(plan_.stages[i].load) != nullptr) {
      PackOperand(static_cast<int>(i), order, 0);
      continue;
    }
    CopyStage(static_cast<int>(i), order, 0);
    staged_[plan_.stages[i].load] = static_cast<int>(i);
  }
}

void KernelEmitter::EndStagesAt(size_t level) {
  for (const codegen::Stage& stage : plan_.stages)
    if (stage.level == level) staged_.erase(stage.load);
  for (size_t i = 0; i < panels_.size(); ++i)
    if (panels_[i].level == level) staged_.erase(plan_.panels[i].value);
}

// Panels of this level that wait for groups before `group` only.
void KernelEmitter::PanelsAt(size_t level, size_t group) {
  for (size_t i = 0; i < panels_.size(); ++i) {
    if (panels_[i].level != level || panels_[i].group != group) continue;
    const codegen::Panel& panel = plan_.panels[i];
    const auto stage = static_cast<int>(plan_.stages.size() + i);
    OverTile(panel.tile, [&] {
      GroupsInside(RangeSet{1} << panel.tile.range, {panel.value});
      CopyStage(stage, {}, 0);
    });
    staged_[panel.value] = stage;
  }
}

// Depth: the ranges of a kernel.
void KernelEmitter::CopyStage(int stage, const std::vector<const StageDim*>& order, size_t next) {
  if (next < order.size()) {
    OverTile(*order[next]->tile, [&] { CopyStage(stage, order, next + 1); });
    return;
  }
  const UOp* const copied = stages_[stage].value;
  for (const Coords coords : Points(kernel_.DepsOf(copied))) {
    Value* const value = Emit(copied, coords);
    Value* const place = StagedPointer(stage, coords);
    b_.CreateAlignedStore(value, place, Align(stages_[stage].layout.element_bytes));
  }
}

Value* KernelEmitter::StagedPointer(int stage, Coords coords) {
  const Staged& staged = stages_[stage];
  int64_t constant = 0;
  TermsByScope terms;
  for (const StageDim& dim : staged.layout.dims) {
    const Bound& bound = bound_[dim.range];
    constant += PieceOf(dim.range, coords).offset * dim.inside;
    if (dim.open || dim.per_value == 0) continue;
    const auto factor = static_cast<uint64_t>(dim.per_value);
    if (const auto* number = llvm::dyn_cast<llvm::ConstantInt>(bound.base)) {
      constant += number->getSExtValue() * dim.per_value;
    } else {
      terms[bound.scope].emplace_back(bound.base, factor);
    }
    if (dim.blocked) {
      const Block& block = block_[dim.range];
      terms[block.scope].emplace_back(block.begin, uint64_t{0} - factor);
    }
  }
  const bool as_in_memory = staged.layout.element_bytes == ByteWidth(staged.value->dtype);
  Type* const element = as_in_memory ? MemoryType(b_.getContext(), staged.value->dtype)
                                     : RegisterType(b_.getContext(), staged.value->dtype);
  return PointerBy(staged.memory, element, terms, static_cast<uint64_t>(constant));
}

Value* KernelEmitter::LoadStaged(const UOp* node, Coords coords, int lanes) {
  const int stage = staged_.at(node);
  Type* type = RegisterType(b_.getContext(), node->dtype);
  if (lanes > 1) type = llvm::FixedVectorType::get(type, lanes);
  return b_.CreateAlignedLoad(type, StagedPointer(stage, coords),
                              Align(stages_[stage].layout.element_bytes));
}

}  // namespace outboard::render
