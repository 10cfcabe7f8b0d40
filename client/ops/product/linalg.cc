#include "client/ops/product/linalg.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/index/sorting.h"

namespace outboard {
namespace {

// One sweep rotates every pair of columns once; the last ones change nothing in the last place of
// f64 for matrices up to about 100 columns.
constexpr int64_t kSweeps = 10;

// Operators at the line of the user.
struct Line {
  At at;

  Arg operator()(const Tensor& x) const { return Arg(x, at); }
  Arg operator()(double number) const { return Arg(number, at); }
  Tensor Times(const Tensor& a, const Tensor& b) const {
    return (*this)(a).tensor().matmul((*this)(b));
  }
  Tensor Add(const Tensor& a, const Tensor& b) const { return (*this)(a) + (*this)(b); }
  Tensor Minus(const Tensor& a, const Tensor& b) const { return (*this)(a) - (*this)(b); }
  Tensor Mul(const Tensor& a, const Tensor& b) const { return (*this)(a) * (*this)(b); }
  Tensor Mul(const Tensor& a, double b) const { return (*this)(a) * (*this)(b); }
  Tensor Over(const Tensor& a, const Tensor& b) const { return (*this)(a) / (*this)(b); }
  Tensor IsPositive(const Tensor& a) const { return (*this)(a) > (*this)(0); }
  Tensor IsNegative(const Tensor& a) const { return (*this)(a) < (*this)(0); }
  Tensor T(const Tensor& x) const { return x.transpose(-2, -1, at); }
  Tensor Columns(const Tensor& x, int64_t begin, int64_t end) const {
    return x.slice(-1, begin, end, at);
  }
  Tensor SumOfSquares(const Tensor& x) const { return Mul(x, x).sum(-2, true, at); }
  // Of what is not negative; 0 where x is 0, with a gradient of 0.
  Tensor Root(const Tensor& x) const {
    const Tensor is_positive = IsPositive(x);
    const Tensor root = is_positive.where((*this)(x), (*this)(1.0)).sqrt(at);
    return is_positive.where((*this)(root), (*this)(0.0));
  }
  // a / b, 0 where b is 0.
  Tensor Quotient(const Tensor& a, const Tensor& b) const {
    const Tensor is_zero = (*this)(b) == (*this)(0);
    const Tensor quotient = Over(a, is_zero.where((*this)(1.0), (*this)(b)));
    return is_zero.where((*this)(0.0), (*this)(quotient));
  }
};

Tensor MatrixOf(const Tensor& x, const char* what, const At& at) {
  if (x.rank(at) < 2) ThrowInvalid(at, absl::StrCat(what, ": needs two axes, not ", x.rank(at)));
  if (!IsFloat(x.dtype(at)))
    ThrowInvalid(at, absl::StrCat(what, ": needs floats, not ", std::string(Name(x.dtype(at)))));
  return x.cast(AccumulateType(x.dtype(at)), at);
}

Tensor EyeLike(const Tensor& x, int64_t n, const At& at) {
  Dims dims = x.shape(at);
  dims[dims.size() - 2] = dims.back() = n;
  return Tensor::eye(n, x.dtype(at), at).expand(dims, at);
}

// Columns in pairs: place i of the left half with place i of the right one.
struct Pairs {
  Tensor left, right;
};

// Turned so that the columns of the first m rows are orthogonal; the rows below take part.
Pairs Rotated(const Line& at, const Pairs& x, int64_t m) {
  const Tensor a = x.left.slice(-2, 0, m, at.at), b = x.right.slice(-2, 0, m, at.at);
  const Tensor across = at.Mul(a, b).sum(-2, true, at.at);
  // The tangent of the angle: the smaller root of t^2 + 2 zeta t - 1.
  const Tensor zeta =
      at.Quotient(at.Minus(at.SumOfSquares(b), at.SumOfSquares(a)), at.Mul(across, 2));
  const Tensor one = zeta.ones_like(at.at);
  const Tensor length = at.Add(zeta.abs(at.at), at.Root(at.Add(at.Mul(zeta, zeta), one)));
  const Tensor steep = at.Over(one, length);
  const Tensor signed_steep = at.IsNegative(zeta).where(at(steep.neg(at.at)), at(steep));
  const Tensor is_orthogonal = at(across) == at(0);
  const Tensor tangent = is_orthogonal.where(at(0.0), at(signed_steep));
  const Tensor cosine = at.Add(at.Mul(tangent, tangent), one).rsqrt(at.at).contiguous(at.at);
  const Tensor sine = at.Mul(cosine, tangent).contiguous(at.at);
  return {at.Minus(at.Mul(cosine, x.left), at.Mul(sine, x.right)),
          at.Add(at.Mul(sine, x.left), at.Mul(cosine, x.right))};
}

// The next pairs of a tournament: the first column stays, the others go round by one place. After
// 2 * count - 1 rounds all have met, and stand where they began.
Pairs NextRound(const Line& at, const Pairs& x, int64_t count) {
  if (count == 1) return x;
  const auto part = [&](const Tensor& half, int64_t begin, int64_t end) {
    return at.Columns(half, begin, end);
  };
  return {
      Tensor::cat({part(x.left, 0, 1), part(x.right, 0, 1), part(x.left, 1, count - 1)}, -1, at.at),
      Tensor::cat({part(x.right, 1, count), part(x.left, count - 1, count)}, -1, at.at)};
}

// An orthogonal matrix whose first columns are those of `x`, which are orthonormal or zero.
Tensor Completed(const Line& at, const Tensor& x) {
  const int64_t m = x.shape(-2, at.at), n = x.shape(-1, at.at);
  const auto [q, r] = qr(x, at.at);
  const Tensor eye = Tensor::eye(n, x.dtype(at.at), at.at);
  const Tensor diagonal = at.Mul(r.slice(-2, 0, n, at.at), eye).sum(-2, true, at.at);
  const Tensor ones = diagonal.ones_like(at.at);
  const Tensor signs = at.IsNegative(diagonal).where(at(ones.neg(at.at)), at(ones));
  const Tensor first = at.Mul(at.Columns(q, 0, n), signs);
  return Tensor::cat({first, at.Columns(q, n, m)}, -1, at.at);
}

}  // namespace

Qr qr(const Tensor& x, At at) {
  const Line line = {at};
  const DType dtype = x.dtype(at);
  Tensor r = MatrixOf(x, "qr", at);
  const int64_t m = r.shape(-2, at), n = r.shape(-1, at);
  Tensor q = EyeLike(r, m, at);
  const Tensor rows = Tensor::arange(m, DType::kI32, at).unsqueeze(1, at);
  for (int64_t i = 0; i < std::min(m, n); ++i) {
    // H = 1 - 2 v v^T / v^T v takes what is in column i from row i on to its length in row i.
    const Tensor is_below = Arg(rows, at) >= Arg(i, at), is_at = Arg(rows, at) == Arg(i, at);
    const Tensor column = is_below.where(line(line.Columns(r, i, i + 1)), line(0.0));
    const Tensor top = r.slice(-2, i, i + 1, at).slice(-1, i, i + 1, at);
    const Tensor length = line.Root(line.SumOfSquares(column));
    // Away from zero, so that nothing cancels.
    const Tensor moved =
        line.IsNegative(top).where(line(line.Minus(top, length)), line(line.Add(top, length)));
    const Tensor v = is_at.where(line(moved), line(column)).contiguous(at);
    const Tensor w = line.Quotient(line.Mul(v, 2), line.SumOfSquares(v)).contiguous(at);
    r = line.Minus(r, line.Times(w, line.Times(line.T(v), r))).contiguous(at);
    q = line.Minus(q, line.Times(line.Times(q, v), line.T(w))).contiguous(at);
  }
  return {q.cast(dtype, at), r.triu(0, at).cast(dtype, at)};
}

Svd svd(const Tensor& x, bool full_matrices, At at) {
  const Line line = {at};
  const DType dtype = x.dtype(at);
  const Tensor matrix = MatrixOf(x, "svd", at);
  const int64_t m = matrix.shape(-2, at), n = matrix.shape(-1, at);
  if (m < n) {
    const Svd turned = svd(line.T(x), full_matrices, at);
    return {line.T(turned.v), turned.s, line.T(turned.u)};
  }
  // x above the unit matrix: whatever turns the columns of x into u s turns the unit matrix into
  // v^T.
  const Tensor both = Tensor::cat({matrix, EyeLike(matrix, n, at)}, -2, at);
  const int64_t count = (n + 1) / 2;
  Pairs pairs = {line.Columns(both, 0, count), line.Columns(both, count, n)};
  if (n % 2 == 1) {  // a column of zeros, which nothing turns
    SymIntPairs sides(both.rank(at));
    sides.back() = {0, 1};
    pairs.right = pairs.right.pad(sides, 0, at);
  }
  for (int64_t round = 0; round < kSweeps * (2 * count - 1); ++round) {
    pairs = NextRound(line, Rotated(line, pairs, m), count);
    pairs = {pairs.left.contiguous(at), pairs.right.contiguous(at)};
  }
  const Tensor turned = line.Columns(Tensor::cat({pairs.left, pairs.right}, -1, at), 0, n);
  const Tensor us = turned.slice(-2, 0, m, at), v = turned.slice(-2, m, m + n, at);
  const auto [s, order] = sort(line.Root(line.SumOfSquares(us)), -1, true, at);  // [..., 1, n]
  const auto in_order = [&](const Tensor& columns) {
    return columns.gather(-1, order.expand(columns.shape(at), at), at);
  };
  // Where a singular value is zero, a column is missing; completing gives one.
  Tensor u = Completed(line, line.Quotient(in_order(us), s).contiguous(at));
  if (!full_matrices) u = line.Columns(u, 0, n);
  return {u.cast(dtype, at), s.squeeze(-2, at).cast(dtype, at),
          line.T(in_order(v)).cast(dtype, at)};
}

Tensor newton_schulz(const Tensor& x, int64_t steps, const std::vector<double>& coefficients,
                     double eps, At at) {
  const Line line = {at};
  const Tensor matrix = MatrixOf(x, "newton_schulz", at);
  if (coefficients.empty()) ThrowInvalid(at, "newton_schulz: no coefficients");
  if (x.shape(-2, at) > x.shape(-1, at))
    return line.T(newton_schulz(line.T(x), steps, coefficients, eps, at));
  const Tensor norm = line.Mul(matrix, matrix).sum({-2, -1}, true, at).sqrt(at);
  Tensor y = line(matrix) / line(line(norm) + line(eps));
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor square = line.Times(y, line.T(y));
    Tensor power = y;
    y = line.Mul(power, coefficients[0]);
    for (size_t i = 1; i < coefficients.size(); ++i) {
      power = line.Times(square, power);
      y = line.Add(y, line.Mul(power, coefficients[i]));
    }
  }
  return y.cast(x.dtype(at), at);
}

}  // namespace outboard
