#include "client/tensor/variable.h"

#include "absl/strings/str_cat.h"
#include "client/tensor/size_expression.h"
#include "compiler/ir/check.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/fold.h"

namespace outboard {
namespace {

Size Join(Op op, const Size& a, const Size& b) {
  const int64_t value = *FoldInt(op, DType::kI64, a.value(), b.value());
  if (a.is_number() && b.is_number()) return value;
  return Size::Of(value, {std::nullopt, op, a, b});
}

}  // namespace

Variable::Variable(std::string name, int64_t min, int64_t max, At at)
    : name_(std::move(name)), min_(min), max_(max) {
  if (min > max || min < -limits::kDimMax || max > limits::kDimMax)
    ThrowInvalid(at, absl::StrCat("variable ", name_, ": the range ", min, "..", max,
                                  " is empty or beyond ", limits::kDimMax));
}

Size Variable::bind(int64_t value, At at) const {
  if (value < min_ || value > max_)
    ThrowInvalid(at, absl::StrCat("variable ", name_, " is bound to ", value, ", which is not in ",
                                  min_, "..", max_));
  return Size::Of(value, {internal::BoundVariable{*this, value}});
}

Size Size::Of(int64_t value, internal::SizeExpression expression) {
  Size size(value);
  size.expression_ = std::make_shared<const internal::SizeExpression>(std::move(expression));
  return size;
}

Size operator+(const Size& a, const Size& b) { return Join(Op::kAdd, a, b); }
Size operator-(const Size& a, const Size& b) { return a + b * -1; }
Size operator*(const Size& a, const Size& b) { return Join(Op::kMul, a, b); }
Size operator/(const Size& a, const Size& b) { return Join(Op::kIDiv, a, b); }
Size operator%(const Size& a, const Size& b) { return Join(Op::kMod, a, b); }

}  // namespace outboard
