// Copies the operands of a matrix unit into the order that
// compiler/optimize/operands/cpu_matrix_unit.h defines, as pairs of bf16 in u32.
//
// It is made in squares of 16 pairs of steps by 16 rows or columns, in vectors of 16 pairs, along
// whichever of the two is consecutive in memory; where that is not the order that is wanted, the
// square is transposed: lanes of two vectors make a new one, in four rounds.
#include <algorithm>
#include <array>

#include "compiler/kernel/affine.h"
#include "compiler/program/lower/cpu_matrix_lowering.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/program/lower/transpose.h"

namespace outboard::program {

using codegen::kCoreColumns;
using codegen::kCoreSteps;
using codegen::StageDim;
using codegen::CpuMatrixUnit;

namespace {

constexpr int kPairs = kCoreSteps / 2;
static_assert(kPairs == kCoreColumns);  // squares
using Vectors = std::array<ValueId, kPairs>;

}  // namespace

// 16 rows or columns, or so many as there are, by the 32 steps of a block, or so many.
struct CpuMatrixLowering::Square {
  int across = -1, inner = -1;  // ranges
  int64_t first = 0;            // of the rows or columns, from the tile's base
  int64_t lines = 0, steps = 0;
  bool along = false;  // steps are consecutive in memory
};

void CpuMatrixLowering::Pack(const Staged& staged, const std::vector<const StageDim*>& order,
                           size_t next) {
  if (next < order.size()) {
    lowering_.OverTile(*order[next]->tile, [&] { Pack(staged, order, next + 1); });
    return;
  }
  const UOp* const load = staged.value;
  const CpuMatrixUnit& core = *plan_.CoreOf(load);
  // How many values of a range the block holds that is open: that of its rest may be shorter.
  const auto count = [&](int range) -> int64_t {
    const Tile* tile = nullptr;
    for (const StageDim& dim : staged.layout.dims)
      if (dim.range == range) tile = dim.tile;
    return ranges_[range].pieces == &tile->rest ? tile->extent % tile->step : tile->step;
  };
  codegen::AffineForms forms;
  Square square{.across = load == core.rows ? core.row_range : core.column_range,
                .inner = core.inner_range};
  square.along =
      forms.Of(load->src[0]->src[1]).CoefficientOf(kernel_.ranges[core.inner_range].node) == 1;
  const int64_t width = count(square.across);
  square.steps = count(square.inner);
  for (; square.first < width; square.first += kCoreColumns) {
    square.lines = std::min<int64_t>(kCoreColumns, width - square.first);
    lowering_.OpenScope();
    PackSquare(staged, square);
    lowering_.CloseScope();
  }
}

void CpuMatrixLowering::PackSquare(const Staged& staged, const Square& square) {
  const UOp* const load = staged.value;
  const CpuMatrixUnit& core = *plan_.CoreOf(load);
  const bool rows = load == core.rows;
  // What is loaded, in vectors of 32 steps or 16 lines. Those that are not there are zeros.
  const int64_t vectors = square.along ? square.lines : square.steps;
  const int lanes = square.along ? kCoreSteps : kCoreColumns;
  const ValueId loaded =
      b_.Alloc(Space::kPrivate, square.along ? DType::kBF16 : DType::kU32, vectors * lanes);
  OpenRange &steps = ranges_[square.inner], &lines = ranges_[square.across];
  const ValueId step_before = steps.value, line_before = lines.value;
  lowering_.OpenScope();
  const ValueId vector = b_.Loop(vectors, How::kUnroll);
  const ValueId lane =
      ranges_.OpenLanes(square.along ? square.inner : square.across, lanes,
                        static_cast<int>(square.along ? square.steps : square.lines));
  const ValueId step = square.along ? lane : vector;
  const ValueId line = b_.Plus(b_.Int(square.first), square.along ? vector : lane);
  steps.value = b_.Plus(steps.base, step);
  lines.value = b_.Plus(lines.base, line);
  ValueId value = lowering_.Emit(load);
  if (!square.along)
    value = b_.Add(
        {.code = Code::kBitcast, .dtype = DType::kU32, .src = {b_.Cast(value, DType::kF32)}});
  b_.Store(loaded, b_.Plus(b_.Times(vector, lanes), lane), value);
  ranges_.CloseLanes();
  b_.End(vector);
  steps.value = step_before;
  lines.value = line_before;
  lowering_.CloseScope();

  const auto at = [&](int64_t number) {
    return lowering_.VectorAt(loaded, b_.Int(number * lanes), lanes);
  };
  Vectors pairs;
  pairs.fill(b_.Splat(b_.Const(DType::kU32, 0), kPairs));
  if (square.along) {
    for (int64_t i = 0; i < square.lines; ++i)
      pairs[i] =
          b_.Add({.code = Code::kBitcast, .dtype = DType::kU32, .lanes = kPairs, .src = {at(i)}});
  } else {
    const ValueId half = b_.Splat(b_.Const(DType::kU32, 16), kPairs);
    for (int64_t i = 0; i < square.steps; i += 2) {  // an f32 that was a bf16 has it on top
      ValueId pair = b_.Alu(Op::kShr, DType::kU32, {at(i), half});
      if (i + 1 < square.steps) pair = b_.Alu(Op::kOr, DType::kU32, {pair, at(i + 1)});
      pairs[i / 2] = pair;
    }
  }
  if (square.along != rows) Transpose(b_, pairs);
  // What the square's lines are now: rows, or pairs of steps. Tiles read whole squares of rows;
  // of vectors, rows that there are not have no place.
  const auto line_of = [&](int range) {
    return std::find_if(staged.layout.dims.begin(), staged.layout.dims.end(),
                        [&](const StageDim& dim) { return dim.range == range; });
  };
  const int64_t across = line_of(square.across)->inside / 2;
  const int64_t stride = rows ? across : line_of(square.inner)->inside;
  const bool fewer = rows && core.by == codegen::Bf16Products::kVectors;
  const ValueId first = b_.Plus(lowering_.BlockOf(staged, 2), b_.Int(square.first * across));
  for (int64_t i = 0; i < (fewer ? square.lines : kPairs); ++i)
    b_.Store(staged.memory, b_.Plus(first, b_.Int(i * stride)), pairs[i]);
}

}  // namespace outboard::program
