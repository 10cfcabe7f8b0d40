// Attention by warpgroups of sm_90a (compiler/program/online/groups.h): programs in the
// interpreter, their PTX on the PTX machine, both against the reference interpreter; mistakes
// planted into its program; and kernels that it must leave to mma.sync.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compiler/compile.h"
#include "compiler/program/interpret.h"
#include "compiler/program/online/plan.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/online_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Fault;
using program::OnlineTile;
using program::ProgramBuilder;

constexpr OnlineTile kOneGroup = {4, 1, 64, 2, true};
constexpr OnlineTile kTwoGroups = {8, 1, 64, 2, true};

Ways ByGroups(const OnlineTile& tile, bool interpreted = true) {
  return {.tile = &tile, .arch = "sm_90a", .interpreted = interpreted};
}

TEST(OnlineHopper, OneTile) {
  CheckAttention(
      {.queries = 64, .keys = 64, .width = 64, .dtype = DType::kBF16, .batch = 1},
      ByGroups(kOneGroup));
}

}  // namespace
}  // namespace outboard::test
