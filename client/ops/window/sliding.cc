#include "client/ops/window/sliding.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_expr.h"
#include "compiler/ir/limits.h"

namespace outboard::internal {
namespace {

// sum over `axis` of (is_hot ? x : 0), without the axis.
NodeExpr OneHotSum(const NodeExpr& is_hot, const NodeExpr& x, int axis) {
  return Where(is_hot, x, 0).Sum({axis}).Squeeze({axis});
}

}  // namespace

NodeExpr IndexNode(const NodeBuilder& rec, const Tensor& index) {
  const NodeExpr node = ExprOf(rec, index);
  if (!IsInt(node->dtype))
    rec.Invalid(absl::StrCat("an index must be of integers, not ", std::string(Name(node->dtype))));
  return node;
}

NodeExpr FromTheEnd(const NodeExpr& index, const Dim& length) {
  if (!IsSigned(index->dtype) || index->vmin >= 0) return index;
  const bool wide = ByteWidth(index->dtype) == 8;
  const NodeExpr i = index.Cast(wide ? DType::kI64 : DType::kI32);
  if (length.is_const()) return Where(i < 0, i + static_cast<double>(length.value()), i);
  const UOp* const n = i.rec().Cast(length.expression(), i->dtype);
  return Where(i < 0, i + i.With(i.rec().Full(n, i->shape)), i);
}

DType PlaceType(const UOp* index) {
  return ByteWidth(index->dtype) == 8 || index->dtype == DType::kU32 ? DType::kI64 : DType::kI32;
}

std::vector<int64_t> ForEachAxis(const NodeBuilder& rec, std::string_view what,
                                 std::string_view name, const PerAxis& numbers, size_t count) {
  if (numbers.size() == count) return numbers;
  if (numbers.size() != 1)
    rec.Invalid(absl::StrCat(std::string(what), ": ", numbers.size(), " numbers as ",
                             std::string(name), " of ", count, " axes"));
  return std::vector<int64_t>(count, numbers[0]);
}

std::vector<Window> WindowsOf(const NodeBuilder& rec, std::string_view what,
                              const std::vector<int64_t>& kernel, const PerAxis& stride,
                              const PerAxis& dilation, const Padding& padding) {
  const size_t count = kernel.size();
  if (padding.size() != 1 && padding.size() != count)
    rec.Invalid(
        absl::StrCat(std::string(what), ": padding for ", padding.size(), " of ", count, " axes"));
  const std::vector<int64_t> strides = ForEachAxis(rec, what, "stride", stride, count);
  const std::vector<int64_t> dilations = ForEachAxis(rec, what, "dilation", dilation, count);
  std::vector<Window> windows;
  for (size_t i = 0; i < count; ++i) {
    const auto& [before, after] = padding[padding.size() == 1 ? 0 : i];
    const Window w = {kernel[i], strides[i], dilations[i], before, after};
    if (w.kernel < 1 || w.stride < 1 || w.dilation < 1)
      rec.Invalid(absl::StrCat(std::string(what), ": kernel ", w.kernel, ", stride ", w.stride,
                               " and dilation ", w.dilation, " must be positive"));
    for (const int64_t number : {w.kernel, w.stride, w.dilation, w.before, w.after})
      if (number > limits::kDimMax || number < -limits::kDimMax)
        rec.Invalid(
            absl::StrCat(std::string(what), ": a number is over the limit of ", limits::kDimMax));
    windows.push_back(w);
  }
  return windows;
}

Dim PlacesOf(const NodeBuilder& rec, std::string_view what, const Dim& length, const Window& w) {
  const SymInt axis = rec.SizeOf(length, *rec.lazy_graph());
  const SymInt room = axis + (w.before + w.after - w.reach());
  if (room.value() < 0)
    rec.Invalid(absl::StrCat(std::string(what), ": a kernel of ", w.kernel, " with dilation ",
                             w.dilation, " does not fit an axis of ", axis.value(),
                             " with padding ", w.before, " and ", w.after),
                Mistake::kCheck);
  return rec.DimOf((w.stride == 1 ? room : room / w.stride) + 1);
}

void FitWindows(std::string_view what, const NodeExpr& x, std::span<const Window> windows) {
  const size_t first = x->shape.size() - windows.size();
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& w = windows[i];
    const Dim& length = x->shape[first + i];
    PlacesOf(x.rec(), what, length, w);
    if (length.is_const()) continue;
    const SymInt axis = x.rec().SizeOf(length, *x.rec().lazy_graph());
    const int64_t least = std::max({w.reach() - w.before - w.after, -w.before, -w.after});
    NarrowToFit(x.rec(), std::vector<Ascending>{{std::max<int64_t>(least, 0), axis}});
  }
}

NodeExpr PadForWindows(const NodeExpr& x, std::span<const Window> windows, double value) {
  const size_t kept = x->shape.size() - windows.size();
  Shape begin_end, lo_hi(2 * kept, Dim(0));
  for (size_t i = 0; i < kept; ++i) begin_end.insert(begin_end.end(), {Dim(0), x->shape[i]});
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto& [before, after] = std::pair(windows[i].before, windows[i].after);
    begin_end.insert(begin_end.end(),
                     {Dim(std::max<int64_t>(-before, 0)),
                      x.rec().Sum(x->shape[kept + i], Dim(std::min<int64_t>(after, 0)))});
    lo_hi.insert(lo_hi.end(),
                 {Dim(std::max<int64_t>(before, 0)), Dim(std::max<int64_t>(after, 0))});
  }
  const NodeExpr cut = x.Shrink(begin_end), padded = cut.Pad(lo_hi);
  if (value == 0 || padded.node() == cut.node()) return padded;
  return Where(True(x.rec(), cut->shape).Pad(lo_hi), padded, value);
}

NodeExpr SlideWindows(std::string_view what, const NodeExpr& x, std::span<const Window> windows) {
  const int first = x->rank() - static_cast<int>(windows.size());
  Shape places;
  for (size_t i = 0; i < windows.size(); ++i)
    places.push_back(PlacesOf(x.rec(), what, x->shape[first + i], windows[i]));
  NodeExpr y = PadForWindows(x, windows, 0);
  for (size_t i = 0; i < windows.size(); ++i)
    y = Windows(y, first + 2 * static_cast<int>(i), places[i], windows[i].kernel, windows[i].stride,
                windows[i].dilation);
  return y;
}

NodeExpr Windows(const NodeExpr& x, int axis, const Dim& places, int64_t kernel, int64_t stride,
                 int64_t dilation) {
  // Windows that neither overlap nor leave gaps are a reshape.
  if (stride == kernel && dilation == 1 && places.is_const()) {
    Shape dims(x->shape.begin(), x->shape.end());
    dims[axis] = Dim(kernel);
    dims.insert(dims.begin() + axis, places);
    return x.Shrink(axis, Dim(0), Dim(places.value() * kernel)).Reshape(dims);
  }
  if (IsBool(x->dtype))  // has no sum
    return Windows(x.Cast(DType::kU8), axis, places, kernel, stride, dilation).Cast(DType::kBool);
  Shape full(x->shape.begin(), x->shape.end());
  full.insert(full.begin() + axis, 2, Dim(kernel));
  full[axis] = places;  // [..., o, k, i, ...]
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, 2, Dim(1));
  const auto number = [&](int along, int64_t factor) {
    const NodeExpr n = Iota(x.rec(), DType::kI32, full, along);
    return factor == 1 ? n : n * static_cast<double>(factor);
  };
  const NodeExpr position = number(axis, stride) + number(axis + 1, dilation);
  const NodeExpr is_hot = number(axis + 2, 1) == position;
  return OneHotSum(is_hot, x.Reshape(apart).Expand(full), axis + 2);
}

NodeExpr GatherAlong(const NodeExpr& x, int axis, const NodeExpr& index) {
  if (IsBool(x->dtype)) return GatherAlong(x.Cast(DType::kU8), axis, index).Cast(DType::kBool);
  const DType type = PlaceType(index);
  const int rank = x->rank();
  // x without what no index reaches, its axis turned to the end: [i, j ..., n].
  Shape begin_end, apart(index->shape.begin(), index->shape.end());
  std::vector<int64_t> order;
  for (int i = 0; i < rank; ++i) {
    begin_end.insert(begin_end.end(), {Dim(0), i == axis ? x->shape[i] : index->shape[i]});
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  apart[axis] = Dim(1);
  apart.push_back(x->shape[axis]);
  Shape full(index->shape.begin(), index->shape.end()), ones = full;
  full.push_back(x->shape[axis]);
  ones.emplace_back(1);
  const NodeExpr near = x.Shrink(begin_end);
  const NodeExpr wanted = index.Cast(type).Reshape(ones).Expand(full);
  const NodeExpr is_hot = Iota(x.rec(), type, full, rank) == wanted;
  return OneHotSum(is_hot, near.Permute(order).Reshape(apart).Expand(full), rank);
}

NodeExpr Gather(const NodeExpr& x, int axis, const NodeExpr& index) {
  // bool has no sum.
  if (IsBool(x->dtype)) return Gather(x.Cast(DType::kU8), axis, index).Cast(DType::kBool);
  const DType type = PlaceType(index);
  const int rank = index->rank();
  // [before..., index..., i, after...]
  Shape full(x->shape.begin(), x->shape.begin() + axis);
  full.insert(full.end(), index->shape.begin(), index->shape.end());
  full.insert(full.end(), x->shape.begin() + axis, x->shape.end());
  Shape of_index(full.size(), Dim(1)), of_x = full;
  for (int i = 0; i < rank; ++i) {
    of_index[axis + i] = index->shape[i];
    of_x[axis + i] = Dim(1);
  }
  const NodeExpr wanted = index.Cast(type).Reshape(of_index).Expand(full);
  const NodeExpr is_hot = Iota(x.rec(), type, full, axis + rank) == wanted;
  return OneHotSum(is_hot, x.Reshape(of_x).Expand(full), axis + rank);
}

}  // namespace outboard::internal
