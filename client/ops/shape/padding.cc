#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/shape/shape.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

namespace {

bool IsNegative(const SymInt& size) { return size.is_number() && size.value() < 0; }

// Without what negative sides cut off.
Tensor Cut(const Tensor& x, const SymIntPairs& sides) {
  SymIntPairs ranges;
  bool cuts = false;
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto& [before, after] = sides[i];
    const SymInt length = x.size(static_cast<int64_t>(i));
    ranges.emplace_back(IsNegative(before) ? before * -1 : 0,
                        IsNegative(after) ? length + after : length);
    cuts = cuts || IsNegative(before) || IsNegative(after);
  }
  return cuts ? x.shrink(ranges) : x;
}

SymIntPairs WithoutCuts(SymIntPairs sides) {
  for (auto& [before, after] : sides) {
    if (IsNegative(before)) before = 0;
    if (IsNegative(after)) after = 0;
  }
  return sides;
}

Tensor PadWithConstant(const Tensor& tensor, const SymIntPairs& sides, const Arg& value) {
  const Tensor x = Cut(tensor, sides);
  const SymIntPairs outside = WithoutCuts(sides);
  const Tensor padded = x.pad(outside);
  if (value.kind() != Arg::Kind::kTensor && value.float_value() == 0) return padded;
  const Tensor inside = x.ones_like().cast(DType::kBool).pad(outside);
  return inside.where(padded, value);
}

// `count` elements next to the edge at the beginning or the end of an axis.
Tensor Beyond(const Tensor& x, int64_t axis, int64_t count, PadMode mode, bool at_end) {
  const int64_t length = x.shape(axis);
  const auto from = [&](int64_t begin, int64_t end) { return x.slice(axis, begin, end); };
  switch (mode) {
    case PadMode::kReflect:
      if (count >= length)
        ThrowInvalid(absl::StrCat("pad: a reflection of ", count, " at axis ", axis, ", which has ",
                                  length));
      return (at_end ? from(length - 1 - count, length - 1) : from(1, count + 1)).flip(axis);
    case PadMode::kReplicate: {
      if (length == 0)
        ThrowInvalid(absl::StrCat("pad: nothing to replicate at axis ", axis, ", which has 0"));
      Dims dims = x.shape();
      dims[axis] = count;
      return (at_end ? from(length - 1, length) : from(0, 1)).expand(dims);
    }
    default:
      if (count > length)
        ThrowInvalid(absl::StrCat("pad: ", count, " at axis ", axis, ", which has ", length,
                                  ", would repeat it more than once"));
      return at_end ? from(0, count) : from(length - count, length);
  }
}

}  // namespace

Tensor pad(const Tensor& x, const SymIntPairs& sides, PadMode mode, const Arg& value, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (sides.size() != node->shape.size())
    rec.Invalid(absl::StrCat("pad: ", sides.size(), " pairs for a tensor of shape ",
                             DimsToString(node->shape)));
  if (mode == PadMode::kConstant) return PadWithConstant(x, sides, value);
  const bool cut_first = mode == PadMode::kCircular;
  Tensor y = cut_first ? Cut(x, sides) : x;
  SymIntPairs cuts = sides;
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    std::vector<Tensor> parts = {y};
    const int64_t before = sides[i].first.value(), after = sides[i].second.value();
    if (before > 0) parts.insert(parts.begin(), Beyond(y, axis, before, mode, false));
    if (after > 0) parts.push_back(Beyond(y, axis, after, mode, true));
    if (parts.size() > 1) y = Tensor::cat(parts, axis);
    cuts[i] = {std::min<int64_t>(before, 0), std::min<int64_t>(after, 0)};
  }
  return cut_first ? y : Cut(y, cuts);
}

}  // namespace outboard
