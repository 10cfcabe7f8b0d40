// Elements by index.
#include "tests/client/operators/table.h"

namespace outboard::operators {

Group Indexing() {
  const Operand table = {{4, 2}, -5, 5};
  const Operand rows = {{3}, 0, 0, {3, 0, 3}, DType::kI32};
  return {
      "By index",
      {
          Moved(
              "operator[]", "x[2], x[-1]", "without the first axis", {table},
              [](auto& x) { return x[0][-1]; },
              [](auto& x) { return Build({2}, [&](auto& i) { return x[0]({3, i[0]}); }); }),
          Moved(
              "operator[]", "x[rows], rows of integers", "rows.shape + x.shape[1:]", {table, rows},
              [](auto& x) { return x[0][x[1]]; },
              [](auto& x) {
                return Build({3, 2}, [&](auto& i) {
                  return x[0]({static_cast<int64_t>(x[1]({i[0]})), i[1]});
                });
              }),
          Moved(
              "operator[]", "x[Slice{begin, end, step}]", "as Python's begin:end:step",
              {{{7}, -5, 5}}, [](auto& x) { return x[0][Slice{1, {}, 3}]; },
              [](auto& x) { return Build({2}, [&](auto& i) { return x[0]({3 * i[0] + 1}); }); }),
          Moved(
              "operator[]", "x[Slice{begin, end, step}]", "as Python's begin:end:step",
              {{{7}, -5, 5}}, [](auto& x) { return x[0][Slice{-2, -100, -2}]; },
              [](auto& x) { return Build({3}, [&](auto& i) { return x[0]({5 - 2 * i[0]}); }); }),
          Moved(
              "operator[]", "x[Slice{begin, end, step}]", "as Python's begin:end:step", {table},
              [](auto& x) { return x[0][Slice{3, 1}]; },
              [](auto&) { return Build({0, 2}, [](auto&) { return 0; }); }),
          Moved(
              "operator[]", "x[{Slice{}, 2, kNewAxis, kEllipsis, rows}]", "one index for each axis",
              {{{2, 3, 2, 4}, -5, 5}, {{2}, 0, 0, {-1, 2}, DType::kI64}},
              [](auto& x) { return x[0][{-1, kNewAxis, Slice{0, 2}, kEllipsis, x[1]}]; },
              [](auto& x) {
                return Build({1, 2, 2, 2},
                             [&](auto& i) { return x[0]({1, i[1], i[2], i[3] == 0 ? 3 : 2}); });
              }),
          Moved(
              "operator[]", "x[{Slice{}, 2, kNewAxis, kEllipsis, rows}]", "one index for each axis",
              {{{2, 3, 4}, -5, 5},
               {{2, 1}, 0, 0, {2, -3}, DType::kI32},
               {{3}, 0, 0, {0, 3, 4}, DType::kU8}},
              [](auto& x) { return x[0][{Slice{}, x[1], x[2]}]; },
              [](auto& x) {
                return Build({2, 2, 3}, [&](auto& i) {
                  if (i[2] == 2) return 0.0;  // out of range
                  return x[0]({i[0], i[1] == 0 ? 2 : 0, i[2] == 0 ? 0 : 3});
                });
              }),
          Moved(
              "operator[]", "x[{Slice{}, 2, kNewAxis, kEllipsis, rows}]", "one index for each axis",
              {{{2, 3, 4}, -5, 5},
               {{3}, 0, 0, {1, 0, 1}, DType::kI32},
               {{3}, 0, 0, {0, 3, 2}, DType::kI16}},
              [](auto& x) { return x[0][{x[1], Slice{}, x[2]}]; },
              [](auto& x) {  // not side by side: in front
                return Build({3, 3}, [&](auto& i) {
                  return x[0]({i[0] == 1 ? 0 : 1, i[1], i[0] == 0 ? 0 : 4 - i[0]});
                });
              }),
          Moved(
              "gather", "x.gather(axis, index)", "the shape of the index",
              {{{3, 2}, -5, 5}, {{2, 2}, 0, 0, {2, 0, -1, 3}, DType::kI32}},
              [](auto& x) { return x[0].gather(0, x[1]); },
              [](auto& x) {
                return Build({2, 2}, [&](auto& i) {
                  const double place = x[1](i);
                  if (place == 3) return 0.0;  // out of range
                  return x[0]({place < 0 ? 2 : static_cast<int64_t>(place), i[1]});
                });
              }),
          Moved(
              "take", "x.take(index, axis)", "index.shape in place of the axis",
              {{{2, 4}, -5, 5}, {{2, 2}, 0, 0, {3, 0, 3, 1}, DType::kU8}},
              [](auto& x) { return x[0].take(x[1], 1); },
              [](auto& x) {
                return Build({2, 2, 2}, [&](auto& i) {
                  return x[0]({i[0], static_cast<int64_t>(x[1]({i[1], i[2]}))});
                });
              }),
          Moved(
              "slice", "x.slice(axis, begin, end)", "the axis has end - begin", {table},
              [](auto& x) { return x[0].slice(0, 1, 3); },
              [](auto& x) {
                return Build({2, 2}, [&](auto& i) { return x[0]({i[0] + 1, i[1]}); });
              }),
          Row{"one_hot",
              "labels.one_hot(classes, dtype)",
              "shape + [classes]",
              Types::kIntegers,
              Yields::kI32,
              Gradient::kNone,
              {{{4}, 0, 0, {2, 0, 5, 1}}},
              [](auto& x) { return x[0].one_hot(3); },
              [](auto& x) {
                return Build({4, 3}, [&](auto& i) { return x[0]({i[0]}) == i[1] ? 1 : 0; });
              },
              0},
      },
  };
}

}  // namespace outboard::operators
