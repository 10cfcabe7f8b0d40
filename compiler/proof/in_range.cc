#include "compiler/proof/in_range.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/ir/print.h"
#include "compiler/proof/prover.h"

namespace outboard::proof {
namespace {

// The steps for one access: far above what kernels need (a convolution's gradient: some hundreds).
// A hostile one gets guards.
constexpr int64_t kStepsMax = 20'000;
// The work for all loads of a kernel, and for all stores (docs/decisions/239-*.md).
constexpr int64_t kWorkMax = 4'000'000;
constexpr int kGateStepsMax = 64;

bool IsAccess(const UOp* node) { return node->op == Op::kLoad || node->op == Op::kStore; }

bool NeverRuns(const std::vector<const UOp*>& nodes) {
  for (const UOp* node : nodes)
    if (IsRange(node, RangeKind::kOutput) && RangeOf(node).extent() == 0) return true;
  return false;
}

// When the access is made; nullptr for always.
const UOp* GateOf(const UOp* access) {
  if (access->src.size() < 3) return nullptr;
  return access->src[access->op == Op::kLoad ? 1 : 2];
}

// Whether the gate says so itself, -1 < index and index < elements, whatever the index is. What
// GuardUnproved has written is seen here, also where the search below gives up.
bool IsGuardedAsWritten(const UOp* access) {
  const UOp* const index = access->src[0]->src[1];
  bool above = false, below = false;
  std::vector<const UOp*> open = {GateOf(access)};
  for (int steps = 0; !open.empty() && steps < kGateStepsMax; ++steps) {
    const UOp* const node = open.back();
    open.pop_back();
    if (node->op == Op::kAnd) open.insert(open.end(), {node->src[1], node->src[0]});
    if (node->op != Op::kCmpLt) continue;
    const UOp *const a = node->src[0], *const b = node->src[1];
    above = above || (b == index && a->is_const() && a->int_value() >= -1);
    below = below ||
            (a == index && b->is_const() && b->int_value() <= GlobalOfAccess(access).elements());
  }
  return above && below;
}

bool IsInRangeBy(const UOp* access, Prover::Divisions divisions, ProofBudget& budget) {
  const UOp* const gate = GateOf(access);
  budget.steps = kStepsMax;
  Prover prover(&budget, divisions);
  const UOp* const index = access->src[0]->src[1];
  const Wide elements = GlobalOfAccess(access).elements();
  // Its own guard may speak of the index as it is in general, or as what it is where the rest of
  // the gate holds.
  const LinearForm in_general = prover.FormOf(index);
  if (gate != nullptr) prover.Assume(gate, true);
  bool above = false, below = false;
  for (const LinearForm& form : {prover.FormOf(index), in_general}) {
    const auto left = AddScaled(Constant(elements - 1), form, -1);
    above = above || prover.NeverNegative(form);
    below = below || (left && prover.NeverNegative(*left));
  }
  return above && below;
}

// The proofs of one kernel.
class Accesses {
 public:
  bool IsInRange(const UOp* access) {
    if (GateOf(access) != nullptr && IsGuardedAsWritten(access)) return true;
    ProofBudget& budget = access->op == Op::kLoad ? loads_ : stores_;
    for (const auto divisions : Prover::kTries)
      if (budget.work > 0 && IsInRangeBy(access, divisions, budget)) return true;
    return false;
  }
  int64_t work() const { return 2 * kWorkMax - loads_.work - stores_.work; }

 private:
  ProofBudget loads_{.work = kWorkMax};
  // Their own: a load that is not proved gets a gate, a store is an error.
  ProofBudget stores_{.work = kWorkMax};
};

absl::Status NotShown(const UOp* access) {
  const UOp* const index = access->src[0];
  return absl::InternalError(absl::StrCat(
      "kernel: ", std::string(Name(access->op)), " of slot ", GlobalOf(index->src[0]).slot(),
      " is not shown to be within ", GlobalOf(index->src[0]).elements(),
      " elements: ", ExpressionToString(index->src[1], 400)));
}

}  // namespace

absl::Status CheckInRange(Sources roots) {
  const std::vector<const UOp*> nodes = PostOrder(roots);
  if (NeverRuns(nodes)) return absl::OkStatus();
  Accesses accesses;
  for (const UOp* node : nodes)
    if (IsAccess(node) && !accesses.IsInRange(node)) return NotShown(node);
  return absl::OkStatus();
}

absl::StatusOr<const UOp*> GuardUnproved(Graph& graph, const UOp* sink, int64_t* work) {
  const std::vector<const UOp*> nodes = PostOrder(sink);
  if (NeverRuns(nodes)) return sink;
  Accesses accesses;
  absl::flat_hash_set<const UOp*> unproved;
  for (const UOp* node : nodes) {
    if (!IsAccess(node) || accesses.IsInRange(node)) continue;
    if (node->op == Op::kStore) return NotShown(node);
    unproved.insert(node);
  }
  if (work != nullptr) *work = accesses.work();
  if (unproved.empty()) return sink;
  absl::flat_hash_map<const UOp*, const UOp*> rebuilt;
  for (const UOp* node : nodes) {
    std::vector<const UOp*> src;
    for (const UOp* s : node->src) src.push_back(rebuilt.at(s));
    if (unproved.contains(node)) {
      const Expr index(graph, src[0]->src[1]);
      const Expr guard = (index > -1) & (index < GlobalOfAccess(src[0]).elements());
      if (src.size() == 1) {
        src = {src[0], guard.node(), ConstOf(graph, node->dtype, 0)};
      } else {
        src[1] = (guard & guard.of(src[1])).node();
      }
    }
    OB_ASSIGN_OR_RETURN(rebuilt[node], graph.WithSources(node, src));
  }
  return rebuilt.at(sink);
}

}  // namespace outboard::proof
