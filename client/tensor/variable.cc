#include "client/tensor/variable.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/lazy/sym_expression.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rules/fold.h"

namespace outboard {
namespace {

SymInt Join(Op op, const SymInt& a, const SymInt& b) {
  const int64_t value = *FoldInt(op, DType::kI64, a.value(), b.value());
  if (a.is_number() && b.is_number()) return value;
  return SymInt::Of(value, {std::nullopt, op, a, b});
}

}  // namespace

Variable::Variable(std::string name, int64_t min, int64_t max, At at)
    : name_(std::move(name)), min_(min), max_(max) {
  if (min > max || min < -limits::kDimMax || max > limits::kDimMax)
    ThrowInvalid(at, absl::StrCat("variable ", name_, ": the range ", min, "..", max,
                                  " is empty or beyond ", limits::kDimMax));
}

SymInt Variable::bind(int64_t value, At at) const {
  if (value < min_ || value > max_)
    ThrowInvalid(at,
                 absl::StrCat("variable ", name_, " is bound to ", value, ", which is not in ",
                              min_, "..", max_),
                 Mistake::kCheck);
  return SymInt::Of(value, {internal::BoundVariable{*this, value}});
}

SymInt SymInt::Of(int64_t value, internal::SymExpression expression) {
  SymInt size(value);
  size.expression_ = std::make_shared<const internal::SymExpression>(std::move(expression));
  return size;
}

SymInt operator+(const SymInt& a, const SymInt& b) { return Join(Op::kAdd, a, b); }
SymInt operator-(const SymInt& a, const SymInt& b) { return a + b * -1; }
SymInt operator*(const SymInt& a, const SymInt& b) { return Join(Op::kMul, a, b); }
SymInt operator/(const SymInt& a, const SymInt& b) { return Join(Op::kIDiv, a, b); }
SymInt operator%(const SymInt& a, const SymInt& b) { return Join(Op::kMod, a, b); }

}  // namespace outboard
