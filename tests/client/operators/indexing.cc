// Elements by index.
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

Row Picks(const std::string& name, const std::string& form, const std::string& shapes,
          std::vector<Operand> operands, std::function<Tensor(const Tensors&)> make,
          std::function<Array(const Arrays&)> wanted) {
  return {name,
          form,
          shapes,
          Types::kAll,
          Yields::kSame,
          Gradient::kYes,
          std::move(operands),
          std::move(make),
          std::move(wanted),
          0};
}

}  // namespace

Group Indexing() {
  const Operand table = {{4, 2}, -5, 5};
  const Operand rows = {{3}, 0, 0, {3, 0, 3}, DType::kI32};
  return {
      "By index",
      {
          Picks(
              "operator[]", "x[2], x[-1]", "without the first axis", {table},
              [](auto& x) { return x[0][-1]; },
              [](auto& x) { return Build({2}, [&](auto& i) { return x[0]({3, i[0]}); }); }),
          Picks(
              "operator[]", "x[rows], rows of integers", "rows.shape + x.shape[1:]", {table, rows},
              [](auto& x) { return x[0][x[1]]; },
              [](auto& x) {
                return Build({3, 2}, [&](auto& i) {
                  return x[0]({static_cast<int64_t>(x[1]({i[0]})), i[1]});
                });
              }),
          Picks(
              "take", "x.take(index, axis)", "index.shape in place of the axis",
              {{{2, 4}, -5, 5}, {{2, 2}, 0, 0, {3, 0, 3, 1}, DType::kU8}},
              [](auto& x) { return x[0].take(x[1], 1); },
              [](auto& x) {
                return Build({2, 2, 2}, [&](auto& i) {
                  return x[0]({i[0], static_cast<int64_t>(x[1]({i[1], i[2]}))});
                });
              }),
          Picks(
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
