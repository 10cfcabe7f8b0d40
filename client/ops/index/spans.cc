#include "client/ops/index/spans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

}  // namespace

Span SpanOf(const NodeBuilder& rec, const Dim& length, const Slice& slice) {
  if (slice.step == 0) rec.Invalid("a slice with a step of 0");
  const auto is_number = [](const std::optional<SymInt>& size) {
    return !size || size->is_number();
  };
  if (!length.is_const() || !is_number(slice.begin) || !is_number(slice.end)) {
    if (slice.step != 1) rec.Invalid("a slice of variables has a step of 1");
    const auto place = [&](const SymInt& size) {
      if (size.value() >= 0 || !size.is_number()) return rec.DimOf(size);
      if (length.is_const()) return Dim(length.value() + size.value());
      rec.Invalid("a negative place on an axis whose length is of a variable");
    };
    return {slice.begin ? place(*slice.begin) : Dim(0), slice.end ? place(*slice.end) : length};
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
  if (!place.is_number()) {
    const Dim low = rec.DimOf(place);
    absl::StatusOr<Dim> high = AddDims(rec.graph(), low, Dim(1));
    ThrowIfError(high.status(), rec.at());
    return {low, *high};
  }
  if (!length.is_const()) rec.Invalid("a number indexes an axis whose length is of a variable");
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
