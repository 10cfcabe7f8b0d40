#include "compiler/gradient/window_sums.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "compiler/divide_up.h"
#include "compiler/gradient/uniform_const.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/split_period.h"

namespace outboard::gradient {
namespace {

// For each window that moves by one there are at most 3 / 2 places, so that in a sum of both, of
// three such axes too, x is computed less than kJoinedSumRepeats times
// (compiler/schedule/materialize.cc).
constexpr double kPlacesOfWindowMax = 1.5;

// Of strided windows, whose taps are filled up, this many products for each tap of each window: of
// two such axes less than kJoinedSumRepeats. Of three, all so short, x is stored: that is slower,
// and as exact.
constexpr double kProductsOfTapMax = 1.9;

// Of taps that are filled up to a multiple of the stride, so many for each one.
constexpr double kFilledTapsMax = 1.5;

// Columns of a matrix unit's product; without one the sum takes longer than its terms in memory.
constexpr int64_t kColumnsMin = 8;

// `factor` times the position along an axis, which is the only one that is longer than 1.
struct Numbers {
  int64_t axis = 0, factor = 1;
};
std::optional<Numbers> NumbersOf(const UOp* node) {
  if (node->dtype != DType::kI32 && node->dtype != DType::kI64) return std::nullopt;  // may wrap
  int64_t factor = 1;
  if (node->op == Op::kMul) {
    const UOp* const scalar = UniformConst(node->src[1]);
    if (scalar == nullptr || scalar->int_value() < 1) return std::nullopt;
    factor = scalar->int_value();
    node = node->src[0];
  }
  if (node->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kReshape || node->src[0]->op != Op::kIota) return std::nullopt;
  std::optional<Numbers> numbers;
  for (int64_t axis = 0; axis < node->rank(); ++axis) {
    if (node->shape[axis] == Dim(1)) continue;
    if (numbers) return std::nullopt;
    numbers = Numbers{axis, factor};
  }
  return numbers;
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

// The length of the second axis, where it is before those of windows: the channels of all groups,
// by the client's order of axes. A product of one group may have fewer columns.
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
// With zeros in front of the taps, quotients Q and u and a common remainder R by the stride s, this
// is the sum of windows that move by one, for each R:
//   place + lead == s * Q + R,  tap + lead == s * u + R,  Q == window + u.
// Zeros behind the taps make them a multiple of the stride.
Expr SumByRemainders(Graph& g, const Expr& terms, const WindowAxes& of, int64_t places) {
  const int64_t s = of.stride, taps = terms.shape()[of.tap].value();
  const int64_t quotients = DivideUp(taps, s);  // values of u
  // Chosen so that places of an input with borders of taps / 2 begin at a multiple, as far as there
  // are so many zeros.
  const int64_t lead = std::min(quotients * s - taps, (s - (taps - 1) / 2 % s) % s);
  Shape zeros(2 * terms.rank(), Dim(0));
  zeros[2 * of.tap] = Dim(lead);
  zeros[2 * of.tap + 1] = Dim(quotients * s - taps - lead);
  // The axis of taps becomes two, u and R: all axes behind it move by one.
  Shape with_u_r(terms.shape().begin(), terms.shape().end());
  with_u_r[of.tap] = Dim(quotients);
  with_u_r.insert(with_u_r.begin() + of.tap + 1, Dim(s));
  const auto moved = [&](int64_t axis) { return axis + (axis > of.tap ? 1 : 0); };
  const int64_t window = moved(of.window), q = moved(of.place), u = of.tap, r = of.tap + 1;
  Shape with_q = with_u_r;
  with_q[q] = Dim(DivideUp(places + lead, s));
  const auto number = [&](int64_t axis) {
    Shape ones(with_q.size(), Dim(1));
    ones[axis] = with_q[axis];
    return Expr(g, Iota(g, DType::kI32, with_q[axis])).reshape(ones).expand(with_q);
  };
  const Expr hot = number(q) == number(window) + number(u);
  const Expr sum = hot.where(terms.pad(zeros).reshape(with_u_r).expand(with_q), 0).sum({window, u});
  // R goes behind Q, and s * Q + R is one axis again, of which place + lead is cut out.
  std::vector<int64_t> order(with_q.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + r);
  order.insert(std::find(order.begin(), order.end(), q) + 1, r);
  Shape joined(terms.shape().begin(), terms.shape().end()), ends;
  joined[of.window] = joined[of.tap] = Dim(1);
  joined[of.place] = Dim(with_q[q].value() * s);
  for (int64_t axis = 0; axis < terms.rank(); ++axis) {
    const bool is_place = axis == of.place;
    ends.insert(ends.end(),
                {Dim(is_place ? lead : 0), is_place ? Dim(places + lead) : joined[axis]});
  }
  return sum.permute(order).reshape(joined).shrink(ends);
}

// Whether a loop over the places can be split at the stride: their number is a multiple, with and
// without borders of half a window on both sides. (What the borders are is not seen here: the
// gradient of PAD cuts them off later.) A loop that stays whole chooses elements of both factors of
// the product: no matrix unit computes that, or none without rows, and with more products.
bool LoopsSplit(int64_t stride, int64_t taps, int64_t places) {
  const int64_t borders = (taps - 1) / 2 * 2;
  return stride <= kSplitPeriodMax && places % stride == 0 && borders % stride == 0;
}

// Whether `terms` are repeated along the axis of places, and along no other.
bool IsExpandedAlong(int64_t place, const UOp* terms) {
  if (terms->op != Op::kExpand) return false;
  for (int64_t axis = 0; axis < terms->rank(); ++axis)
    if (terms->src[0]->shape[axis] != (axis == place ? Dim(1) : terms->shape[axis])) return false;
  return true;
}

// The sum of strided windows that overlap; nullptr for others.
const UOp* SumOfStridedWindows(Graph& g, const UOp* dy, const WindowAxes& of) {
  const UOp* const terms = dy->src[1];
  const Dim taps = dy->shape[of.tap];
  if (of.dilation != 1 || ChannelsOf(dy, of) < kColumnsMin || !taps.is_const() ||
      of.stride >= taps.value() || of.place == of.window || of.place == of.tap ||
      !IsExpandedAlong(of.place, terms))
    return nullptr;
  const int64_t places = dy->shape[of.place].value(), windows = dy->shape[of.window].value();
  if (!LoopsSplit(of.stride, taps.value(), places)) return nullptr;
  const int64_t filled = DivideUp(taps.value(), of.stride) * of.stride;
  const double filled_taps = static_cast<double>(filled) / static_cast<double>(taps.value());
  const double window_places =
      static_cast<double>(places) / static_cast<double>(of.stride * windows);
  if (filled_taps > kFilledTapsMax || window_places * filled_taps > kProductsOfTapMax)
    return nullptr;
  const UOp* const wide = UnroundedSum(g, terms->src[0]);
  if (wide == nullptr) return nullptr;
  return SumByRemainders(g, Expr(g, wide), of, places).cast(dy->dtype).node();
}

}  // namespace

bool IsNarrowingCast(const UOp* node) {
  return node->op == Op::kCast && IsFloat(node->dtype) && IsFloat(node->src[0]->dtype) &&
         ByteWidth(node->src[0]->dtype) > ByteWidth(node->dtype);
}

const UOp* SumOfWindows(Graph& g, const UOp* dy, absl::Span<const int64_t> axes) {
  if (dy->op != Op::kWhere || !IsFloatConst(dy->src[2], 0)) return nullptr;
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
