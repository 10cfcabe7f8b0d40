#include "client/ops/window/sliding.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "compiler/ir/limits.h"

namespace outboard::internal {
namespace {

// sum over `axis` of (is_hot ? x : 0), without the axis.
NodeExpr OneHotSum(const NodeExpr& is_hot, const NodeExpr& x, int axis) {
  return Where(is_hot, x, 0).Sum({axis}).Squeeze({axis});
}

}  // namespace

const UOp* IndexNode(const NodeBuilder& rec, const Tensor& index) {
  const UOp* const node = index.NodeIn(rec);
  if (!IsInt(node->dtype))
    rec.Invalid(absl::StrCat("an index must be of integers, not ", std::string(Name(node->dtype))));
  return node;
}

const UOp* FromTheEnd(const NodeBuilder& rec, const UOp* index, int64_t length) {
  if (!IsSigned(index->dtype) || index->vmin >= 0) return index;
  const bool wide = ByteWidth(index->dtype) == 8;
  const NodeExpr i = NodeExpr(rec, index).Cast(wide ? DType::kI64 : DType::kI32);
  return Where(i < 0, i + static_cast<double>(length), i);
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

int64_t PlacesOf(const NodeBuilder& rec, std::string_view what, int64_t length, const Window& w) {
  const int64_t room = length + w.before + w.after - w.reach();
  if (room < 0)
    rec.Invalid(absl::StrCat(std::string(what), ": a kernel of ", w.kernel, " with dilation ",
                             w.dilation, " does not fit an axis of ", length, " with padding ",
                             w.before, " and ", w.after));
  return room / w.stride + 1;
}

const UOp* PadForWindows(const NodeBuilder& rec, const UOp* x, std::span<const Window> windows,
                         double value) {
  const size_t kept = x->shape.size() - windows.size();
  Shape begin_end, lo_hi(2 * kept, Dim(0));
  for (size_t i = 0; i < kept; ++i) begin_end.insert(begin_end.end(), {Dim(0), x->shape[i]});
  for (size_t i = 0; i < windows.size(); ++i) {
    const int64_t length = rec.LengthOf(x, static_cast<int64_t>(kept + i));
    const auto& [before, after] = std::pair(windows[i].before, windows[i].after);
    begin_end.insert(begin_end.end(), {Dim(std::max<int64_t>(-before, 0)),
                                       Dim(length - std::max<int64_t>(-after, 0))});
    lo_hi.insert(lo_hi.end(),
                 {Dim(std::max<int64_t>(before, 0)), Dim(std::max<int64_t>(after, 0))});
  }
  x = rec.Shrink(x, begin_end);
  const UOp* const padded = rec.Pad(x, lo_hi);
  if (value == 0 || padded == x) return padded;
  const UOp* const inside = rec.Pad(rec.Full(rec.ConstInt(DType::kBool, 1), x->shape), lo_hi);
  return rec.Where(inside, padded, rec.FullLike(padded, value));
}

const UOp* SlideWindows(const NodeBuilder& rec, std::string_view what, const UOp* x,
                        std::span<const Window> windows) {
  const int first = x->rank() - static_cast<int>(windows.size());
  std::vector<int64_t> places;
  for (size_t i = 0; i < windows.size(); ++i)
    places.push_back(
        PlacesOf(rec, what, rec.LengthOf(x, first + static_cast<int64_t>(i)), windows[i]));
  x = PadForWindows(rec, x, windows, 0);
  for (size_t i = 0; i < windows.size(); ++i)
    x = Windows(rec, x, first + 2 * static_cast<int>(i), places[i], windows[i].kernel,
                windows[i].stride, windows[i].dilation);
  return x;
}

const UOp* Windows(const NodeBuilder& rec, const UOp* x, int axis, int64_t places, int64_t kernel,
                   int64_t stride, int64_t dilation) {
  // Windows that neither overlap nor leave gaps are a reshape.
  if (stride == kernel && dilation == 1) {
    Shape begin_end, dims(x->shape.begin(), x->shape.end());
    for (const Dim& dim : dims) begin_end.insert(begin_end.end(), {Dim(0), dim});
    begin_end[2 * axis + 1] = Dim(places * kernel);
    dims[axis] = Dim(kernel);
    dims.insert(dims.begin() + axis, Dim(places));
    return rec.Reshape(rec.Shrink(x, begin_end), dims);
  }
  if (IsBool(x->dtype))  // has no sum
    return rec.Cast(Windows(rec, rec.Cast(x, DType::kU8), axis, places, kernel, stride, dilation),
                    DType::kBool);
  Shape full(x->shape.begin(), x->shape.end());
  full.insert(full.begin() + axis, 2, Dim(kernel));
  full[axis] = Dim(places);  // [..., o, k, i, ...]
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, 2, Dim(1));
  const auto number = [&](int along, int64_t factor) {
    const NodeExpr n = Iota(rec, DType::kI32, full, along);
    return factor == 1 ? n : n * static_cast<double>(factor);
  };
  const NodeExpr position = number(axis, stride) + number(axis + 1, dilation);
  const NodeExpr is_hot = number(axis + 2, 1) == position;
  return OneHotSum(is_hot, NodeExpr(rec, x).Reshape(apart).Expand(full), axis + 2);
}

const UOp* GatherAlong(const NodeBuilder& rec, const UOp* x, int axis, const UOp* index) {
  if (IsBool(x->dtype))
    return rec.Cast(GatherAlong(rec, rec.Cast(x, DType::kU8), axis, index), DType::kBool);
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
  const NodeExpr near(rec, rec.Shrink(x, begin_end));
  const NodeExpr wanted = NodeExpr(rec, index).Cast(type).Reshape(ones).Expand(full);
  const NodeExpr is_hot = Iota(rec, type, full, rank) == wanted;
  return OneHotSum(is_hot, near.Permute(order).Reshape(apart).Expand(full), rank);
}

const UOp* Gather(const NodeBuilder& rec, const UOp* x, int axis, const UOp* index) {
  // bool has no sum.
  if (IsBool(x->dtype))
    return rec.Cast(Gather(rec, rec.Cast(x, DType::kU8), axis, index), DType::kBool);
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
  const NodeExpr wanted = NodeExpr(rec, index).Cast(type).Reshape(of_index).Expand(full);
  const NodeExpr is_hot = Iota(rec, type, full, axis + rank) == wanted;
  return OneHotSum(is_hot, NodeExpr(rec, x).Reshape(of_x).Expand(full), axis + rank);
}

}  // namespace outboard::internal
