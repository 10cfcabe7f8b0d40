#include "compiler/program/mma/staged_operand.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/accessors.h"
#include "compiler/program/mma/amd_fragments.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

using codegen::MmaAddend;
using codegen::MmaFactor;
using codegen::MmaPlan;

namespace {

constexpr int64_t kChunkBytes = kMmaDepthBytes / 2, kMatrixSide = 8;

}  // namespace

StagedOperand::StagedOperand(PointLowering& point, const MmaPlan& plan, bool is_rows)
    : point_(point),
      b_(point.builder()),
      ranges_(point.ranges()),
      product_(plan.product),
      tile_(plan.tile),
      unit_(plan.unit),
      is_rows_(is_rows),
      side_(is_rows ? product_.rows : product_.columns),
      tile_size_(is_rows ? tile_.rows : tile_.columns),
      warp_size_(tile_size_ / (is_rows ? tile_.warps_down : tile_.warps_across)),
      dtype_(is_rows ? product_.dtype : product_.columns_dtype),
      chunk_(kChunkBytes / ByteWidth(dtype_)),
      depth_(2 * chunk_) {}

void StagedOperand::Place(ValueId thread, ValueId origin, ValueId warp) {
  thread_ = thread;
  lane_ = b_.Modulo(thread, tile_.warp_threads);
  origin_ = origin;
  warp_ = warp;
}

int64_t StagedOperand::PiecesOf(const MmaFactor& of) const {
  return tile_size_ * tile_.steps / of.run / tile_.threads();
}

void StagedOperand::OpenMemory() {
  int64_t stages = 0, computed = 0;
  for (const MmaAddend& addend : product_.addends) {
    const MmaFactor& of = is_rows_ ? addend.rows : addend.columns;
    stages = std::max(stages, StagesOf(tile_, addend));
    if (!of.copied) computed = std::max(computed, PiecesOf(of));
  }
  memory_ = b_.Alloc(Space::kShared, dtype_, stages * tile_size_ * tile_.steps);
  if (computed > 0) values_ = b_.Alloc(Space::kPrivate, dtype_, computed);
}

void StagedOperand::Begin(const MmaAddend& addend) {
  addend_ = &addend;
  of_ = is_rows_ ? &addend.rows : &addend.columns;
  lines_ = of_->across ? tile_.steps : tile_size_;
  length_ = of_->across ? tile_size_ : tile_.steps;
  pieces_ = PiecesOf(*of_);
}

ValueId StagedOperand::ElementOf(ValueId stage, ValueId line, ValueId low, ValueId chunk) {
  const int64_t chunks = Chunks();
  ValueId rotated = chunk;
  if (chunks > 1) {
    const ValueId by = chunks >= 8 ? low : b_.Divide(low, 8 / chunks);
    rotated = b_.Plus(chunk, b_.Times(by, TakesElements() ? 2 : 1));
  }
  const ValueId in_line = b_.Times(b_.Modulo(rotated, chunks), chunk_);
  const ValueId first = b_.Plus(b_.Times(stage, lines_ * length_), b_.Times(line, length_));
  return b_.Plus(first, in_line);
}

StagedOperand::Piece StagedOperand::PieceOf(int64_t number) {
  const int64_t in_line = length_ / of_->run, threads = tile_.threads();
  Piece piece;
  if (threads % in_line == 0) {
    piece.line = b_.Plus(b_.Divide(thread_, in_line), b_.Int(number * (threads / in_line)));
    piece.number = b_.Modulo(thread_, in_line);
  } else {
    const ValueId of_all = b_.Plus(thread_, b_.Int(number * threads));
    piece.line = b_.Divide(of_all, in_line);
    piece.number = b_.Modulo(of_all, in_line);
  }
  piece.column = b_.Times(piece.number, of_->run);
  return piece;
}

ValueId StagedOperand::TargetOf(const Piece& piece, ValueId stage) {
  const int64_t in_chunk = chunk_ / of_->run;
  const ValueId element =
      ElementOf(stage, piece.line, b_.Modulo(piece.line, 8), b_.Divide(piece.number, in_chunk));
  return b_.Plus(element, b_.Times(b_.Modulo(piece.number, in_chunk), of_->run));
}

ValueId StagedOperand::Open(const Piece& piece, ValueId iteration) {
  const MmaFactor& of = *of_;
  const ValueId along = of.across ? piece.column : piece.line;
  const ValueId index = b_.Plus(origin_, along);
  const ValueId step =
      b_.Plus(b_.Times(iteration, tile_.steps), of.across ? piece.line : piece.column);
  ValueId inside = -1;
  const auto below = [&](ValueId value, int64_t count, int64_t size, bool runs) {
    if (count % size == 0) return;
    const ValueId last = runs ? b_.Plus(value, b_.Int(of.run - 1)) : value;
    inside = b_.And(inside, b_.Less(last, b_.Int(count)));
  };
  below(index, side_.count, tile_size_, of.across);
  below(step, addend_->steps, tile_.steps, !of.across);
  const auto open = [&](const std::vector<int>& ranges, ValueId at) {
    if (!HasWindow(ranges)) return ranges_.OpenAll(ranges, at);
    // Each tap is opened when it is copied.
    ranges_.OpenAll({ranges.begin(), ranges.end() - 1}, b_.Divide(at, of.run));
  };
  open(side_.ranges, index);
  open(addend_->reduced, step);
  for (const int r : addend_->reduced)
    if (const UOp* const end = point_.kernel().ranges[r].end())
      inside = b_.And(inside, b_.Less(ranges_[r].value, point_.Emit(end)));
  return inside;
}

void StagedOperand::Close() {
  ranges_.CloseAll(side_.ranges);
  ranges_.CloseAll(addend_->reduced);
}

void StagedOperand::Fetch(ValueId iteration, ValueId stage) {
  for (int64_t number = 0; number < pieces_; ++number) {
    point_.OpenScope();
    const Piece piece = PieceOf(number);
    const ValueId inside = Open(piece, iteration);
    if (of_->by_windows) {
      CopyWindow(piece, stage, inside);
    } else if (of_->copied) {
      Copy(TargetOf(piece, stage), inside);
    } else {
      const ValueId place = b_.Int(number);
      if (inside >= 0) b_.Store(values_, place, b_.Const(dtype_, 0));
      const ValueId branch = inside < 0 ? -1 : b_.If(inside);
      point_.OpenScope();
      b_.Store(values_, place, point_.Emit(of_->value));
      point_.CloseScope();
      if (branch >= 0) b_.EndIf(branch);
    }
    Close();
    point_.CloseScope();
  }
  CopySingles();
}

void StagedOperand::Copy(ValueId target, ValueId inside) {
  const UOp* const load = of_->value;
  const int64_t run = of_->run;
  Instruction copy{.code = Code::kCopy, .imm = {run, run > 1 ? 1 : 0, 0}};
  const ValueId gate =
      load->src.size() == 3 ? point_.Gate(ConjunctsOf(load->src[1])) : ValueId{-1};
  const ValueId index = point_.Emit(load->src[0]->src[1]);
  copy.src = {memory_, target, point_.BufferOf(load), index};
  const ValueId mask = b_.And(inside, gate);
  if (mask >= 0) copy.src.push_back(mask);
  b_.Add(std::move(copy));
}

void StagedOperand::Deposit(ValueId stage) {
  for (int64_t number = 0; !of_->copied && number < pieces_; ++number)
    b_.Store(memory_, TargetOf(PieceOf(number), stage), b_.Load(values_, b_.Int(number)));
}

ValueId StagedOperand::Load(ValueId stage, int64_t fragment, int64_t step) {
  if (unit_ != MatrixUnit::kMma) return LoadForAmd(stage, fragment, step);
  if (TakesElements()) return LoadElements(stage, fragment, step);
  const bool across = of_->across;
  const ValueId low = b_.Modulo(lane_, 8), second = b_.Divide(lane_, 16),
                first = b_.Modulo(b_.Divide(lane_, 8), 2);
  const ValueId own = is_rows_ ? first : second, steps = is_rows_ ? second : first;
  const ValueId begin = b_.Times(warp_, warp_size_ / kMatrixSide);
  const ValueId own_matrix = b_.Plus(b_.Plus(begin, b_.Int(fragment * 2)), own);
  const ValueId step_chunk = b_.Plus(b_.Int(step * 2), steps);
  const ValueId line = b_.Plus(b_.Times(across ? step_chunk : own_matrix, kMatrixSide), low);
  return b_.Add({.code = Code::kLdmatrix,
                 .dtype = dtype_,
                 .lanes = 4 * MmaPacked(dtype_),
                 .src = {memory_, ElementOf(stage, line, low, across ? own_matrix : step_chunk)},
                 .imm = {across ? 1 : 0, 0, 0}});
}

ValueId StagedOperand::LoadForAmd(ValueId stage, int64_t fragment, int64_t step) {
  const ValueId along = b_.Plus(b_.Times(warp_, warp_size_),
                                b_.Plus(b_.Int(fragment * kFragment), b_.Modulo(lane_, kFragment)));
  const auto element = [&](ValueId line, ValueId low, ValueId chunk) {
    return ElementOf(stage, line, low, chunk);
  };
  return LoadAmdOperand(b_, unit_, {memory_, dtype_, chunk_, of_->across, element}, lane_,
                        along, step * depth_);
}

ValueId StagedOperand::LoadElements(ValueId stage, int64_t fragment, int64_t step) {
  const ValueId begin = b_.Plus(b_.Times(warp_, warp_size_),
                                b_.Plus(b_.Int(fragment * kFragment), b_.Divide(lane_, 4)));
  Instruction all{.code = Code::kLanes, .dtype = dtype_, .lanes = 4};
  for (int64_t matrix = 0; matrix < 4; ++matrix) {
    const int64_t own = is_rows_ ? matrix % 2 : matrix / 2;
    const int64_t steps = is_rows_ ? matrix / 2 : matrix % 2;
    const ValueId number = b_.Plus(begin, b_.Int(own * kMatrixSide));
    const ValueId line = b_.Plus(b_.Modulo(lane_, 4), b_.Int(step * depth_ + steps * chunk_));
    const ValueId first = ElementOf(stage, line, b_.Modulo(line, 8), b_.Divide(number, chunk_));
    all.src.push_back(b_.Load(memory_, b_.Plus(first, b_.Modulo(number, chunk_))));
  }
  return b_.Add(std::move(all));
}

}  // namespace outboard::program
