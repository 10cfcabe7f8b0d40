// Convolutions and their gradients as products by warpgroups whose operands are gathered
// (compiler/program/hopper/gather.h): in the interpreter of programs and on the PTX machine,
// against a walk of the kernel; and with one mistake planted at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/conv_kernels.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::HopperTile;

enum class Of { kForward, kInputGradient, kWeightGradient };

struct ConvTest {
  const char* name;
  ConvCase conv;
  HopperTile tile = {.columns = 64, .stages = 2};
};

const UOp* KernelOf(Graph& g, const ConvCase& conv, Of of) {
  ConvKernels kernels(g, conv);
  switch (of) {
    case Of::kForward: return kernels.Forward();
    case Of::kInputGradient: return kernels.InputGradient();
    case Of::kWeightGradient: break;
  }
  return kernels.WeightGradient();
}

struct Planned {
  codegen::LoopNest kernel;
  program::HopperPlan plan;
};
absl::StatusOr<Planned> PlanOf(Graph& guards, const UOp* sink, const HopperTile& tile) {
  OB_ASSIGN_OR_RETURN(const UOp* guarded, proof::GuardUnproved(guards, sink));
  OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  OB_ASSIGN_OR_RETURN(const codegen::MmaProduct product, codegen::FindMmaProduct(kernel));
  OB_ASSIGN_OR_RETURN(program::HopperPlan plan, MakeHopperPlan(kernel, product, tile));
  return Planned{std::move(kernel), std::move(plan)};
}

void CheckConv(const ConvTest& test, Of of) {
  SCOPED_TRACE(testing::Message() << test.name << ", " << static_cast<int>(of));
  Graph g, guards;
  const UOp* const sink = KernelOf(g, test.conv, of);
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  const double tolerance = test.conv.result == DType::kF32 ? 1e-5 : 8e-3;
  const absl::StatusOr<Planned> planned = PlanOf(guards, sink, test.tile);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE(planned->plan.shape.gathers());
  const auto program = program::ExpandHopper(planned->kernel, planned->plan);
  ASSERT_TRUE(program.ok()) << program.status();
  for (const uint32_t seed : {1u, 2u}) {
    Buffers got = start;
    const program::RunReport report = program::Interpret(*program, got, {}, {.seed = seed});
    ASSERT_TRUE(report.ok()) << report.message;
    ExpectClose(sink, got, want, tolerance);
    if (testing::Test::HasFatalFailure()) return;
  }
  const auto renderer = ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90a", 132)));
  const CompiledKernel compiled =
      ValueOrDie(renderer->Render(*program, "k"));
  EXPECT_EQ(compiled.object.find(".local"), std::string::npos);
  Buffers got = start;
  const absl::Status ran = RunOnPtxMachine(compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, tolerance);
  if (testing::Test::HasFatalFailure()) return;
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, compiled.object, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes + assembled->warnings, 0);
  }
}

std::vector<ConvTest> ConvTests() {
  return {
      {"borders", {}},
      {"odd_sizes_stride_2", {.height = 11, .width = 7, .stride = 2}},
      {"no_border_f16",
       {.out = 72,
        .height = 7,
        .width = 8,
        .padding = 0,
        .dtype = DType::kF16,
        .result = DType::kF16},
       {.columns = 128, .stages = 4}},
      {"wide_borders_5_x_5",
       {.batch = 1,
        .in = 8,
        .out = 16,
        .height = 9,
        .width = 13,
        .kernel = 5,
        .padding = 3,
        .result = DType::kBF16},
       {.columns = 64, .stages = 4}},
      {"persistent_taps_last",
       {.batch = 5, .in = 16, .out = 136, .height = 8, .width = 9, .taps_last = true},
       {.columns = 64, .stages = 2, .persistent_blocks = 2}},
      {"sums_in_two_parts",
       {.in = 40, .out = 64, .height = 5, .width = 5},
       {.columns = 64, .stages = 2, .split = 2}},
      {"three_channels_last", {.in = 3}},
      {"three_channels_first_7_x_7",
       {.batch = 1,
        .in = 3,
        .out = 16,
        .height = 15,
        .width = 13,
        .kernel = 7,
        .stride = 2,
        .padding = 3,
        .channels_last = false,
        .taps_last = true}},
      {"channels_first",
       {.channels_last = false, .taps_last = true},
       {.columns = 128, .stages = 2}},
      {"odd_numbers", {.in = 5, .out = 7, .height = 6, .width = 5}},
  };
}

class HopperConvs : public testing::TestWithParam<std::tuple<ConvTest, Of>> {};

TEST_P(HopperConvs, RunAsTheWalk) { CheckConv(std::get<0>(GetParam()), std::get<1>(GetParam())); }

std::string NameOf(const testing::TestParamInfo<std::tuple<ConvTest, Of>>& info) {
  constexpr const char* kNames[] = {"forward", "input_gradient", "weight_gradient"};
  return std::string(std::get<0>(info.param).name) + "_" +
         kNames[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(All, HopperConvs,
                         testing::Combine(testing::ValuesIn(ConvTests()),
                                          testing::Values(Of::kForward, Of::kInputGradient,
                                                          Of::kWeightGradient)),
                         NameOf);

// A layer of ResNet-50 by default; a small one only where a search asks, which begins with both.
TEST(HopperConv, ByDefaultWhereItIsEstimatedToBeFaster) {
  const auto uses_wgmma = [](const ConvCase& conv, Of of, const char* arch) {
    Graph g;
    const auto compiled = CompileKernel(KernelOf(g, conv, of), {.target = CudaTarget(arch, 132)});
    OB_CHECK_OK(compiled.status());
    return absl::StrContains(compiled->object, "wgmma.mma_async");
  };
  const ConvCase layer{.batch = 64, .in = 64, .out = 64, .height = 56, .width = 56};
  EXPECT_TRUE(uses_wgmma(layer, Of::kForward, "sm_90a"));
  EXPECT_TRUE(uses_wgmma(layer, Of::kInputGradient, "sm_90a"));
  EXPECT_FALSE(uses_wgmma(layer, Of::kForward, "sm_90"));
  const ConvCase small{.out = 64, .height = 20, .width = 20};
  EXPECT_FALSE(uses_wgmma(small, Of::kForward, "sm_90a"));
  const auto has_wgmma = [&](const char* arch) {
    Graph g;
    int found = 0;
    for (const std::vector<codegen::Opt>& opts :
         ValueOrDie(StartingOpts(KernelOf(g, small, Of::kForward), CudaTarget(arch, 132))))
      found += opts.size() == 1 && opts[0].kind == codegen::OptKind::kWgmma;
    return found;
  };
  EXPECT_EQ(has_wgmma("sm_90a"), 1);
  EXPECT_EQ(has_wgmma("sm_90"), 0);
}

TEST(HopperConv, LargeTiles_SpillNothing) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  const ConvCase layer{.batch = 8, .in = 72, .out = 200, .height = 27, .width = 29, .stride = 2};
  for (const int64_t columns : {128, 256})
    for (const Of of : {Of::kForward, Of::kInputGradient, Of::kWeightGradient}) {
      SCOPED_TRACE(testing::Message() << columns << " columns, " << static_cast<int>(of));
      Graph g, guards;
      const absl::StatusOr<Planned> planned =
          PlanOf(guards, KernelOf(g, layer, of), {.columns = columns, .persistent_blocks = 132});
      if (of != Of::kForward && columns == 256) {  // their columns are gathered
        EXPECT_TRUE(absl::StrContains(planned.status().message(), "64 to 128 columns"))
            << planned.status();
        continue;
      }
      ASSERT_TRUE(planned.ok()) << planned.status();
      const program::Program program =
          ValueOrDie(program::ExpandHopper(planned->kernel, planned->plan));
      const auto renderer = ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90a", 132)));
      const CompiledKernel compiled =
          ValueOrDie(renderer->Render(program, "k"));
      const Assembled assembled = ValueOrDie(AssembleKernel(ptxas, compiled.object, "sm_90a"));
      EXPECT_EQ(assembled.spill_bytes + assembled.stack_bytes + assembled.warnings, 0);
    }
}

constexpr ConvCase kMoreStepsThanStages = {.batch = 1, .in = 40};

struct PlantedMistake {
  const char* name;
  ProgramEdit edit;
  std::vector<program::Fault> faults;  // one of these, in every order; none: another result
};

ProgramEdit Number(Code code, int nth, size_t imm, int64_t value) {
  return Changing(code, nth, [=](program::ProgramBuilder&, program::Instruction& i) {
    i.imm[imm] = value;
    return true;
  });
}

// Of a program whose A is gathered, and whose B comes in boxes. In its order: the barriers of full
// stages, then of empty ones; the waits of who gathers, in the loop and behind it; those of who
// multiplies.
std::vector<PlantedMistake> Mistakes() {
  using program::Fault;
  return {
      {"no fence in the loop", Changing(Code::kProxyFence, 0, Drop), {Fault::kMissingFence}},
      {"no fence behind the loop", Changing(Code::kProxyFence, 1, Drop), {Fault::kMissingFence}},
      {"a copy too many is under way", Number(Code::kWait, 0, 0, 3), {Fault::kRace}},
      {"the last copies are not waited for", Number(Code::kWait, 2, 0, 1), {Fault::kRace}},
      {"copies form no group", Without(Code::kCommit), {Fault::kRace}},
      {"a stage is full without the last thread",
       Number(Code::kMbInit, 0, 0, program::kWarpgroupThreads),
       {Fault::kRace, Fault::kMisuse, Fault::kUninitialised, Fault::kMissingFence}},
      {"a stage waits for one thread more",
       Number(Code::kMbInit, 0, 0, program::kWarpgroupThreads + 2),
       {Fault::kEndlessWait}},
      {"no wait for an empty stage",
       Changing(Code::kMbWait, 0, Drop),
       {Fault::kRace, Fault::kMisuse}},
      {"no borders",
       Changing(Code::kCopy, 0,
                [](program::ProgramBuilder&, program::Instruction& i) {
                  i.src.resize(4);
                  return true;
                }),
       {Fault::kOutOfRange}},
      {"a border one element away",
       [](program::ProgramBuilder& b, program::Instruction& i) {
         if (i.code == Code::kCopy) i.src[3] = b.Plus(i.src[3], b.Int(i.imm[0]));
         return true;
       },
       {Fault::kNone, Fault::kOutOfRange}},
      {"no swizzle",
       [](program::ProgramBuilder&, program::Instruction& i) {
         if (i.code == Code::kCopy) i.imm[2] = 0;
         return true;
       },
       {Fault::kNone}},
  };
}

bool IsClose(const Buffers& got, const Buffers& want) {
  for (size_t at = 0; at < want[0].size(); at += 4)
    if (std::abs(LoadFloat(DType::kF32, &got[0][at]) - LoadFloat(DType::kF32, &want[0][at])) > 1e-3)
      return false;
  return true;
}

TEST(HopperConv, EveryPlantedMistake_IsFoundInEveryOrder) {
  Graph g, guards;
  const UOp* const sink = KernelOf(g, kMoreStepsThanStages, Of::kForward);
  const Planned planned = ValueOrDie(PlanOf(guards, sink, {.columns = 64, .stages = 4}));
  const program::Program right = ValueOrDie(program::ExpandHopper(planned.kernel, planned.plan));
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  int found = 0;
  for (const PlantedMistake& planted : Mistakes()) {
    SCOPED_TRACE(planted.name);
    const program::Program wrong = Edited(right, planted.edit);
    ASSERT_NE(wrong, right);
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Buffers got = start;
      const program::RunReport report = program::Interpret(wrong, got, {}, {.seed = seed});
      EXPECT_NE(std::find(planted.faults.begin(), planted.faults.end(), report.fault),
                planted.faults.end())
          << "seed " << seed << ": " << Name(report.fault) << ": " << report.message;
      EXPECT_FALSE(report.ok() && IsClose(got, want));
    }
    ++found;
  }
  std::printf("%d planted mistakes\n", found);
}

TEST(HopperConv, MistakesInPtx_AreFoundInEveryOrder) {
  Graph g, guards;
  const UOp* const sink = KernelOf(g, kMoreStepsThanStages, Of::kForward);
  const Planned planned = ValueOrDie(PlanOf(guards, sink, {.columns = 64, .stages = 4}));
  const program::Program program = ValueOrDie(program::ExpandHopper(planned.kernel, planned.plan));
  const auto renderer = ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90a", 132)));
  const CompiledKernel right =
      ValueOrDie(renderer->Render(program, "k"));
  struct Planted {
    const char* name;
    const char *from, *to;
    const char* report;  // empty: any report, or another result
  };
  const Planted cases[] = {
      {"no fence", "fence.proxy.async.shared::cta;", "", "proxy"},
      {"a copy too many is under way", "cp.async.wait_group 2;", "cp.async.wait_group 3;", ""},
      {"no groups", "cp.async.commit_group;", "", ""},
      {"arrivals of all threads but one", ", 129;", ", 128;", ""},
  };
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  for (const Planted& planted : cases) {
    SCOPED_TRACE(planted.name);
    CompiledKernel wrong = right;
    ASSERT_TRUE(absl::StrContains(wrong.object, planted.from)) << wrong.object;
    wrong.object = absl::StrReplaceAll(wrong.object, {{planted.from, planted.to}});
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Buffers got = start;
      const absl::Status ran = RunOnPtxMachine(wrong, got, {}, seed);
      EXPECT_TRUE(!ran.ok() ? absl::StrContains(ran.message(), planted.report)
                            : !IsClose(got, want))
          << "seed " << seed << ": " << ran;
    }
  }
}

}  // namespace
}  // namespace outboard::test
