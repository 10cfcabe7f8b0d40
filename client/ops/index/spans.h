// Evenly spaced positions on an axis, as selected by a number or a slice of operator[]: reading
// them is a movement of elements, and so is writing them between zeros. Errors (INVALID_ARGUMENT,
// OUT_OF_RANGE) are thrown at the user's line.
#pragma once

#include "client/lazy/node_expr.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

// The positions low, low + step ... below high, in this order, or reversed if `back`. `high` is one
// past the last position.
struct Span {
  Dim low = 0, high = 0;
  int64_t step = 1;  // 1 if low or high is symbolic
  bool back = false;

  bool Covers(const Dim& length) const {
    return low == Dim(0) && high == length && step == 1 && !back;
  }
};

// Resolves `slice` on an axis of `length`. Throws for a step of 0, and for a symbolic size where a
// number is required.
Span SpanOf(const NodeBuilder& rec, const Dim& length, const Slice& slice);
// The places begin ... end - 1 of an axis of `length`, which do not count from the end. Where one
// of the three is of a variable, that has only values for which they lie in the axis from here on
// (client/lazy/narrow.h). Throws if they do not lie there now.
Span SpanOf(const NodeBuilder& rec, const Dim& length, const SymInt& begin, const SymInt& end);
// Resolves one index; negative ones count from the end. Throws if a number is out of range.
Span SpanOf(const NodeBuilder& rec, const Dim& length, const SymInt& place);

// The elements of x in the span of `axis`.
NodeExpr Part(const NodeExpr& x, int axis, const Span& span);
// The inverse: places x, whose `axis` is as long as the span, at the span's positions of an axis of
// `length`, with zeros in between.
NodeExpr Spread(const NodeExpr& x, int axis, const Span& span, const Dim& length);

}  // namespace outboard::internal
