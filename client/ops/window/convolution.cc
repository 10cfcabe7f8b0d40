#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/operands.h"
#include "client/ops/window/sliding.h"
#include "client/ops/window/window.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::Operands;
using internal::SlideWindows;
using internal::TensorOf;
using internal::Window;

namespace {

// The lengths of all axes but the first two.
std::vector<int64_t> LengthsOf(const NodeExpr& x) {
  std::vector<int64_t> lengths;
  for (int axis = 2; axis < x->rank(); ++axis) lengths.push_back(x.Length(axis));
  return lengths;
}

void CheckGroups(const char* what, int64_t channels, int64_t groups, const NodeExpr& weight,
                 bool fits) {
  if (!fits)
    ThrowInvalid(absl::StrCat(what, ": ", channels, " channels in ", groups,
                              " groups do not fit a weight of ", DimsToString(weight->shape)),
                 Mistake::kCheck);
}

// Windows [B, C, P1, K1, P2, K2 ...] and a weight [O, C / groups, K...] as [B, O, P...].
NodeExpr Convolve(const NodeExpr& windows, const NodeExpr& weight, int64_t groups,
                  std::optional<DType> dtype) {
  const int axes = weight->rank() - 2;
  const Dim batch = windows->shape[0];
  const int64_t out = weight->shape[0].value(), in = weight->shape[1].value();
  const ShapeView kernel = weight->shape.subspan(2);
  Shape places;
  for (int i = 0; i < axes; ++i) places.push_back(windows->shape[2 + 2 * i]);
  // Without groups the group axis is left out: the fewer axes, the simpler the kernel.
  const bool grouped = groups != 1;
  Shape apart = {batch};  // [B, G, C / G, P1, K1 ...]
  if (grouped) apart.emplace_back(groups);
  apart.emplace_back(in);
  apart.insert(apart.end(), windows->shape.begin() + 2, windows->shape.end());
  const int channel = grouped ? 2 : 1, first = channel + 1;
  std::vector<int64_t> order(channel);  // [B, G, P..., C / G, K...]
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < axes; ++i) order.push_back(first + 2 * i);
  order.push_back(channel);
  for (int i = 0; i < axes; ++i) order.push_back(first + 2 * i + 1);
  // Both as [B, G, O / G, P..., C / G, K...].
  Shape left = {batch}, right = {Dim(1)}, full = {batch}, result = {batch, Dim(out)};
  if (grouped)
    for (Shape* shape : {&left, &right, &full}) shape->emplace_back(groups);
  left.emplace_back(1);
  right.emplace_back(out / groups);
  full.emplace_back(out / groups);
  left.insert(left.end(), places.begin(), places.end());
  right.insert(right.end(), places.size(), Dim(1));
  full.insert(full.end(), places.begin(), places.end());
  result.insert(result.end(), places.begin(), places.end());
  std::vector<int64_t> summed(1 + axes);
  std::iota(summed.begin(), summed.end(), static_cast<int64_t>(full.size()));
  for (Shape* shape : {&left, &right, &full}) {
    shape->emplace_back(in);
    shape->insert(shape->end(), kernel.begin(), kernel.end());
  }
  const NodeExpr a = windows.Reshape(apart).Permute(order).Reshape(left).Expand(full);
  const NodeExpr b = weight.Reshape(right).Expand(full);
  return a.With(internal::SumOfProducts(a.rec(), a, b, summed, dtype)).Reshape(result);
}

Tensor WithBias(const char* what, const NodeExpr& y, const Tensor& bias) {
  if (bias.empty()) return TensorOf(y);
  const NodeExpr b = ExprOf(y.rec(), bias);
  if (b->rank() != 1 || b->shape[0] != y->shape[1])
    ThrowInvalid(absl::StrCat(what, ": a bias of ", DimsToString(b->shape), " for ",
                              y->shape[1].value(), " output channels"));
  Shape ones(y->rank(), Dim(1));
  ones[1] = y->shape[1];
  const Operands both = internal::Promoted(y.rec(), TensorOf(y), TensorOf(b.Reshape(ones)), what);
  return TensorOf(y.With(both.a) + y.With(both.b));
}

// With n - 1 zeros between two elements along an axis that has stride n.
NodeExpr Apart(const NodeExpr& x, const std::vector<int64_t>& stride) {
  Shape split = {x->shape[0], x->shape[1]}, joined = split, ends;
  Shape lo_hi(4, Dim(0));
  for (size_t i = 0; i < stride.size(); ++i) {
    const int64_t length = x.Length(static_cast<int64_t>(i) + 2);
    split.insert(split.end(), {Dim(length), Dim(1)});
    lo_hi.insert(lo_hi.end(), {Dim(0), Dim(0), Dim(0), Dim(stride[i] - 1)});
    joined.emplace_back(length * stride[i]);
  }
  for (size_t i = 0; i < joined.size(); ++i) {
    const int64_t cut = i < 2 ? 0 : stride[i - 2] - 1;
    ends.insert(ends.end(), {Dim(0), cut == 0 ? joined[i] : Dim(joined[i].value() - cut)});
  }
  return x.Reshape(split).Pad(lo_hi).Reshape(joined).Shrink(ends);
}

}  // namespace

Tensor convolution(const Tensor& tensor, const Tensor& weight, const Tensor& bias,
                   const ConvolutionOptions& o, At at) {
  constexpr char kName[] = "convolution";
  const NodeBuilder rec(at);
  struct Checked {
    NodeExpr x, weight;
    std::vector<Window> windows;
  };
  const auto [x, w, windows] = internal::Settled(rec, [&] {
    const auto [a, b] = internal::SameType(rec, tensor, weight);
    const NodeExpr x(rec, a), w(rec, b);
    if (x->rank() < 3 || w->rank() != x->rank())
      rec.Invalid(absl::StrCat(kName, ": needs [B, C, D...] and [O, C, K...], not ",
                               DimsToString(x->shape), " and ", DimsToString(w->shape)));
    if (IsBool(x->dtype)) rec.Invalid(absl::StrCat(kName, ": needs numbers, not bool"));
    const int64_t channels = x.Length(1), out = w.Length(0), in = w.Length(1);
    CheckGroups(kName, channels, o.groups, w,
                o.groups >= 1 && out % o.groups == 0 && channels % o.groups == 0 &&
                    in == channels / o.groups);
    const std::vector<Window> windows =
        internal::WindowsOf(rec, kName, LengthsOf(w), o.stride, o.dilation, o.padding);
    internal::FitWindows(kName, x, windows);
    return Checked{x, w, windows};
  });
  return WithBias(kName, Convolve(SlideWindows(kName, x, windows), w, o.groups, o.dtype), bias);
}

Tensor transposed_convolution(const Tensor& tensor, const Tensor& weight, const Tensor& bias,
                              const TransposedConvolutionOptions& o, At at) {
  constexpr char kName[] = "transposed_convolution";
  const NodeBuilder rec(at);
  const auto [a, b] = internal::SameType(rec, tensor, weight);
  const NodeExpr x(rec, a), w(rec, b);
  if (x->rank() < 3 || w->rank() != x->rank())
    rec.Invalid(absl::StrCat(kName, ": needs [B, C, D...] and [C, O, K...], not ",
                             DimsToString(x->shape), " and ", DimsToString(w->shape)));
  if (IsBool(x->dtype)) rec.Invalid(absl::StrCat(kName, ": needs numbers, not bool"));
  const int64_t channels = x.Length(1), per_group = w.Length(1);
  CheckGroups(kName, channels, o.groups, w,
              o.groups >= 1 && channels % o.groups == 0 && w.Length(0) == channels);
  const std::vector<int64_t> kernel = LengthsOf(w);
  std::vector<Window> windows =
      internal::WindowsOf(rec, kName, kernel, o.stride, o.dilation, o.padding);
  const std::vector<int64_t> more =
      internal::ForEachAxis(rec, kName, "output_padding", o.output_padding, kernel.size());
  std::vector<int64_t> stride, flipped;
  for (size_t i = 0; i < windows.size(); ++i) {
    Window& at = windows[i];
    stride.push_back(at.stride);
    flipped.push_back(static_cast<int64_t>(i) + 2);
    at = {at.kernel, 1, at.dilation, at.reach() - 1 - at.before,
          at.reach() - 1 - at.after + more[i]};
  }
  // A convolution of x with its elements set apart, by the weight [O, C / groups, K...] backwards.
  Shape grouped = {Dim(o.groups), Dim(channels / o.groups)}, joined = {Dim(o.groups * per_group)};
  grouped.insert(grouped.end(), w->shape.begin() + 1, w->shape.end());
  joined.emplace_back(channels / o.groups);
  joined.insert(joined.end(), w->shape.begin() + 2, w->shape.end());
  std::vector<int64_t> order(grouped.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[1], order[2]);
  const NodeExpr backwards = w.Reshape(grouped).Permute(order).Reshape(joined).Flip(flipped);
  const NodeExpr slid = SlideWindows(kName, Apart(x, stride), windows);
  return WithBias(kName, Convolve(slid, backwards, o.groups, {}), bias);
}

Tensor Tensor::conv2d(const Tensor& weight, const Tensor& bias, Conv2dOptions o, At at) const {
  const NodeBuilder rec(at);
  const UOp* const x = NodeIn(rec);
  const UOp* const w = weight.NodeIn(rec);
  if (x->rank() != 4 || w->rank() != 4)
    rec.Invalid(absl::StrCat("conv2d: needs [B, C, H, W] and [O, C, KH, KW], not ",
                             DimsToString(x->shape), " and ", DimsToString(w->shape)));
  return convolution(*this, weight, bias,
                     {.groups = o.groups,
                      .stride = {o.stride.h, o.stride.w},
                      .dilation = {o.dilation.h, o.dilation.w},
                      .padding = {o.padding.h, o.padding.w}});
}

}  // namespace outboard
