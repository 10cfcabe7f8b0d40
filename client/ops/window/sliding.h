// Windows that slide along an axis and elements by index, as sums of one-hot products; the
// scheduler turns them into plain loads.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "client/lazy/node_expr.h"
#include "client/ops/window/window.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

// How a window slides along one axis.
struct Window {
  int64_t kernel, stride, dilation;
  int64_t before, after;  // padding

  int64_t reach() const {
    return dilation * (kernel - 1) + 1;
  }  // from its first element to its end
};

// One for each axis of `kernel`, all of them checked. `what` names the operation in errors.
std::vector<Window> WindowsOf(const NodeBuilder& rec, std::string_view what,
                              const std::vector<int64_t>& kernel, const PerAxis& stride,
                              const PerAxis& dilation, const Padding& padding);

// `numbers` as one for each of `count` axes. Throws where it is neither one nor as many.
std::vector<int64_t> ForEachAxis(const NodeBuilder& rec, std::string_view what,
                                 std::string_view name, const PerAxis& numbers, size_t count);

// Returns the number of window positions along an axis of `length`. Throws if there is none.
Dim PlacesOf(const NodeBuilder& rec, std::string_view what, const Dim& length,
             const Window& window);

// Narrows the variables of the last axes of x in so far that each window has a place for all of
// their values (client/lazy/narrow.h). Throws where one has none now.
void FitWindows(std::string_view what, const NodeExpr& x, std::span<const Window> windows);

// x with the padding of the windows at its last axes, which is `value`; negative sides are cut.
NodeExpr PadForWindows(const NodeExpr& x, std::span<const Window> windows, double value);

// x [..., D1, D2 ...] as [..., P1, K1, P2, K2 ...], padded with zeros. Throws where a window has no
// place.
NodeExpr SlideWindows(std::string_view what, const NodeExpr& x, std::span<const Window> windows);

// x with `axis` of length I replaced by two axes: `places` positions of a window, and `kernel`
// elements in it: y[..., o, k, ...] = x[..., o * stride + k * dilation, ...]. Requires all of them
// to lie inside.
NodeExpr Windows(const NodeExpr& x, int axis, const Dim& places, int64_t kernel, int64_t stride,
                 int64_t dilation);

// y[i, j ...] = x[index[i, j ...], j ...], the index at `axis`; zeros where it is out of range.
// Requires as many axes of both, and an index that is nowhere longer than x but along `axis`.
NodeExpr GatherAlong(const NodeExpr& x, int axis, const NodeExpr& index);

// A tensor that names places: of integers. Throws.
NodeExpr IndexNode(const NodeBuilder& rec, const Tensor& index);
// The index with negative places counted from the end of an axis of `length`.
NodeExpr FromTheEnd(const NodeExpr& index, const Dim& length);
// Wide enough for the index, and for comparing it with a place.
DType PlaceType(const UOp* index);

// The rows of x along `axis` that `index` (of integers) names: index.shape takes the place of the
// axis; zeros where the index is out of range.
NodeExpr Gather(const NodeExpr& x, int axis, const NodeExpr& index);

}  // namespace outboard::internal
