// Random kernels against a walk of their expression. OUTBOARD_SEED=n repeats kernel n alone;
// OUTBOARD_KERNELS=n makes n.
#include <cstdlib>

#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"

namespace outboard::test {
namespace {

TEST(CodegenRandom, LikeAWalkOfTheExpression) {
  const char* const only = std::getenv("OUTBOARD_SEED");
  const char* const count = std::getenv("OUTBOARD_KERNELS");
  const uint32_t first = only ? std::atoi(only) : 0, last = only    ? first + 1
                                                            : count ? std::atoi(count)
                                                                    : 60;
  for (uint32_t seed = first; seed < last; ++seed) {
    Graph g;
    const UOp* const sink = RandomKernel(g, seed);
    Check(sink, 2e-3, /*wild=*/false, seed);
    if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) {
      ADD_FAILURE() << "repeat with OUTBOARD_SEED=" << seed << " codegen_random_test";
      return;
    }
  }
}

}  // namespace
}  // namespace outboard::test
