#include "client/ops/index/spans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/sym_expression.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"

namespace outboard::internal {
namespace {

// `axis` cut into rows of `width`.
NodeExpr Rows(const NodeExpr& x, int axis, int64_t width) {
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, Dim(apart[axis].value() / width));
  apart[axis + 1] = Dim(width);
  return x.Reshape(apart);
}

// ", with n = 3 and start = 9", of the variables in `sizes`.
std::string ValuesIn(std::initializer_list<SymInt> sizes) {
  std::string text;
  std::vector<std::string> told;
  for (const SymInt& size : sizes)
    for (const auto& [variable, value] : VariablesIn(size)) {
      if (std::ranges::find(told, variable.name()) != told.end()) continue;
      absl::StrAppend(&text, text.empty() ? ", with " : " and ", variable.name(), " = ", value);
      told.push_back(variable.name());
    }
  return text;
}

}  // namespace

Span SpanOf(const NodeBuilder& rec, const Dim& length, const SymInt& begin, const SymInt& end) {
  const Span span = {rec.DimOf(begin), rec.DimOf(end)};
  if (length.is_const() && span.low.is_const() && span.high.is_const()) return span;
  const SymInt axis = rec.SizeOf(length, *rec.lazy_graph());
  if (!NarrowToFit(rec, std::vector<Ascending>{{begin, end}, {end, axis}}))
    rec.Invalid(absl::StrCat("the places ", begin.value(), ":", end.value(),
                             " do not lie in an axis of ", axis.value(),
                             ValuesIn({begin, end, axis})));
  return span;
}

Span SpanOf(const NodeBuilder& rec, const Dim& length, const Slice& slice) {
  if (slice.step == 0) rec.Invalid("a slice with a step of 0");
  const auto is_number = [](const std::optional<SymInt>& size) {
    return !size || size->is_number();
  };
  if (!length.is_const() || !is_number(slice.begin) || !is_number(slice.end)) {
    if (slice.step != 1) rec.Invalid("a slice of variables has a step of 1");
    const SymInt n = rec.SizeOf(length, *rec.lazy_graph());
    const auto place = [&](const std::optional<SymInt>& given, const SymInt& otherwise) {
      if (!given) return otherwise;
      return given->is_number() && given->value() < 0 ? n + *given : *given;
    };
    Span span = SpanOf(rec, length, place(slice.begin, 0), place(slice.end, n));
    if (!slice.end) span.high = length;
    return span;
  }
  const int64_t n = length.value();
  const bool back = slice.step < 0;
  // Steps beyond every axis are all the same.
  const int64_t step = std::abs(std::clamp<int64_t>(slice.step, -limits::kDimMax, limits::kDimMax));
  const auto place = [&](const std::optional<SymInt>& given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t i = given->value() < 0 ? given->value() + n : given->value();
    return back ? std::clamp<int64_t>(i, -1, n - 1) : std::clamp<int64_t>(i, 0, n);
  };
  const int64_t begin = place(slice.begin, back ? n - 1 : 0);
  const int64_t end = place(slice.end, back ? -1 : n);
  const int64_t span = back ? begin - end : end - begin;
  if (span <= 0) return {};
  const int64_t reach = (span - 1) / step * step;  // from the first to the last element
  const int64_t low = back ? begin - reach : begin;
  return {Dim(low), Dim(low + reach + 1), step, back};
}

Span SpanOf(const NodeBuilder& rec, const Dim& length, const SymInt& place) {
  if (!place.is_number()) return SpanOf(rec, length, place, place + 1);
  if (!length.is_const()) {
    const SymInt low =
        place.value() < 0 ? rec.SizeOf(length, *rec.lazy_graph()) + place : SymInt(place);
    return SpanOf(rec, length, low, low + 1);
  }
  const int64_t n = length.value(), i = place.value() < 0 ? place.value() + n : place.value();
  if (i < 0 || i >= n)
    throw Error(absl::OutOfRangeError(
                    absl::StrCat("index ", place.value(), " is out of range for an axis of ", n)),
                rec.at());
  return {Dim(i), Dim(i + 1)};
}

NodeExpr Part(const NodeExpr& x, int axis, const Span& span) {
  NodeExpr y = x.Shrink(axis, span.low, span.high);
  if (span.step > 1) {  // rows of a step's length, and of each the first
    const int64_t length = y.Length(axis), count = (length + span.step - 1) / span.step;
    const NodeExpr whole = y.Pad(axis, Dim(0), Dim(count * span.step - length));
    y = Rows(whole, axis, span.step).Shrink(axis + 1, Dim(0), Dim(1)).Squeeze({axis + 1});
  }
  return span.back ? y.Flip({axis}) : y;
}

NodeExpr Spread(const NodeExpr& x, int axis, const Span& span, const Dim& length) {
  NodeExpr y = span.back ? x.Flip({axis}) : x;
  if (span.step > 1) {
    const int64_t reach = span.high.value() - span.low.value();
    y = Rows(y, axis, 1).Pad(axis + 1, Dim(0), Dim(span.step - 1));
    Shape joined(y->shape.begin(), y->shape.end());
    joined[axis] = Dim(joined[axis].value() * span.step);
    joined.erase(joined.begin() + axis + 1);
    y = y.Reshape(joined).Shrink(axis, Dim(0), Dim(reach));
  }
  absl::StatusOr<Dim> after = SubtractDims(x.rec().graph(), length, span.high);
  ThrowIfError(after.status());
  return y.Pad(axis, span.low, *after);
}

}  // namespace outboard::internal
