#include "compiler/gradient/window_sums.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"

namespace outboard::gradient {
namespace {

// For each window there are at most 3 / 2 places, so that in a sum of both, of three such axes too,
// x is computed less than kJoinedSumRepeats times (compiler/schedule/materialize.cc).
constexpr double kPlacesOfWindowMax = 1.5;

// Of taps that are filled up to a multiple of the stride, so many for each one.
constexpr double kFilledTapsMax = 1.5;

// Columns of a matrix unit's product; without one the sum takes longer than its terms in memory.
constexpr int64_t kChannelsMin = 8;

// The scalar of a node that has the same value everywhere, else nullptr.
const UOp* UniformConst(const UOp* node) {
  while (node->op == Op::kReshape || node->op == Op::kExpand) node = node->src[0];
  return node->is_const() ? node : nullptr;
}

bool IsFloatZero(const UOp* node) {
  const UOp* const scalar = UniformConst(node);
  return scalar != nullptr && IsFloat(scalar->dtype) && scalar->float_value() == 0;
}

// `factor` times the number of each place along an axis.
struct Numbers {
  int64_t axis = 0, factor = 1;
};
std::optional<Numbers> NumbersOf(const UOp* node) {
  int64_t factor = 1;
  if (node->op == Op::kMul) {
    const UOp* const scalar = UniformConst(node->src[1]);
    if (scalar == nullptr || scalar->int_value() < 1) return std::nullopt;
    factor = scalar->int_value();
    node = node->src[0];
  }
  if (node->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kReshape || node->src[0]->op != Op::kIota) return std::nullopt;
  for (int64_t axis = 0; axis < node->rank(); ++axis)
    if (node->shape[axis] != Dim(1)) return Numbers{axis, factor};
  return std::nullopt;
}

// The axes of place == stride * window + dilation * tap.
struct WindowAxes {
  int64_t place = 0, window = 0, tap = 0;
  int64_t stride = 1, dilation = 1;
};
std::optional<WindowAxes> AxesOfWindows(const UOp* condition) {
  if (condition->op != Op::kCmpEq || condition->src[1]->op != Op::kAdd) return std::nullopt;
  const UOp* const sum = condition->src[1];
  const auto place = NumbersOf(condition->src[0]), window = NumbersOf(sum->src[0]),
             tap = NumbersOf(sum->src[1]);
  if (!place || !window || !tap || place->factor != 1) return std::nullopt;
  return WindowAxes{place->axis, window->axis, tap->axis, window->factor, tap->factor};
}

// The length of the second axis, where it is before those of windows: channels, by the client's
// order of axes.
int64_t ChannelsOf(const UOp* dy, const WindowAxes& of) {
  constexpr int64_t kAxis = 1;
  const bool is_before = std::min({of.place, of.window, of.tap}) > kAxis;
  return is_before && dy->shape[kAxis].is_const() ? dy->shape[kAxis].value() : 0;
}

// A float sum, behind movements, that was rounded to a narrower float, behind others, as it was
// before; nullptr for anything else.
const UOp* UnroundedSum(Graph& g, const UOp* node) {
  constexpr size_t kMovementsMax = 64;  // each is made once more
  std::vector<const UOp*> movements;
  for (; IsMovement(node->op); node = node->src[0]) {
    if (movements.size() == kMovementsMax) return nullptr;
    movements.push_back(node);
  }
  if (!IsNarrowingCast(node)) return nullptr;
  const UOp* sum = node->src[0];
  while (IsMovement(sum->op)) sum = sum->src[0];
  if (sum->op != Op::kReduce || ReduceOf(sum).op() != Op::kAdd) return nullptr;
  const UOp* wide = node->src[0];
  for (; !movements.empty(); movements.pop_back()) {
    const UOp* const movement = movements.back();
    std::vector<const UOp*> src(movement->src.begin(), movement->src.end());
    src[0] = wide;
    wide = g.MakeChecked(movement->op, DType::kVoid, src, movement->arg);
  }
  return wide;
}

// The sum over windows and taps of `terms`, which have length 1 along the axis of places, where
//   place == stride * window + tap.
// Places and taps are quotients and remainders by the stride: the quotients are those of windows
// that move by one, and remainders of places are those of taps. Taps are filled up with zeros.
Expr SumByRemainders(Graph& g, const Expr& terms, const WindowAxes& of, int64_t places) {
  const int64_t s = of.stride, taps = terms.shape()[of.tap].value();
  const int64_t quotients = DivideUp(taps, s);
  // So many zeros lead that places of an input with borders of taps / 2 begin at a multiple, as far
  // as there are any.
  const int64_t lead = std::min(quotients * s - taps, (s - (taps - 1) / 2 % s) % s);
  Shape zeros(2 * terms.rank(), Dim(0));
  zeros[2 * of.tap] = Dim(lead);
  zeros[2 * of.tap + 1] = Dim(quotients * s - taps - lead);
  // [.., tap, ..] as [.., tap / s, tap % s, ..].
  Shape apart(terms.shape().begin(), terms.shape().end());
  apart[of.tap] = Dim(quotients);
  apart.insert(apart.begin() + of.tap + 1, Dim(s));
  const auto now = [&](int64_t axis) { return axis + (axis > of.tap ? 1 : 0); };
  const int64_t window = now(of.window), place = now(of.place), remainder = of.tap + 1;
  Shape full = apart;
  full[place] = Dim(DivideUp(places + lead, s));
  const auto number = [&](int64_t axis) {
    Shape ones(full.size(), Dim(1));
    ones[axis] = full[axis];
    return Expr(g, Iota(g, DType::kI32, full[axis])).reshape(ones).expand(full);
  };
  const Expr hot = number(place) == number(window) + number(of.tap);
  const Expr sum =
      hot.where(terms.pad(zeros).reshape(apart).expand(full), 0).sum({window, of.tap});
  // Remainders go behind the quotients of places, and both are one axis again.
  std::vector<int64_t> order(full.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + remainder);
  order.insert(std::find(order.begin(), order.end(), place) + 1, remainder);
  Shape joined(terms.shape().begin(), terms.shape().end()), ends;
  joined[of.window] = joined[of.tap] = Dim(1);
  joined[of.place] = Dim(full[place].value() * s);
  for (int64_t axis = 0; axis < terms.rank(); ++axis) {
    const bool is_place = axis == of.place;
    ends.insert(ends.end(),
                {Dim(is_place ? lead : 0), is_place ? Dim(places + lead) : joined[axis]});
  }
  return sum.permute(order).reshape(joined).shrink(ends);
}

// The sum of strided windows that overlap; nullptr for others.
const UOp* SumOfStridedWindows(Graph& g, const UOp* dy, const WindowAxes& of) {
  const UOp* const terms = dy->src[1];
  const Dim taps = dy->shape[of.tap];
  if (of.dilation != 1 || ChannelsOf(dy, of) < kChannelsMin || !taps.is_const() ||
      of.stride >= taps.value() || terms->op != Op::kExpand ||
      terms->src[0]->shape[of.place] != Dim(1))
    return nullptr;
  const int64_t filled = DivideUp(taps.value(), of.stride) * of.stride;
  if (static_cast<double>(filled) > kFilledTapsMax * static_cast<double>(taps.value()))
    return nullptr;
  const UOp* const wide = UnroundedSum(g, terms->src[0]);
  if (wide == nullptr) return nullptr;
  return SumByRemainders(g, Expr(g, wide), of, dy->shape[of.place].value())
      .cast(dy->dtype)
      .node();
}

}  // namespace

bool IsNarrowingCast(const UOp* node) {
  return node->op == Op::kCast && IsFloat(node->dtype) && IsFloat(node->src[0]->dtype) &&
         ByteWidth(node->src[0]->dtype) > ByteWidth(node->dtype);
}

const UOp* SumOfWindows(Graph& g, const UOp* dy, absl::Span<const int64_t> axes) {
  if (dy->op != Op::kWhere || !IsFloatZero(dy->src[2])) return nullptr;
  const std::optional<WindowAxes> of = AxesOfWindows(dy->src[0]);
  if (!of || axes.size() != 2 || std::min(of->window, of->tap) != axes[0] ||
      std::max(of->window, of->tap) != axes[1])
    return nullptr;
  const Dim places = dy->shape[of->place], windows = dy->shape[of->window];
  if (!places.is_const() || !windows.is_const() ||
      static_cast<double>(places.value()) >
          kPlacesOfWindowMax * static_cast<double>(of->stride * windows.value()))
    return nullptr;
  if (of->stride > 1) return SumOfStridedWindows(g, dy, *of);
  const UOp* const wide = UnroundedSum(g, dy->src[1]);
  if (wide == nullptr) return nullptr;
  const Expr hot(g, dy->src[0]), x(g, wide);
  return hot.where(x, 0).sum({axes.begin(), axes.end()}).cast(dy->dtype).node();
}

}  // namespace outboard::gradient
