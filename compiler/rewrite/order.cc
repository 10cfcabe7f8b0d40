#include "compiler/rewrite/order.h"

#include <array>

#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

// Pairs of nodes looked at: shared parts could make a full comparison exponential, and a hostile
// graph every comparison a long one.
constexpr int kComparedMax = 96;
constexpr int kPendingMax = 64;

int Rank(const UOp* node) {
  switch (MatchedOp(node)) {
    case Op::kRange: return 0;
    case Op::kVar: return 1;
    case Op::kConst: return 2 * kOpCodeMax;
    default: return 2 + static_cast<int>(node->op);
  }
}

template <typename T>
int Compare(T a, T b) {
  return a < b ? -1 : b < a;
}

int CompareNodes(const UOp* a, const UOp* b) {
  if (const int c = Compare(Rank(a), Rank(b))) return c;
  if (const int c = Compare(a->op, b->op)) return c;
  if (const int c = Compare(a->dtype, b->dtype)) return c;
  if (const int c = Compare(a->arg.size(), b->arg.size())) return c;
  for (size_t i = 0; i < a->arg.size(); ++i)
    if (const int c = Compare(a->arg[i], b->arg[i])) return c;
  return Compare(a->src.size(), b->src.size());
}

}  // namespace

int CompareStructure(const UOp* a, const UOp* b) {
  if (a == b) return 0;
  struct Pair {
    const UOp *p, *q;
  };
  std::array<Pair, kPendingMax> pending;  // not initialised: most comparisons end at the first
  size_t count = 0;
  pending[count++] = {a, b};
  for (int compared = 0; count > 0 && compared < kComparedMax; ++compared) {
    const auto [p, q] = pending[--count];
    if (p == q) continue;
    if (const int c = CompareNodes(p, q)) return c;
    if (count + p->src.size() > kPendingMax) break;
    for (size_t i = p->src.size(); i-- > 0;) pending[count++] = {p->src[i], q->src[i]};
  }
  return Compare(a->index, b->index);
}

}  // namespace outboard
