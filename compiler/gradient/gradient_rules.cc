#include "compiler/gradient/gradient_rules.h"

#include <array>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/gradient/uniform_const.h"
#include "compiler/gradient/window_sums.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/expr.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard::gradient {
namespace {

// ---- notation -----------------------------------------------------------------------------------

bool IsOne(const UOp* x) { return IsFloatConst(x, 1); }

// dy, y or a source. A product of one of them that has a factor 1 is the other factor: most walks
// start with a dy of ones.
class Term : public Expr {
 public:
  explicit Term(const Expr& e) : Expr(e) {}
};
Expr operator*(const Term& a, const Expr& b) {
  if (IsOne(a.node())) return b;
  if (IsOne(b.node())) return a;
  return static_cast<const Expr&>(a) * b;
}
Expr operator*(const Term& a, Literal b) { return a * a.like(b); }

Term Dy(const Step& s) { return Term({s.g, s.dy}); }
Term Y(const Step& s) { return Term({s.g, s.node}); }
Term X(const Step& s, int i = 0) { return Term({s.g, s.x(i)}); }

// Counting needs more bits than the small floats have.
DType AtLeastF32(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

std::vector<int64_t> AxesOf(const UOp* reduce) {
  const auto axes = ReduceOf(reduce).axes();
  return {axes.begin(), axes.end()};
}

// The axes that PERMUTE by `axes` takes back.
std::vector<int64_t> Inverse(absl::Span<const int64_t> axes) {
  std::vector<int64_t> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int64_t>(i);
  return inverse;
}

template <typename... Parts>
absl::Status Unimplemented(const UOp* node, const Parts&... parts) {
  return absl::UnimplementedError(
      absl::StrCat("the gradient of ", NodeToString(node), ": ", parts...));
}

// ---- rules of more than a line ------------------------------------------------------------------

absl::Status MulRule(Step& s) {
  const Term dy = Dy(s), a = X(s, 0), b = X(s, 1);
  if (s.needs[0]) s.gives[0] = (dy * b).node();
  if (s.needs[1]) s.gives[1] = (dy * a).node();
  return absl::OkStatus();
}

// y = a / b: dy / b, and -(dy / b) y.
absl::Status FDivRule(Step& s) {
  const Expr of_a = Dy(s) / X(s, 1);
  if (s.needs[0]) s.gives[0] = of_a.node();
  if (s.needs[1]) s.gives[1] = (-(of_a * Y(s))).node();
  return absl::OkStatus();
}

absl::Status MaxRule(Step& s) {
  const Term dy = Dy(s), a = X(s, 0), b = X(s, 1);
  const auto of = [&](const Term& mine, const Term& other) {
    if (UniformConst(other.node()) != nullptr) return (mine > other).where(dy, 0);
    return (mine < other).where(0, (a == b).where(dy * 0.5, dy));
  };
  if (s.needs[0]) s.gives[0] = of(a, b).node();
  if (s.needs[1]) s.gives[1] = of(b, a).node();
  return absl::OkStatus();
}

absl::Status WhereRule(Step& s) {
  const Term dy = Dy(s), condition = X(s, 0);
  if (s.needs[1]) s.gives[1] = condition.where(dy, 0).node();
  if (s.needs[2]) s.gives[2] = condition.where(0, dy).node();
  return absl::OkStatus();
}

// Whether `node` is a product of two values that are each the same along some axes, as a matrix
// product has before its sum.
bool IsOuterProduct(const UOp* node) {
  const auto repeats = [](const UOp* x) {
    while (IsMovement(x->op) && x->op != Op::kExpand) x = x->src[0];
    return x->op == Op::kExpand;
  };
  return node->op == Op::kMul && repeats(node->src[0]) && repeats(node->src[1]);
}

// The sum over `axes`. That of several matrix products (a value's gradient where it is an operand
// of several) is taken of each by itself: one loop over all of them keeps several times the
// operands in its caches, and ran at half the speed.
Expr SumOfParts(const Expr& dy, absl::Span<const int64_t> axes) {
  constexpr size_t kPartsMax = 64;
  std::vector<const UOp*> parts, stack = {dy.node()};
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (node->op == Op::kAdd) {
      stack.insert(stack.end(), {node->src[1], node->src[0]});
    } else if (IsOuterProduct(node) && parts.size() < kPartsMax) {
      parts.push_back(node);
    } else {
      return dy.sum({axes.begin(), axes.end()});
    }
  }
  Expr sum = dy.of(parts[0]).sum({axes.begin(), axes.end()});
  for (size_t i = 1; i < parts.size(); ++i)
    sum = sum + dy.of(parts[i]).sum({axes.begin(), axes.end()});
  return sum;
}

absl::Status ExpandRule(Step& s) {
  const Term dy = Dy(s);
  std::vector<int64_t> axes;
  for (int i = 0; i < s.node->rank(); ++i)
    if (s.x()->shape[i] != s.node->shape[i]) axes.push_back(i);
  // The sum first: without the negation the operand of a one-hot sum is seen to be one.
  const bool negated = s.dy->op == Op::kNeg;
  // Likewise before it is rounded to a narrower float: products of bf16 are summed in f32.
  if (IsNarrowingCast(s.dy)) {
    s.gives[0] = SumOfParts(dy.of(s.dy->src[0]), axes).cast(s.dy->dtype).node();
    return absl::OkStatus();
  }
  s.gives[0] = SumOfWindows(s.g, s.dy, axes);
  if (s.gives[0] == nullptr)
    s.gives[0] = (negated ? -dy.of(s.dy->src[0]).sum(axes) : SumOfParts(dy, axes)).node();
  return absl::OkStatus();
}

// PAD and SHRINK undo each other. Their dimensions may be symbolic, and then the checks may fail
// for a caller's reasons.
absl::StatusOr<const UOp*> MakeOfPairs(const Step& s, Op op, ShapeView pairs) {
  std::vector<const UOp*> src = {s.dy};
  std::vector<int64_t> arg;
  AppendDims(pairs, arg, src);
  return s.g.Make(op, DType::kVoid, src, arg);
}

absl::Status PadRule(Step& s) {
  const PadOf pad(s.node);
  Shape begin_end;
  for (int i = 0; i < s.node->rank(); ++i) {
    OB_ASSIGN_OR_RETURN(const Dim end, AddDims(s.g, s.x()->shape[i], pad.low(i)));
    begin_end.insert(begin_end.end(), {pad.low(i), end});
  }
  OB_ASSIGN_OR_RETURN(s.gives[0], MakeOfPairs(s, Op::kShrink, begin_end));
  return absl::OkStatus();
}

absl::Status ShrinkRule(Step& s) {
  const ShrinkOf shrink(s.node);
  Shape lo_hi;
  for (int i = 0; i < s.node->rank(); ++i) {
    OB_ASSIGN_OR_RETURN(const Dim high, SubtractDims(s.g, s.x()->shape[i], shrink.end(i)));
    lo_hi.insert(lo_hi.end(), {shrink.begin(i), high});
  }
  OB_ASSIGN_OR_RETURN(s.gives[0], MakeOfPairs(s, Op::kPad, lo_hi));
  return absl::OkStatus();
}

// The places that hold the largest value share evenly.
Expr LargestRule(const Step& s) {
  const Term dy = Dy(s), x = X(s), y = Y(s);
  const DType wide = AtLeastF32(y.dtype());
  const Expr largest = x == y.expand(x.shape());
  const Expr count = largest.cast(wide).sum(AxesOf(s.node));
  const Expr share = (dy.cast(wide) / count).cast(y.dtype());
  return largest.where(share.expand(x.shape()), 0);
}

// A product over n factors (Speelpenning's, in Griewank and Walther), taken as a tree of products
// of halves: its gradient needs no division, so factors of 0 are no corner, for n steps of work in
// log n rounds. (dy * y / x would be wrong at 0, and its own gradient too.)
absl::Status ProductRule(Step& s) {
  const Term x = X(s);
  // The reduced axes to the back, as one of length n.
  std::vector<int64_t> order;
  Shape kept;
  int64_t n = 1;
  const ReduceOf reduce(s.node);
  for (int i = 0; i < x.rank(); ++i) {
    if (reduce.reduces(i)) continue;
    order.push_back(i);
    kept.push_back(x.shape()[i]);
  }
  for (const int64_t axis : reduce.axes()) {
    if (!x.shape()[axis].is_const()) return Unimplemented(s.node, "an axis of symbolic length");
    order.push_back(axis);
    n *= x.shape()[axis].value();
    if (n > limits::kDimMax / 2)
      return Unimplemented(s.node, "over ", limits::kDimMax / 2, " factors");
  }
  if (n == 0) return absl::OkStatus();  // an empty product is 1, whatever x is
  const auto with_last = [&](int64_t length) {
    Shape shape = kept;
    shape.emplace_back(length);
    return shape;
  };
  const auto part = [&](const Expr& of, int64_t begin, int64_t end) {
    Shape begin_end;
    for (const Dim& dim : kept) begin_end.insert(begin_end.end(), {Dim(0), dim});
    begin_end.insert(begin_end.end(), {Dim(begin), Dim(end)});
    return of.shrink(begin_end);
  };
  const auto padded = [&](const Expr& of, int64_t before, int64_t after) {
    Shape lo_hi(2 * kept.size(), Dim(0));
    lo_hi.insert(lo_hi.end(), {Dim(before), Dim(after)});
    return of.pad(lo_hi);
  };
  const Expr permuted = x.permute(order);
  Expr level = permuted.reshape(with_last(n));
  // Filled up with ones to a power of two.
  int64_t length = 1;
  while (length < n) length *= 2;
  if (length != n) {
    __int128 elements = length;
    for (const Dim& dim : kept) elements *= dim.max();
    if (elements >= limits::kVirtualElementsMax)
      return Unimplemented(s.node, "2^62 elements or more");
    Shape ones(kept.size(), Dim(1));
    ones.emplace_back(length);
    const Expr place = Expr(s.g, Iota(s.g, DType::kI64, length)).reshape(ones);
    const Expr inside = place < n;
    const Expr filled = padded(level, 0, length - n);
    level = inside.expand(filled.shape()).where(filled, 1);
  }
  std::vector<std::pair<Expr, Expr>> halves;
  for (int64_t half = length / 2; half >= 1; half /= 2) {
    halves.emplace_back(part(level, 0, half), part(level, half, 2 * half));
    level = halves.back().first * halves.back().second;
  }
  Expr gradient = Dy(s).permute(order).reshape(with_last(1));
  for (int64_t half = 1; !halves.empty(); half *= 2, halves.pop_back()) {
    const auto [a, b] = halves.back();
    gradient = padded(Term(gradient) * b, 0, half) + padded(Term(gradient) * a, half, 0);
  }
  s.gives[0] = part(gradient, 0, n).reshape(permuted.shape()).permute(Inverse(order)).node();
  return absl::OkStatus();
}

absl::Status ReduceRule(Step& s) {
  const ReduceOf reduce(s.node);
  if (reduce.axes().empty()) {
    s.gives[0] = s.dy;
    return absl::OkStatus();
  }
  switch (reduce.op()) {
    case Op::kAdd: s.gives[0] = Dy(s).expand(s.x()->shape).node(); break;
    case Op::kMax: s.gives[0] = LargestRule(s).node(); break;
    default: return ProductRule(s);
  }
  return absl::OkStatus();
}

absl::Status BitcastRule(Step& s) {
  return Unimplemented(s.node, "bits have none; DETACH says that none is wanted");
}

// ---- functions of several nodes -----------------------------------------------------------------

// log2 x under a product y log2 x; nullptr if neither factor is one, or both are.
const UOp* LogarithmIn(const UOp* product) {
  const bool first = product->src[0]->op == Op::kLog2, second = product->src[1]->op == Op::kLog2;
  return first == second ? nullptr : product->src[first ? 0 : 1];
}

// y = exp2(b log2 a), which is a ** b: b a ** (b - 1), and y log a, which is 0 where y is.
absl::Status PowerRule(Step& s, const Composite& power) {
  const Term dy = Dy(s), y = Y(s);
  const Expr a(s.g, power.arguments[0]), b(s.g, power.arguments[1]);
  if (s.needs[0]) {
    const Expr less = ((b - 1) * a.log2()).exp2();  // NaN for b = 1 where a is 0 or infinite
    const UOp* const number = UniformConst(b.node());
    const Expr slope = number != nullptr ? less : (b == 1).where(1, less);
    s.gives[0] = (dy * (b * slope)).node();
  }
  if (s.needs[1]) s.gives[1] = (dy * (y == 0).where(0, y * a.log())).node();
  return absl::OkStatus();
}

// 1 / (1 + exp x) times 1 / (1 + exp -x), the slope of e / (1 + e) with e = exp x.
Expr LogisticSlope(const Expr& x) { return 1 / (1 + x.exp()) * (1 / (1 + (-x).exp())); }

absl::Status LogisticRule(Step& s, const Composite& logistic) {
  s.gives[0] = (Dy(s) * LogisticSlope({s.g, logistic.arguments[0]})).node();
  return absl::OkStatus();
}

// y = 1 / (1 + e), which falls as that rises.
absl::Status FallingLogisticRule(Step& s, const Composite& logistic) {
  s.gives[0] = (-(Dy(s) * LogisticSlope({s.g, logistic.arguments[0]}))).node();
  return absl::OkStatus();
}

// y = (x < 0 ? e : 1) / (1 + e) with e = exp(-|x|), which is 1 / (1 + exp(-x)) and overflows
// nowhere. Its slope is e / (1 + e)^2 on both sides.
absl::Status SigmoidRule(Step& s, const Composite& sigmoid) {
  const Expr sum(s.g, s.x(1)), e(s.g, sigmoid.inner[0]);
  s.gives[0] = (Dy(s) * (e / (sum * sum))).node();
  return absl::OkStatus();
}

// The sigmoid that `quotient` is, e over `sum`; nullopt if it is none.
std::optional<Composite> SigmoidOf(const UOp* quotient, const UOp* e, const UOp* sum) {
  const UOp* const choice = quotient->src[0];
  const UOp* const below = e->src[0];  // -|x|
  if (choice->op != Op::kWhere || below->op != Op::kWhere) return std::nullopt;
  const UOp* const negative = choice->src[0];
  const UOp* const x = below->src[1];
  const UOp* const minus_x = below->src[2];
  const bool holds = choice->src[1] == e && IsOne(choice->src[2]) && below->src[0] == negative &&
                     negative->op == Op::kCmpLt && negative->src[0] == x &&
                     IsFloatConst(negative->src[1], 0) && minus_x->op == Op::kNeg &&
                     minus_x->src[0] == x;
  if (!holds) return std::nullopt;
  return Composite{quotient, {x}, {e, sum, choice, below, minus_x}, SigmoidRule};
}

// ---- the table ----------------------------------------------------------------------------------

// Where one line says it, the expression is the gradient of the only source. The derivatives are
// those of the NIST Digital Library of Mathematical Functions, sections 4.7, 4.20 and 4.34.
#define OB_GRADIENT(expression)                                 \
  [](Step& s) {                                                 \
    [[maybe_unused]] const Term dy = Dy(s), x = X(s), y = Y(s); \
    s.gives[0] = (expression).node();                           \
    return absl::OkStatus();                                    \
  }

constexpr double kLn2 = std::numbers::ln2;

constexpr auto kTable = [] {
  std::array<Rule, kOpCodeMax> t{};
  const auto set = [&](Op op, Rule rule) { t[static_cast<size_t>(op)] = rule; };
  set(Op::kNeg, OB_GRADIENT(-dy));
  set(Op::kExp2, OB_GRADIENT(dy * (y * kLn2)));
  set(Op::kLog2, OB_GRADIENT(dy / (x * kLn2)));
  set(Op::kExp, OB_GRADIENT(dy * y));
  set(Op::kLog, OB_GRADIENT(dy / x));
  set(Op::kSin, OB_GRADIENT(dy * x.cos()));
  set(Op::kCos, OB_GRADIENT(-(dy * x.sin())));
  set(Op::kTanh, OB_GRADIENT(dy * (1 - y * y)));
  set(Op::kSqrt, OB_GRADIENT(dy * 0.5 / y));
  set(Op::kAdd, [](Step& s) {
    s.gives[0] = s.gives[1] = s.dy;
    return absl::OkStatus();
  });
  set(Op::kMul, MulRule);
  set(Op::kFDiv, FDivRule);
  set(Op::kMax, MaxRule);
  set(Op::kWhere, WhereRule);
  set(Op::kCast, OB_GRADIENT(dy.cast(x.dtype())));
  set(Op::kBitcast, BitcastRule);
  set(Op::kReshape, OB_GRADIENT(dy.reshape(x.shape())));
  set(Op::kPermute, OB_GRADIENT(dy.permute(Inverse(PermuteOf(s.node).axes()))));
  set(Op::kExpand, ExpandRule);
  set(Op::kPad, PadRule);
  set(Op::kShrink, ShrinkRule);
  set(Op::kFlip, OB_GRADIENT(dy.flip(FlipOf(s.node).axes())));
  set(Op::kReduce, ReduceRule);
  set(Op::kContiguous, OB_GRADIENT(dy));
  set(Op::kAssign, [](Step& s) {
    s.gives[1] = s.dy;
    return absl::OkStatus();
  });
  set(Op::kLayout, OB_GRADIENT(dy));
  for (const Op op :
       {Op::kUnshard, Op::kReduceScatter, Op::kAllReduce, Op::kAllToAll, Op::kCopy})
    set(op, [](Step& s) {
      return Unimplemented(s.node, "gradients are taken before a graph is spread over devices");
    });
  return t;
}();

#undef OB_GRADIENT

}  // namespace

Rule RuleOf(Op op) {
  const auto code = static_cast<size_t>(op);
  return code < kTable.size() ? kTable[code] : nullptr;
}

std::optional<Composite> CompositeOf(const UOp* node) {
  if (node->op == Op::kExp2 && node->src[0]->op == Op::kMul) {
    const UOp* const product = node->src[0];
    const UOp* const log = LogarithmIn(product);
    if (log == nullptr) return std::nullopt;
    const UOp* const exponent = product->src[product->src[0] == log ? 1 : 0];
    return Composite{node, {log->src[0], exponent}, {product, log}, PowerRule};
  }
  if (node->op == Op::kFDiv && node->src[1]->op == Op::kAdd) {
    const UOp* const sum = node->src[1];
    const int one = IsOne(sum->src[0]) ? 0 : 1;
    const UOp* const e = sum->src[1 - one];
    if (e->op != Op::kExp || !IsOne(sum->src[one])) return std::nullopt;
    if (node->src[0] == e) return Composite{node, {e->src[0]}, {sum, e}, LogisticRule};
    if (IsOne(node->src[0])) return Composite{node, {e->src[0]}, {sum, e}, FallingLogisticRule};
    return SigmoidOf(node, e, sum);
  }
  return std::nullopt;
}

}  // namespace outboard::gradient
