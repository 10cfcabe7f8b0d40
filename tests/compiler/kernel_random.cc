#include "tests/compiler/kernel_random.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

#include "compiler/ir/accessors.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::test {
namespace {

// Of a kernel that gets one more loop: interpreted as a program, it is to take less than a second.
constexpr int64_t kPointsMax = 3'000;

class Maker {
 public:
  Maker(Graph& g, uint32_t seed) : g_(g), random_(seed) {}

  const UOp* Make() {
    std::vector<const UOp*> outputs;
    std::vector<int64_t> dims;
    for (int64_t i = 0, n = Pick(4); i < n; ++i) {
      dims.push_back(Extent());
      outputs.push_back(Range(g_, i, dims.back()));
    }
    int64_t id = 10;
    const auto value = [&](DType dtype) {
      std::vector<const UOp*> terms;
      for (int64_t i = 0, n = 1 + Pick(2); i < n; ++i) terms.push_back(Term(dtype, outputs, id));
      const UOp* v = terms[0];
      for (size_t i = 1; i < terms.size(); ++i) v = Add(g_, v, terms[i]);
      return v;
    };
    int64_t elements = 1;
    for (const int64_t d : dims) elements *= d;
    const UOp* place = outputs.empty() ? ConstIndex(g_, 0) : RowMajor(g_, outputs, dims);
    if (Pick(8) == 0 && outputs.size() > 1) {  // a transposed store
      std::vector<const UOp*> turned(outputs.rbegin(), outputs.rend());
      std::vector<int64_t> turned_dims(dims.rbegin(), dims.rend());
      place = RowMajor(g_, turned, turned_dims);
    }
    std::vector<const UOp*> stores;
    for (int64_t i = 0, n = 1 + (Pick(3) == 0); i < n; ++i)
      stores.push_back(StoreAt(g_, slot_++, elements, place, value(SomeType())));
    return Sink(g_, stores);
  }

  // Rows that are read by two reductions, of which the second needs what the first one found, and
  // in most kernels once more for what is stored.
  const UOp* MakeRows() {
    static constexpr int64_t kColumns[] = {20, 33, 40, 64, 65, 97, 130, 290};
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kI32,
                                       DType::kF64};
    const bool is_number = Pick(4) == 0;  // a row's results are one number
    int64_t columns = kColumns[Pick(std::size(kColumns))];
    // A walk computes the first reduction for each term of the second one, at each point.
    if (!is_number) columns = std::min<int64_t>(columns, 97);
    const DType dtype = kTypes[Pick(std::size(kTypes))];
    std::vector<const UOp*> rows;
    std::vector<int64_t> dims;
    int64_t elements = columns;
    for (int64_t i = 0, n = Pick(3); i < n && elements < 100; ++i) {
      dims.push_back(1 + Pick(3));
      elements *= dims.back();
      rows.push_back(Range(g_, i, dims.back()));
    }
    const int64_t stored = slot_++, read = slot_++;
    std::vector<int64_t> matrix = dims;
    matrix.push_back(columns);
    const auto place = [&](const UOp* at) {
      std::vector<const UOp*> index = rows;
      index.push_back(at);
      return RowMajor(g_, index, matrix);
    };
    const auto x = [&](const UOp* at) { return LoadAt(g_, read, dtype, elements, place(at)); };
    const auto beside = [&](const UOp* value, const UOp* at) {
      return Pick(3) == 0 ? Mul(g_, value, SomeLoad(dtype, {at})) : value;
    };
    const UOp *const k = ReduceRange(g_, 10, columns), *const l = ReduceRange(g_, 11, columns);
    const UOp* const first = Fold(g_, Pick(2) == 0 ? Op::kMax : Op::kAdd, beside(x(k), k), {k});
    const UOp* apart = beside(Alu(g_, Pick(2) == 0 ? Op::kMax : Op::kAdd, x(l), first), l);
    if (Pick(4) == 0) apart = Where(g_, Condition({l}), apart, ConstOf(g_, dtype, 0));
    const UOp* const second = Fold(g_, Op::kAdd, apart, {l});
    if (is_number)
      return Sink(g_, {StoreAt(g_, stored, elements / columns,
                               rows.empty() ? ConstIndex(g_, 0) : RowMajor(g_, rows, dims),
                               Add(g_, first, second))});
    const UOp* const j = Range(g_, static_cast<int64_t>(rows.size()), columns);
    const UOp* const value = beside(Alu(g_, Op::kMax, x(j), first), j);
    return Sink(g_, {StoreAt(g_, stored, elements, place(j), Add(g_, value, second))});
  }

  // The kernel with old values of what it stores in its new ones, each read where it is stored.
  const UOp* InPlace(const UOp* sink) {
    std::vector<const UOp*> stores;
    for (const UOp* store : sink->src) {
      const UOp* const old =
          g_.MakeChecked(Op::kLoad, DType::kVoid, {sink->src[Pick(sink->src.size())]->src[0]});
      const UOp* const value = Alu(g_, Pick(4) == 0 ? Op::kMax : Op::kAdd, store->src[1],
                                   Cast(g_, old, store->src[1]->dtype));
      stores.push_back(g_.MakeChecked(Op::kStore, DType::kVoid, {store->src[0], value}));
    }
    return Sink(g_, stores);
  }

  // Rows added to the places that another slot, or their number, says; out of range to none. The
  // places may be divided among parts.
  const UOp* MakeScatter() {
    const DType dtype = Pick(3) == 0 ? DType::kI32 : DType::kF32;
    std::vector<const UOp*> columns, rows;
    std::vector<int64_t> dims;
    for (int64_t i = 0, n = Pick(3); i < n; ++i) {
      dims.push_back(Extent());
      columns.push_back(Range(g_, 1 + i, dims.back()));
    }
    for (int64_t i = 0, n = 1 + Pick(2); i < n; ++i)
      rows.push_back(Range(g_, 10 + i, Extent(), RangeKind::kSequence));
    std::vector<int64_t> lengths;
    for (const UOp* row : rows) lengths.push_back(RangeOf(row).extent());
    const int64_t slot = slot_++, places = Extent();
    const UOp* place = Index(rows);
    if (Pick(3) != 0) {
      const UOp* const row = RowMajor(g_, rows, lengths);
      const UOp* const read = LoadAt(g_, slot_++, DType::kU8, row->vmax + 1, row);
      place = Alu(g_, Op::kMod, Cast(g_, read, DType::kI64), ConstIndex(g_, places + 1));
    }
    const UOp* gate = Within(g_, place, places);
    if (const int64_t parts = int64_t{1} << Pick(4); parts > 1) {
      const UOp* const part = Range(g_, Pick(2) == 0 ? 9 : 0, parts);
      const UOp* const own = Alu(g_, Op::kAnd, place, ConstIndex(g_, parts - 1));
      gate = Alu(g_, Op::kAnd, Alu(g_, Op::kCmpEq, own, part), gate);
    }
    std::vector<const UOp*> index = {place}, all = columns;
    index.insert(index.end(), columns.begin(), columns.end());
    all.insert(all.end(), rows.begin(), rows.end());
    std::vector<int64_t> table = {places};
    table.insert(table.end(), dims.begin(), dims.end());
    int64_t elements = 1;
    for (const int64_t d : table) elements *= d;
    const UOp* const at = RowMajor(g_, index, table);
    const UOp* const old = GatedLoadAt(g_, slot, dtype, elements, at, gate, ConstOf(g_, dtype, 0));
    const UOp* const sum = Add(g_, old, SomeLoad(dtype, all));
    return Sink(g_, {g_.MakeChecked(Op::kStore, DType::kVoid,
                                    {At(g_, slot, dtype, elements, at), sum, gate})});
  }

 private:
  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t Extent() {
    static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 17, 20, 24, 33};
    return kExtents[Pick(std::size(kExtents))];
  }
  DType SomeType() {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kI32,
                                       DType::kF64, DType::kU8,  DType::kF16, DType::kI64};
    return kTypes[Pick(std::size(kTypes))];
  }

  // An index over some of the ranges, somewhere between -100 and a few thousand.
  const UOp* Index(const std::vector<const UOp*>& ranges) {
    const UOp* sum = ConstIndex(g_, Pick(4) == 0 ? Pick(9) - 4 : 0);
    int64_t stride = 1;
    std::vector<const UOp*> order = ranges;
    if (Pick(4) == 0) std::shuffle(order.begin(), order.end(), random_);
    for (size_t i = order.size(); i-- > 0;) {
      if (Pick(4) == 0) continue;
      const UOp* r = order[i];
      switch (Pick(12)) {
        case 0: r = Alu(g_, Op::kIDiv, r, ConstIndex(g_, 2 + Pick(3))); break;
        case 1: r = Alu(g_, Op::kMod, r, ConstIndex(g_, 2 + Pick(6))); break;
        case 2: r = Add(g_, Mul(g_, r, ConstIndex(g_, -1)), ConstIndex(g_, order[i]->vmax)); break;
        default: break;
      }
      sum = Add(g_, sum, Mul(g_, r, ConstIndex(g_, stride)));
      if (Pick(5) != 0) stride *= r->vmax + 1;
      if (Pick(8) == 0) stride *= 2;
      stride = std::min<int64_t>(stride, 5000);
    }
    return sum;
  }

  const UOp* SomeLoad(DType dtype, const std::vector<const UOp*>& ranges) {
    const UOp* const index = Index(ranges);
    const int64_t reach = index->vmax + 1;
    if (index->vmin >= 0 && Pick(3) != 0) return LoadAt(g_, slot_++, dtype, reach, index);
    const int64_t count = std::max<int64_t>(1, reach - Pick(6));
    const UOp* const otherwise = ConstOf(g_, dtype, Pick(2) == 0 ? 0 : 3);
    return GatedLoadAt(g_, slot_++, dtype, count, index, Within(g_, index, count), otherwise);
  }

  const UOp* Condition(const std::vector<const UOp*>& ranges) {
    const UOp* const index = Index(ranges);
    const UOp* const limit =
        ConstIndex(g_, index->vmin + (index->vmax - index->vmin) * Pick(5) / 4);
    return Alu(g_, Pick(5) == 0 ? Op::kCmpNe : Op::kCmpLt, index, limit);
  }

  const UOp* Term(DType dtype, const std::vector<const UOp*>& outputs, int64_t& id) {
    std::vector<const UOp*> ranges = outputs, reduced;
    if (Pick(5) == 0 && !ranges.empty())
      ranges.pop_back();  // one that is the same along the last loop
    const auto is_small = [&] {
      return Points(ranges) < 3000 && Points(outputs) * Points(reduced) < kPointsMax;
    };
    for (int64_t i = 0, n = Pick(4); i < n && is_small(); ++i) {
      reduced.push_back(ReduceRange(g_, id++, Extent()));
      ranges.push_back(reduced.back());
    }
    const UOp* value = SomeLoad(dtype, ranges);
    for (int64_t i = 0, n = Pick(3); i < n; ++i) {
      switch (Pick(6)) {
        case 0: value = Alu(g_, Op::kMax, value, SomeLoad(dtype, ranges)); break;
        case 1: value = Add(g_, value, Cast(g_, SomeLoad(SomeIntFor(dtype), ranges), dtype)); break;
        case 2: value = Where(g_, Condition(ranges), value, SomeLoad(dtype, ranges)); break;
        case 3:
          value =
              Add(g_, value, Cast(g_, Alu(g_, Op::kMod, Index(ranges), ConstIndex(g_, 5)), dtype));
          break;
        case 4:  // of a small float it may differ by one rounding, which is more than is allowed
          if (dtype == DType::kF32 || dtype == DType::kF64)
            value = Alu(g_, Pick(2) == 0 ? Op::kTanh : Op::kCos, value);
          break;
        default: value = Mul(g_, value, SomeLoad(dtype, ranges)); break;
      }
    }
    if (reduced.empty()) return value;
    if (Pick(3) == 0)
      value = Where(g_, Alu(g_, Op::kAnd, Condition(ranges), Condition({ranges.back()})), value,
                    ConstOf(g_, dtype, 0));
    const UOp* fold = Fold(g_, Pick(4) == 0 ? Op::kMax : Op::kAdd, value, reduced);
    if (Pick(4) == 0 && Points(outputs) < kPointsMax) {  // a second one that uses the first
      const UOp* const k = ReduceRange(g_, id++, Extent());
      std::vector<const UOp*> inner = outputs;
      inner.push_back(k);
      fold = Fold(g_, Op::kAdd, Alu(g_, Op::kMax, SomeLoad(dtype, inner), fold), {k});
    }
    return fold;
  }

  static DType SomeIntFor(DType dtype) { return IsFloat(dtype) ? DType::kU8 : DType::kI16; }
  static int64_t Points(const std::vector<const UOp*>& ranges) {
    int64_t points = 1;
    for (const UOp* r : ranges) points *= RangeOf(r).extent();
    return points;
  }

  Graph& g_;
  std::mt19937 random_;
  int64_t slot_ = 0;
};

}  // namespace

const UOp* RandomKernel(Graph& g, uint32_t seed) {
  Maker maker(g, seed);
  if (seed % 16 == 5) return maker.MakeScatter();
  if (seed % 13 == 7) return maker.MakeRows();
  const UOp* const sink = maker.Make();
  return seed % 4 == 2 ? maker.InPlace(sink) : sink;
}

}  // namespace outboard::test
