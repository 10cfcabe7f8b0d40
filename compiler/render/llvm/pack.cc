// Copies the operands of a TensorCore into the order that matrix_unit.h defines.
//
// It is made in squares of 16 pairs of steps by 16 rows or columns, in vectors of 16 pairs, along
// whichever of the two is consecutive in memory; where that is not the order that is wanted, the
// square is transposed in registers.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::kCoreColumns;
using codegen::kCoreSteps;
using codegen::Piece;
using codegen::StageDim;
using codegen::TensorCore;
using llvm::Align;
using llvm::Type;
using llvm::Value;

namespace {

constexpr int kPairs = kCoreSteps / 2;
static_assert(kPairs == kCoreColumns);  // squares
using Square = std::array<Value*, kPairs>;

// Halves change places along the diagonal, then quarters inside of each, and so on.
void Transpose(llvm::IRBuilder<>& b, Square& square) {
  for (int distance = kPairs / 2; distance > 0; distance /= 2) {
    std::vector<int> low, high;
    for (int lane = 0; lane < kPairs; ++lane) {
      const bool second = lane & distance;
      low.push_back(second ? lane - distance + kPairs : lane);
      high.push_back(second ? lane + kPairs : lane + distance);
    }
    for (int i = 0; i < kPairs; ++i) {
      if (i & distance) continue;
      Value *const upper = square[i], *const lower = square[i + distance];
      square[i] = b.CreateShuffleVector(upper, lower, low);
      square[i + distance] = b.CreateShuffleVector(upper, lower, high);
    }
  }
}

}  // namespace

void KernelEmitter::WithPieces(int range, const std::vector<Piece>& pieces,
                               const std::function<void()>& inside) {
  // Values of the other pieces must not be found, nor these be found later.
  const auto forget = [&] {
    absl::erase_if(scopes_->at(scopes_->current()).values, [&](const auto& entry) {
      return kernel_.DepsOf(entry.first.first) >> range & 1;
    });
  };
  forget();
  const Bound outer = bound_[range];
  Bound& bound = bound_[range];
  bound.pieces = &pieces;
  bound.scope = scopes_->current();
  if (bound.number < 0) {
    bound.number = static_cast<int>(range_of_number_.size());
    OB_CHECK(bound.number < 8);
    range_of_number_.push_back(range);
  }
  inside();
  if (outer.number < 0) range_of_number_.pop_back();
  bound_[range] = outer;
  forget();
}

// Depth: the ranges of a kernel.
void KernelEmitter::PackOperand(int stage, const std::vector<const StageDim*>& order, size_t next) {
  if (next < order.size()) {
    OverTile(*order[next]->tile, [&] { PackOperand(stage, order, next + 1); });
    return;
  }
  const UOp* const load = plan_.stages[stage].load;
  const TensorCore& core = *plan_.CoreOf(load);
  const int across = load == core.rows ? core.row_range : core.column_range;
  // How many values of a range the block holds that is bound: that of its rest may be shorter.
  const auto count = [&](int range) -> int64_t {
    const codegen::Tile* tile = nullptr;
    for (const StageDim& dim : stages_[stage].layout.dims)
      if (dim.range == range) tile = dim.tile;
    return bound_[range].pieces == &tile->rest ? tile->extent % tile->step : tile->step;
  };
  const int64_t width = count(across), steps = count(core.inner_range);
  const bool along =
      forms_.Of(load->src[0]->src[1]).CoefficientOf(kernel_.ranges[core.inner_range].node) == 1;
  for (int64_t first = 0; first < width; first += kCoreColumns) {
    const auto lines = static_cast<int>(std::min<int64_t>(kCoreColumns, width - first));
    std::vector<Piece> of_steps, of_lines;
    if (along) {
      of_steps = {{0, kCoreSteps, static_cast<int>(steps)}};
      for (int i = 0; i < lines; ++i) of_lines.push_back({first + i, 1, 1});
    } else {
      for (int64_t i = 0; i < steps; ++i) of_steps.push_back({i, 1, 1});
      of_lines = {{first, kCoreColumns, lines}};
    }
    WithPieces(core.inner_range, of_steps, [&] {
      WithPieces(across, of_lines, [&] { PackSquare(stage, across, core.inner_range, along); });
    });
  }
}

void KernelEmitter::PackSquare(int stage, int across, int inner, bool along) {
  const UOp* const load = plan_.stages[stage].load;
  const bool rows = load == plan_.CoreOf(load)->rows;
  const auto place = [&](int range, size_t piece) {
    return Coords{piece} << (8 * bound_[range].number);
  };
  Type* const pairs = llvm::FixedVectorType::get(b_.getInt32Ty(), kPairs);
  // Dozens of loads at constant distances from one pointer. LLVM's loop strength reduction would
  // take 50 ms to find that they are well as they are, so it is not shown where the pointer comes
  // from.
  packing_ = true;
  Square square;
  square.fill(llvm::Constant::getNullValue(pairs));
  const size_t count = bound_[along ? across : inner].pieces->size();
  if (along) {
    for (size_t i = 0; i < count; ++i) {
      Value* const line = Emit(load, place(across, i));
      square[i] = b_.CreateBitCast(alu_.ToMemory(line, load->dtype), pairs);
    }
  } else {
    for (size_t i = 0; i < count; i += 2) {
      Value* pair = b_.CreateLShr(b_.CreateBitCast(Emit(load, place(inner, i)), pairs), 16);
      if (i + 1 < count) {
        Value* const second = b_.CreateBitCast(Emit(load, place(inner, i + 1)), pairs);
        pair = b_.CreateOr(pair, b_.CreateAnd(second, llvm::ConstantInt::get(pairs, 0xffff0000u)));
      }
      square[i / 2] = pair;
    }
  }
  packing_ = false;
  if (along != rows) Transpose(b_, square);
  // What the square's lines are now: rows, or pairs of steps. Rows that there are not are nobody's;
  // steps that there are not must be zeros in both operands.
  Value* const first = StagedPointer(stage, 0);
  const auto& dims = stages_[stage].layout.dims;
  const auto line = std::find_if(dims.begin(), dims.end(), [&](const StageDim& dim) {
    return dim.range == (rows ? across : inner);
  });
  const int64_t step = line->inside * (rows ? 1 : 2);
  const size_t lines = rows && along ? count : kPairs;
  for (size_t i = 0; i < lines; ++i) {
    Value* const pointer =
        b_.CreateGEP(b_.getInt16Ty(), first, b_.getInt64(static_cast<int64_t>(i) * step));
    b_.CreateAlignedStore(square[i], pointer, Align(kCoreSteps * 2));
  }
}

}  // namespace outboard::render
