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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
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

// What proofs may still do.
struct ProofBudget {
  int64_t steps = 0;  // of the access that is being proved
  // Of all accesses of a kernel or of a program: the terms that steps look at. A million takes
  // 10 ms.
  int64_t work = INT64_MAX;

  // Takes a step. Returns whether more are left.
  bool Step() { return --steps > 0; }
  // Pays for `terms` terms. Without work there are no steps either.
  void Pay(size_t terms) {
    work -= static_cast<int64_t>(terms);
    if (work <= 0) steps = std::min<int64_t>(steps, 0);
  }
};

// Threads: one.
class Prover {
 public:
  // What is known of quotients and remainders by constants: their intervals; or also their relation
  // to what is divided, which is stronger, and slower by far; or also that both of one number are
  // that number where they are added up.
  enum class Divisions { kAtoms, kRelated, kJoined };
  // What one proof tries, one after another. Neither of the last two includes the other: a sum that
  // is joined no longer has the quotient that a condition speaks of.
  static constexpr Divisions kTries[] = {Divisions::kAtoms, Divisions::kJoined,
                                         Divisions::kRelated};
  explicit Prover(ProofBudget* budget, Divisions divisions = Divisions::kAtoms)
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
        terms_of_facts_(outer.terms_of_facts_),
        divisions_(outer.divisions_),
        division_of_(outer.division_of_),
        number_of_division_(outer.number_of_division_),
        contradiction_(outer.contradiction_),
        nesting_(outer.nesting_ + 1),
        depth_(outer.depth_) {
    budget_->steps -= static_cast<int64_t>(divisions_.size());  // which were copied
    budget_->Pay(divisions_.size() + terms_of_facts_);
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
  Wide LowerBound(const LinearForm& form, Wide enough, int64_t steps_max);
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
  // The quotient and the remainder of one number by one divisor: the first nodes that were met,
  // null until then. Others with an equal dividend are the same atom.
  struct Division {
    const UOp* quotient = nullptr;
    const UOp* remainder = nullptr;
  };
  const UOp* AtomOfDivision(const UOp* node);
  // `bounds`: also those of the quotient, which are as many at each remainder.
  void AddDivisionFacts(Division division, const LinearForm& dividend, Wide divisor, bool bounds);
  void AddFact(const std::optional<LinearForm>& never_negative);

  ProofBudget* budget_;
  int64_t stop_ = 0;  // the search now running ends where no more steps than these are left
  const Divisions how_;
  std::vector<LinearForm> facts_;  // each is at least 0
  size_t terms_of_facts_ = 0;
  std::vector<Division> divisions_;
  absl::flat_hash_map<std::pair<LinearForm, int64_t>, size_t> division_of_;  // and a divisor
  absl::flat_hash_map<const UOp*, size_t> number_of_division_;               // by atom
  bool contradiction_ = false;  // the conditions exclude each other: everything is proved
  int nesting_ = 0;             // enclosing WHEREs
  int depth_ = 0;               // of recursive calls
  absl::flat_hash_map<const UOp*, LinearForm> forms_;
  absl::flat_hash_map<const UOp*, Interval> intervals_;
};

}  // namespace outboard::proof
