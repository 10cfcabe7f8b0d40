// Matrix products by warpgroups (compiler/program/hopper): on the interpreter of programs, in many
// orders, and with one fault planted at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/whole_product.h"

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
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  const std::string ptxas = test::FindPtxas();
  for (const HopperCase& test : HopperCases()) {
    SCOPED_TRACE(test.name);
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto kernel = (*renderer)->Render(*program, "k");
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    std::vector<std::string> buffers = test::InputsOf(test);
    const absl::Status ran = test::RunOnPtxMachine(*kernel, buffers);
    ASSERT_TRUE(ran.ok()) << ran << kernel->object.substr(0, 3000);
    ASSERT_EQ(test::DifferenceOf(test, buffers), "");
    EXPECT_EQ(kernel->object.find(".local"), std::string::npos);
    if (ptxas.empty()) continue;
    const auto stack_bytes = test::StackBytesOf(ptxas, kernel->object, "sm_90a");
    ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
    EXPECT_EQ(*stack_bytes, 0);
  }
}

// Of one product of TF32 instead of three it says so.
TEST(HopperProduct, TheBoundOfFullDigits_FindsSumsWithoutLowParts) {
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  int found = 0;
  for (HopperCase test : HopperCases()) {
    const bool turned = test.product.a_by_columns || !test.product.b_by_columns;
    if (!test.full_digits || turned || test.product.batch != 1 || test.product.m != 128) continue;
    SCOPED_TRACE(test.name);
    test.product.three_tf32 = false;
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<std::string> buffers = test::InputsOf(test);
    ASSERT_EQ(test::RunOnPtxMachine(
                  *(*renderer)->Render(*program, "k"), buffers),
              absl::OkStatus());
    EXPECT_NE(test::DifferenceOf(test, buffers), "");
    ++found;
  }
  EXPECT_GT(found, 1);
}

// The machine adds 8-bit floats with 14 digits, as sm_90 does. One sum of so many numbers above
// zero would lose 7 %; sums of 128 steps, which are added in f32, keep the bound of
// docs/semantics.md. Of f32 the last 13 bits are cut off.
TEST(HopperProduct, SumsOfFewDigits_AreWithinTheirBound) {
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  const std::pair<DType, double> types[] = {
      {DType::kF8E4M3, 0x1p-5}, {DType::kF8E5M2, 0x1p-5}, {DType::kF32, 0.002}};
  for (const std::pair<DType, double>& each : types) {
    const DType dtype = each.first;
    SCOPED_TRACE(std::string(Name(dtype)));
    const int64_t width = ByteWidth(dtype);
    const HopperProduct p{.dtype = dtype,
                          .m = 16,
                          .n = 32,
                          .k = 4096 / width,
                          .b_by_columns = true,
                          .c_dtype = DType::kF32};
    const auto program = MakeHopperProduct(p, {.columns = 64});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto kernel = (*renderer)->Render(*program, "k");
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    std::vector<std::string> buffers = {std::string(static_cast<size_t>(p.m * p.n * 4), '\0'),
                                        std::string(static_cast<size_t>(p.m * p.k * width), '\0'),
                                        std::string(static_cast<size_t>(p.n * p.k * width), '\0')};
    std::mt19937 random(5);
    for (const size_t slot : {1, 2})
      for (size_t at = 0; at < buffers[slot].size(); at += static_cast<size_t>(width))
        StoreFloat(
            dtype, RoundTo(dtype, 0.25 + static_cast<double>(random() % 65536) / 65536),
            &buffers[slot][at]);
    ASSERT_EQ(test::RunOnPtxMachine(*kernel, buffers), absl::OkStatus());
    const auto number = [&](size_t slot, int64_t index) {
      return LoadFloat(dtype, &buffers[slot][static_cast<size_t>(index * width)]);
    };
    double worst = 0;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += number(1, i * p.k + k) * number(2, j * p.k + k);
        const double got = LoadFloat(
            DType::kF32, &buffers[0][static_cast<size_t>((i * p.n + j) * 4)]);
        worst = std::max(worst, std::abs(got - sum) / sum);
      }
    std::printf("%s: %.6f of the sum\n", std::string(Name(dtype)).c_str(), worst);
    EXPECT_LE(worst, each.second);
    EXPECT_GT(worst, 0) << "these numbers show no difference";
  }
}

// The same kernel with one instruction changed, as PTX that the machine must report.
TEST(HopperProduct, MistakesOfAClusterInPtx_AreReported) {
  HopperCase test{.product = {.m = 256, .n = 128, .k = 448, .c_dtype = DType::kF32},
                  .tile = {.stages = 2, .cluster = 2}};
  const auto program = MakeHopperProduct(test.product, test.tile);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  const auto kernel = (*renderer)->Render(*program, "k");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_TRUE(absl::StrContains(kernel->object, ".reqnctapercluster 2, 1, 1"));
  struct Planted {
    const char* name;
    size_t at;
    std::string from, to;
    const char* report;
  };
  const std::string& ptx = kernel->object;
  constexpr char kEndOfMeeting[] = "barrier.cluster.wait.acquire;";
  const size_t meeting = ptx.find("barrier.cluster.arrive.release;");
  ASSERT_NE(meeting, std::string::npos);
  const std::string meets =
      ptx.substr(meeting, ptx.find(kEndOfMeeting, meeting) + sizeof kEndOfMeeting - 1 - meeting);
  const size_t multicast = ptx.find(".multicast::cluster");
  ASSERT_NE(multicast, std::string::npos);
  const size_t comma = ptx.rfind(", ", ptx.find(';', multicast));
  const size_t end = ptx.find(';', comma);
  const std::string mask = ptx.substr(comma, end - comma);
  const Planted cases[] = {
      {"no first meeting", ptx.find(meets), meets, "", ""},
      {"no last meeting", ptx.rfind(meets), meets, "", ""},
      {"a mask beyond the cluster", comma, mask, ", 7", "multicasts to a block"},
      {"the other block gets no copy", comma, mask, ", 1", ""},
      {"arrivals at the own block alone", ptx.find("mapa.shared::cluster.u32"),
       "mapa.shared::cluster.u32", "mov.u32", ""},
  };
  for (const Planted& planted : cases) {
    SCOPED_TRACE(planted.name);
    ASSERT_NE(planted.at, std::string::npos);
    CompiledKernel wrong = *kernel;
    std::string to = planted.to;
    if (to == "mov.u32") {  // of its first operand alone
      const size_t first = ptx.find(", ", planted.at), second = ptx.find(", ", first + 1);
      wrong.object.erase(second, ptx.find(';', second) - second);
    }
    wrong.object.replace(planted.at, planted.from.size(), to);
    std::vector<std::string> buffers = test::InputsOf(test);
    const absl::Status ran = test::RunOnPtxMachine(wrong, buffers);
    EXPECT_FALSE(ran.ok());
    EXPECT_TRUE(absl::StrContains(ran.message(), planted.report)) << ran;
    std::printf("%s: %s\n", planted.name, std::string(ran.message()).substr(0, 300).c_str());
  }
}

}  // namespace
}  // namespace outboard::program
