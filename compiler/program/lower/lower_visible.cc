// Which steps of the loop of panels are run for a tile of rows: those that a mask leaves visible
// (compiler/optimize/operands/visible.h).
#include <algorithm>

#include "compiler/program/lower/lowering.h"

namespace outboard::program {

// From the first step that a row of the tile sees to the last one; at least one, in multiples.
void Lowering::OpenWindow() {
  const codegen::VisibleSteps& visible = plan_->visible;
  const int64_t extent = kernel_.ranges[visible.range].extent;
  const int64_t multiple = visible.multiple;
  Window window{b_.Int(0), b_.Int(extent)};
  for (const codegen::RowForm& form : visible.first)
    window.first = b_.Max(window.first, Extreme(form, /*greatest=*/false));
  window.first = b_.Times(b_.Divide(b_.Min(window.first, b_.Int(extent - 1)), multiple), multiple);
  for (const codegen::RowForm& form : visible.last)
    window.end = b_.Min(window.end, b_.Plus(Extreme(form, /*greatest=*/true), b_.Int(1)));
  window.end = b_.Max(window.end, b_.Plus(window.first, b_.Int(1)));
  const ValueId multiples = b_.Divide(b_.Plus(window.end, b_.Int(multiple - 1)), multiple);
  window.end = b_.Min(b_.Times(multiples, multiple), b_.Int(extent));
  if (!visible.guards.empty()) {
    const ValueId fail = GuardsFail(window);
    window.first = b_.Alu(Op::kWhere, DType::kI64, {fail, b_.Int(0), window.first});
    window.end = b_.Alu(Op::kWhere, DType::kI64, {fail, b_.Int(extent), window.end});
  }
  window_ = window;
}

ValueId Lowering::Extreme(const codegen::RowForm& form, bool greatest) {
  ValueId sum = b_.Int(form.constant);
  for (const auto& [range, coefficient] : form.terms) {
    const OpenRange& open = ranges_[range];
    const bool last = (coefficient > 0) == greatest;
    const int64_t offset = last && open.tiled() ? open.extent() - 1 : 0;
    sum = b_.Plus(sum, b_.Times(b_.Plus(open.base, b_.Int(offset)), coefficient));
  }
  return sum;
}

ValueId Lowering::GuardsFail(const Window& window) {
  const int range = plan_->visible.range;
  int lanes = 1;
  for (const Tile& tile : plan_->tiles) lanes = std::max(lanes, tile.lanes());
  const int64_t extent = kernel_.ranges[range].extent;
  const Tile tile = lanes > 1 ? codegen::VectorTile(range, extent, lanes, 1, /*masked=*/true)
                              : codegen::PlainTile(range, extent);
  // By lane: 1 where a value was not 0.
  const ValueId found = b_.Alloc(Space::kPrivate, DType::kF32, lanes);
  const ValueId one = b_.Const(DType::kF32, 1), zero = b_.Const(DType::kF32, 0);
  b_.Store(found, b_.Int(0), b_.Splat(zero, lanes));
  OverTile(tile, [&] {
    ForEachPoint(ranges_.Tiled(RangeSet{1} << range), [&] {
      const ValueId step = ranges_[range].value;
      ValueId hidden =
          b_.Alu(Op::kOr, DType::kBool,
                 {b_.Less(step, window.first), b_.Less(b_.Plus(window.end, b_.Int(-1)), step)});
      hidden = b_.And(hidden, ranges_.ActiveLanes(RangeSet{1} << range));
      const ValueId place = ranges_.lanes().range < 0 ? b_.Int(0) : ranges_.lanes().lane;
      for (const UOp* guard : plan_->visible.guards) {
        const ValueId value = Emit(guard);
        const ValueId other = b_.Alu(Op::kCmpNe, DType::kBool, {value, b_.Const(guard->dtype, 0)});
        const ValueId before = b_.Load(found, place);
        b_.Store(found, place,
                 b_.Alu(Op::kWhere, DType::kF32, {b_.And(hidden, other), one, before}));
      }
    });
  });
  Instruction load{.code = Code::kLoad, .dtype = DType::kF32, .lanes = lanes};
  load.src = {found, b_.Int(0)};
  const ValueId any = FoldLanes(Op::kMax, b_.Add(std::move(load)));
  return b_.Less(zero, any);
}

// The window begins and ends at a block of the tile, or at the extent.
void Lowering::OverWindow(const Tile& tile, const std::function<void()>& inside) {
  const auto with_tile = [&](ValueId step, const std::vector<Piece>& pieces) {
    OpenTile(tile, step, step, pieces);
    inside();
    ranges_.Close(tile.range);
  };
  if (tile.trips > 0) {
    OpenScope();
    const ValueId first = b_.Divide(window_.first, tile.step);
    const ValueId end = b_.Min(b_.Divide(b_.Plus(window_.end, b_.Int(tile.step - 1)), tile.step),
                              b_.Int(tile.trips));
    const ValueId loop = b_.Loop(tile.trips, How::kPlain, 1, b_.Plus(end, b_.Negated(first)));
    with_tile(b_.Plus(first, loop), tile.main);
    b_.End(loop);
    CloseScope();
  }
  if (tile.rest.empty()) return;
  OpenScope();
  const ValueId branch = b_.If(b_.Less(b_.Int(tile.trips * tile.step), window_.end));
  with_tile(b_.Int(tile.trips), tile.rest);
  b_.EndIf(branch);
  CloseScope();
}

}  // namespace outboard::program
