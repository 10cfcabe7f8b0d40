#include "compiler/program/hopper/results.h"

#include <algorithm>

#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kRows = kWgmmaRows;
constexpr int64_t kBoxBytes = kRows * MappedTensor::kSwizzleBytes;
constexpr int64_t kConsumers = 2, kTurns = 2;

}  // namespace

// Results take turns in the same boxes where they are of one type; otherwise each type has its own.
int64_t ResultWriter::SharedBytes(const std::vector<HopperResult>& results) {
  int64_t types = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    bool first = true;
    for (size_t j = 0; j < i; ++j) first = first && results[j].dtype != results[i].dtype;
    types += first;
  }
  return types * kConsumers * kTurns * kBoxBytes;
}

void ResultWriter::Open(ValueId thread, const std::vector<int64_t>& batch) {
  thread_ = thread;
  batch_ = batch;
  for (size_t i = 0; i < results_.size(); ++i) {
    const HopperResult& result = results_[i];
    MappedTensor view = result.view;
    view.swizzled = true;
    view.box.assign(view.dims.size(), 1);
    view.box[0] = result.columns();
    view.box[1] = kRows;
    Opened opened;
    opened.map = b_.Map(b_.Buffer(result.dtype, view.slot, result.elements), view);
    for (size_t j = 0; j < i; ++j)
      if (results_[j].dtype == result.dtype) opened.shared = opened_[j].shared;
    if (opened.shared < 0)
      opened.shared = b_.Alloc(Space::kShared, result.dtype,
                               kConsumers * kTurns * kBoxBytes / ByteWidth(result.dtype));
    opened_.push_back(opened);
  }
}

// One thread begins all boxes of a warpgroup: it alone can wait for them.
ValueId ResultWriter::Speaks() {
  return b_.Alu(Op::kCmpEq, DType::kBool, {b_.Modulo(thread_, kWarpgroupThreads), b_.Int(0)});
}

ValueId ResultWriter::Least(ValueId a, int64_t b) {
  return b_.Times(b_.Alu(Op::kMax, DType::kI64, {b_.Times(a, -1), b_.Int(-b)}), -1);
}

void ResultWriter::Write(const SumTile& tile) {
  if (stores_.direct != nullptr) WriteDirectly(tile);
  int64_t boxes = 0, turn = 0;
  for (const HopperResult& result : results_) boxes += tile.columns / result.columns();
  for (size_t i = 0; i < results_.size(); ++i)
    for (int64_t box = 0; box < tile.columns / results_[i].columns(); ++box, ++turn) {
      // With an odd number of boxes a tile begins with the box that the one before ended with.
      const int64_t left = turn == 0 && boxes % kTurns != 0 ? 0 : kTurns - 1;
      WriteBox(i, tile, box, turn % kTurns, left);
    }
}

SumPlace ResultWriter::PlaceOf(const SumTile& tile, int64_t element) {
  const ValueId in_group = b_.Modulo(thread_, kWarpgroupThreads);
  const ValueId row = b_.Plus(b_.Plus(tile.first.row, b_.Times(tile.consumer, kRows)),
                              b_.Plus(b_.Times(b_.Divide(in_group, kWarpThreads), 16),
                                      b_.Divide(b_.Modulo(in_group, kWarpThreads), 4)));
  const ValueId column = b_.Plus(tile.first.column, b_.Times(b_.Modulo(in_group, 4), 2));
  // The place of thread 0's element: the others' are as far from it as their thread's first one.
  const MatrixPlace first = WgmmaElement(0, static_cast<int>(element));
  return {tile.first.batch, b_.Plus(row, b_.Int(first.row)), b_.Plus(column, b_.Int(first.column))};
}

// The nearest place within C.
SumPlace ResultWriter::Within(SumPlace place) {
  if (cut_rows_) place.row = Least(place.row, m_ - 1);
  if (!cut_columns_) return place;
  if (n_ % 2 != 0) place.next_column = Least(b_.Plus(place.column, b_.Int(1)), n_ - 1);
  place.column = Least(place.column, n_ % 2 == 0 ? n_ - 2 : n_ - 1);
  return place;
}

// Elements come in the order of their numbers: two of a row, then two of the row 8 below.
void ResultWriter::KeepForSums(const SumTile& tile, int64_t element) {
  if (stores_.keep == nullptr) return;
  const SumPlace at = PlaceOf(tile, element);
  SumPlace place = Within(at);
  if (cut_rows_) place.inside = b_.Less(at.row, b_.Int(m_));
  const int64_t half = element / 2 % 2;
  stores_.keep(half, place, b_.Load(tile.sums, b_.Int(element)),
               b_.Load(tile.sums, b_.Int(element + 1)));
  if (half == 0) return;
  const ValueId warp = b_.Divide(b_.Modulo(thread_, kWarpgroupThreads), kWarpThreads);
  const ValueId first = b_.Plus(b_.Times(tile.consumer, kRows), b_.Times(warp, kRows / 4));
  stores_.add(thread_, {at.batch, b_.Plus(tile.first.row, first), at.column});
}

void ResultWriter::WriteBox(size_t result, const SumTile& tile, int64_t box, int64_t turn,
                            int64_t left) {
  const int64_t wide = results_[result].columns();
  const Opened& opened = opened_[result];
  const ValueId begin =
      b_.Times(b_.Plus(b_.Times(tile.consumer, kTurns), b_.Int(turn)), kRows * wide);
  const ValueId waits = b_.If(Speaks());
  b_.Do(Code::kBoxWait, {}, {left, 1, 0});
  b_.EndIf(waits);
  b_.Do(Code::kWgSync);
  // Of the box: 8 rows of a warp, then the other 8, by columns of 8.
  const ValueId in_group = b_.Modulo(thread_, kWarpgroupThreads);
  const ValueId own = b_.Plus(b_.Times(b_.Plus(b_.Times(b_.Divide(in_group, kWarpThreads), 16),
                                               b_.Divide(b_.Modulo(in_group, kWarpThreads), 4)),
                                       wide),
                              b_.Times(b_.Modulo(in_group, 4), 2));
  for (int64_t e = box * wide / 2; e < (box + 1) * wide / 2; e += 2) {
    const SumPlace place = Within(PlaceOf(tile, e));
    const ValueId value = stores_.boxed(result, place, b_.Load(tile.sums, b_.Int(e)),
                                        b_.Load(tile.sums, b_.Int(e + 1)));
    const MatrixPlace first = WgmmaElement(0, static_cast<int>(e));
    const ValueId to =
        b_.Plus(b_.Plus(begin, own), b_.Int(first.row * wide + first.column - box * wide));
    b_.Add({.code = Code::kStore, .lanes = 2, .src = {opened.shared, to, value}, .imm = {1, 0, 0}});
    if (result == 0 && stores_.direct == nullptr) KeepForSums(tile, e);
  }
  b_.Do(Code::kProxyFence);
  b_.Do(Code::kWgSync);
  const ValueId stores = b_.If(Speaks());
  std::vector<ValueId> src = {opened.shared, begin, opened.map,
                              b_.Plus(tile.first.column, b_.Int(box * wide)),
                              b_.Plus(tile.first.row, b_.Times(tile.consumer, kRows))};
  ValueId rest = tile.first.batch;  // the innermost comes first
  for (size_t i = batch_.size(); i-- > 0;) {
    src.push_back(i == 0 ? rest : b_.Modulo(rest, batch_[i]));
    rest = b_.Divide(rest, batch_[i]);
  }
  b_.Do(Code::kBoxStore, src);
  b_.Do(Code::kBoxCommit);
  b_.EndIf(stores);
}

SumPlace ResultWriter::PlaceOfDirect(const SumTile& tile, int64_t element) {
  SumPlace at = PlaceOf(tile, element);
  if (cut_rows_) at.inside = b_.Less(at.row, b_.Int(m_));
  return at;
}

// Inside where its column is below this one, too.
SumPlace ResultWriter::WithColumns(SumPlace place, int64_t columns) {
  if (!cut_columns_) return place;
  const ValueId inside = b_.Less(place.column, b_.Int(columns));
  place.inside = place.inside < 0 ? inside : b_.Alu(Op::kAnd, DType::kBool, {place.inside, inside});
  return place;
}

// Two neighbouring columns at a time. Where n is even, both are within C or neither.
void ResultWriter::WriteDirectly(const SumTile& tile) {
  const int64_t end = tile.columns / 2;
  const auto sum = [&](int64_t e) { return b_.Load(tile.sums, b_.Int(e)); };
  for (int64_t e = 0; e < end; e += 2) {
    if (stores_.ahead != nullptr && n_ % 2 == 0 && e / 2 % stores_.pairs_ahead == 0)
      for (int64_t next = e; next < std::min(end, e + 2 * stores_.pairs_ahead); next += 2)
        stores_.ahead(WithColumns(PlaceOfDirect(tile, next), n_ - 1), sum(next), sum(next + 1));
    KeepForSums(tile, e);
    SumPlace at = PlaceOfDirect(tile, e);
    const ValueId first = sum(e), second = sum(e + 1);
    if (n_ % 2 == 0) {
      stores_.direct(WithColumns(at, n_ - 1), first, second);
      continue;
    }
    stores_.direct(WithColumns(at, n_), first, -1);
    at.column = b_.Plus(at.column, b_.Int(1));
    stores_.direct(WithColumns(at, n_), second, -1);
  }
}

void ResultWriter::Finish() {
  if (results_.empty()) return;
  const ValueId waits = b_.If(Speaks());
  b_.Do(Code::kBoxWait, {}, {0, 1, 0});
  b_.EndIf(waits);
}

}  // namespace outboard::program
