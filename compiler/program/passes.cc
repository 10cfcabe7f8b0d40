// The list of passes; their code is in passes/.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/optimize/operands/mma_window.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"

namespace outboard::program {
namespace {

constexpr size_t kInstructionsMax = 400'000;

// Checks the result of each pass before the next one reads it.
absl::StatusOr<Program> RunPasses(absl::StatusOr<Program> lowered, bool lanes,
                                  std::vector<PassResult>* passes) {
  if (!lowered.ok()) return lowered.status();
  Program program = *std::move(lowered);
  const auto after = [&](std::string_view pass, Phase phase) {
    if (passes != nullptr) passes->push_back({std::string(pass), program});
    if (program.code.size() > kInstructionsMax)
      return absl::Status(absl::ResourceExhaustedError(absl::StrCat(
          "program: ", program.code.size(), " instructions after pass ", std::string(pass))));
    return CheckProgram(program, pass, phase);
  };
  OB_RETURN_IF_ERROR(after("lower", Phase::kExpanding));
  program = SimplifyDivisions(program);
  OB_RETURN_IF_ERROR(after("simplify divisions", Phase::kExpanding));
  if (lanes) {
    program = Unroll(program);
    OB_RETURN_IF_ERROR(after("unroll", Phase::kExpanding));
    program = Vectorize(program);
    OB_RETURN_IF_ERROR(after("vectorize", Phase::kFinal));
  }
  // The epilogues of warpgroups access consecutive elements one by one.
  if (lanes || std::ranges::any_of(program.code, [](const auto& i) { return IsHopper(i.code); })) {
    program = AddressForm(program);
    OB_RETURN_IF_ERROR(after("address form", Phase::kFinal));
  }
  if (lanes) {
    program = NarrowLanes(program);
    OB_RETURN_IF_ERROR(after("narrow lanes", Phase::kFinal));
  }
  program = Hoist(program);
  OB_RETURN_IF_ERROR(after("hoist", Phase::kFinal));
  program = DropUnused(program);
  OB_RETURN_IF_ERROR(after("drop unused", Phase::kFinal));
  const std::vector<ValueId> unproved = proof::UnprovedAccesses(program);
  if (!unproved.empty()) {
    OB_ASSIGN_OR_RETURN(program, GuardLoads(program, unproved));
    OB_RETURN_IF_ERROR(after("guard loads", Phase::kFinal));
    program = Hoist(program);
    OB_RETURN_IF_ERROR(after("hoist guards", Phase::kFinal));
    program = DropUnused(program);
    OB_RETURN_IF_ERROR(after("drop unused guards", Phase::kFinal));
    OB_RETURN_IF_ERROR(proof::CheckInRange(program));
  }
  // Nothing is printed that was not proved as it is. Most programs have no rare work: what is
  // proved need not be proved again.
  if (Program branched = BranchAroundRareWork(program);
      branched.code != program.code && proof::CheckInRange(branched).ok())
    program = std::move(branched);
  OB_RETURN_IF_ERROR(after("branch around rare work", Phase::kFinal));
  return program;
}

}  // namespace

absl::StatusOr<Program> ExpandPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                                   std::vector<PassResult>* passes) {
  return RunPasses(LowerPlan(kernel, plan), /*lanes=*/true, passes);
}

absl::StatusOr<Program> ExpandThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping,
                                      std::vector<PassResult>* passes) {
  return RunPasses(LowerThreads(kernel, mapping), mapping.columns > 1, passes);
}

absl::StatusOr<Program> ExpandHopper(const codegen::LoopNest& kernel, const HopperPlan& plan,
                                     std::vector<PassResult>* passes) {
  return RunPasses(LowerHopper(kernel, plan), /*lanes=*/false, passes);
}

absl::StatusOr<Program> ExpandOnline(const OnlinePlan& plan,
                                     std::vector<PassResult>* passes) {
  return RunPasses(plan.tile.groups ? LowerOnlineHopper(plan) : LowerOnlineMma(plan),
                   /*lanes=*/true, passes);
}

absl::StatusOr<Program> ExpandMma(const codegen::LoopNest& kernel, const codegen::MmaPlan& plan,
                                  std::vector<PassResult>* passes) {
  codegen::MmaPlan padded = plan;
  if (codegen::PadWindows(kernel, padded)) {
    const size_t before = passes != nullptr ? passes->size() : 0;
    absl::StatusOr<Program> program = RunPasses(LowerMma(kernel, padded), /*lanes=*/true, passes);
    if (program.ok()) return program;
    // Slots divide places once more, and not all of these are shown to be in range.
    if (passes != nullptr)
      passes->erase(passes->begin() + static_cast<int64_t>(before), passes->end());
  }
  return RunPasses(LowerMma(kernel, plan), /*lanes=*/true, passes);
}

}  // namespace outboard::program
