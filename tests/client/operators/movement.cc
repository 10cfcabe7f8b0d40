// Operators that move elements and compute nothing: the same bits for every type.
#include "tests/client/operators/table.h"

namespace outboard::operators {

Group Movement() {
  const Operand matrix = {{2, 3}, -5, 5};
  return {
      "Movement",
      {
          Moved(
              "reshape", "x.reshape({3, -1})", "as many elements; one -1 is filled in", {matrix},
              [](auto& x) { return x[0].reshape({3, -1}); },
              [](auto& x) { return Reshaped(x[0], {3, 2}); }),
          Moved(
              "flatten", "x.flatten(first, last)", "the axes become one", {{{2, 1, 3}, -5, 5}},
              [](auto& x) { return x[0].flatten(1); },
              [](auto& x) { return Reshaped(x[0], {2, 3}); }),
          Moved(
              "unsqueeze", "x.unsqueeze(axis)", "a new axis of 1", {matrix},
              [](auto& x) { return x[0].unsqueeze(-1); },
              [](auto& x) { return Reshaped(x[0], {2, 3, 1}); }),
          Moved(
              "squeeze", "x.squeeze(), x.squeeze(axis)", "without axes of 1", {{{1, 3, 1}}},
              [](auto& x) { return x[0].squeeze(); }, [](auto& x) { return Reshaped(x[0], {3}); }),
          Moved(
              "squeeze", "x.squeeze(), x.squeeze(axis)", "without axes of 1", {{{1, 3, 1}}},
              [](auto& x) { return x[0].squeeze(-1); },
              [](auto& x) { return Reshaped(x[0], {1, 3}); }),
          Moved(
              "expand", "x.expand({4, -1, 3})", "axes of 1 stretch; -1 keeps", {{{2, 1}}},
              [](auto& x) { return x[0].expand({4, -1, 3}); },
              [](auto& x) { return Stretch(x[0], {4, 2, 3}); }),
          Moved(
              "permute", "x.permute({2, 0, 1})", "the axes in another order", {{{2, 3, 2}}},
              [](auto& x) { return x[0].permute({2, 0, -2}); },
              [](auto& x) {
                return Build({2, 2, 3}, [&](auto& i) { return x[0]({i[1], i[2], i[0]}); });
              }),
          Moved(
              "transpose", "x.transpose(a, b)", "two axes swapped; the last two", {matrix},
              [](auto& x) { return x[0].transpose(); },
              [](auto& x) { return Build({3, 2}, [&](auto& i) { return x[0]({i[1], i[0]}); }); }),
          Moved(
              "flip", "x.flip(axes)", "same", {matrix}, [](auto& x) { return x[0].flip({-1}); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) { return x[0]({i[0], 2 - i[1]}); });
              }),
          Moved(
              "pad", "x.pad({{before, after}, ...}, value)", "longer by before + after", {matrix},
              [](auto& x) { return x[0].pad({{1, 0}, {0, 2}}, 1); },
              [](auto& x) {
                return Build({3, 5}, [&](auto& i) {
                  return i[0] < 1 || i[1] > 2 ? 1 : x[0]({i[0] - 1, i[1]});
                });
              }),
          Moved(
              "shrink", "x.shrink({{begin, end}, ...})", "end - begin", {matrix},
              [](auto& x) { return x[0].shrink({{1, 2}, {0, 2}}); },
              [](auto& x) {
                return Build({1, 2}, [&](auto& i) { return x[0]({i[0] + 1, i[1]}); });
              }),
          Moved(
              "cat", "Tensor::cat({a, b, ...}, axis)", "the axis adds up; the others are equal",
              {matrix, {{2, 1}}, {{2, 0}}, {{2, 2}}},
              [](auto& x) { return Tensor::cat(x.operands, 1); },
              [](auto& x) {
                return Build({2, 6}, [&](auto& i) {
                  return i[1] < 3 ? x[0](i) : i[1] == 3 ? x[1]({i[0], 0}) : x[3]({i[0], i[1] - 4});
                });
              }),
          Moved(
              "stack", "Tensor::stack({a, b, ...}, axis)", "a new axis of as many",
              {matrix, matrix}, [](auto& x) { return Tensor::stack(x.operands, -1); },
              [](auto& x) {
                return Build({2, 3, 2}, [&](auto& i) { return x[i[2]]({i[0], i[1]}); });
              }),
          Moved(
              "split", "x.split(size, axis), x.split({2, 1}, axis)", "parts of an axis", {matrix},
              [](auto& x) { return x[0].split(2, 1)[1]; },
              [](auto& x) { return Build({2, 1}, [&](auto& i) { return x[0]({i[0], 2}); }); }),
          Moved(
              "split", "x.split(size, axis), x.split({2, 1}, axis)", "parts of an axis", {matrix},
              [](auto& x) {
                const auto parts = x[0].split({1, 0, 2}, -1);
                return Tensor::cat({parts[2], parts[1], parts[0]}, 1);
              },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) { return x[0]({i[0], (i[1] + 1) % 3}); });
              }),
          Moved(
              "chunk", "x.chunk(count, axis)", "parts of an axis", {{{5}}},
              [](auto& x) { return x[0].chunk(2)[1]; },
              [](auto& x) { return Build({2}, [&](auto& i) { return x[0]({i[0] + 3}); }); }),
          Moved(
              "roll", "x.roll(shift, axis)", "same", {matrix},
              [](auto& x) { return x[0].roll(-4, 1); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) { return x[0]({i[0], (i[1] + 1) % 3}); });
              }),
          Moved(
              "movedim", "x.movedim(from, to)", "the axes in another order", {{{2, 3, 1}}},
              [](auto& x) { return x[0].movedim(0, -1); },
              [](auto& x) {
                return Build({3, 1, 2}, [&](auto& i) { return x[0]({i[2], i[0], i[1]}); });
              }),
          Moved(
              "triu", "x.triu(diagonal)", "same", {{{2, 3, 3}}},
              [](auto& x) { return x[0].triu(1); },
              [](auto& x) {
                return Build({2, 3, 3}, [&](auto& i) { return i[2] >= i[1] + 1 ? x[0](i) : 0; });
              }),
          Moved(
              "tril", "x.tril(diagonal)", "same", {{{2, 3}}}, [](auto& x) { return x[0].tril(); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) { return i[1] <= i[0] ? x[0](i) : 0; });
              }),
          Moved(
              "repeat", "x.repeat({2, 3})", "each axis as many times; new ones in front", {{{2}}},
              [](auto& x) { return x[0].repeat({2, 3}); },
              [](auto& x) { return Build({2, 6}, [&](auto& i) { return x[0]({i[1] % 2}); }); }),
      },
  };
}

}  // namespace outboard::operators
