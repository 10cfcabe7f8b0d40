// Matrix products by warpgroups (compiler/program/hopper): on the interpreter of programs, in many
// orders, and with one fault planted at a time.
#include "compiler/program/hopper/product.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "tests/compiler/hopper_run.h"

namespace outboard::program {
namespace {

using test::HopperCase;
using test::HopperCases;

TEST(HopperProduct, EveryLayoutTileAndRemainder_IsTheSumInEveryOrder) {
  for (const HopperCase& test : HopperCases()) {
    SCOPED_TRACE(test.name);
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    ASSERT_TRUE(program.ok()) << program.status();
    for (uint32_t seed = 1; seed <= test.seeds; ++seed) {
      std::vector<std::string> buffers = test::InputsOf(test);
      const RunReport report = Interpret(*program, buffers, {}, {.seed = seed});
      ASSERT_TRUE(report.ok()) << report.message << " seed " << seed;
      ASSERT_EQ(test::DifferenceOf(test, buffers), "") << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace outboard::program
