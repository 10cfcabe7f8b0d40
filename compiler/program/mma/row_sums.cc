#include "compiler/program/mma/row_sums.h"

#include <utility>

#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kValues = 4;  // of a thread: two rows by two columns
constexpr int64_t kHalfWarp = kWarpThreads / 2;

bool IsCut(int64_t count, int64_t tile) { return tile == 0 || count % tile != 0; }

}  // namespace

RowSums::RowSums(PointLowering& point, codegen::MmaSide rows, codegen::MmaSide columns,
                 int64_t tile_rows, int64_t tile_columns)
    : point_(point),
      b_(point.builder()),
      ranges_(point.ranges()),
      rows_(std::move(rows)),
      columns_(std::move(columns)),
      cut_rows_(IsCut(rows_.count, tile_rows)),
      cut_columns_(IsCut(columns_.count, tile_columns)) {
  for (const UOp* store : point.kernel().stores) {
    if (!SumsPoints(store)) continue;
    stores_.push_back(store);
    kept_.push_back(b_.Alloc(Space::kPrivate, DType::kF32, kValues));
  }
}

void RowSums::Clear() {
  for (const ValueId kept : kept_)
    for (int64_t i = 0; i < kValues; ++i) b_.Store(kept, b_.Int(i), b_.Const(DType::kF32, 0));
}

void RowSums::Keep(int64_t half, ValueId lane, ValueId inside) {
  std::vector<ValueId> values;
  for (const UOp* store : stores_) values.push_back(point_.Emit(store->src[1]));
  for (size_t i = 0; i < stores_.size(); ++i) {
    if (inside >= 0)
      values[i] =
          b_.Alu(Op::kWhere, DType::kF32, {inside, values[i], b_.Const(DType::kF32, 0)});
    b_.Store(kept_[i], b_.Plus(b_.Int(half * 2), lane), values[i]);
  }
}

// `values` as kept. The first column's sum is in the first half of the warp.
ValueId RowSums::Added(const std::vector<ValueId>& values, ValueId keeps_second) {
  const auto add = [&](ValueId x, ValueId y) { return b_.Alu(Op::kAdd, DType::kF32, {x, y}); };
  const auto choose = [&](ValueId x, ValueId y) {
    return b_.Alu(Op::kWhere, DType::kF32, {keeps_second, x, y});
  };
  const auto of_partner = [&](ValueId x, int64_t bit) {
    return b_.Add({.code = Code::kShuffle, .dtype = DType::kF32, .src = {x}, .imm = {bit, 0, 0}});
  };
  const ValueId first = add(values[0], values[2]), second = add(values[1], values[3]);
  ValueId sum = add(choose(second, first), of_partner(choose(first, second), kHalfWarp));
  for (const int64_t bit : {8, 4}) sum = add(sum, of_partner(sum, bit));
  return sum;
}

void RowSums::Store(ValueId thread, ValueId row, ValueId column) {
  const ValueId lane = b_.Modulo(thread, kWarpThreads);
  const ValueId second = b_.Divide(lane, kHalfWarp);
  const ValueId keeps_second = b_.Less(b_.Int(0), second);
  column = b_.Plus(column, second);
  ValueId mask = b_.Less(b_.Modulo(lane, kHalfWarp), b_.Int(4));
  // By blocks, as the place has them.
  const int64_t blocks = (rows_.count + kSumRows - 1) / kSumRows;
  if (cut_rows_) mask = b_.And(mask, b_.Less(b_.Divide(row, kSumRows), b_.Int(blocks)));
  if (cut_columns_) mask = b_.And(mask, b_.Less(column, b_.Int(columns_.count)));
  point_.OpenScope();
  ranges_.OpenAll(rows_.ranges, row);
  ranges_.OpenAll(columns_.ranges, column);
  for (size_t i = 0; i < stores_.size(); ++i) {
    std::vector<ValueId> values;
    for (int64_t v = 0; v < kValues; ++v) values.push_back(b_.Load(kept_[i], b_.Int(v)));
    const ValueId sum = Added(values, keeps_second);
    const UOp* const index = stores_[i]->src[0];
    b_.Add({.code = Code::kStore,
            .src = {point_.BufferOf(index), point_.Emit(index->src[1]), sum, mask}});
  }
  ranges_.CloseAll(columns_.ranges);
  ranges_.CloseAll(rows_.ranges);
  point_.CloseScope();
}

}  // namespace outboard::program
