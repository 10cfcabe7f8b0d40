// Proves inequalities between the integers of a kernel, at one point of it where some conditions
// are known to hold.
//
// A node has the value that the machine computes: an addition is treated as a sum only if it is
// proved not to wrap, and otherwise as an atom that may have any value of its type. Nothing here
// depends on the schedule or the simplifier: neither their bounds (UOp::vmin, vmax) nor
// compiler/rewrite is used.
//
// Method: intervals of the atoms, plus multiples of the conditions, which are linear, that cancel
// unfavourable terms (one step of Fourier-Motzkin elimination each). Incomplete by design: it
// answers "proved" or "not proved", in bounded time.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/proof/linear_form.h"

namespace outboard::proof {

// A range of integers, both ends included. min > max if a loop has no iterations.
struct Interval {
  Wide min = 0;
  Wide max = 0;
};

// Steps of the search that are left.
using Budget = int64_t;

// Threads: one.
class Prover {
 public:
  // What is known of quotients and remainders by constants: their intervals; or also that c times
  // x / c and x % c add up to x, which costs next to nothing and shows that the axes of a grid that
  // was divided by them are within it; or also how each is related to x: stronger, and slower by
  // far, so that a number that is divided again and again may use up the budget.
  enum class Divisions { kAtoms, kSummed, kRelated };
  explicit Prover(Budget* budget, Divisions divisions = Divisions::kAtoms)
      : budget_(budget), how_(divisions) {}

  // Adds the assumption that the bool `condition` has the value `holds`.
  void Assume(const UOp* condition, bool holds);

  // Returns the value of an integer or bool node.
  LinearForm FormOf(const UOp* node);
  // Returns whether `form` is proved to be at least 0.
  bool NeverNegative(const LinearForm& form);

 private:
  Prover(const Prover& outer, const UOp* condition, bool holds)
      : budget_(outer.budget_),
        how_(outer.how_),
        facts_(outer.facts_),
        contradiction_(outer.contradiction_),
        nesting_(outer.nesting_ + 1),
        depth_(outer.depth_) {
    Assume(condition, holds);
  }

  LinearForm ComputeForm(const UOp* node);
  std::optional<LinearForm> Joined(std::optional<LinearForm> form);
  Interval IntervalOf(const UOp* atom);
  Interval ComputeInterval(const UOp* atom);
  Interval IntervalOfWhere(const UOp* where);
  Interval IntervalOfQuotient(const UOp* node);
  bool Fits(const LinearForm& form, DType dtype);
  Interval Range(const LinearForm& form);
  // Returns a lower bound of `form`. Stops searching once the bound is at least `enough`, or after
  // about `steps_max` steps.
  Wide LowerBound(const LinearForm& form, Wide enough, Budget steps_max);
  // By at most so many facts, other than those used.
  Wide LowerBoundBy(const LinearForm& form, Wide enough, int facts, uint64_t used);
  // A fact, and the factors of an atom in the form and in the fact.
  struct ScaledBy {
    size_t fact = 0;
    Wide factor = 0;
    Wide fact_factor = 0;
  };
  Wide ScaledLowerBound(const LinearForm& form, const ScaledBy& by, Wide enough, int facts,
                        uint64_t used);
  void AddDivisionFacts(const UOp* node);
  void AddFact(const std::optional<LinearForm>& never_negative);

  Budget* budget_;
  const Divisions how_;
  std::vector<LinearForm> facts_;      // each is at least 0
  std::vector<const UOp*> divisions_;  // quotients and remainders that are atoms
  bool contradiction_ = false;         // the conditions exclude each other: everything is proved
  int nesting_ = 0;                    // enclosing WHEREs
  int depth_ = 0;                      // of recursive calls
  absl::flat_hash_map<const UOp*, LinearForm> forms_;
  absl::flat_hash_map<const UOp*, Interval> intervals_;
};

}  // namespace outboard::proof
