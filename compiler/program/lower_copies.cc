// Copies of operands (LOCAL) and panels (PANEL): values that are written to private memory where
// few loops are open, and read from there inside of more.
#include "compiler/program/lowering.h"

namespace outboard::program {

void Lowering::OpenCopies() {
  for (const codegen::Stage& stage : plan_->stages)
    stages_.push_back({stage.load, codegen::LayOut(kernel_, *plan_, stage)});
  codegen::PanelPlaces panels = codegen::PlacePanels(kernel_, *plan_);
  for (size_t i = 0; i < panels.places.size(); ++i)
    stages_.push_back({plan_->panels[i].value, panels.places[i].layout});
  panels_ = std::move(panels.places);
}

void Lowering::Allocate(Staged& staged) {
  if (plan_->CoreOf(staged.value) != nullptr) {
    staged.memory = b_.Alloc(Space::kPrivate, DType::kU32, staged.layout.elements / 2);
    return;
  }
  staged.memory = b_.Alloc(Space::kPrivate, staged.value->dtype, staged.layout.elements);
}

void Lowering::StagesAt(size_t level) {
  for (size_t i = 0; i < plan_->stages.size(); ++i) {
    if (plan_->stages[i].level != level) continue;
    // Reductions outside: as the source mostly lies in memory.
    std::vector<const codegen::StageDim*> order;
    for (const bool reduced : {true, false})
      for (const codegen::StageDim& dim : stages_[i].layout.dims)
        if (!dim.open && kernel_.ranges[dim.range].reduce == reduced) order.push_back(&dim);
    Allocate(stages_[i]);
    if (plan_->CoreOf(stages_[i].value) != nullptr) {
      PackOperand(stages_[i], order, 0);
      continue;
    }
    CopyStage(stages_[i], order, 0);
    staged_[stages_[i].value] = i;
  }
}

void Lowering::EndStagesAt(size_t level) {
  for (const codegen::Stage& stage : plan_->stages)
    if (stage.level == level) staged_.erase(stage.load);
  for (size_t i = 0; i < panels_.size(); ++i)
    if (panels_[i].level == level) {
      staged_.erase(plan_->panels[i].value);
      stages_[plan_->stages.size() + i].memory = -1;
    }
}

// Panels of this level that wait for groups before `group` only.
void Lowering::PanelsAt(size_t level, size_t group) {
  for (size_t i = 0; i < panels_.size(); ++i) {
    if (panels_[i].level != level || panels_[i].group != group) continue;
    const codegen::Panel& panel = plan_->panels[i];
    const size_t first = plan_->stages.size(), stage = first + i;
    // The memory of a panel of this level that nothing reads any more.
    for (size_t k = 0; k < panels_.size(); ++k)
      if (k != i && panels_[k].first_byte == panels_[i].first_byte &&
          stages_[first + k].memory >= 0 && stages_[first + k].value->dtype == panel.value->dtype &&
          stages_[first + k].layout.elements == panels_[i].layout.elements)
        stages_[stage].memory = stages_[first + k].memory;
    if (stages_[stage].memory < 0) Allocate(stages_[stage]);
    OverTile(panel.tile, [&] {
      GroupsWithin(RangeSet{1} << panel.tile.range, {panel.value});
      CopyStage(stages_[stage], {}, 0);
    });
    staged_[panel.value] = stage;
  }
}

void Lowering::CopyStage(const Staged& staged, const std::vector<const codegen::StageDim*>& order,
                         size_t next) {
  if (next < order.size()) {
    OverTile(*order[next]->tile, [&] { CopyStage(staged, order, next + 1); });
    return;
  }
  Statement(TiledRanges(kernel_.DepsOf(staged.value)), [&] {
    const ValueId value = Emit(staged.value);
    b_.Store(staged.memory, PlaceOf(staged), value);
  });
}

ValueId Lowering::PlaceOf(const Staged& staged) {
  ValueId place = BlockOf(staged);
  for (const codegen::StageDim& dim : staged.layout.dims)
    if (bound_[dim.range].tiled()) place = b_.Plus(place, b_.Times(local_[dim.range], dim.inside));
  return place;
}

ValueId Lowering::BlockOf(const Staged& staged, int64_t per_element) {
  ValueId place = b_.Int(0);
  for (const codegen::StageDim& dim : staged.layout.dims) {
    if (dim.open || dim.per_value == 0) continue;
    const Bound& bound = bound_[dim.range];
    // The tile that is open need not be that of the copy: a panel is read by other loops' tiles.
    place = b_.Plus(place, b_.Times(dim.blocked ? bound.step_in_block : bound.step,
                                    dim.per_value * bound.tile_step / per_element));
  }
  return place;
}

}  // namespace outboard::program
