#include "compiler/program/hopper/product_copies.h"

#include <algorithm>
#include <vector>

#include "compiler/program/hopper/gather.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/program/hopper/tf32_stage.h"

namespace outboard::program {

void ProductCopies::Produce() {
  ring_.ForTiles([&](ValueId round, const TilePlace& place) {
    for (const RingAddend& addend : ring_.addends) {
      const ValueId step = b_.Loop(addend.steps);
      const StepPlace at = ring_.PlaceOfStep(round, addend, step);
      WaitUntilEmpty(at);
      FetchBoxes(addend, at.stage, StartOf(addend, step), place);
      b_.End(step);
    }
  });
}

void ProductCopies::WaitUntilEmpty(const StepPlace& at) {
  // Empty for the first iteration is what precedes phase 0: parity 1.
  const ValueId parity = b_.Plus(b_.Int(1), b_.Times(at.parity, -1));
  b_.Do(Code::kMbWait, {ring_.barriers, ring_.Empty(at.stage), parity});
}

ValueId ProductCopies::StartOf(const RingAddend& addend, ValueId step) {
  const ValueId k = b_.Times(step, ring_.depth);
  return ring_.tile.split > 1 ? b_.Plus(k, b_.Times(ring_.rank, addend.steps * ring_.depth)) : k;
}

void ProductCopies::FetchBoxes(const RingAddend& addend, ValueId stage, ValueId k,
                               const TilePlace& place) {
  int64_t elements = 0;
  for (const RingOperand* operand : {&addend.a, &addend.b})
    if (!operand->gathered) elements += operand->elements();
  b_.Do(Code::kMbExpect, {ring_.barriers, ring_.Full(stage)},
        {elements * ByteWidth(ring_.shape.dtype), 0, 0});
  const HopperAddend& of = ring_.shape.addends[&addend - ring_.addends.data()];
  if (!addend.a.gathered) Fetch(addend.a, of.a, stage, k, place.row, place.batch, 1);
  if (!addend.b.gathered)
    Fetch(addend.b, of.b, stage, k, place.column, place.batch, ring_.Partners());
}

void ProductCopies::ProduceTogether() {
  const int64_t behind = std::min({ring_.steps, ring_.tile.stages / 2, ring_.tile.stages - 2});
  const RingAddend& addend = ring_.addends[0];  // the only one
  const HopperAddend& of = ring_.shape.addends[0];
  ring_.ForTiles([&](ValueId round, const TilePlace& place) {
    const ValueId step = b_.Loop(ring_.steps);
    const StepPlace at = ring_.PlaceOfStep(round, step);
    WaitUntilEmpty(at);
    const ValueId k = StartOf(addend, step);
    if (!addend.a.gathered || !addend.b.gathered) {
      const ValueId one = b_.If(b_.Less(ring_.thread, b_.Int(1)));
      FetchBoxes(addend, at.stage, k, place);
      b_.EndIf(one);
    }
    if (addend.a.gathered) Gather(addend.a, of.a, gathers_.a, at.stage, place, k);
    if (addend.b.gathered) Gather(addend.b, of.b, gathers_.b, at.stage, place, k);
    b_.Do(Code::kCommit);
    const ValueId later = behind == 0 ? ValueId{-1} : b_.If(b_.Less(b_.Int(behind - 1), step));
    Deliver(ring_.StageBefore(round, step, behind), behind);
    if (behind > 0) b_.EndIf(later);
    b_.End(step);
    for (int64_t left = behind; left-- > 0;)
      Deliver(ring_.StageBefore(round, b_.Int(ring_.steps), left + 1), left);
  });
}

void ProductCopies::Gather(const RingOperand& staged, const HopperOperand& operand,
                           const GatherPlaces& places, ValueId stage, const TilePlace& place,
                           ValueId k) {
  GatherStage(b_,
              {staged.shared, ring_.shape.dtype, staged.tile_rows, operand.run, operand.along_rows,
               operand.rows_in_lanes},
              places,
              {b_.Times(stage, staged.elements()), place.batch,
               &operand == &ring_.shape.addends[0].a ? place.row : place.column, k},
              ring_.thread);
}

void ProductCopies::Deliver(ValueId stage, int64_t left) {
  b_.Do(Code::kWait, {}, {left, 0, 0});
  b_.Do(Code::kProxyFence);
  b_.Do(Code::kMbArrive, {ring_.barriers, ring_.Full(stage)});
}

void ProductCopies::Fetch(const RingOperand& operand, const HopperOperand& of, ValueId stage,
                          ValueId k, ValueId row, ValueId batch, int64_t partners) {
  const int64_t rows_each = operand.tile_rows / partners;
  const int64_t boxes = operand.along_rows ? rows_each / operand.wide() : 1;
  ValueId first = b_.Times(stage, operand.elements());
  if (partners > 1) {
    first = b_.Plus(first, b_.Times(ring_.rank, rows_each * ring_.depth));
    row = b_.Plus(row, b_.Times(ring_.rank, rows_each));
  }
  for (int64_t box = 0; box < boxes; ++box) {
    const ValueId to = b_.Plus(first, b_.Int(box * operand.piece()));
    std::vector<ValueId> src = {operand.shared, to, ring_.barriers, ring_.Full(stage), operand.map};
    const ValueId rows = b_.Plus(row, b_.Int(box * operand.wide()));
    for (const ValueId place : CoordinatesOf(b_, ring_.shape, of, batch, rows, k))
      src.push_back(place);
    b_.Do(Code::kBoxLoad, src, {partners > 1 ? (int64_t{1} << partners) - 1 : 0, 0, 0});
  }
}

void ProductCopies::MakeParts() {
  ring_.ForTiles([&](ValueId round, const TilePlace&) {
    for (const RingAddend& addend : ring_.runs_of_equal_layout) {
      const ValueId step = b_.Loop(addend.steps);
      const StepPlace at = ring_.PlaceOfStep(round, addend, step);
      b_.Do(Code::kMbWait, {ring_.barriers, ring_.Full(at.stage), at.parity});
      // For another addend other threads of the warp have written these places.
      if (ring_.runs_of_equal_layout.size() > 1) b_.Do(Code::kWarpSync);
      // Beside a B that is transposed, one that need not be is left as it is.
      if (ring_.shape.three_tf32 || addend.b.along_rows)
        MakePartsOfB(
            b_, {addend.b.shared, b_.Times(at.stage, addend.b.elements()), addend.b.along_rows},
            ring_.low_of_b, ring_.tile.columns, ring_.thread);
      b_.Do(Code::kProxyFence);
      b_.Do(Code::kMbArrive, {ring_.barriers, ring_.PartsMade(at.stage)});
      b_.End(step);
    }
  });
}

}  // namespace outboard::program
