// What can be shown of the integers of a kernel, at one point of it where some conditions are known
// to hold.
//
// A node's value is the machine's: an addition counts as a sum only where it is shown not to wrap,
// and is an atom of its whole type elsewhere. So nothing here depends on what a schedule or a
// simplifier believes; no bound that they have found is used (UOp::vmin, vmax), and nothing of
// compiler/rewrite.
//
// Method: intervals of the atoms, and for the conditions, which are linear, the multiples of them
// that take the unfavourable terms away (a step of Fourier-Motzkin elimination each). Incomplete,
// and meant to be: it answers "shown" or "not shown", in bounded time.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/proof/linear_form.h"

namespace outboard::proof {

// Both ends included. min > max where a loop has no steps.
struct Interval {
  Wide min = 0;
  Wide max = 0;
};

// Steps of the search that are left.
using Budget = int64_t;

// Threads: one.
class Prover {
 public:
  explicit Prover(Budget* budget) : budget_(budget) {}

  // From here on, only what is the case where the bool `condition` is `holds`.
  void Assume(const UOp* condition, bool holds);

  // The value of an integer or bool node.
  LinearForm FormOf(const UOp* node);
  // Whether it is shown that `form` is at least 0.
  bool NeverNegative(const LinearForm& form) { return LowerBound(form, 0, 0) >= 0; }

 private:
  Prover(const Prover& outer, const UOp* condition, bool holds)
      : budget_(outer.budget_),
        facts_(outer.facts_),
        contradiction_(outer.contradiction_),
        nesting_(outer.nesting_ + 1),
        depth_(outer.depth_) {
    Assume(condition, holds);
  }

  LinearForm ComputeForm(const UOp* node);
  Interval IntervalOf(const UOp* atom);
  Interval ComputeInterval(const UOp* atom);
  Interval IntervalOfWhere(const UOp* where);
  Interval IntervalOfQuotient(const UOp* node);
  bool Fits(const LinearForm& form, DType dtype);
  Interval Range(const LinearForm& form);
  // No more than every value of `form`. Looks no further once it is at least `enough`.
  Wide LowerBound(const LinearForm& form, Wide enough, uint64_t facts_used);
  void AddFact(const std::optional<LinearForm>& never_negative);

  Budget* budget_;
  std::vector<LinearForm> facts_;  // each is at least 0
  bool contradiction_ = false;     // the conditions never hold together: anything is so
  int nesting_ = 0;                // WHEREs around
  int depth_ = 0;                  // of calls
  absl::flat_hash_map<const UOp*, LinearForm> forms_;
  absl::flat_hash_map<const UOp*, Interval> intervals_;
};

}  // namespace outboard::proof
