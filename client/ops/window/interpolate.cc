#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/window/window.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

namespace {

// i32 where no product of the lengths leaves it: the cloud indexes fastest with those.
DType PlaceType(int64_t from, int64_t to) {
  return 2 * from * (to + 1) < IntMax(DType::kI32) ? DType::kI32 : DType::kI64;
}

Tensor Linear(const Tensor& x, int64_t axis, int64_t from, int64_t to, bool align_corners) {
  // Place i lies at numerator / denominator, held within the axis.
  const Tensor i = Tensor::arange(0, to, 1, PlaceType(from, to));
  const int64_t denominator = align_corners ? std::max<int64_t>(to - 1, 1) : 2 * to;
  const Tensor raw = align_corners ? i * (from - 1) : i * (2 * from) + (from - to);
  const Tensor numerator = raw.clip(0, (from - 1) * denominator);
  const Tensor low = numerator.idiv(denominator);
  const Tensor high = (numerator + (denominator - 1)).idiv(denominator);
  const DType type = FloatOf(x.dtype()) == DType::kF64 ? DType::kF64 : DType::kF32;
  Dims along(x.rank(), 1);
  along[axis] = to;
  const Tensor share = ((numerator % denominator).cast(type) / denominator).reshape(along);
  const Tensor a = x.take(low, axis).cast(type), b = x.take(high, axis).cast(type);
  return a + (b - a) * share;
}

// The elements that the middles of as many equal stretches fall into, or their beginnings.
Tensor Nearest(const Tensor& x, int64_t axis, int64_t from, int64_t to, bool exact) {
  if (to % from == 0) {  // each as often: no index, and a gradient that is a sum
    Dims apart = x.shape(), full, joined = apart;
    apart.insert(apart.begin() + axis + 1, 1);
    full = apart;
    full[axis + 1] = to / from;
    joined[axis] = to;
    return x.reshape(apart).expand(full).reshape(joined);
  }
  // As floats, since that is how others name the element at a rounded border.
  const Tensor i = Tensor::arange(0, to).cast(DType::kF32);
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const Tensor place = ((exact ? i + 0.5 : i) * scale).cast(DType::kI32);
  return x.take(place.minimum(from - 1), axis);
}

}  // namespace

Tensor interpolate(const Tensor& x, const Dims& size, Interpolation mode, bool align_corners,
                   At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (size.empty() || size.size() > node->shape.size())
    rec.Invalid(absl::StrCat("interpolate: a size of ", size.size(), " axes for a tensor of shape ",
                             DimsToString(node->shape)),
                Mistake::kCheck);
  if (align_corners && mode != Interpolation::kLinear)
    rec.Invalid("interpolate: only linear has align_corners");
  const DType type = node->dtype;
  Tensor y = x;
  for (size_t n = size.size(); n-- > 0;) {  // from the last axis on
    const int64_t axis = node->rank() - static_cast<int64_t>(size.size() - n);
    const int64_t from = rec.LengthOf(node, axis), to = size[n];
    if (to < 1 || from < 1)
      rec.Invalid(absl::StrCat("interpolate: from ", from, " to ", to, " elements at axis ", axis));
    if (from == to) continue;
    y = mode == Interpolation::kLinear
            ? Linear(y, axis, from, to, align_corners)
            : Nearest(y, axis, from, to, mode == Interpolation::kNearestExact);
  }
  if (type == DType::kU8 && IsFloat(y.dtype())) y = y.round();
  return y.cast(type);
}

}  // namespace outboard
