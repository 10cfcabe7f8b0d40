// Products: matrices, convolutions and pooling windows.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/tensor/operands.h"
#include "client/tensor/promote.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/windows.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::DimsToString;
using internal::Operands;
using internal::Recorder;

namespace {

// sum(a * b) over `axes`, added up in a type wide enough, in the operands' type. Keeps the axes.
const UOp* SumOfProducts(const Recorder& rec, const UOp* a, const UOp* b,
                         const std::vector<int64_t>& axes) {
  const DType wide = AccumulateType(a->dtype);
  const UOp* const product = rec.Mul(rec.Cast(a, wide), rec.Cast(b, wide));
  return rec.Cast(rec.Reduce(Op::kAdd, product, axes), a->dtype);
}

// Output positions of a window along an axis; throws where there is none.
int64_t Places(const Recorder& rec, const char* what, int64_t length, int64_t kernel,
               int64_t stride, int64_t dilation, int64_t padding) {
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0)
    rec.Invalid(absl::StrCat(what, ": kernel ", kernel, ", stride ", stride, " and dilation ",
                             dilation, " must be positive, padding ", padding, " not negative"));
  if (std::max({kernel, stride, dilation, padding}) > limits::kDimMax)
    rec.Invalid(absl::StrCat(what, ": a number is over the limit of ", limits::kDimMax));
  const int64_t room = length + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0)
    rec.Invalid(absl::StrCat(what, ": a kernel of ", kernel, " with dilation ", dilation,
                             " does not fit an axis of ", length, " with padding ", padding));
  return room / stride + 1;
}

// x [B, C, H, W] as windows [B, C, OH, KH, OW, KW].
const UOp* Windows2d(const Recorder& rec, const char* what, const UOp* x, int64_t kh, int64_t kw,
                     Size2d stride, Size2d dilation, Size2d padding) {
  const int64_t oh = Places(rec, what, rec.LengthOf(x, 2), kh, stride.h, dilation.h, padding.h);
  const int64_t ow = Places(rec, what, rec.LengthOf(x, 3), kw, stride.w, dilation.w, padding.w);
  x = rec.Pad(x, {0, 0, 0, 0, padding.h, padding.h, padding.w, padding.w});
  x = internal::Windows(rec, x, 2, oh, kh, stride.h, dilation.h);
  return internal::Windows(rec, x, 4, ow, kw, stride.w, dilation.w);
}

Size2d PoolStride(const Pool2dOptions& o) {
  return {o.stride.h == 0 ? o.kernel.h : o.stride.h, o.stride.w == 0 ? o.kernel.w : o.stride.w};
}

}  // namespace

Tensor Tensor::matmul(const Arg& other) const {
  const Recorder rec(other.at());
  if (!other.is_tensor()) rec.Invalid("matmul: needs two tensors");
  const Operands x = internal::SameType(rec, Arg(*this, other.at()), other, "matmul");
  const int rank_a = x.a->rank(), rank_b = x.b->rank();
  if (rank_a == 0 || rank_b == 0) rec.Invalid("matmul: a scalar has no rows");
  if (IsBool(x.a->dtype)) rec.Invalid("matmul: needs numbers, not bool");
  // Vectors become a row and a column.
  Shape a(x.a->shape.begin(), x.a->shape.end()), b(x.b->shape.begin(), x.b->shape.end());
  if (rank_a == 1) a.insert(a.begin(), Dim(1));
  if (rank_b == 1) b.emplace_back(1);
  const Dim n = a[a.size() - 2], k = a.back(), m = b.back();
  if (b[b.size() - 2] != k)
    rec.Invalid(absl::StrCat("matmul: the shapes ", DimsToString(x.a->shape), " and ",
                             DimsToString(x.b->shape), " do not fit"));
  const Shape batch = rec.BroadcastShape(ShapeView(a).subspan(0, a.size() - 2),
                                         ShapeView(b).subspan(0, b.size() - 2), "matmul");
  // [..., n, 1, k] * [..., 1, m, k]
  Shape left(a.begin(), a.end() - 1), right(b.begin(), b.end() - 2), full = batch;
  left.insert(left.end(), {Dim(1), k});
  right.insert(right.end(), {Dim(1), m, k});
  full.insert(full.end(), {n, m, k});
  std::vector<int64_t> turn;
  for (size_t i = 0; i + 2 < b.size(); ++i) turn.push_back(static_cast<int64_t>(i));
  turn.push_back(static_cast<int64_t>(b.size()) - 1);
  turn.push_back(static_cast<int64_t>(b.size()) - 2);
  const UOp* const columns = rec.Permute(rec.Reshape(x.b, b), turn);
  const UOp* const y = SumOfProducts(rec, rec.Broadcast(rec.Reshape(x.a, left), full),
                                     rec.Broadcast(rec.Reshape(columns, right), full),
                                     {static_cast<int64_t>(full.size()) - 1});
  Shape result = batch;
  if (rank_a > 1) result.push_back(n);
  if (rank_b > 1) result.push_back(m);
  return FromNode(rec, rec.Reshape(y, result));
}

Tensor Tensor::dot(const Arg& other) const { return matmul(other); }

Tensor Tensor::linear(const Tensor& weight, const Tensor& bias, At at) const {
  const Tensor y = matmul(Arg(weight, at));
  return bias.empty() ? y : Arg(y, at) + Arg(bias, at);
}

Tensor Tensor::conv2d(const Tensor& weight, const Tensor& bias, Conv2dOptions o, At at) const {
  const Recorder rec(at);
  const Operands x = internal::SameType(rec, Arg(*this, at), Arg(weight, at), "conv2d");
  if (x.a->rank() != 4 || x.b->rank() != 4)
    rec.Invalid(absl::StrCat("conv2d: needs [B, C, H, W] and [O, C, KH, KW], not ",
                             DimsToString(x.a->shape), " and ", DimsToString(x.b->shape)));
  const int64_t batch = rec.LengthOf(x.a, 0), channels = rec.LengthOf(x.a, 1);
  const int64_t out = rec.LengthOf(x.b, 0), in = rec.LengthOf(x.b, 1);
  const int64_t kh = rec.LengthOf(x.b, 2), kw = rec.LengthOf(x.b, 3);
  if (o.groups < 1 || out % o.groups != 0 || channels % o.groups != 0 || in != channels / o.groups)
    rec.Invalid(absl::StrCat("conv2d: ", channels, " channels in ", o.groups,
                             " groups do not fit a weight of ", DimsToString(x.b->shape)));
  const UOp* const windows = Windows2d(rec, "conv2d", x.a, kh, kw, o.stride, o.dilation, o.padding);
  const Dim oh = windows->shape[2], ow = windows->shape[4];
  const int64_t per_group = out / o.groups;
  // Without groups the group axis is left out: the fewer axes, the simpler the kernel.
  const UOp* y;
  if (o.groups == 1) {
    const UOp* const turned = rec.Permute(windows, {0, 2, 4, 1, 3, 5});  // [B, OH, OW, C, KH, KW]
    const Shape full = {batch, out, oh, ow, in, kh, kw};
    const UOp* const left = rec.Expand(rec.Reshape(turned, {batch, 1, oh, ow, in, kh, kw}), full);
    const UOp* const right = rec.Expand(rec.Reshape(x.b, {1, out, 1, 1, in, kh, kw}), full);
    y = SumOfProducts(rec, left, right, {4, 5, 6});
  } else {
    const UOp* const grouped = rec.Reshape(windows, {batch, o.groups, in, oh, kh, ow, kw});
    const UOp* const turned = rec.Permute(grouped, {0, 1, 3, 5, 2, 4, 6});
    const Shape full = {batch, o.groups, per_group, oh, ow, in, kh, kw};
    const UOp* const left =
        rec.Expand(rec.Reshape(turned, {batch, o.groups, 1, oh, ow, in, kh, kw}), full);
    const UOp* const right =
        rec.Expand(rec.Reshape(x.b, {1, o.groups, per_group, 1, 1, in, kh, kw}), full);
    y = SumOfProducts(rec, left, right, {5, 6, 7});
  }
  y = rec.Reshape(y, {batch, out, oh, ow});
  if (bias.empty()) return FromNode(rec, y);
  const UOp* const b = bias.NodeIn(rec);
  if (b->rank() != 1 || b->shape[0] != Dim(out))
    rec.Invalid(absl::StrCat("conv2d: a bias of ", DimsToString(b->shape), " for ", out,
                             " output channels"));
  const UOp* const spread =
      rec.Expand(rec.Reshape(rec.Cast(b, y->dtype), {1, out, 1, 1}), y->shape);
  return FromNode(rec, rec.Add(y, spread));
}

Tensor Tensor::max_pool2d(Pool2dOptions o, At at) const {
  const Recorder rec(at);
  const UOp* x = NodeIn(rec);
  if (x->rank() != 4)
    rec.Invalid(absl::StrCat("max_pool2d: needs [B, C, H, W], not ", DimsToString(x->shape)));
  if (IsBool(x->dtype)) rec.Invalid("max_pool2d: needs numbers, not bool");
  const Size2d p = o.padding;
  if (p.h > 0 || p.w > 0) {  // with what is never the largest
    const double least = IsFloat(x->dtype) ? -std::numeric_limits<double>::infinity()
                                           : static_cast<double>(IntMin(x->dtype));
    const Tensor padded = FromNode(rec, x).pad({{0, 0}, {0, 0}, {p.h, p.h}, {p.w, p.w}}, least, at);
    x = padded.NodeIn(rec);
  }
  const UOp* const windows =
      Windows2d(rec, "max_pool2d", x, o.kernel.h, o.kernel.w, PoolStride(o), o.dilation, 0);
  return FromNode(rec, rec.Squeeze(rec.Reduce(Op::kMax, windows, {3, 5}), {3, 5}));
}

Tensor Tensor::avg_pool2d(Pool2dOptions o, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  if (x->rank() != 4)
    rec.Invalid(absl::StrCat("avg_pool2d: needs [B, C, H, W], not ", DimsToString(x->shape)));
  const UOp* const windows =
      Windows2d(rec, "avg_pool2d", rec.Cast(x, FloatOf(x->dtype)), o.kernel.h, o.kernel.w,
                PoolStride(o), o.dilation, o.padding);
  return FromNode(rec, windows).mean({3, 5}, false, at);
}

}  // namespace outboard
