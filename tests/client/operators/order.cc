// Order along an axis, elements to places, masks.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/lazy/items.h"
#include "client/ops/index/index.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// The places of row `row` of a matrix, in order.
std::vector<int64_t> Places(const Array& x, int64_t row, bool descending) {
  std::vector<int64_t> places(x.dims[1]);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t i, int64_t j) {
    return descending ? x({row, i}) > x({row, j}) : x({row, i}) < x({row, j});
  });
  return places;
}

Array InOrder(const Array& x, int64_t k, bool descending) {
  return Build({x.dims[0], k}, [&](const Dims& i) {
    return x({i[0], Places(x, i[0], descending)[i[1]]});
  });
}

// Of [3, 2], along axis 0: what `f` makes of the own element and of those that point there.
Array Scattered(const Array& x, const Array& index, const Array& src,
                const std::function<double(double, const std::vector<double>&)>& f) {
  return Build(x.dims, [&](const Dims& i) {
    std::vector<double> here;
    for (int64_t j = 0; i[1] < index.dims[1] && j < index.dims[0]; ++j) {
      double place = index({j, i[1]});
      if (place < 0) place += static_cast<double>(x.dims[0]);
      if (place == static_cast<double>(i[0])) here.push_back(src({j, i[1]}));
    }
    return f(x(i), here);
  });
}

using Values = std::vector<double>;

double Mean(double own, const Values& here) {
  return std::accumulate(here.begin(), here.end(), own) / static_cast<double>(here.size() + 1);
}

Row Reduced(ScatterReduce how, bool include_self, Types types, Yields yields,
            std::function<double(double, const Values&)> f) {
  return {"scatter_reduce",
          how == ScatterReduce::kMean ? "scatter_reduce(x, axis, index, src, kMean)"
                                      : "scatter_reduce(x, axis, index, src, how, include_self)",
          "the shape of x",
          types,
          yields,
          Gradient::kYes,
          {{{3, 3}, 1, 5}, {{3, 2}, 0, 0, {0, 2, 0, -1, 0, 3}, DType::kI32}, {{3, 3}, 1, 5}},
          [=](auto& x) { return scatter_reduce(x[0], 0, x[1], x[2], how, include_self); },
          [=](auto& x) { return Scattered(x[0], x[1], x[2], f); }};
}

}  // namespace

Group Order() {
  const Operand matrix = {{3, 4}, -5, 5};
  const Operand mask = {{2, 3}, 0, 0, {1, 0, 1, 0, 0, 1}, DType::kBool};
  return {
      "Order, places and masks",
      {
          Moved(
              "sort", "sort(x, axis, descending)", "values and indices of the shape of x", {matrix},
              [](auto& x) { return Sorted(sort(x[0])).values; },
              [](auto& x) { return InOrder(x[0], 4, false); }),
          Moved(
              "sort", "sort(x, axis, descending)", "values and indices of the shape of x", {matrix},
              [](auto& x) { return sort(x[0].transpose(), 0, true).values.transpose(); },
              [](auto& x) { return InOrder(x[0], 4, true); }),
          Row{"argsort",
              "argsort(x, axis, descending)",
              "the shape of x",
              Types::kAll,
              Yields::kI32,
              Gradient::kNone,
              {{{2, 6}, -3, 3}},
              [](auto& x) { return argsort(x[0], -1, true); },
              [](auto& x) {
                return Build({2, 6}, [&](auto& i) {
                  return static_cast<double>(Places(x[0], i[0], true)[i[1]]);
                });
              },
              0},
          Moved(
              "topk", "topk(x, k, axis, largest)", "k along the axis", {{{2, 70}, -100, 100}},
              [](auto& x) { return topk(x[0], 3).values; },
              [](auto& x) { return InOrder(x[0], 3, true); }),
          Moved(
              "topk", "topk(x, k, axis, largest)", "k along the axis", {matrix},
              [](auto& x) { return topk(x[0], 2, 1, false).values; },
              [](auto& x) { return InOrder(x[0], 2, false); }),
          Moved(
              "scatter", "scatter(x, axis, index, src)", "the shape of x",
              {{{3, 3}, -5, 5}, {{3, 2}, 0, 0, {0, 2, 0, -1, 2, 3}, DType::kI32}, {{3, 3}, -5, 5}},
              [](auto& x) { return scatter(x[0], 0, x[1], x[2]); },
              [](auto& x) {
                return Scattered(x[0], x[1], x[2], [](double own, const Values& here) {
                  return here.empty() ? own : here.back();
                });
              }),
          Reduced(ScatterReduce::kSum, true, Types::kNumbers, Yields::kSame,
                  [](double own, const Values& here) {
                    return std::accumulate(here.begin(), here.end(), own);
                  }),
          Reduced(ScatterReduce::kProd, false, Types::kNumbers, Yields::kSame,
                  [](double own, const Values& here) {
                    return here.empty() ? own
                                        : std::accumulate(here.begin(), here.end(), 1.0,
                                                          std::multiplies<>());
                  }),
          Reduced(ScatterReduce::kMean, true, Types::kNumbers, Yields::kFloat, Mean),
          Reduced(ScatterReduce::kMax, true, Types::kNumbers, Yields::kSame,
                  [](double own, const Values& here) {
                    return here.empty()
                               ? own
                               : std::max(own, *std::max_element(here.begin(), here.end()));
                  }),
          Reduced(ScatterReduce::kMin, false, Types::kNumbers, Yields::kSame,
                  [](double own, const Values& here) {
                    return here.empty() ? own : *std::min_element(here.begin(), here.end());
                  }),
          Moved(
              "with_items", "with_items(x, indices, value), set_items(x, indices, value)",
              "the shape of x", {matrix, {{2, 1}, -5, 5}},
              [](auto& x) {
                return with_items(x[0], {Slice{2, {}, -2}, Slice{1, 3}}, x[1]);
              },
              [](auto& x) {
                return Build({3, 4}, [&](auto& i) {
                  const bool inside = i[0] != 1 && (i[1] == 1 || i[1] == 2);
                  return inside ? x[1]({i[0] == 2 ? 0 : 1, 0}) : x[0](i);
                });
              }),
          Moved(
              "with_items", "with_items(x, indices, value), set_items(x, indices, value)",
              "the shape of x", {matrix, {{3}, 0, 0, {-1, 0, 3}, DType::kI32}, {{2, 3}, -5, 5}},
              [](auto& x) {
                return with_items(x[0], {Slice{0, 2}, x[1]}, x[2]);
              },
              [](auto& x) {  // column 3 is named twice: the last one stays
                return Build({3, 4}, [&](auto& i) {
                  if (i[0] == 2 || i[1] == 1 || i[1] == 2) return x[0](i);
                  return x[2]({i[0], i[1] == 0 ? 1 : 2});
                });
              }),
          Moved(
              "with_items", "with_items(x, indices, value), set_items(x, indices, value)",
              "the shape of x",
              {{{2, 3, 2}, -5, 5},
               {{2}, 0, 0, {1, 0}, DType::kI32},
               {{2}, 0, 0, {0, 1}, DType::kI64},
               {{2, 3}, -5, 5}},
              [](auto& x) {
                return with_items(x[0], {x[1], Slice{}, x[2]}, x[3]);
              },
              [](auto& x) {
                return Build({2, 3, 2}, [&](auto& i) {
                  return i[0] == i[2] ? x[0](i) : x[3]({i[0] == 1 ? 0 : 1, i[1]});
                });
              }),
          Moved(
              "set_items", "with_items(x, indices, value), set_items(x, indices, value)",
              "the shape of x", {matrix, {{4}, -5, 5}},
              [](auto& x) {
                Tensor y = x[0].contiguous();
                set_items(y, {-1}, x[1]);
                return y;
              },
              [](auto& x) {
                return Build({3, 4}, [&](auto& i) { return i[0] == 2 ? x[1]({i[1]}) : x[0](i); });
              }),
          Moved(
              "part", "part(x, indices), which an assign writes to x", "as x[indices]", {matrix},
              [](auto& x) {
                return part(x[0], {Slice{1, {}}, 2});
              },
              [](auto& x) { return Build({2}, [&](auto& i) {
                              return x[0]({i[0] + 1, 2});
                            }); }),
          Moved(
              "masked_fill", "masked_fill(x, mask, value)", "broadcast from the right",
              {{{4, 2, 3}, -5, 5}, mask, {{1}, -5, 5}},
              [](auto& x) { return masked_fill(x[0], x[1], x[2]); },
              [](auto& x) {
                return Build({4, 2, 3}, [&](auto& i) {
                  return x[1]({i[1], i[2]}) != 0 ? x[2]({0}) : x[0](i);
                });
              }),
          Moved(
              "masked_select", "masked_select(x, mask), masked_select(x, mask, size, fill)",
              "[count], or [size]", {{{2, 3}, -5, 5}, mask},
              [](auto& x) { return masked_select(x[0], x[1]); },
              [](auto& x) {
                return Array{{3}, {x[0]({0, 0}), x[0]({0, 2}), x[0]({1, 2})}};
              }),
          Moved(
              "masked_select", "masked_select(x, mask), masked_select(x, mask, size, fill)",
              "[count], or [size]", {{{2, 3}, -5, 5}, mask},
              [](auto& x) { return masked_select(x[0], x[1], 4, 1); },
              [](auto& x) {
                return Array{{4}, {x[0]({0, 0}), x[0]({0, 2}), x[0]({1, 2}), 1}};
              }),
          Row{"nonzero",
              "nonzero(x), nonzero(x, size, fill)",
              "[count, rank], or [size, rank]",
              Types::kAll,
              Yields::kI32,
              Gradient::kNone,
              {{{2, 3}, 0, 0, {0, 1, 0, 1, 1, 0}}},
              [](auto& x) { return nonzero(x[0]); },
              [](auto&) {
                return Array{{3, 2}, {0, 1, 1, 0, 1, 1}};
              },
              0},
          Row{"nonzero",
              "nonzero(x), nonzero(x, size, fill)",
              "[count, rank], or [size, rank]",
              Types::kAll,
              Yields::kI32,
              Gradient::kNone,
              {{{2, 3}, 0, 0, {0, 1, 0, 1, 1, 0}}},
              [](auto& x) { return nonzero(x[0], 4, -1); },
              [](auto&) {
                return Array{{4, 2}, {0, 1, 1, 0, 1, 1, -1, -1}};
              },
              0},
      },
  };
}

}  // namespace outboard::operators
