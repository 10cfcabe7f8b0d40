// Windows that slide along an axis, as sums of one-hot products; the scheduler turns them into
// plain loads.
#pragma once

#include "client/tensor/recorder.h"

namespace outboard::internal {

// x with `axis` of length I replaced by two axes: `places` positions of a window, and `kernel`
// elements in it: y[..., o, k, ...] = x[..., o * stride + k * dilation, ...]. Requires all of them
// to lie inside.
const UOp* Windows(const Recorder& rec, const UOp* x, int axis, int64_t places, int64_t kernel,
                   int64_t stride, int64_t dilation);

// y[i, j ...] = x[index[i, j ...], j ...], the index at `axis`; zeros where it is out of range.
// Requires as many axes of both, and an index that is nowhere longer than x but along `axis`.
const UOp* GatherAlong(const Recorder& rec, const UOp* x, int axis, const UOp* index);

// The rows of x along `axis` that `index` (of integers) names: index.shape takes the place of the
// axis; zeros where the index is out of range.
const UOp* Gather(const Recorder& rec, const UOp* x, int axis, const UOp* index);

}  // namespace outboard::internal
