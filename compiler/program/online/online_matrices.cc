#include "compiler/program/online/online_matrices.h"

#include <algorithm>

#include "compiler/divide_up.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

namespace {

constexpr int64_t kSide = 8;  // rows, steps or columns of a matrix that the unit reads
// A thread loads this many columns' worth of runs before it unpacks them: 8 runs of a matrix of 64
// columns, 4 of 128. With more in registers kernels spill.
constexpr int64_t kUnpackedColumns = 512;

}  // namespace

void OnlineMatrices::Open() {
  for (const OnlineMatrix& matrix : plan_.matrices)
    memory_.push_back(b_.Alloc(Space::kShared, plan_.dtype,
                               StageElements(matrix) * (matrix.of_rows ? 1 : tile_.stages)));
}

void OnlineMatrices::Place(ValueId thread, ValueId lane, ValueId origin) {
  thread_ = thread;
  lane_ = lane;
  origin_ = origin;
}

// The first element of a chunk of a line. Chunks are turned around from line to line, so
// that those of a column lie in all banks. `low` is the line's number modulo 8.
ValueId OnlineMatrices::ElementOf(const OnlineMatrix& matrix, ValueId stage, ValueId line,
                                  ValueId low, ValueId chunk) {
  const int64_t length = LengthOf(matrix), chunks = length / chunk_;
  const ValueId turn = chunks >= 8 ? low : b_.Divide(low, 8 / chunks);
  // Among eight chunks, where a line has whole eights: places of further ones are known from these.
  const int64_t among = chunks % 8 == 0 ? 8 : chunks;
  const ValueId turned =
      b_.Plus(b_.Times(b_.Divide(chunk, among), among), b_.Modulo(b_.Plus(chunk, turn), among));
  const ValueId in_line = b_.Times(turned, chunk_);
  const ValueId first = b_.Plus(b_.Times(stage, StageElements(matrix)), b_.Times(line, length));
  return b_.Plus(first, in_line);
}

void OnlineMatrices::Fetch(size_t index, ValueId number, ValueId stage) {
  const OnlineMatrix& matrix = plan_.matrices[index];
  const int64_t length = LengthOf(matrix), in_line = length / matrix.run;
  const int64_t pieces = StageElements(matrix) / matrix.run, threads = tile_.threads();
  const int64_t count = DivideUp(pieces, threads);
  int64_t together = count;
  if (matrix.load == nullptr && count * threads == pieces)
    together = std::max<int64_t>(1, std::min(count, kUnpackedColumns / OnlinePadded(matrix.width)));
  while (count % together != 0) --together;
  const ValueId loop = together < count ? b_.Loop(count / together) : b_.Int(0);
  for (int64_t piece = 0; piece < together; ++piece) {
    point_.OpenScope();
    const ValueId of_thread = b_.Plus(b_.Times(loop, together), b_.Int(piece));
    const ValueId of_all = b_.Plus(thread_, b_.Times(of_thread, threads));
    ValueId line = b_.Divide(of_all, in_line), place = b_.Modulo(of_all, in_line);
    if (threads % in_line == 0) {
      line = b_.Plus(b_.Divide(thread_, in_line), b_.Times(of_thread, threads / in_line));
      place = b_.Modulo(thread_, in_line);
    }
    const bool all = (piece + 1) * threads <= pieces;
    const ValueId branch = all ? ValueId{-1} : b_.If(b_.Less(of_all, b_.Int(pieces)));
    Copy(index, number, stage, line, place);
    if (branch >= 0) b_.EndIf(branch);
    point_.CloseScope();
  }
  if (together < count) b_.End(loop);
}

void OnlineMatrices::Copy(size_t index, ValueId number, ValueId stage, ValueId line,
                          ValueId place) {
  const OnlineMatrix& matrix = plan_.matrices[index];
  const int64_t run = matrix.run, in_chunk = chunk_ / run;
  const ValueId element =
      b_.Plus(ElementOf(matrix, stage, line, b_.Modulo(line, kSide), b_.Divide(place, in_chunk)),
              b_.Times(b_.Modulo(place, in_chunk), run));
  if (matrix.load == nullptr) return Unpack(index, number, line, place, element);
  const ValueId along = b_.Times(place, run);
  const ValueId other = matrix.across ? line : along;
  const ValueId own = b_.Plus(matrix.of_rows ? origin_ : b_.Times(number, tile_.steps),
                              matrix.across ? along : line);
  const int64_t steps = plan_.kernel.ranges[plan_.range].extent;
  const int64_t own_count = matrix.of_rows ? plan_.row_count : steps;
  ValueId inside = -1;
  const auto below = [&](ValueId value, int64_t count, int64_t size, bool runs) {
    if (count % size == 0) return;
    const ValueId last = runs ? b_.Plus(value, b_.Int(run - 1)) : value;
    inside = b_.And(inside, b_.Less(last, b_.Int(count)));
  };
  if (!matrix.of_rows && steps_ >= 0) inside = b_.Less(own, steps_);
  below(own, own_count, OwnOf(matrix), matrix.across);
  below(other, matrix.width, OnlinePadded(matrix.width), !matrix.across);
  if (matrix.of_rows)
    ranges_.OpenAll(plan_.rows, own);
  else
    ranges_.Open(plan_.range, own);
  ranges_.OpenAll(matrix.other, other);
  Instruction copy{.code = Code::kCopy, .imm = {run, run > 1 ? 1 : 0, 0}};
  const ValueId gate =
      matrix.load->src.size() == 3 ? point_.Gate(ConjunctsOf(matrix.load->src[1])) : ValueId{-1};
  const ValueId from = point_.Emit(matrix.load->src[0]->src[1]);
  copy.src = {memory_[index], element, point_.BufferOf(matrix.load), from};
  if (const ValueId mask = b_.And(inside, gate); mask >= 0) copy.src.push_back(mask);
  b_.Add(std::move(copy));
  ranges_.CloseAll(matrix.other);
  for (const int r : matrix.of_rows ? plan_.rows : std::vector<int>{plan_.range}) ranges_.Close(r);
}

// A run of elements, which are lanes. Those that do not exist are zeros, and are not read.
void OnlineMatrices::Unpack(size_t index, ValueId number, ValueId line, ValueId place,
                            ValueId element) {
  const OnlineMatrix& matrix = plan_.matrices[index];
  const std::vector<int> own_ranges = matrix.of_rows ? plan_.rows : std::vector<int>{plan_.range};
  const ValueId along = b_.Times(place, matrix.run);
  ranges_.OpenAll(matrix.other, matrix.across ? line : along);
  const ValueId first = matrix.of_rows ? origin_ : b_.Times(number, tile_.steps);
  ranges_.OpenAll(own_ranges, b_.Plus(first, matrix.across ? along : line));
  const ValueId lane = matrix.run > 1 ? b_.Loop(matrix.run, How::kVector, matrix.run) : b_.Int(0);
  point_.OpenScope();
  const std::vector<int>& in_lanes = matrix.across ? own_ranges : matrix.other;
  if (!in_lanes.empty()) {
    const int range = in_lanes.back();
    ranges_.Open(range, b_.Plus(ranges_[range].value, lane));
  }
  ValueId inside = -1;
  const auto below = [&](ValueId value, int64_t count, int64_t size) {
    if (count % size != 0) inside = b_.And(inside, b_.Less(value, b_.Int(count)));
  };
  const ValueId own = b_.Plus(first, matrix.across ? b_.Plus(along, lane) : line);
  if (!matrix.of_rows && steps_ >= 0) inside = b_.Less(own, steps_);
  below(own, matrix.of_rows ? plan_.row_count : plan_.kernel.ranges[plan_.range].extent,
        OwnOf(matrix));
  below(matrix.across ? line : b_.Plus(along, lane), matrix.width, OnlinePadded(matrix.width));
  point_.LoadOnlyIf(inside);
  ValueId value = b_.Cast(point_.Emit(matrix.value), plan_.dtype);
  point_.LoadOnlyIf(-1);
  if (inside >= 0)
    value = b_.Alu(Op::kWhere, plan_.dtype, {inside, value, b_.Const(plan_.dtype, 0)});
  b_.Store(memory_[index], b_.Plus(element, lane), value);
  point_.CloseScope();
  if (matrix.run > 1) b_.End(lane);
  ranges_.CloseAll(matrix.other);
  ranges_.CloseAll(own_ranges);
}

ValueId OnlineMatrices::Fragment(size_t index, ValueId stage, ValueId own, ValueId term, bool of_a,
                                 bool own_in_lines, bool of_values) {
  const OnlineMatrix& matrix = plan_.matrices[index];
  if (plan_.dtype == DType::kF32 && (of_values || !own_in_lines))
    return Elements(index, stage, own, term, of_a, own_in_lines, of_values);
  const ValueId low = b_.Modulo(lane_, 8), second = b_.Divide(lane_, 16),
                first = b_.Modulo(b_.Divide(lane_, 8), 2);
  const ValueId own_chunk = b_.Plus(own, of_a ? first : second);
  const ValueId term_chunk = b_.Plus(term, of_a ? second : first);
  const ValueId line = b_.Plus(b_.Times(own_in_lines ? own_chunk : term_chunk, kSide), low);
  return b_.Add({.code = Code::kLdmatrix,
                 .dtype = plan_.dtype,
                 .lanes = 4 * MmaPacked(plan_.dtype),
                 .src = {memory_[index], ElementOf(matrix, stage, line, low,
                                                   own_in_lines ? term_chunk : own_chunk)},
                 .imm = {own_in_lines ? 0 : 1, 0, 0}});
}

// The same of f32, one by one: no instruction turns matrices of it. Where a line is a step, the
// elements that threads read together are of two chunks in four lines that are even, or odd; turned
// from line to line they lie in all banks.
ValueId OnlineMatrices::Elements(size_t index, ValueId stage, ValueId own, ValueId term, bool of_a,
                                 bool own_in_lines, bool of_values) {
  const ValueId member = b_.Modulo(lane_, 4), row = b_.Divide(lane_, 4);
  Instruction all{.code = Code::kLanes, .dtype = DType::kF32, .lanes = 4};
  for (int64_t of_four = 0; of_four < 4; ++of_four) {
    const int64_t second_own = of_a ? of_four % 2 : of_four / 2,
                  second_term = of_a ? of_four / 2 : of_four % 2;
    const ValueId own_at = b_.Plus(b_.Times(b_.Plus(own, b_.Int(second_own)), kSide), row);
    const ValueId in_terms = of_values ? b_.Plus(b_.Times(member, 2), b_.Int(second_term))
                                       : b_.Plus(member, b_.Int(second_term * chunk_));
    const ValueId term_at = b_.Plus(b_.Times(term, chunk_), in_terms);
    const ValueId line = own_in_lines ? own_at : term_at, at = own_in_lines ? term_at : own_at;
    const ValueId first = ElementOf(plan_.matrices[index], stage, line, b_.Modulo(line, kSide),
                                    b_.Divide(at, chunk_));
    all.src.push_back(b_.Load(memory_[index], b_.Plus(first, b_.Modulo(at, chunk_))));
  }
  return b_.Add(std::move(all));
}

}  // namespace outboard::program
