#include "client/ops/window/interpolate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

namespace {

// i32 where no product of the lengths leaves it: the cloud indexes fastest with those.
DType PlaceType(int64_t from, int64_t to) {
  return 2 * from * (to + 1) < IntMax(DType::kI32) ? DType::kI32 : DType::kI64;
}

Tensor Linear(const Tensor& x, int64_t axis, int64_t from, int64_t to, bool align_corners,
              const At& at) {
  // Place i lies at numerator / denominator, held within the axis.
  const Tensor i = Tensor::arange(0, to, 1, PlaceType(from, to), at);
  const int64_t denominator = align_corners ? std::max<int64_t>(to - 1, 1) : 2 * to;
  const Tensor raw = align_corners ? Arg(i, at) * Arg(from - 1, at)
                                   : Arg(Arg(i, at) * Arg(2 * from, at), at) + Arg(from - to, at);
  const Tensor numerator = raw.clip(Arg(0, at), Arg((from - 1) * denominator, at));
  const Tensor low = numerator.idiv(Arg(denominator, at));
  const Tensor high =
      Tensor(Arg(numerator, at) + Arg(denominator - 1, at)).idiv(Arg(denominator, at));
  const Tensor rest = Arg(numerator, at) % Arg(denominator, at);
  const DType type = FloatOf(x.dtype(at)) == DType::kF64 ? DType::kF64 : DType::kF32;
  Dims along(x.rank(at), 1);
  along[axis] = to;
  const Tensor share =
      Tensor(Arg(rest.cast(type, at), at) / Arg(denominator, at)).reshape(along, at);
  const Tensor a = x.take(low, axis, at).cast(type, at), b = x.take(high, axis, at).cast(type, at);
  return Arg(a, at) + Arg(Arg(Arg(b, at) - Arg(a, at), at) * Arg(share, at), at);
}

// The elements that the middles of as many equal stretches fall into, or their beginnings.
Tensor Nearest(const Tensor& x, int64_t axis, int64_t from, int64_t to, bool exact, const At& at) {
  if (to % from == 0) {  // each as often: no index, and a gradient that is a sum
    Dims apart = x.shape(at), full, joined = apart;
    apart.insert(apart.begin() + axis + 1, 1);
    full = apart;
    full[axis + 1] = to / from;
    joined[axis] = to;
    return x.reshape(apart, at).expand(full, at).reshape(joined, at);
  }
  // As floats, since that is how others name the element at a rounded border.
  const Tensor i = Tensor::arange(0, to, 1, DType::kI32, at).cast(DType::kF32, at);
  const Tensor middle = exact ? Arg(i, at) + Arg(0.5, at) : i;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const Tensor place = Tensor(Arg(middle, at) * Arg(scale, at)).cast(DType::kI32, at);
  return x.take(place.minimum(Arg(from - 1, at)), axis, at);
}

}  // namespace

Tensor interpolate(const Tensor& x, const Dims& size, Interpolation mode, bool align_corners,
                   At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (size.empty() || size.size() > node->shape.size())
    rec.Invalid(absl::StrCat("interpolate: a size of ", size.size(), " axes for a tensor of shape ",
                             DimsToString(node->shape)));
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
            ? Linear(y, axis, from, to, align_corners, at)
            : Nearest(y, axis, from, to, mode == Interpolation::kNearestExact, at);
  }
  if (type == DType::kU8 && IsFloat(y.dtype(at))) y = y.round(at);
  return y.cast(type, at);
}

}  // namespace outboard
