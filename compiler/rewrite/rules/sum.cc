#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/order.h"
#include "compiler/rewrite/rules/rules.h"

namespace outboard::rules {
namespace {

using namespace pattern;

bool IsByConstant(const UOp* node, Op op) { return node->op == op && node->src[1]->is_const(); }

// x / (c * outer) as one division: whether `node` is that of `x`, which may be a quotient itself,
// by `c`.
bool IsQuotientOf(const UOp* node, const UOp* x, int64_t c) {
  if (!IsByConstant(node, Op::kIDiv)) return false;
  const int64_t divisor = node->src[1]->int_value();
  if (node->src[0] == x) return divisor == c;
  int64_t product;
  return IsByConstant(x, Op::kIDiv) && node->src[0] == x->src[0] && x->src[1]->int_value() > 0 &&
         !__builtin_mul_overflow(x->src[1]->int_value(), c, &product) && divisor == product;
}

// (x / c) * c + x % c is x, for every x and every c > 0, in truncating division; so for a multiple
// of both sides.
bool JoinQuotient(LinearSum& sum) {
  for (const auto& [remainder, k] : sum.terms) {
    if (!IsByConstant(remainder, Op::kMod)) continue;
    const UOp* const x = remainder->src[0];
    const int64_t c = remainder->src[1]->int_value();
    int64_t wanted;
    if (c <= 1 || __builtin_mul_overflow(k, c, &wanted)) continue;
    for (const auto& [quotient, coefficient] : sum.terms) {
      if (coefficient != wanted || !IsQuotientOf(quotient, x, c)) continue;
      const std::pair<const UOp*, int64_t> low = {remainder, k}, high = {quotient, coefficient};
      AddTerm(sum, low.first, -low.second);
      AddTerm(sum, high.first, -high.second);
      AddScaled(sum, LinearOf(x), low.second);
      return true;
    }
  }
  return false;
}

// ((x / a) % b) * a + x % a is x % (a * b), for a, b > 0.
bool JoinRemainders(Graph& g, LinearSum& sum) {
  for (const auto& [high, coefficient] : sum.terms) {
    if (!IsByConstant(high, Op::kMod) || !IsByConstant(high->src[0], Op::kIDiv)) continue;
    const UOp* const x = high->src[0]->src[0];
    const int64_t a = high->src[0]->src[1]->int_value(), b = high->src[1]->int_value();
    int64_t product;
    if (a <= 1 || b <= 1 || coefficient % a != 0) continue;
    if (__builtin_mul_overflow(a, b, &product) || product > IntMax(x->dtype)) continue;
    for (const auto& [low, k] : sum.terms) {
      if (k != coefficient / a || !IsByConstant(low, Op::kMod) || low->src[0] != x ||
          !low->src[1]->IsIntConst(a))
        continue;
      const std::pair<const UOp*, int64_t> first = {high, coefficient}, second = {low, k};
      AddTerm(sum, first.first, -first.second);
      AddTerm(sum, second.first, -second.second);
      AddTerm(sum, Alu(g, Op::kMod, x, ConstInt(g, x->dtype, product)), second.second);
      return true;
    }
  }
  return false;
}

// Whether a sum could be anything but what it is: most nodes are a term times a number, and need no
// work.
bool IsPlainProduct(const UOp* root) {
  if (root->op != Op::kMul) return false;
  const UOp *const a = root->src[0], *const b = root->src[1];
  if (!b->is_const()) return !a->is_const();
  return a->op != Op::kAdd && a->op != Op::kMul && a->op != Op::kNeg && a->op != Op::kShl &&
         !a->is_const() && b->int_value() != 0 && b->int_value() != 1;
}

// Whether LinearOf would take `node` apart.
bool IsSumItself(const UOp* node) {
  switch (node->op) {
    case Op::kConst:
    case Op::kAdd:
    case Op::kNeg: return true;
    case Op::kMul: return node->src[0]->is_const() || node->src[1]->is_const();
    case Op::kShl: return node->src[1]->is_const();
    default: return false;
  }
}

// Whether a sum is in order already, with nothing in it that could be joined: what canonical graphs
// are full of, told without taking it apart.
bool IsInOrder(const UOp* sum) {
  const UOp* next = nullptr;  // the term on the right of the one that is looked at
  if (sum->op == Op::kAdd && sum->src[1]->is_const()) {
    if (sum->src[1]->int_value() == 0) return false;
    sum = sum->src[0];
  }
  for (int terms = 1; terms <= kLinearTermsMax; ++terms) {
    const bool is_last = sum->op != Op::kAdd;
    const UOp* term = is_last ? sum : sum->src[1];
    if (term->op == Op::kMul && term->src[1]->is_const()) {
      const int64_t factor = term->src[1]->int_value();
      if (factor == 0 || factor == 1) return false;
      term = term->src[0];
    }
    if (IsSumItself(term) || IsByConstant(term, Op::kMod)) return false;
    if (next != nullptr && CompareStructure(term, next) >= 0) return false;
    if (is_last) return true;
    next = term;
    sum = sum->src[0];
  }
  return false;
}

const UOp* CanonicalSum(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  if (IsPlainProduct(root) || (root->op == Op::kAdd && IsInOrder(root))) return nullptr;
  LinearSum sum = LinearOf(root);
  while (JoinQuotient(sum) || JoinRemainders(g, sum)) {
  }
  return IsExpressionOf(root, sum) ? nullptr : FromLinear(g, sum);
}

// x << c is x * 2^c in any width. Only for indices: elsewhere shifts are better left as people
// wrote them.
const UOp* ShiftOfIndex(Graph& g, const Match& m) {
  const int64_t by = m[c0]->int_value();
  if (m.root->dtype != DType::kI64 || by < 0 || by > 62) return nullptr;
  return Alu(g, m.root->op == Op::kShl ? Op::kMul : Op::kIDiv, m[x],
             ConstIndex(g, int64_t{1} << by));
}

constexpr Pattern kIndices = is_int(operands) && is_scalar(operands);

// clang-format off
constexpr Rule kRules[] = {
    // name               matches                 becomes                  when
    {"sum",               any + any, CanonicalSum, kIndices},
    {"scaled-sum",        any * any, CanonicalSum, kIndices},
    {"negated-sum",       -any,      CanonicalSum, kIndices},
    {"shift-left-index",  x << c0,   ShiftOfIndex, is_scalar(x)},
    {"shift-right-index", x >> c0,   ShiftOfIndex, is_scalar(x) && not_negative(x)},
    // What is broadcast to a shape is no index: only the simplest of the above.
    {"add-consts",        (x + c0) + c1,          x + fold(c0 + c1),       is_int(x)},
    {"mul-consts",        (x * c0) * c1,          x * fold(c0 * c1),       is_int(x)},
    {"add-negation",      x + -x,                 lit(0),                  is_int(x)},
    {"divmod-join",       (x / c0) * c0 + x % c0, x,                       is_int(x)},
};
// clang-format on

}  // namespace

std::span<const Rule> Sum() { return kRules; }

}  // namespace outboard::rules
