// Matrix products by warpgroups (compiler/program/hopper): on the interpreter of programs, in many
// orders, and with one fault planted at a time.
#include <gtest/gtest.h>

#include "base/check.h"
#include "compiler/program/hopper/product.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/render/llvm/nvptx.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/ptx_run.h"

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

TEST(HopperProduct, OnThePtxMachine_IsTheSumWithoutAReport) {
  const auto renderer = render::MakeNvptxRenderer(CudaTarget("sm_90a", 132));
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  const std::string ptxas = test::FindPtxas();
  for (const HopperCase& test : HopperCases()) {
    SCOPED_TRACE(test.name);
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto kernel = (*renderer)->Render(*program, "k", /*no_opt=*/false, nullptr);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    std::vector<std::string> buffers = test::InputsOf(test);
    const absl::Status ran = test::RunOnPtxMachine(*kernel, buffers);
    ASSERT_TRUE(ran.ok()) << ran << kernel->object.substr(0, 3000);
    ASSERT_EQ(test::DifferenceOf(test, buffers), "");
    EXPECT_EQ(kernel->object.find(".local"), std::string::npos);
    if (ptxas.empty()) continue;
    const auto spilled = test::Assemble(ptxas, kernel->object, "sm_90a");
    ASSERT_TRUE(spilled.ok()) << spilled.status();
    EXPECT_EQ(*spilled, 0);
  }
}

}  // namespace
}  // namespace outboard::program
