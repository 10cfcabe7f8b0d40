#include "compiler/gradient/window_sums.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"

namespace outboard::gradient {
namespace {

// For each window there are at most 3 / 2 places, so that in a sum of both, of three such axes too,
// x is computed less than kJoinedSumRepeats times (compiler/schedule/materialize.cc).
constexpr double kPlacesOfWindowMax = 1.5;

// The scalar of a node that has the same value everywhere, else nullptr.
const UOp* UniformConst(const UOp* node) {
  while (node->op == Op::kReshape || node->op == Op::kExpand) node = node->src[0];
  return node->is_const() ? node : nullptr;
}

bool IsFloatZero(const UOp* node) {
  const UOp* const scalar = UniformConst(node);
  return scalar != nullptr && IsFloat(scalar->dtype) && scalar->float_value() == 0;
}

// The axis along which a node is the number of each place; nullopt if it is something else.
std::optional<int64_t> AxisNumbered(const UOp* node) {
  if (node->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kReshape || node->src[0]->op != Op::kIota) return std::nullopt;
  for (int64_t axis = 0; axis < node->rank(); ++axis)
    if (node->shape[axis] != Dim(1)) return axis;
  return std::nullopt;
}

// The axes of place == window + dilation * tap.
struct WindowAxes {
  int64_t place = 0, window = 0, tap = 0;
};
std::optional<WindowAxes> AxesOfWindows(const UOp* condition) {
  if (condition->op != Op::kCmpEq || condition->src[1]->op != Op::kAdd) return std::nullopt;
  const UOp* taps = condition->src[1]->src[1];
  if (taps->op == Op::kMul && UniformConst(taps->src[1]) != nullptr) taps = taps->src[0];
  const auto place = AxisNumbered(condition->src[0]),
             window = AxisNumbered(condition->src[1]->src[0]), tap = AxisNumbered(taps);
  if (!place || !window || !tap) return std::nullopt;
  return WindowAxes{*place, *window, *tap};
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
          kPlacesOfWindowMax * static_cast<double>(windows.value()))
    return nullptr;
  const UOp* const wide = UnroundedSum(g, dy->src[1]);
  if (wide == nullptr) return nullptr;
  const Expr hot(g, dy->src[0]), x(g, wide);
  return hot.where(x, 0).sum({axes.begin(), axes.end()}).cast(dy->dtype).node();
}

}  // namespace outboard::gradient
