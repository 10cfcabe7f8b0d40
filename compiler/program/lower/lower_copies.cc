// Copies of operands (LOCAL) and panels (PANEL): values that are written to private memory where
// few loops are open, and read from there inside of more.
//
// A copy of what is consecutive in memory along a reduction, but read with another range in lanes
// (the weights of a linear layer), would gather each vector from as many rows. It is made in
// squares instead: vectors along the rows are loaded, transposed and stored.
#include <algorithm>

#include "base/check.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/program/lower/transpose.h"

namespace outboard::program {

struct Lowering::Squares {
  const codegen::StageDim* along = nullptr;   // the range of the reduction
  const codegen::StageDim* across = nullptr;  // the range in lanes
  int64_t side = 0;

  // Whether the block of `across` that is open is a row of whole squares.
  bool Fit(const std::vector<Piece>& pieces) const {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].active != side || pieces[i].offset != static_cast<int64_t>(i) * side)
        return false;
    return true;
  }
};

void Lowering::OpenCopies() {
  for (const codegen::Stage& stage : plan_->stages)
    staged_.push_back({stage.load, codegen::LayOut(kernel_, *plan_, stage)});
  codegen::PanelPlaces panels = codegen::PlacePanels(kernel_, *plan_);
  for (size_t i = 0; i < panels.places.size(); ++i)
    staged_.push_back({plan_->panels[i].value, panels.places[i].layout});
  panels_ = std::move(panels.places);
  if (plan_->online.range < 0) return;
  online_level_ = codegen::OnlineLevel(kernel_, *plan_);
  for (const auto& phase : plan_->online.phases)
    for (const size_t g : phase)
      for (const UOp* node : kernel_.groups[g].nodes) {
        carried_[node] = staged_.size();
        staged_.push_back({node, codegen::LayOutCarried(kernel_, *plan_, node, online_level_)});
      }
}

void Lowering::Allocate(Staged& staged) {
  if (plan_->CoreOf(staged.value) != nullptr) {
    staged.memory = b_.Alloc(Space::kPrivate, DType::kU32, staged.layout.elements / 2);
    return;
  }
  staged.memory = b_.Alloc(Space::kPrivate, staged.value->dtype, staged.layout.elements);
}

void Lowering::MakeCopies(size_t level) {
  for (size_t i = 0; i < plan_->stages.size(); ++i) {
    if (plan_->stages[i].level != level) continue;
    // Reductions outside: as the source mostly lies in memory.
    std::vector<const codegen::StageDim*> order;
    for (const bool reduced : {true, false})
      for (const codegen::StageDim& dim : staged_[i].layout.dims)
        if (!dim.open && kernel_.ranges[dim.range].reduce == reduced) order.push_back(&dim);
    Allocate(staged_[i]);
    if (plan_->CoreOf(staged_[i].value) != nullptr) {
      cpu_matrix_->Pack(staged_[i], order);
      continue;
    }
    if (const std::optional<Squares> squares = SquaresOf(staged_[i])) {
      std::erase(order, squares->along);
      CopyInSquares(staged_[i], *squares, order, 0);
    } else {
      CopyStage(staged_[i], order, 0);
    }
    ReadStaged(staged_[i].value, i);
  }
}

void Lowering::ReadStaged(const UOp* value, size_t index) {
  read_staged_.insert(value);
  Provide(value, [this, index] {
    const Staged& staged = staged_[index];
    // Of a sum: see SumType.
    return b_.Cast(b_.Load(staged.memory, PlaceOf(staged)), staged.value->dtype);
  });
}

void Lowering::Unstage(const UOp* value) {
  if (read_staged_.erase(value) > 0) Withdraw(value);
}

void Lowering::EndCopies(size_t level) {
  for (const codegen::Stage& stage : plan_->stages)
    if (stage.level == level) Unstage(stage.load);
  for (size_t i = 0; i < panels_.size(); ++i)
    if (panels_[i].level == level) {
      Unstage(plan_->panels[i].value);
      staged_[plan_->stages.size() + i].memory = -1;
      window_ = {};
    }
  if (plan_->online.range >= 0 && level == online_level_)
    for (const auto& [node, stage] : carried_) Unstage(node);
}

// Panels of this level that wait for groups before `group` only.
void Lowering::PanelsAt(size_t level, size_t group) {
  for (size_t i = 0; i < panels_.size(); ++i) {
    if (panels_[i].level != level || panels_[i].group != group) continue;
    if (plan_->visible.range >= 0 && window_.first < 0) OpenWindow();
    MakePanel(i);
  }
}

void Lowering::MakePanel(size_t i) {
  const codegen::Panel& panel = plan_->panels[i];
  const size_t first = plan_->stages.size(), stage = first + i;
  if (staged_[stage].memory < 0) {
    // The memory of a panel of this level that nothing reads any more.
    for (size_t k = 0; k < panels_.size(); ++k)
      if (k != i && panels_[k].first_byte == panels_[i].first_byte &&
          staged_[first + k].memory >= 0 && staged_[first + k].value->dtype == panel.value->dtype &&
          staged_[first + k].layout.elements == panels_[i].layout.elements)
        staged_[stage].memory = staged_[first + k].memory;
    if (staged_[stage].memory < 0) Allocate(staged_[stage]);
  }
  OverTile(panel.tile, [&] {
    GroupsWithin(RangeSet{1} << panel.tile.range, {panel.value});
    CopyStage(staged_[stage], {}, 0);
  });
  ReadStaged(panel.value, stage);
}

void Lowering::CopyStage(const Staged& staged, const std::vector<const codegen::StageDim*>& order,
                         size_t next) {
  if (next < order.size()) {
    OverTile(*order[next]->tile, [&] { CopyStage(staged, order, next + 1); });
    return;
  }
  ForEachPoint(ranges_.Tiled(kernel_.DepsOf(staged.value)), [&] {
    const ValueId value = Emit(staged.value);
    b_.Store(staged.memory, PlaceOf(staged), value);
  });
}

std::optional<Lowering::Squares> Lowering::SquaresOf(const Staged& staged) const {
  Squares squares;
  for (const codegen::StageDim& dim : staged.layout.dims)
    if (dim.tile->lanes() > 1) squares.across = &dim, squares.side = dim.tile->lanes();
  if (squares.across == nullptr || squares.across->inside != 1) return std::nullopt;
  const int along = codegen::SquaresAlong(kernel_, staged.value, squares.side);
  for (const codegen::StageDim& dim : staged.layout.dims) {
    if (&dim == squares.across) continue;
    if (dim.range == along && dim.tile->rest.empty() && squares.side % dim.tile->step == 0) {
      squares.along = &dim;
    } else if (!dim.tile->plain()) {
      return std::nullopt;
    }
  }
  if (squares.along == nullptr) return std::nullopt;
  return squares;
}

void Lowering::CopyInSquares(const Staged& staged, const Squares& squares,
                             const std::vector<const codegen::StageDim*>& order, size_t next) {
  if (next < order.size()) {
    OverTile(*order[next]->tile, [&] { CopyInSquares(staged, squares, order, next + 1); });
  } else if (squares.Fit(*ranges_[squares.across->range].pieces)) {
    TransposeSquares(staged, squares);
  } else {
    CopyStage(staged, {squares.along}, 0);
  }
}

void Lowering::TransposeSquares(const Staged& staged, const Squares& squares) {
  const int along = squares.along->range, across = squares.across->range;
  const int64_t side = squares.side, step = squares.along->tile->step;
  const DType dtype = staged.value->dtype;
  OpenScope();
  // Rows of one piece to their end, so that few places of memory are read at a time.
  const ValueId piece = b_.Loop(static_cast<int64_t>(ranges_[across].pieces->size()));
  const ValueId first = b_.Times(piece, side);
  const ValueId square = b_.Loop(squares.along->tile->extent / side);
  const ValueId begin = b_.Times(square, side), number = b_.Times(square, side / step);
  ranges_[along] = {
      .base = begin, .step = number, .step_in_block = number, .tile_step = step};
  const ValueId place = b_.Plus(BlockOf(staged), first);

  const ValueId rows = b_.Alloc(Space::kPrivate, dtype, side * side);
  const ValueId across_before = ranges_[across].value;
  OpenScope();
  const ValueId row = b_.Loop(side, How::kUnroll);
  const auto lanes = static_cast<int>(side);
  const ValueId lane = ranges_.OpenLanes(along, lanes, lanes);
  ranges_[along].value = b_.Plus(begin, lane);
  ranges_[across].value = b_.Plus(b_.Plus(ranges_[across].base, first), row);
  b_.Store(rows, b_.Plus(b_.Times(row, side), lane), Emit(staged.value));
  ranges_.CloseLanes();
  b_.End(row);
  ranges_[across].value = across_before;
  CloseScope();

  std::vector<ValueId> vectors;
  for (int64_t i = 0; i < side; ++i)
    vectors.push_back(VectorAt(rows, b_.Int(i * side), lanes));
  Transpose(b_, vectors);
  for (int64_t k = 0; k < side; ++k) {
    const int64_t of_step =
        (k - k % step) * squares.along->per_value + k % step * squares.along->inside;
    b_.Store(staged.memory, b_.Plus(place, b_.Int(of_step)), vectors[k]);
  }
  ranges_.Close(along);
  b_.End(square);
  b_.End(piece);
  CloseScope();
}

const Staged& Lowering::StagedOf(const UOp* load) const {
  const auto staged = std::find_if(staged_.begin(), staged_.end(),
                                   [&](const Staged& s) { return s.value == load; });
  OB_CHECK(staged != staged_.end());  // the operands of a matrix unit are copied
  return *staged;
}

ValueId Lowering::VectorAt(ValueId memory, ValueId index, int lanes) {
  return b_.Add(
      {.code = Code::kLoad, .dtype = b_.at(memory).dtype, .lanes = lanes, .src = {memory, index}});
}

ValueId Lowering::PlaceOf(const Staged& staged) {
  ValueId place = BlockOf(staged);
  for (const codegen::StageDim& dim : staged.layout.dims)
    if (const OpenRange& range = ranges_[dim.range]; range.tiled())
      place = b_.Plus(place, b_.Times(range.in_tile, dim.inside));
  return place;
}

ValueId Lowering::BlockOf(const Staged& staged, int64_t per_element) {
  ValueId place = b_.Int(0);
  for (const codegen::StageDim& dim : staged.layout.dims) {
    if (dim.open || dim.per_value == 0) continue;
    const OpenRange& range = ranges_[dim.range];
    // The tile that is open need not be that of the copy: a panel is read by other loops' tiles.
    place = b_.Plus(place, b_.Times(dim.blocked ? range.step_in_block : range.step,
                                    dim.per_value * range.tile_step / per_element));
  }
  return place;
}

}  // namespace outboard::program
