// Conditions, WHERE and gated loads.
#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/order.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/rules.h"

namespace outboard::rules {
namespace {

using namespace pattern;

// Conditions joined by AND (or OR) of more parts than this are left as they stand: pairs of them
// are compared.
constexpr size_t kPartsMax = 32;
using Parts = absl::InlinedVector<const UOp*, 8>;

bool CollectParts(const UOp* root, Parts& parts) {
  Parts left = {root};
  int steps = 0;
  while (!left.empty()) {
    const UOp* const node = left.back();
    left.pop_back();
    if (node->op == root->op) {
      left.push_back(node->src[1]);
      left.push_back(node->src[0]);
    } else {
      parts.push_back(node);
    }
    if (++steps > static_cast<int>(4 * kPartsMax) || parts.size() > kPartsMax) return false;
  }
  return true;
}

bool IsNot(const UOp* node, const UOp* of) {
  return node->op == Op::kXor && node->src[0] == of && ConstantOf(node->src[1]) != nullptr &&
         ConstantOf(node->src[1])->IsIntConst(1);
}

bool AreOpposite(const UOp* a, const UOp* b) {
  if (IsNot(a, b) || IsNot(b, a)) return true;
  const bool equalities =
      (a->op == Op::kCmpEq && b->op == Op::kCmpNe) || (a->op == Op::kCmpNe && b->op == Op::kCmpEq);
  return equalities && a->src == b->src;
}

// value < limit, or limit < value, with a number for the limit.
struct Bound {
  const UOp* value = nullptr;
  int64_t limit = 0;
  bool upper = false;
};

Bound BoundOf(const UOp* node) {
  if (node->op != Op::kCmpLt || !IsInt(node->src[0]->dtype) || node->src[0]->dtype == DType::kU64)
    return {};
  if (const UOp* limit = ConstantOf(node->src[1])) return {node->src[0], limit->int_value(), true};
  if (const UOp* limit = ConstantOf(node->src[0])) return {node->src[1], limit->int_value(), false};
  return {};
}

enum class Verdict { kBoth, kFirst, kSecond, kConstant };

// Which of two parts of an AND (or an OR) are needed; kConstant: together they are the constant
// that decides it.
Verdict Compare(const UOp* a, const UOp* b, bool is_and) {
  if (AreOpposite(a, b)) return Verdict::kConstant;
  const Bound p = BoundOf(a), q = BoundOf(b);
  if (p.value == nullptr || p.value != q.value) return Verdict::kBoth;
  if (p.upper == q.upper) {
    const bool first_is_narrower = p.upper ? p.limit < q.limit : p.limit > q.limit;
    return first_is_narrower == is_and ? Verdict::kFirst : Verdict::kSecond;
  }
  // low < value and value < high: for AND nothing is between them, for OR nothing is outside.
  const __int128 low = p.upper ? q.limit : p.limit, high = p.upper ? p.limit : q.limit;
  if (is_and) return low + 1 >= high ? Verdict::kConstant : Verdict::kBoth;
  return low < high ? Verdict::kConstant : Verdict::kBoth;
}

// AND and OR of bools: parts sorted, each once, without those that others imply.
const UOp* JoinParts(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  Parts parts;
  if (!CollectParts(root, parts)) return nullptr;
  const bool is_and = root->op == Op::kAnd;
  const auto decided = [&] { return IntLike(g, DType::kBool, !is_and, root); };
  Parts kept;
  for (const UOp* part : parts) {
    if (const UOp* constant = ConstantOf(part)) {
      if (constant->int_value() != is_and) return decided();
      continue;
    }
    kept.push_back(part);
  }
  std::sort(kept.begin(), kept.end(),
            [](const UOp* a, const UOp* b) { return CompareStructure(a, b) < 0; });
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (size_t i = 0; i < kept.size(); ++i)
    for (size_t j = i + 1; j < kept.size();) {
      const Verdict verdict = Compare(kept[i], kept[j], is_and);
      if (verdict == Verdict::kConstant) return decided();
      if (verdict == Verdict::kBoth) {
        ++j;
        continue;
      }
      if (verdict == Verdict::kSecond) kept[i] = kept[j];
      kept.erase(kept.begin() + j);
      j = i + 1;
    }
  if (kept.empty()) return IntLike(g, DType::kBool, is_and, root);
  std::sort(kept.begin(), kept.end(),
            [](const UOp* a, const UOp* b) { return CompareStructure(a, b) < 0; });
  const UOp* joined = kept[0];
  for (size_t i = 1; i < kept.size(); ++i) joined = Alu(g, root->op, joined, kept[i]);
  return joined;
}

// The opposite of a condition that can say so itself. Of floats only equality: !(a < b) holds for
// NaN.
const UOp* Opposite(Graph& g, const Match& m) {
  const UOp* const c = m[x];
  if (c->op == Op::kCmpEq || c->op == Op::kCmpNe)
    return Alu(g, c->op == Op::kCmpEq ? Op::kCmpNe : Op::kCmpEq, c->src[0], c->src[1]);
  if (c->op != Op::kCmpLt || !IsInt(c->src[0]->dtype) || c->src[0]->dtype == DType::kU64)
    return nullptr;
  const DType dtype = c->src[0]->dtype;
  const auto number = [&](int64_t value) { return IntLike(g, dtype, value, c); };
  if (const UOp* limit = ConstantOf(c->src[1])) {
    if (limit->int_value() == IntMin(dtype)) return nullptr;
    return Alu(g, Op::kCmpLt, number(limit->int_value() - 1), c->src[0]);
  }
  if (const UOp* limit = ConstantOf(c->src[0])) {
    if (limit->int_value() == IntMax(dtype)) return nullptr;
    return Alu(g, Op::kCmpLt, c->src[1], number(limit->int_value() + 1));
  }
  return nullptr;
}

constexpr Pattern kNot = x ^ lit(1);

// clang-format off
constexpr Rule kRules[] = {
    // name                 matches                         becomes            when
    {"and-list",            any & any,                      JoinParts,         is_bool(operands)},
    {"or-list",             any | any,                      JoinParts,         is_bool(operands)},
    {"equals-true",         x == 1,                         x,                 is_bool(x)},
    {"differs-from-false",  x != 0,                         x,                 is_bool(x)},
    {"equals-false",        x == 0,                         x ^ 1,             is_bool(x)},
    {"differs-from-true",   x != 1,                         x ^ 1,             is_bool(x)},
    {"differs",             x != y,                         x ^ y,             is_bool(x)},
    {"opposite",            kNot,                           Opposite,          is_bool(x)},
    {"cast-differs-from-0", cast(x) != 0,       x,                 is_bool(x)},

    {"where-true",        where(1, x, any),              x},
    {"where-false",       where(0, any, x),              x},
    {"where-same",        where(any, x, x),              x},
    {"where-condition",   where(x, c0, c1),              x,           is_bool(c0) && c0 > c1},
    {"where-opposite",    where(x, c0, c1),              x ^ 1,       is_bool(c0) && c0 < c1},
    {"where-else-false",  where(x, y, 0),                x & y,       is_bool(y)},
    {"where-then-true",   where(x, 1, y),                x | y,       is_bool(y)},
    {"where-then-false",  where(x, 0, y),                (x ^ 1) & y, is_bool(y)},
    {"where-else-true",   where(x, y, 1),                (x ^ 1) | y, is_bool(y)},
    {"where-not",         where(kNot, y, z),             where(x, z, y)},
    {"where-inside-then", where(x, where(x, y, any), z), where(x, y, z)},
    {"where-inside-else", where(x, y, where(x, any, z)), where(x, y, z)},
    {"where-where",       where(x, where(y, z, w), w),   where(x & y, z, w)},

    {"load-always",         load(x, 1, any),                load(x)},
    {"load-never",          load(any, 0, x),                x},
    {"where-load",          where(x, load(y, z, w), w),     load(y, x & z, w)},
};
// clang-format on

}  // namespace

std::span<const Rule> Logic() { return kRules; }

}  // namespace outboard::rules
