// Proves that a program accesses nothing outside its memories: the last check before text, on the
// instructions that are printed. Like in_range.h, it bounds the index of an access by the loops and
// conditions around it, its mask included, and uses no result of an earlier pass.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/program/program.h"

namespace outboard::proof {

// Returns the accesses (LOAD, STORE, COPY, LDMATRIX) that are not proved to be in range in every
// lane. The proofs of all LOADs together have a bound (ProofBudget::work), above which the rest are
// not proved, and those of all others have one. `work`, unless it is null, is set to what they
// took.
std::vector<program::ValueId> UnprovedAccesses(const program::Program& program,
                                               int64_t* work = nullptr);

// Returns the error INTERNAL that shows one of them, and whether an error is one.
absl::Status NotInRange(const program::Program& program, program::ValueId access);
bool IsNotInRange(const absl::Status& status);

// Errors: INTERNAL  shows the first of them.
absl::Status CheckInRange(const program::Program& program);

// For tests of what becomes of a program that is not proved: while it lives, each proof of this
// thread has at most `steps` steps. Nothing is proved by fewer that is not by more.
class FewerSteps {
 public:
  explicit FewerSteps(int64_t steps);
  ~FewerSteps();
  FewerSteps(const FewerSteps&) = delete;
  FewerSteps& operator=(const FewerSteps&) = delete;
};

}  // namespace outboard::proof
