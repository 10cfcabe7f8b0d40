// Formulas over named axes, grids, diagonals, and decompositions of matrices.
#include <cmath>

#include "client/ops/product/product.h"
#include "client/ops/shape/shape.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

Row Einsum(const std::string& formula, std::vector<Operand> operands,
           std::function<Array(const Arrays&)> wanted) {
  return {"einsum",
          "einsum(\"ij,jk->ik\", {a, b})",
          "as the formula says",
          Types::kAll,
          Yields::kSum,
          Gradient::kYes,
          std::move(operands),
          [=](const Tensors& x) { return einsum(formula, x.operands); },
          std::move(wanted)};
}

double Sum(int64_t n, const std::function<double(int64_t)>& f) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += f(i);
  return sum;
}

// |r| of a [3, 2]: by Gram and Schmidt.
Array LengthsOfR(const Array& x) {
  const auto dot = [&](int64_t i, int64_t j) {
    return Sum(3, [&](int64_t k) { return x({k, i}) * x({k, j}); });
  };
  const double first = std::sqrt(dot(0, 0)), across = dot(0, 1) / first;
  return {{3, 2}, {first, std::abs(across), 0, std::sqrt(dot(1, 1) - across * across), 0, 0}};
}

// The roots of the eigenvalues of x^T x, of a [3, 2].
Array SingularValues(const Array& x) {
  const auto dot = [&](int64_t i, int64_t j) {
    return Sum(3, [&](int64_t k) { return x({k, i}) * x({k, j}); });
  };
  const double middle = (dot(0, 0) + dot(1, 1)) / 2;
  const double apart = std::hypot((dot(0, 0) - dot(1, 1)) / 2, dot(0, 1));
  return {{2}, {std::sqrt(middle + apart), std::sqrt(middle - apart)}};
}

Array Times(const Array& a, const Array& b) {
  return Build({a.dims[0], b.dims[1]}, [&](const Dims& i) {
    return Sum(a.dims[1], [&](int64_t k) { return a({i[0], k}) * b({k, i[1]}); });
  });
}

Array Turned(const Array& x) {
  return Build({x.dims[1], x.dims[0]}, [&](const Dims& i) { return x({i[1], i[0]}); });
}

}  // namespace

Group Formulas() {
  const Operand matrix = {{2, 3}, -5, 5}, tall = {{3, 2}, 0, 0, {2, 1, 0.5, -1.5, 1, 3}};
  return {
      "Formulas, grids and matrices",
      {
          Einsum("ij,jk->ik", {{{2, 3}}, {{3, 4}}}, [](auto& x) { return Times(x[0], x[1]); }),
          Einsum("ii->", {{{3, 3}}},
                 [](auto& x) {
                   return Array{{}, {Sum(3, [&](int64_t i) { return x[0]({i, i}); })}};
                 }),
          Einsum("...i,i,j", {{{2, 3}}, {{3}}, {{2}}},
                 [](auto& x) {
                   return Build({2, 2}, [&](auto& i) {
                     return Sum(3,
                                [&](int64_t k) {
                                  return x[0]({i[0], k}) * x[1]({k});
                                }) *
                            x[2]({i[1]});
                   });
                 }),
          Moved(
              "rearrange", "rearrange(x, \"b (r w) -> r b w\", {{\"w\", 2}})",
              "as the formula says", {{{2, 6}, -5, 5}},
              [](auto& x) {
                return rearrange(x[0], "b (r w) -> r b w", {{"w", 2}});
              },
              [](auto& x) {
                return Build({3, 2, 2}, [&](auto& i) { return x[0]({i[1], 2 * i[0] + i[2]}); });
              }),
          Moved(
              "rearrange", "rearrange(x, \"b (r w) -> r b w\", {{\"w\", 2}})",
              "as the formula says", {{{2, 3, 2}, -5, 5}},
              [](auto& x) { return rearrange(x[0], "... a -> a 1 (...)"); },
              [](auto& x) {
                return Build({2, 1, 6}, [&](auto& i) { return x[0]({i[2] / 3, i[2] % 3, i[0]}); });
              }),
          Moved(
              "meshgrid", "meshgrid({a, b, ...}, \"ij\")", "as many axes as tensors",
              {{{2}, -5, 5}, {{3}, -5, 5}},
              [](auto& x) {
                return Tensor::stack(meshgrid({x[0], x[1]}));
              },
              [](auto& x) {
                return Build({2, 2, 3},
                             [&](auto& i) { return i[0] == 0 ? x[0]({i[1]}) : x[1]({i[2]}); });
              }),
          Moved(
              "meshgrid", "meshgrid({a, b, ...}, \"ij\")", "as many axes as tensors",
              {{{2}, -5, 5}, {{3}, -5, 5}},
              [](auto& x) {
                return Tensor::stack(meshgrid({x[0], x[1]}, "xy"));
              },
              [](auto& x) {
                return Build({2, 3, 2},
                             [&](auto& i) { return i[0] == 0 ? x[0]({i[2]}) : x[1]({i[1]}); });
              }),
          Moved(
              "repeat_interleave", "repeat_interleave(x, times, axis)",
              "the axis as many times; or [count * times]", {matrix},
              [](auto& x) { return repeat_interleave(x[0], 2, 1); },
              [](auto& x) {
                return Build({2, 6}, [&](auto& i) { return x[0]({i[0], i[1] / 2}); });
              }),
          Moved(
              "repeat_interleave", "repeat_interleave(x, times, axis)",
              "the axis as many times; or [count * times]", {matrix},
              [](auto& x) { return repeat_interleave(x[0], 3); },
              [](auto& x) {
                return Build({18}, [&](auto& i) { return x[0]({i[0] / 9, i[0] / 3 % 3}); });
              }),
          Moved(
              "unfold", "unfold(x, axis, size, step)", "windows of the axis, in a new last one",
              {{{7, 2}, -5, 5}}, [](auto& x) { return unfold(x[0], 0, 3, 2); },
              [](auto& x) {
                return Build({3, 2, 3}, [&](auto& i) { return x[0]({2 * i[0] + i[2], i[1]}); });
              }),
          Moved(
              "diag", "diag(x)", "[n] -> [n, n]", {{{3}, -5, 5}},
              [](auto& x) { return diag(x[0]); },
              [](auto& x) {
                return Build({3, 3}, [&](auto& i) { return i[0] == i[1] ? x[0]({i[0]}) : 0; });
              }),
          Moved(
              "diagonal", "diagonal(x, offset, a, b)", "without a and b, their diagonal at the end",
              {{{3, 2, 4}, -5, 5}}, [](auto& x) { return diagonal(x[0], 1, 0, 2); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) { return x[0]({i[1], i[0], i[1] + 1}); });
              }),
          Moved(
              "diagonal", "diagonal(x, offset, a, b)", "without a and b, their diagonal at the end",
              {{{4, 2}, -5, 5}}, [](auto& x) { return diagonal(x[0], -3); },
              [](auto& x) {
                return Array{{1}, {x[0]({3, 0})}};
              }),
          Row{"qr",
              "qr(x): q and r",
              "[..., m, n] -> [..., m, m], [..., m, n]",
              Types::kFloats,
              Yields::kSame,
              Gradient::kYes,
              {tall},
              [](auto& x) { return Qr(qr(x[0])).r.abs(); },
              [](auto& x) { return LengthsOfR(x[0]); }},
          Row{"svd",
              "svd(x, full_matrices): u, s and v",
              "[..., m, n] -> [..., m, m], [..., k], [..., n, n]",
              Types::kFloats,
              Yields::kSame,
              Gradient::kYes,
              {tall},
              [](auto& x) { return Svd(svd(x[0], false)).s; },
              [](auto& x) { return SingularValues(x[0]); }},
          Row{"newton_schulz",
              "newton_schulz(x, steps, {c0, c1, c2}, eps)",
              "same",
              Types::kFloats,
              Yields::kSame,
              Gradient::kYes,
              {tall},
              [](auto& x) {
                return newton_schulz(x[0], 2, {2, -1.5, 0.5});
              },
              [](auto& x) {
                double squares = 0;
                for (const double value : x[0].values) squares += value * value;
                Array y = x[0];
                for (double& value : y.values) value /= std::sqrt(squares) + 1e-7;
                for (int step = 0; step < 2; ++step) {
                  const Array square = Times(y, Turned(y));
                  const Array once = Times(square, y), twice = Times(square, once);
                  for (size_t i = 0; i < y.values.size(); ++i)
                    y.values[i] = 2 * y.values[i] - 1.5 * once.values[i] + 0.5 * twice.values[i];
                }
                return y;
              },
              8},
      },
  };
}

}  // namespace outboard::operators
