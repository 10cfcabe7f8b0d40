#include "compiler/gradient/gradient_rules.h"

#include <array>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard::gradient {
namespace {

// ---- arithmetic that costs nothing where there is nothing to do
// -----------------------------------------------------

// The scalar behind a node that holds one value everywhere, else nullptr.
const UOp* UniformConst(const UOp* node) {
  while (node->op == Op::kReshape || node->op == Op::kExpand || node->op == Op::kPermute)
    node = node->src[0];
  return node->is_const() ? node : nullptr;
}

bool IsOne(const UOp* node) {
  const UOp* const scalar = UniformConst(node);
  return scalar != nullptr && IsFloat(scalar->dtype) && scalar->float_value() == 1.0;
}

const UOp* Like(Graph& g, const UOp* x, double value) {
  return Full(g, ConstOf(g, x->dtype, value), x->shape);
}
const UOp* Neg(Graph& g, const UOp* a) { return Alu(g, Op::kNeg, a); }
const UOp* Over(Graph& g, const UOp* a, const UOp* b) { return Alu(g, Op::kFDiv, a, b); }
const UOp* Times(Graph& g, const UOp* a, const UOp* b) {
  return IsOne(a) ? b : IsOne(b) ? a : Mul(g, a, b);
}
const UOp* Scale(Graph& g, const UOp* a, double factor) { return Times(g, a, Like(g, a, factor)); }
const UOp* If(Graph& g, const UOp* condition, const UOp* a) {
  return Where(g, condition, a, Like(g, a, 0));
}
const UOp* IfNot(Graph& g, const UOp* condition, const UOp* a) {
  return Where(g, condition, Like(g, a, 0), a);
}

// Counting needs more bits than the small floats have.
DType AtLeastF32(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

std::vector<int64_t> Axes(const UOp* reduce) {
  return {reduce->arg.begin() + 1, reduce->arg.end()};
}

template <typename... Parts>
absl::Status Unimplemented(const UOp* node, const Parts&... parts) {
  return absl::UnimplementedError(
      absl::StrCat("the gradient of ", NodeToString(node), ": ", parts...));
}

// ---- rules of more than a line
// --------------------------------------------------------------------------------------

absl::Status MulRule(Step& s) {
  if (s.needs[0]) s.gives[0] = Times(s.g, s.dy, s.x(1));
  if (s.needs[1]) s.gives[1] = Times(s.g, s.dy, s.x(0));
  return absl::OkStatus();
}

absl::Status FDivRule(Step& s) {
  const UOp* const over = Over(s.g, s.dy, s.x(1));
  if (s.needs[0]) s.gives[0] = over;
  if (s.needs[1]) s.gives[1] = Neg(s.g, Mul(s.g, over, s.node));
  return absl::OkStatus();
}

absl::Status MaxRule(Step& s) {
  Graph& g = s.g;
  for (int i = 0; i < 2; ++i) {
    if (!s.needs[i]) continue;
    const UOp *const mine = s.x(i), *const other = s.x(1 - i);
    if (UniformConst(other) != nullptr) {
      s.gives[i] = If(g, Alu(g, Op::kCmpLt, other, mine), s.dy);
    } else {
      const UOp* const shared =
          Where(g, Alu(g, Op::kCmpEq, s.x(0), s.x(1)), Scale(g, s.dy, 0.5), s.dy);
      s.gives[i] = IfNot(g, Alu(g, Op::kCmpLt, mine, other), shared);
    }
  }
  return absl::OkStatus();
}

absl::Status WhereRule(Step& s) {
  if (s.needs[1]) s.gives[1] = If(s.g, s.x(0), s.dy);
  if (s.needs[2]) s.gives[2] = IfNot(s.g, s.x(0), s.dy);
  return absl::OkStatus();
}

absl::Status PermuteRule(Step& s) {
  std::vector<int64_t> inverse(s.node->arg.size());
  for (size_t i = 0; i < inverse.size(); ++i) inverse[s.node->arg[i]] = static_cast<int64_t>(i);
  s.gives[0] = Permute(s.g, s.dy, inverse);
  return absl::OkStatus();
}

absl::Status ExpandRule(Step& s) {
  std::vector<int64_t> axes;
  for (int i = 0; i < s.node->rank(); ++i)
    if (s.x()->shape[i] != s.node->shape[i]) axes.push_back(i);
  // The sum first: without the negation the operand of a one-hot sum is seen to be one.
  s.gives[0] = s.dy->op == Op::kNeg ? Neg(s.g, Reduce(s.g, Op::kAdd, s.dy->src[0], axes))
                                    : Reduce(s.g, Op::kAdd, s.dy, axes);
  return absl::OkStatus();
}

// PAD and SHRINK undo each other. The dimensions may be symbolic, and then the checks may fail for
// a caller's reasons.
absl::Status PadRule(Step& s) {
  Shape begin_end;
  for (int i = 0; i < s.node->rank(); ++i) {
    const Dim lo = s.node->arg_dim(2 * i);
    OB_ASSIGN_OR_RETURN(const Dim end, AddDims(s.g, s.x()->shape[i], lo));
    begin_end.push_back(lo);
    begin_end.push_back(end);
  }
  std::vector<const UOp*> src = {s.dy};
  std::vector<int64_t> arg;
  AppendDims(begin_end, arg, src);
  OB_ASSIGN_OR_RETURN(s.gives[0], s.g.Make(Op::kShrink, DType::kVoid, src, arg));
  return absl::OkStatus();
}

absl::Status ShrinkRule(Step& s) {
  Shape lo_hi;
  for (int i = 0; i < s.node->rank(); ++i) {
    OB_ASSIGN_OR_RETURN(const Dim hi,
                        SubtractDims(s.g, s.x()->shape[i], s.node->arg_dim(2 * i + 1)));
    lo_hi.push_back(s.node->arg_dim(2 * i));
    lo_hi.push_back(hi);
  }
  std::vector<const UOp*> src = {s.dy};
  std::vector<int64_t> arg;
  AppendDims(lo_hi, arg, src);
  OB_ASSIGN_OR_RETURN(s.gives[0], s.g.Make(Op::kPad, DType::kVoid, src, arg));
  return absl::OkStatus();
}

void ReduceMaxRule(Step& s) {
  Graph& g = s.g;
  const DType wide = AtLeastF32(s.node->dtype);
  const UOp* const largest = Alu(g, Op::kCmpEq, s.x(), Expand(g, s.node, s.x()->shape));
  const UOp* const count = Reduce(g, Op::kAdd, Cast(g, largest, wide), Axes(s.node));
  const UOp* const share = Cast(g, Over(g, Cast(g, s.dy, wide), count), s.node->dtype);
  s.gives[0] = If(g, largest, Expand(g, share, s.x()->shape));
}

// A product over n factors, taken as a tree of products of halves: its gradient needs no division,
// so factors of 0 are no corner, for n steps of work in log n rounds. (dy * y / x would be wrong at
// 0, and its own gradient too.)
absl::Status ReduceMulRule(Step& s) {
  Graph& g = s.g;
  const UOp* const x = s.x();
  // The reduced axes to the back, as one of length n.
  std::vector<int64_t> order;
  Shape kept;
  int64_t n = 1;
  const auto reduced = Axes(s.node);
  for (int i = 0, next = 0; i < x->rank(); ++i) {
    if (next < static_cast<int>(reduced.size()) && reduced[next] == i) {
      ++next;
    } else {
      order.push_back(i);
      kept.push_back(x->shape[i]);
    }
  }
  for (const int64_t axis : reduced) {
    if (!x->shape[axis].is_const()) return Unimplemented(s.node, "an axis of symbolic length");
    order.push_back(axis);
    n *= x->shape[axis].value();
    if (n > limits::kDimMax / 2)
      return Unimplemented(s.node, "over ", limits::kDimMax / 2, " factors");
  }
  if (n == 0) return absl::OkStatus();  // an empty product is 1, whatever x is
  const auto with_last = [&](int64_t length) {
    Shape shape = kept;
    shape.emplace_back(length);
    return shape;
  };
  const auto part = [&](const UOp* of, int64_t begin, int64_t end) {
    Shape begin_end;
    for (const Dim& dim : kept) begin_end.insert(begin_end.end(), {Dim(0), dim});
    begin_end.insert(begin_end.end(), {Dim(begin), Dim(end)});
    return Shrink(g, of, begin_end);
  };
  const auto padded = [&](const UOp* of, int64_t before, int64_t after) {
    Shape lo_hi(2 * kept.size(), Dim(0));
    lo_hi.insert(lo_hi.end(), {Dim(before), Dim(after)});
    return Pad(g, of, lo_hi);
  };
  const UOp* const permuted = Permute(g, x, order);
  const UOp* level = Reshape(g, permuted, with_last(n));
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
    const UOp* const place = Reshape(g, Iota(g, DType::kI64, length), ones);
    const UOp* const inside = Alu(g, Op::kCmpLt, place, Full(g, ConstIndex(g, n), ones));
    const UOp* const filled = padded(level, 0, length - n);
    level = Where(g, Expand(g, inside, filled->shape), filled, Like(g, filled, 1));
  }
  std::vector<std::pair<const UOp*, const UOp*>> halves;
  for (int64_t half = length / 2; half >= 1; half /= 2) {
    halves.emplace_back(part(level, 0, half), part(level, half, 2 * half));
    level = Mul(g, halves.back().first, halves.back().second);
  }
  const UOp* gradient = Reshape(g, Permute(g, s.dy, order), with_last(1));
  for (int64_t half = 1; !halves.empty(); half *= 2, halves.pop_back()) {
    const auto [a, b] = halves.back();
    gradient =
        Add(g, padded(Times(g, gradient, b), 0, half), padded(Times(g, gradient, a), half, 0));
  }
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  s.gives[0] = Permute(g, Reshape(g, part(gradient, 0, n), permuted->shape), inverse);
  return absl::OkStatus();
}

absl::Status ReduceRule(Step& s) {
  if (s.node->arg.size() == 1) {  // over no axes
    s.gives[0] = s.dy;
    return absl::OkStatus();
  }
  switch (static_cast<Op>(s.node->arg[0])) {
    case Op::kAdd: s.gives[0] = Expand(s.g, s.dy, s.x()->shape); break;
    case Op::kMax: ReduceMaxRule(s); break;
    default: return ReduceMulRule(s);
  }
  return absl::OkStatus();
}

absl::Status BitcastRule(Step& s) {
  return Unimplemented(s.node, "bits have none; DETACH says that none is wanted");
}

absl::Status DeviceRule(Step& s) {
  const bool one = s.node->op == Op::kCopy ? s.node->arg[0] == 0 : s.node->arg[1] == 1;
  if (!one) return Unimplemented(s.node, "more than one device");
  s.gives[0] = s.dy;
  return absl::OkStatus();
}

// ---- the table
// ------------------------------------------------------------------------------------------------------

// Where one line says it, the expression is the gradient of the only source.
#define OB_GRADIENT(expression) \
  [](Step& s) {                 \
    Graph& g = s.g;             \
    static_cast<void>(g);       \
    s.gives[0] = (expression);  \
    return absl::OkStatus();    \
  }

constexpr double kLn2 = std::numbers::ln2;

constexpr auto kTable = [] {
  std::array<Rule, kOpCodeMax> t{};
  const auto set = [&](Op op, Rule rule) { t[static_cast<size_t>(op)] = rule; };
  set(Op::kNeg, OB_GRADIENT(Neg(g, s.dy)));
  set(Op::kExp2, OB_GRADIENT(Times(g, s.dy, Scale(g, s.node, kLn2))));
  set(Op::kLog2, OB_GRADIENT(Over(g, s.dy, Scale(g, s.x(), kLn2))));
  set(Op::kExp, OB_GRADIENT(Times(g, s.dy, s.node)));
  set(Op::kLog, OB_GRADIENT(Over(g, s.dy, s.x())));
  set(Op::kSin, OB_GRADIENT(Times(g, s.dy, Alu(g, Op::kCos, s.x()))));
  set(Op::kCos, OB_GRADIENT(Neg(g, Times(g, s.dy, Alu(g, Op::kSin, s.x())))));
  set(Op::kTanh,
      OB_GRADIENT(Times(g, s.dy, Add(g, Like(g, s.x(), 1), Neg(g, Mul(g, s.node, s.node))))));
  set(Op::kSqrt, OB_GRADIENT(Over(g, Scale(g, s.dy, 0.5), s.node)));
  set(Op::kAdd, [](Step& s) {
    s.gives[0] = s.gives[1] = s.dy;
    return absl::OkStatus();
  });
  set(Op::kMul, MulRule);
  set(Op::kFDiv, FDivRule);
  set(Op::kMax, MaxRule);
  set(Op::kWhere, WhereRule);
  set(Op::kCast, OB_GRADIENT(Cast(g, s.dy, s.x()->dtype)));
  set(Op::kBitcast, BitcastRule);
  set(Op::kReshape, OB_GRADIENT(Reshape(g, s.dy, s.x()->shape)));
  set(Op::kPermute, PermuteRule);
  set(Op::kExpand, ExpandRule);
  set(Op::kPad, PadRule);
  set(Op::kShrink, ShrinkRule);
  set(Op::kFlip, OB_GRADIENT(Flip(g, s.dy, s.node->arg)));
  set(Op::kReduce, ReduceRule);
  set(Op::kContiguous, OB_GRADIENT(s.dy));
  set(Op::kAssign, [](Step& s) {
    s.gives[1] = s.dy;
    return absl::OkStatus();
  });
  for (const Op op : {Op::kShard, Op::kUnshard, Op::kCopy, Op::kAllReduce}) set(op, DeviceRule);
  return t;
}();

#undef OB_GRADIENT

}  // namespace

Rule RuleOf(Op op) {
  const auto code = static_cast<size_t>(op);
  return code < kTable.size() ? kTable[code] : nullptr;
}

}  // namespace outboard::gradient
