// Elements by index: numbers and slices move, tensors gather. Gathers are one-hot sums in the graph
// and loads in a kernel.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/windows.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::DimsToString;
using internal::Recorder;

namespace {

Shape WholeRanges(const UOp* x) {
  Shape begin_end;
  for (const Dim& dim : x->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  return begin_end;
}

const UOp* Range(const Recorder& rec, const UOp* x, int axis, int64_t begin, int64_t end) {
  Shape begin_end = WholeRanges(x);
  begin_end[2 * axis] = Dim(begin);
  begin_end[2 * axis + 1] = Dim(end);
  return rec.Shrink(x, begin_end);
}

const UOp* One(const Recorder& rec, const UOp* x, int axis, int64_t place) {
  const int64_t length = rec.LengthOf(x, axis);
  const int64_t i = place < 0 ? place + length : place;
  if (i < 0 || i >= length)
    rec.Invalid(absl::StrCat("index ", place, " is out of range for axis ", axis, " of ", length));
  return rec.Squeeze(Range(rec, x, axis, i, i + 1), {axis});
}

// Every `step`-th element along `axis`, from the first.
const UOp* Strided(const Recorder& rec, const UOp* x, int axis, int64_t step) {
  const int64_t length = rec.LengthOf(x, axis);
  const int64_t count = (length + step - 1) / step;
  Shape lo_hi(2 * x->shape.size(), Dim(0)), apart(x->shape.begin(), x->shape.end());
  lo_hi[2 * axis + 1] = Dim(count * step - length);
  apart[axis] = Dim(step);
  apart.insert(apart.begin() + axis, Dim(count));
  const UOp* const rows = rec.Reshape(rec.Pad(x, lo_hi), apart);
  return rec.Squeeze(Range(rec, rows, axis + 1, 0, 1), {axis + 1});
}

const UOp* Part(const Recorder& rec, const UOp* x, int axis, const Slice& slice) {
  if (slice.step == 0) rec.Invalid("a slice with a step of 0");
  const int64_t length = rec.LengthOf(x, axis);
  const bool back = slice.step < 0;
  // Steps beyond every axis are all the same.
  const int64_t step = std::abs(std::clamp<int64_t>(slice.step, -limits::kDimMax, limits::kDimMax));
  const auto place = [&](const std::optional<int64_t>& given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t i = *given < 0 ? *given + length : *given;
    return back ? std::clamp<int64_t>(i, -1, length - 1) : std::clamp<int64_t>(i, 0, length);
  };
  const int64_t begin = place(slice.begin, back ? length - 1 : 0);
  const int64_t end = place(slice.end, back ? -1 : length);
  const int64_t span = back ? begin - end : end - begin;
  if (span <= 0) return Range(rec, x, axis, 0, 0);
  const int64_t reach = (span - 1) / step * step;  // from the first to the last element
  const int64_t low = back ? begin - reach : begin;
  const UOp* y = Range(rec, x, axis, low, low + reach + 1);
  if (step > 1) y = Strided(rec, y, axis, step);
  return back ? rec.Make(Op::kFlip, y->dtype, {y}, {axis}) : y;
}

// The index with negative places counted from the end of an axis of `length`.
const UOp* FromTheEnd(const Recorder& rec, const UOp* index, int64_t length) {
  if (!IsSigned(index->dtype) || index->vmin >= 0) return index;
  const bool wide = ByteWidth(index->dtype) == 8;
  const UOp* const i = rec.Cast(index, wide ? DType::kI64 : DType::kI32);
  const UOp* const negative = rec.Alu(Op::kCmpLt, i, rec.FullLike(i, 0));
  return rec.Where(negative, rec.Add(i, rec.FullLike(i, static_cast<double>(length))), i);
}

const UOp* IndexNode(const Recorder& rec, const Tensor& index) {
  const UOp* const node = index.NodeIn(rec);
  if (!IsInt(node->dtype))
    rec.Invalid(absl::StrCat("an index must be of integers, not ", std::string(Name(node->dtype))));
  return node;
}

struct Places {
  int axis;
  const UOp* index;
};

// The elements that several indices name together: one index into their axes made one.
const UOp* PickTogether(const Recorder& rec, const UOp* x, const std::vector<Places>& places) {
  Shape shape;
  for (const Places& p : places) shape = rec.BroadcastShape(shape, p.index->shape, "indices");
  bool side_by_side = true;
  std::vector<int64_t> order, rest;
  for (size_t i = 0; i < places.size(); ++i) {
    side_by_side = side_by_side && places[i].axis == places[0].axis + static_cast<int>(i);
    order.push_back(places[i].axis);
  }
  for (int64_t axis = 0; axis < x->rank(); ++axis)
    if (std::find(order.begin(), order.end(), axis) == order.end()) rest.push_back(axis);
  const int64_t at = side_by_side ? places[0].axis : 0;
  order.insert(order.begin(), rest.begin(), rest.begin() + at);
  order.insert(order.end(), rest.begin() + at, rest.end());

  const UOp* index = nullptr;
  const UOp* inside = nullptr;
  int64_t together = 1;
  const auto spread = [&](int64_t value) {
    return rec.Full(rec.ConstInt(DType::kI64, value), shape);
  };
  for (const Places& p : places) {
    const int64_t length = rec.LengthOf(x, p.axis);
    const UOp* const i =
        rec.Broadcast(rec.Cast(FromTheEnd(rec, p.index, length), DType::kI64), shape);
    const UOp* const in = rec.Alu(Op::kAnd, rec.Alu(Op::kCmpLt, spread(-1), i),
                                  rec.Alu(Op::kCmpLt, i, spread(length)));
    index = index == nullptr ? i : rec.Add(rec.Mul(index, spread(length)), i);
    inside = inside == nullptr ? in : rec.Alu(Op::kAnd, inside, in);
    together *= length;
  }
  const UOp* const turned = rec.Permute(x, order);
  Shape dims(turned->shape.begin(), turned->shape.begin() + at);
  dims.emplace_back(together);
  dims.insert(dims.end(), turned->shape.begin() + at + static_cast<int64_t>(places.size()),
              turned->shape.end());
  return internal::Gather(rec, rec.Reshape(turned, dims), static_cast<int>(at),
                          rec.Where(inside, index, spread(-1)));
}

}  // namespace

Tensor Tensor::operator[](const Index& index) const { return (*this)[std::vector<Index>{index}]; }

Tensor Tensor::operator[](const std::vector<Index>& indices) const {
  if (indices.empty()) return *this;
  const Recorder rec(indices[0].at());
  const UOp* x = NodeIn(rec);
  int used = 0, ellipses = 0;
  for (const Index& index : indices) {
    const bool ellipsis = std::holds_alternative<Ellipsis>(index.what());
    ellipses += ellipsis;
    used += !ellipsis && !std::holds_alternative<NewAxis>(index.what());
  }
  if (ellipses > 1) rec.Invalid("more than one ellipsis in an index");
  if (used > x->rank())
    rec.Invalid(absl::StrCat(used, " indices for a tensor of shape ", DimsToString(x->shape)));
  const int between = x->rank() - used;
  int axis = 0;  // of x as it is by then
  std::vector<Places> places;
  for (const Index& index : indices) {
    if (const auto* place = std::get_if<int64_t>(&index.what())) {
      x = One(rec, x, axis, *place);
    } else if (const auto* slice = std::get_if<Slice>(&index.what())) {
      x = Part(rec, x, axis++, *slice);
    } else if (std::holds_alternative<Ellipsis>(index.what())) {
      axis += between;
    } else if (std::holds_alternative<NewAxis>(index.what())) {
      Shape dims(x->shape.begin(), x->shape.end());
      dims.insert(dims.begin() + axis++, Dim(1));
      x = rec.Reshape(x, dims);
    } else {
      places.push_back({axis++, IndexNode(rec, *std::get<const Tensor*>(index.what()))});
    }
  }
  if (places.size() == 1) {
    const int64_t length = rec.LengthOf(x, places[0].axis);
    x = internal::Gather(rec, x, places[0].axis, FromTheEnd(rec, places[0].index, length));
  } else if (places.size() > 1) {
    x = PickTogether(rec, x, places);
  }
  return FromNode(rec, x);
}

Tensor Tensor::take(const Tensor& index, int64_t axis, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  const UOp* const wanted = IndexNode(rec, index);
  const int place = rec.Axis(axis, x->rank());
  return FromNode(rec,
                  internal::Gather(rec, x, place, FromTheEnd(rec, wanted, rec.LengthOf(x, place))));
}

Tensor Tensor::gather(int64_t axis, const Tensor& index, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  const UOp* const wanted = IndexNode(rec, index);
  const int place = rec.Axis(axis, x->rank());
  bool fits = wanted->rank() == x->rank();
  for (int i = 0; fits && i < x->rank(); ++i)
    fits = i == place || rec.LengthOf(wanted, i) <= rec.LengthOf(x, i);
  if (!fits)
    rec.Invalid(absl::StrCat("gather: an index of ", DimsToString(wanted->shape), " along axis ",
                             place, " of ", DimsToString(x->shape)));
  return FromNode(
      rec, internal::GatherAlong(rec, x, place, FromTheEnd(rec, wanted, rec.LengthOf(x, place))));
}

Tensor Tensor::one_hot(int64_t classes, DType dtype, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  if (!IsInt(x->dtype))
    rec.Invalid(absl::StrCat("one_hot: needs integers, not ", std::string(Name(x->dtype))));
  Shape ones(x->shape.begin(), x->shape.end()), full = ones;
  ones.emplace_back(1);
  full.emplace_back(classes);
  const bool wide = ByteWidth(x->dtype) == 8 || x->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(x, type), ones), full);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, full, x->rank()), wanted);
  return FromNode(rec, rec.Cast(hot, dtype));
}

}  // namespace outboard
