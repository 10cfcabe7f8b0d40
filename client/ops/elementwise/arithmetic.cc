#include "client/ops/elementwise/arithmetic.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Both operands, promoted and broadcast. `what` names the operation in errors.
struct Both {
  NodeExpr a, b;

  Both(const NodeBuilder& rec, const Arg& left, const Arg& right, const char* what)
      : Both(rec, internal::Promoted(rec, left, right, what)) {}
  Both(const NodeBuilder& rec, const internal::Operands& x) : a(rec, x.a), b(rec, x.b) {}
  Both(const NodeExpr& left, const NodeExpr& right) : a(left), b(right) {}
  DType dtype() const { return a->dtype; }
  Both Cast(DType to) const { return {a.Cast(to), b.Cast(to)}; }
};

// By `of_floats` or `of_integers`; no bool. The quotient of narrow floats is rounded to a whole
// number in f32, lest it be rounded twice.
template <typename Floats, typename Integers>
Tensor Divided(const char* what, const Arg& left, const Arg& right, const Floats& of_floats,
               const Integers& of_integers) {
  const NodeBuilder rec(left.at());
  const Both x(rec, left, right, what);
  if (IsBool(x.dtype())) rec.Invalid(absl::StrCat(what, ": needs numbers, not bool"));
  const auto& [a, b] = x.Cast(AccumulateType(x.dtype()));
  const NodeExpr y = IsFloat(x.dtype()) ? of_floats(a, b) : of_integers(a, b);
  return TensorOf(y.Cast(x.dtype()));
}

// Where the quotient of integers was rounded up: the remainder has not the sign of b.
NodeExpr IsRoundedUp(const NodeExpr& remainder, const NodeExpr& b) {
  return Where(b<0, remainder> 0, (remainder < 0) & (b > 0));
}

}  // namespace

Tensor floor_div(const Arg& a, const Arg& b) {
  return Divided(
      "floor_div", a, b, [](const NodeExpr& a, const NodeExpr& b) { return Floor(a / b); },
      [](const NodeExpr& a, const NodeExpr& b) {
        const NodeExpr quotient = IDiv(a, b);
        if (IsUnsigned(a->dtype)) return quotient;
        return Where(IsRoundedUp(a % b, b), quotient - 1, quotient);
      });
}

Tensor floor_mod(const Arg& a, const Arg& b) {
  return Divided(
      "floor_mod", a, b, [](const NodeExpr& a, const NodeExpr& b) { return a - Floor(a / b) * b; },
      [](const NodeExpr& a, const NodeExpr& b) {
        const NodeExpr remainder = a % b;
        if (IsUnsigned(a->dtype)) return remainder;
        return Where(IsRoundedUp(remainder, b), remainder + b, remainder);
      });
}

Tensor trunc_div(const Arg& a, const Arg& b) {
  return Divided(
      "trunc_div", a, b, [](const NodeExpr& a, const NodeExpr& b) { return Trunc(a / b); },
      [](const NodeExpr& a, const NodeExpr& b) { return IDiv(a, b); });
}

Tensor fmod(const Arg& a, const Arg& b) {
  return Divided(
      "fmod", a, b, [](const NodeExpr& a, const NodeExpr& b) { return a - Trunc(a / b) * b; },
      [](const NodeExpr& a, const NodeExpr& b) { return a % b; });
}

Tensor copysign(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const auto& [x, y] = Both(rec, a, b, "copysign");
  if (!IsFloat(x->dtype) && !IsSigned(x->dtype)) return TensorOf(x);
  NodeExpr is_negative = y < 0;
  if (IsFloat(x->dtype)) is_negative = is_negative | (1 / y < 0);  // 1 / -0 is -inf
  return TensorOf(Where(is_negative, -Abs(x), Abs(x)));
}

// log(exp(x) + exp(y)) by the larger one and their distance, which no exponential overflows. Two
// equal infinities have a distance of 0.
Tensor logaddexp(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Both given(rec, a, b, "logaddexp");
  const auto& [x, y] = given.Cast(FloatOf(given.dtype()));
  const NodeExpr top = Max(x, y);
  const NodeExpr is_infinite = (top == kInfinity) | (top == -kInfinity);
  const NodeExpr distance = Where(is_infinite, 0, x - y);
  return TensorOf(top + Softplus(-Abs(distance)));
}

Tensor lerp(const Tensor& start, const Arg& end, const Arg& weight) {
  const NodeBuilder rec(end.at());
  constexpr DType kPixel = DType::kU8;
  const bool is_picture = weight.is_tensor() && start.dtype() == kPixel && end.is_tensor() &&
                          end.tensor().dtype() == kPixel;
  const auto& [from, to] = Both(rec, start, end, "lerp");
  const NodeExpr share(rec, internal::NodeOfArg(rec, weight, from->dtype));
  const DType dtype = Promote(from->dtype, share->dtype);
  if (IsBool(dtype)) rec.Invalid("lerp: needs numbers, not bool");
  const auto wide = [&](const NodeExpr& x) {
    return TensorOf(x.Cast(is_picture ? DType::kF32 : dtype));
  };
  const Tensor a = wide(from), b = wide(to);
  const Tensor y = a + (b - a) * wide(share);
  return is_picture ? y.round().cast(kPixel) : y;
}

Tensor clamp(const Tensor& x, const std::optional<Arg>& low, const std::optional<Arg>& high,
             At at) {
  const CallSite site(low ? low->at() : high ? high->at() : at);
  if (!low && !high) ThrowInvalid("clamp: neither a lowest nor a highest value");
  if (IsBool(x.dtype())) ThrowInvalid("clip: needs numbers, not bool");
  // By choosing, so that NaN stays, and a value on the edge has its gradient.
  Tensor y = x;
  if (low) y = (y < *low).where(*low, y);
  if (high) y = (y > *high).where(*high, y);
  return y;
}

Tensor isclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  const NodeBuilder rec(a.at());
  const Both given(rec, internal::Comparable(rec, a, b, "isclose"));
  // Integers of more than 16 bits are no f32.
  const auto& [x, y] =
      given.Cast(IsFloat(given.dtype()) ? AccumulateType(given.dtype()) : DType::kF64);
  const NodeExpr slack = Abs(y) * rtol + atol;
  const NodeExpr is_apart = Abs(x - y) > slack;
  // From an infinity everything is within an infinite slack.
  const NodeExpr are_finite = (Abs(x) < kInfinity) & (Abs(y) < kInfinity);
  const bool is_one_type = given.a->dtype == given.b->dtype;
  const NodeExpr is_same = is_one_type ? given.a == given.b : x == y;
  NodeExpr is_close = (are_finite & !is_apart) | is_same;
  if (equal_nan) is_close = is_close | (IsNan(x) & IsNan(y));
  return TensorOf(is_close);
}

Tensor allclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  const CallSite site(a.at());
  return isclose(a, b, rtol, atol, equal_nan).all();
}

Tensor isinf(const Tensor& x, bool detect_positive, bool detect_negative, At at) {
  const NodeBuilder rec(at);
  const Tensor both = x.isinf();
  if (detect_positive && detect_negative) return both;
  const NodeExpr node = ExprOf(rec, x);
  if (!IsFloat(node->dtype) || !(detect_positive || detect_negative))
    return TensorOf({rec, rec.Full(rec.ConstInt(DType::kBool, 0), node->shape)});
  return TensorOf(ExprOf(rec, both) & (detect_positive ? node > 0 : node < 0));
}

Tensor bitwise_not(const Tensor& x, At at) {
  return internal::Of(x, at, [](const NodeExpr& x) {
    if (IsFloat(x->dtype))
      ThrowInvalid(
          absl::StrCat("bitwise_not: of integers or bool, not ", std::string(Name(x->dtype))));
    return IsBool(x->dtype) ? !x : x ^ x.FullInt(WrapTo(x->dtype, -1));
  });
}

Tensor threefry(const Arg& counter, const Arg& key) {
  const NodeBuilder rec(counter.at());
  const Both x(rec, counter, key, "threefry");
  if (x.dtype() != DType::kU64)
    rec.Invalid(absl::StrCat("threefry: of u64, not ", std::string(Name(x.dtype()))));
  return TensorOf(x.a.Binary(Op::kThreefry, x.b));
}

}  // namespace outboard
