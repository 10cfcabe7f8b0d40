// Places at equal distances on an axis, which is what a number and a slice between brackets name:
// reading them is a movement, and so is writing them among zeros. Errors are thrown at the user's
// line.
#pragma once

#include "client/lazy/node_builder.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

// low, low + step ... below high, in this order, or in the other one where `back`. `high` is one
// past the last place that counts.
struct Span {
  Dim low = 0, high = 0;
  int64_t step = 1;  // 1 where low or high is of a variable
  bool back = false;

  bool Covers(const Dim& length) const {
    return low == Dim(0) && high == length && step == 1 && !back;
  }
};

// What `slice` means on an axis of `length`. Throws for a step of 0, and where it takes a number
// that is of a variable.
Span SpanOf(const NodeBuilder& rec, const Dim& length, const Slice& slice);
// One place; negative ones count from the end. Throws where a number is out of range.
Span SpanOf(const NodeBuilder& rec, const Dim& length, const SymInt& place);

// The elements of x in the span of `axis`.
const UOp* Part(const NodeBuilder& rec, const UOp* x, int axis, const Span& span);
// The other way: x, whose `axis` is as long as the span, at its places of an axis of `length`;
// zeros between them.
const UOp* Spread(const NodeBuilder& rec, const UOp* x, int axis, const Span& span,
                  const Dim& length);

}  // namespace outboard::internal
