#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/window/sliding.h"
#include "client/ops/window/window.h"

namespace outboard {

using internal::DimsToString;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::SlideWindows;
using internal::TensorOf;
using internal::Window;

namespace {

// With ceil_mode a window may hang over the end, as long as it begins within the data or the
// padding before it (Dumoulin and Visin, A guide to convolution arithmetic, 2016, relationship 15).
int64_t AfterWithCeil(int64_t length, const Window& w) {
  const int64_t padded = length + w.before + w.after;
  const int64_t last = (padded - w.reach() + w.stride - 1) / w.stride * w.stride;
  const int64_t behind = std::max<int64_t>(last - (w.before + length - 1), 0);
  return w.after + last + w.reach() - padded - behind;
}

std::vector<Window> PoolWindows(const char* what, const NodeExpr& x, const PoolOptions& o) {
  const NodeBuilder& rec = x.rec();
  if (o.kernel.empty() || x->shape.size() < o.kernel.size())
    rec.Invalid(absl::StrCat(what, ": a kernel of ", o.kernel.size(),
                             " axes for a tensor of shape ", DimsToString(x->shape)));
  std::vector<Window> windows = internal::WindowsOf(
      rec, what, o.kernel, o.stride.empty() ? PerAxis(o.kernel) : o.stride, o.dilation, o.padding);
  const int64_t first = x->rank() - static_cast<int64_t>(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    if (!o.ceil_mode) continue;
    const int64_t axis = first + static_cast<int64_t>(i);
    internal::PlacesOf(rec, what, x->shape[axis], windows[i]);
    windows[i].after = AfterWithCeil(x.Length(axis), windows[i]);
  }
  internal::FitWindows(what, x, windows);
  return windows;
}

// The axes of the elements in [..., P1, K1, P2, K2 ...].
std::vector<int64_t> KernelAxes(const UOp* slid, size_t count) {
  std::vector<int64_t> axes;
  for (size_t i = count; i-- > 0;) axes.push_back(slid->rank() - 1 - 2 * static_cast<int64_t>(i));
  return axes;
}

// Windows of x, and of what is padded with something that is never the largest.
NodeExpr MaxWindows(const char* what, const NodeExpr& x, std::vector<Window> windows) {
  const double least = IsFloat(x->dtype) ? -std::numeric_limits<double>::infinity()
                                         : static_cast<double>(IntMin(x->dtype));
  const NodeExpr padded = internal::PadForWindows(x, windows, least);
  for (Window& window : windows) window.before = window.after = 0;
  return SlideWindows(what, padded, windows);
}

// A tensor, and the windows that a pool slides over it.
struct Pooled {
  NodeExpr x;
  std::vector<Window> windows;
};

Pooled PooledOf(const char* what, const NodeBuilder& rec, const Tensor& tensor,
                const PoolOptions& o) {
  return internal::Settled(rec, [&] {
    const NodeExpr x = ExprOf(rec, tensor);
    return Pooled{x, PoolWindows(what, x, o)};
  });
}

// How many elements of `length` ones each place of the window has: [P].
NodeExpr CountsOf(const NodeBuilder& rec, const char* what, DType dtype, const Dim& length,
                  const Window& window) {
  const NodeExpr ones(rec, rec.Full(rec.Const(dtype, 1), {length}));
  return SlideWindows(what, ones, {&window, 1}).Sum({1}).Squeeze({1});
}

Dims KernelOf(Size2d kernel) { return {kernel.h, kernel.w}; }

PoolOptions OptionsOf(const Pool2dOptions& o) {
  return {.kernel = KernelOf(o.kernel),
          .stride = {o.stride.h == 0 ? o.kernel.h : o.stride.h,
                     o.stride.w == 0 ? o.kernel.w : o.stride.w},
          .dilation = {o.dilation.h, o.dilation.w},
          .padding = {o.padding.h, o.padding.w}};
}

void CheckImage(const Tensor& x, const char* what) {
  const NodeBuilder rec;
  const UOp* const node = x.NodeIn(rec);
  if (node->rank() != 4)
    rec.Invalid(absl::StrCat(what, ": needs [B, C, H, W], not ", DimsToString(node->shape)));
}

}  // namespace

Tensor max_pool(const Tensor& tensor, const PoolOptions& options, At at) {
  constexpr char kName[] = "max_pool";
  const NodeBuilder rec(at);
  if (IsBool(tensor.dtype())) return max_pool(tensor.cast(DType::kU8), options).cast(DType::kBool);
  const auto [x, windows] = PooledOf(kName, rec, tensor, options);
  const NodeExpr slid = MaxWindows(kName, x, windows);
  const std::vector<int64_t> axes = KernelAxes(slid, options.kernel.size());
  return TensorOf(slid.Max(axes).Squeeze(axes));
}

MaxPooled max_pool_with_places(const Tensor& tensor, const PoolOptions& options, At at) {
  constexpr char kName[] = "max_pool_with_places";
  const NodeBuilder rec(at);
  if (IsBool(tensor.dtype())) {
    const MaxPooled pooled = max_pool_with_places(tensor.cast(DType::kU8), options);
    return {pooled.values.cast(DType::kBool), pooled.places};
  }
  const auto [x, windows] = PooledOf(kName, rec, tensor, options);
  const NodeExpr slid = MaxWindows(kName, x, windows);
  const std::vector<int64_t> axes = KernelAxes(slid, windows.size());
  const NodeExpr top = slid.Max(axes);
  // NaN is the maximum where there is one, and differs from itself.
  NodeExpr is_top = slid == top.Expand(slid->shape);
  if (IsFloat(x->dtype)) is_top = is_top | IsNan(slid);
  // The pooled axes counted from the end, count ... 1: the largest is the first place. Padding is
  // 0.
  const Shape pooled(x->shape.end() - static_cast<int64_t>(windows.size()), x->shape.end());
  const int64_t length = rec.CountOf(pooled);
  const auto count = static_cast<double>(length);
  const NodeExpr from_end = count - Iota(rec, DType::kI32, {Dim(length)}, 0);
  const NodeExpr numbers = SlideWindows(kName, from_end.Reshape(pooled), windows);
  const NodeExpr spread = numbers.Broadcast(slid->shape);
  const NodeExpr places = count - Where(is_top, spread, 0).Max(axes);
  return {TensorOf(top.Squeeze(axes)), TensorOf(places.Squeeze(axes))};
}

Tensor avg_pool(const Tensor& tensor, const PoolOptions& options, bool count_padding, At at) {
  constexpr char kName[] = "avg_pool";
  const NodeBuilder rec(at);
  const auto [x, windows] = PooledOf(kName, rec, tensor, options);
  const NodeExpr slid = SlideWindows(kName, x.Cast(FloatOf(x->dtype)), windows);
  const std::vector<int64_t> axes = KernelAxes(slid, windows.size());
  if (count_padding && !options.ceil_mode) return TensorOf(slid).mean(axes);
  const NodeExpr sum = ExprOf(rec, TensorOf(slid).sum(axes));
  // What a window has of an axis does not depend on the other axes.
  std::optional<NodeExpr> count;
  const int first = sum->rank() - static_cast<int>(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    const int axis = first + static_cast<int>(i);
    Window window = windows[i];
    Dim length = x->shape[axis];
    if (count_padding) {  // all but what hangs over
      const auto& [before, after] = options.padding[options.padding.size() == 1 ? 0 : i];
      length = rec.Sum(length, Dim(before + after));
      window.before = 0;
      window.after -= after;
    }
    Shape ones(sum->rank(), Dim(1));
    ones[axis] = sum->shape[axis];
    const NodeExpr along =
        CountsOf(rec, kName, sum->dtype, length, window).Reshape(ones).Expand(sum->shape);
    count = count ? *count * along : along;
  }
  return TensorOf(sum / *count);
}

Tensor max_unpool(const Tensor& tensor, const Tensor& places, const PoolOptions& options,
                  const Dims& size, At at) {
  constexpr char kName[] = "max_unpool";
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, tensor), at_place = ExprOf(rec, places);
  if (IsBool(x->dtype)) rec.Invalid(absl::StrCat(kName, ": needs numbers, not bool"));
  if (x->rank() < 3 || x->shape != at_place->shape || !IsInt(at_place->dtype))
    rec.Invalid(absl::StrCat(kName, ": needs [B, C, D...] and integers of its shape, not ",
                             DimsToString(x->shape), " and ", std::string(Name(at_place->dtype)),
                             " ", DimsToString(at_place->shape)));
  const auto axes = static_cast<size_t>(x->rank()) - 2;
  Dims wanted = size;
  if (wanted.empty()) {
    const std::vector<int64_t> kernel =
        internal::ForEachAxis(rec, kName, "kernel", PerAxis(options.kernel), axes);
    const std::vector<Window> windows = internal::WindowsOf(
        rec, kName, kernel, options.stride.empty() ? PerAxis(kernel) : options.stride,
        options.dilation, options.padding);
    for (size_t i = 0; i < axes; ++i) {
      const Window& w = windows[i];
      const int64_t length = x.Length(static_cast<int64_t>(i) + 2);
      wanted.push_back((length - 1) * w.stride - w.before - w.after + w.reach());
    }
  }
  if (wanted.size() != axes)
    rec.Invalid(
        absl::StrCat(kName, ": a size of ", wanted.size(), " axes for ", DimsToString(x->shape)));
  Shape result = {x->shape[0], x->shape[1]}, flat = result, full = result;
  for (const int64_t length : wanted) result.emplace_back(length);
  for (const int64_t length : wanted)
    if (length < 0) rec.Invalid(absl::StrCat(kName, ": the size ", length, " is negative"));
  const int64_t from = rec.CountOf(x->shape.subspan(2)),
                to = ElementCount(internal::ToShape(wanted));
  flat.insert(flat.end(), {Dim(1), Dim(from)});
  full.insert(full.end(), {Dim(to), Dim(from)});  // [B, C, to, from]
  const NodeExpr index = at_place.Cast(DType::kI64).Reshape(flat).Expand(full);
  const NodeExpr is_named = Iota(rec, DType::kI64, full, 2) == index;
  return TensorOf(Where(is_named, x.Reshape(flat).Expand(full), 0).Sum({3}).Reshape(result));
}

Tensor Tensor::max_pool2d(Pool2dOptions options, At at) const {
  const CallSite site(at);
  CheckImage(*this, "max_pool2d");
  return max_pool(*this, OptionsOf(options));
}

Tensor Tensor::avg_pool2d(Pool2dOptions options, At at) const {
  const CallSite site(at);
  CheckImage(*this, "avg_pool2d");
  return avg_pool(*this, OptionsOf(options));
}

}  // namespace outboard
