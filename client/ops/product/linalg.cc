#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/index/index.h"
#include "client/ops/product/product.h"

namespace outboard {
namespace {

// One sweep rotates every pair of columns once; the last ones change nothing in the last place of
// f64 for matrices up to about 100 columns.
constexpr int64_t kSweeps = 10;

Tensor Columns(const Tensor& x, int64_t begin, int64_t end) { return x.slice(-1, begin, end); }

Tensor SumOfSquares(const Tensor& x) { return x.square().sum(-2, true); }  // of each column

// Of what is not negative; 0 where x is 0, with a gradient of 0.
Tensor Root(const Tensor& x) {
  const Tensor is_positive = x > 0;
  return is_positive.where(is_positive.where(x, 1.0).sqrt(), 0.0);
}

// a / b, 0 where b is 0.
Tensor Quotient(const Tensor& a, const Tensor& b) {
  const Tensor is_zero = b == 0;
  return is_zero.where(0.0, a / is_zero.where(1.0, b));
}

Tensor MatrixOf(const Tensor& x, const char* what) {
  if (x.rank() < 2)
    ThrowInvalid(absl::StrCat(what, ": needs two axes, not ", x.rank()), Mistake::kCheck);
  if (!IsFloat(x.dtype()))
    ThrowInvalid(absl::StrCat(what, ": needs floats, not ", std::string(Name(x.dtype()))));
  return x.cast(AccumulateType(x.dtype()));
}

Tensor EyeLike(const Tensor& x, int64_t n) {
  Dims dims = x.shape();
  dims[dims.size() - 2] = dims.back() = n;
  return Tensor::eye(n, x.dtype()).expand(dims);
}

// Columns in pairs: place i of the left half with place i of the right one.
struct Pairs {
  Tensor left, right;
};

// Turned so that the columns of the first m rows are orthogonal; the rows below take part.
Pairs Rotated(const Pairs& x, int64_t m) {
  const Tensor a = x.left.slice(-2, 0, m), b = x.right.slice(-2, 0, m);
  const Tensor across = (a * b).sum(-2, true);
  // The tangent of the angle: the smaller root of t^2 + 2 zeta t - 1.
  const Tensor zeta = Quotient(SumOfSquares(b) - SumOfSquares(a), across * 2.0);
  const Tensor one = zeta.ones_like();
  const Tensor steep = one / (zeta.abs() + Root(zeta * zeta + one));
  const Tensor tangent = (across == 0).where(0.0, (zeta < 0).where(-steep, steep));
  const Tensor cosine = (tangent * tangent + one).rsqrt().contiguous();
  const Tensor sine = (cosine * tangent).contiguous();
  return {cosine * x.left - sine * x.right, sine * x.left + cosine * x.right};
}

// The next pairs of a tournament: the first column stays, the others go round by one place. After
// 2 * count - 1 rounds all have met, and stand where they began.
Pairs NextRound(const Pairs& x, int64_t count) {
  if (count == 1) return x;
  const auto& [left, right] = x;
  return {Tensor::cat({Columns(left, 0, 1), Columns(right, 0, 1), Columns(left, 1, count - 1)}, -1),
          Tensor::cat({Columns(right, 1, count), Columns(left, count - 1, count)}, -1)};
}

// An orthogonal matrix whose first columns are those of `x`, which are orthonormal or zero.
Tensor Completed(const Tensor& x) {
  const int64_t m = x.shape(-2), n = x.shape(-1);
  const auto [q, r] = qr(x);
  const Tensor diagonal = (r.slice(-2, 0, n) * Tensor::eye(n, x.dtype())).sum(-2, true);
  const Tensor ones = diagonal.ones_like();
  const Tensor signs = (diagonal < 0).where(-ones, ones);
  return Tensor::cat({Columns(q, 0, n) * signs, Columns(q, n, m)}, -1);
}

}  // namespace

// By reflections (Householder, 1958).
Qr qr(const Tensor& x, At at) {
  const CallSite site(at);
  const DType dtype = x.dtype();
  Tensor r = MatrixOf(x, "qr");
  const int64_t m = r.shape(-2), n = r.shape(-1);
  Tensor q = EyeLike(r, m);
  const Tensor rows = Tensor::arange(m).unsqueeze(1);
  for (int64_t i = 0; i < std::min(m, n); ++i) {
    // H = 1 - 2 v v^T / v^T v takes what is in column i from row i on to its length in row i.
    const Tensor column = (rows >= i).where(Columns(r, i, i + 1), 0.0);
    const Tensor top = r.slice(-2, i, i + 1).slice(-1, i, i + 1);
    const Tensor length = Root(SumOfSquares(column));
    const Tensor moved = (top < 0).where(top - length, top + length);  // so nothing cancels
    const Tensor v = (rows == i).where(moved, column).contiguous();
    const Tensor w = Quotient(v * 2.0, SumOfSquares(v)).contiguous();
    r = (r - w.matmul(v.transpose().matmul(r))).contiguous();
    q = (q - q.matmul(v).matmul(w.transpose())).contiguous();
  }
  return {q.cast(dtype), r.triu().cast(dtype)};
}

// By rotations of pairs of columns (Hestenes, 1958), all pairs of a round at once (Brent and Luk,
// 1985).
Svd svd(const Tensor& x, bool full_matrices, At at) {
  const CallSite site(at);
  const DType dtype = x.dtype();
  const Tensor matrix = MatrixOf(x, "svd");
  const int64_t m = matrix.shape(-2), n = matrix.shape(-1);
  if (m < n) {
    const auto [u, s, v] = svd(x.transpose(), full_matrices);
    return {v.transpose(), s, u.transpose()};
  }
  // x above the unit matrix: whatever turns the columns of x into u s turns the unit matrix into
  // v^T.
  const Tensor both = Tensor::cat({matrix, EyeLike(matrix, n)}, -2);
  const int64_t count = (n + 1) / 2;
  Pairs pairs = {Columns(both, 0, count), Columns(both, count, n)};
  if (n % 2 == 1) {  // a column of zeros, which nothing turns
    SymIntPairs sides(both.rank());
    sides.back() = {0, 1};
    pairs.right = pairs.right.pad(sides);
  }
  for (int64_t round = 0; round < kSweeps * (2 * count - 1); ++round) {
    pairs = NextRound(Rotated(pairs, m), count);
    pairs = {pairs.left.contiguous(), pairs.right.contiguous()};
  }
  const Tensor turned = Columns(Tensor::cat({pairs.left, pairs.right}, -1), 0, n);
  const Tensor us = turned.slice(-2, 0, m), v = turned.slice(-2, m, m + n);
  const auto [s, order] = sort(Root(SumOfSquares(us)), -1, true);  // [..., 1, n]
  const auto in_order = [&order = order](const Tensor& columns) {
    return columns.gather(-1, order.expand(columns.shape()));
  };
  // Where a singular value is zero, a column is missing; completing gives one.
  Tensor u = Completed(Quotient(in_order(us), s).contiguous());
  if (!full_matrices) u = Columns(u, 0, n);
  return {u.cast(dtype), s.squeeze(-2).cast(dtype), in_order(v).transpose().cast(dtype)};
}

// y = c0 y + c1 (y y^T) y + c2 (y y^T)^2 y ..., from y = x / |x| on.
Tensor newton_schulz(const Tensor& x, int64_t steps, const std::vector<double>& coefficients,
                     double eps, At at) {
  const CallSite site(at);
  const Tensor matrix = MatrixOf(x, "newton_schulz");
  if (coefficients.empty()) ThrowInvalid("newton_schulz: no coefficients");
  if (x.shape(-2) > x.shape(-1))
    return newton_schulz(x.transpose(), steps, coefficients, eps).transpose();
  Tensor y = matrix / (matrix.square().sum({-2, -1}, true).sqrt() + eps);
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor square = y.matmul(y.transpose());
    Tensor power = y;
    y = power * coefficients[0];
    for (size_t i = 1; i < coefficients.size(); ++i) {
      power = square.matmul(power);
      y = y + power * coefficients[i];
    }
  }
  return y.cast(x.dtype());
}

}  // namespace outboard
