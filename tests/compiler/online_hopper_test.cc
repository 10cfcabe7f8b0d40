// Attention by warpgroups of sm_90a (compiler/program/online/groups.h): programs in the
// interpreter, their PTX on the PTX machine, both against the reference interpreter; mistakes
// planted into a program; and kernels that stay with mma.sync.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/program/interpret.h"
#include "compiler/program/online/plan.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/online_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Fault;
using program::Instruction;
using program::OnlineTile;
using program::ProgramBuilder;

constexpr OnlineTile kOneGroup = {4, 1, 64, 2, true};
constexpr OnlineTile kTwoGroups = {8, 1, 64, 2, true};

Ways ByGroups(const OnlineTile& tile, bool interpreted = true) {
  return {.tile = &tile, .arch = "sm_90a", .interpreted = interpreted};
}

TEST(OnlineHopper, OneTile) {
  constexpr OnlineTile kAllSteps = {4, 1, 128, 2, true};
  CheckAttention({.queries = 128, .keys = 128, .width = 64, .dtype = DType::kBF16, .batch = 1},
                 ByGroups(kAllSteps));
}

// Each stage is used three times.
TEST(OnlineHopper, ARing) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    CheckAttention({.queries = 128, .keys = 320, .width = 64, .dtype = dtype, .batch = 1},
                   ByGroups(kOneGroup));
    if (HasFatalFailure()) return;
  }
}

// Rests of rows and steps, heads and batches, masks and biases.
TEST(OnlineHopper, MasksBiasesAndRests) {
  for (const bool bias : {false, true})
    for (const bool causal : {false, true}) {
      CheckAttention({.heads = 2,
                      .queries = 150,
                      .keys = 200,
                      .width = 64,
                      .causal = causal,
                      .bias = bias,
                      .dtype = bias ? DType::kF16 : DType::kBF16,
                      .batch = 2},
                     ByGroups(kTwoGroups, /*interpreted=*/causal));
      if (HasFatalFailure()) return;
    }
  // Sliding windows begin and end rows; where there are fewer keys than queries some see nothing.
  CheckAttention(
      {.queries = 150, .keys = 70, .width = 64, .band = 9, .dtype = DType::kBF16, .batch = 1},
      ByGroups(kTwoGroups));
}

// Scores are computed again where they are more than the elements of each matrix.
TEST(OnlineHopper, TilesAndWidths) {
  const struct {
    int64_t width;
    OnlineTile tile;
  } cases[] = {
      {128, {8, 1, 64, 2, true}}, {128, {8, 1, 128, 2, true}},   {128, {4, 1, 64, 4, true}},
      {64, {8, 1, 128, 4, true}}, {64, {4, 1, 128, 2, true}},    {192, {8, 1, 64, 2, true}},
      {256, {4, 1, 64, 2, true}}, {128, {8, 1, 32, 2, true, 2}}, {192, {4, 1, 64, 2, true, 3}}};
  for (const auto& [width, tile] : cases) {
    CheckAttention({.queries = width + 20,
                    .keys = 260,
                    .width = width,
                    .causal = true,
                    .dtype = DType::kBF16,
                    .batch = 1},
                   ByGroups(tile, /*interpreted=*/width == 128 && tile.stages == 4));
    if (HasFatalFailure()) return;
  }
}

// Matrices that scores and products read.
TEST(OnlineHopper, Gradients) {
  for (const bool causal : {false, true}) {
    CheckAttention({.queries = 130,
                    .keys = 130,
                    .width = 64,
                    .causal = causal,
                    .backward = true,
                    .dtype = DType::kBF16,
                    .batch = 1},
                   ByGroups(kTwoGroups, /*interpreted=*/causal), 3);
    if (HasFatalFailure()) return;
  }
}

// Of heads whose sums no thread has registers for: in two parts.
TEST(OnlineHopper, GradientsOfWideHeads) {
  constexpr OnlineTile kParts = {4, 1, 32, 2, true, 2};
  for (const bool causal : {false, true}) {
    CheckAttention({.queries = 320,
                    .keys = 320,
                    .width = 256,
                    .causal = causal,
                    .backward = true,
                    .dtype = causal ? DType::kBF16 : DType::kF16,
                    .batch = 1},
                   ByGroups(kParts, /*interpreted=*/false), 3);
    if (HasFatalFailure()) return;
  }
}

// What runs one kernel of attention as a program, and its schedule.
struct OneKernel {
  explicit OneKernel(const AttentionShape& shape) {
    sink = AttentionGraph(graph, shape);
    params = RandomParams(sink, 1);
    schedule = Scheduled(scheduled, sink);
    OB_CHECK(schedule.kernels.size() == 1);
    for (const int i : schedule.kernels[0].buffers) {
      const schedule::ScheduledBuffer& buffer = schedule.buffers[i];
      start.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput)
        start.back() = params[buffer.index].bytes;
    }
  }
  const UOp* ast() const { return schedule.kernels[0].ast; }

  // Of the arguments after a run.
  std::vector<std::string> ResultsOf(const Buffers& buffers) const {
    std::vector<std::string> results(sink->src.size());
    for (size_t slot = 0; slot < buffers.size(); ++slot) {
      const schedule::ScheduledBuffer& buffer =
          schedule.buffers[schedule.kernels[0].buffers[slot]];
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kOutput)
        results[buffer.index] = buffers[slot];
    }
    return results;
  }

  Graph graph, scheduled;
  const UOp* sink;
  std::vector<HostTensor> params;
  schedule::Schedule schedule;
  Buffers start;
};

TEST(OnlineHopper, CausalMasks_LeaveTimesOut) {
  const auto steps = [](bool causal) {
    const OneKernel kernel(
        {.queries = 512, .keys = 512, .width = 64, .causal = causal, .dtype = DType::kBF16,
         .batch = 1});
    Buffers buffers = kernel.start;
    int64_t count = 0;
    RunAsProgram(kernel.ast(), ByGroups(kOneGroup), 1, buffers, &count);
    return static_cast<double>(count);
  };
  // Of eight tiles of rows, one sees one time, one two, ..., which have more instructions.
  const double part = steps(true) / steps(false);
  std::printf("instructions of causal attention: %.3f of all\n", part);
  EXPECT_LE(part, 0.68);
}

// A warp may be late for its turn by as much as the machine allows: one arrival for each warpgroup,
// which its other warps do not wait for, was found by this. Whatever the order, the result is the
// reference interpreter's, and to the bit that of every other order.
TEST(OnlineHopper, TurnsInManyOrders) {
  const OneKernel kernel(
      {.heads = 2, .queries = 150, .keys = 200, .width = 64, .dtype = DType::kBF16, .batch = 2});
  const auto compiled = CompileKernel(
      kernel.ast(),
      {.target = CudaTarget("sm_90a", kMultiprocessors), .opts = OptsOf(kTwoGroups)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const Results want = ValueOrDie(Interpret(kernel.sink, kernel.params));
  Buffers first;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Buffers buffers = kernel.start;
    ASSERT_EQ(RunOnPtxMachine(*compiled, buffers, {}, seed), absl::OkStatus());
    ExpectNear(want, kernel.ResultsOf(buffers));
    if (HasFatalFailure()) return;
    if (seed == 1) first = buffers;
    EXPECT_TRUE(buffers == first) << "other bytes than in the order of seed 1";
  }
}

struct PlantedMistake {
  const char* name;
  ProgramEdit edit;
  std::vector<Fault> faults;  // one of these, in every order
};

std::vector<PlantedMistake> Mistakes() {
  const auto other_parity = [](ProgramBuilder& b, Instruction& i) {
    i.src[2] = b.Plus(b.Int(1), b.Times(i.src[2], -1));
    return true;
  };
  const auto leaves_one_more = [](ProgramBuilder&, Instruction& i) {
    ++i.imm[0];
    return true;
  };
  const auto without_last = [](ProgramBuilder&, Instruction& i) {
    i.src.pop_back();
    return true;
  };
  const auto without_first = [](ProgramBuilder&, Instruction& i) {
    i.src.erase(i.src.begin());
    return true;
  };
  // In the program's order, where 1 is of the first iteration, 2 of the loop, and 3 of the end.
  // Waits: for empty stages of keys and values; for rows, keys 1, the turn, keys 2, values 2,
  // values 3. Fences: of scores 1 and 2, of sums and values 2 and 3; WGWAITs: for scores 1 and 2,
  // for sums 2 and 3. Arrivals: keys 1, the turn, keys 2, values 2, values 3.
  return {
      {"no WGFENCE of the first scores",
       Changing(Code::kWgFence, 0, Drop),
       {Fault::kAccumulator}},
      {"no WGFENCE of sums and values",
       Changing(Code::kWgFence, 2, Drop),
       {Fault::kAccumulator}},
      {"no WGFENCE of the last sums and values",
       Changing(Code::kWgFence, 3, Drop),
       {Fault::kAccumulator}},
      {"values are not fenced",
       Changing(Code::kWgFence, 2, without_last),
       {Fault::kAccumulator}},
      {"the first scores are not waited for",
       Changing(Code::kWgWait, 0, Drop),
       {Fault::kAccumulator, Fault::kRace}},
      {"scores are not waited for",
       Changing(Code::kWgWait, 1, Drop),
       {Fault::kAccumulator, Fault::kRace}},
      {"scores may be running while they are read",
       Changing(Code::kWgWait, 1, leaves_one_more),
       {Fault::kAccumulator, Fault::kRace}},
      {"sums are not waited for",
       Changing(Code::kWgWait, 2, Drop),
       {Fault::kAccumulator, Fault::kRace}},
      {"products may be running while sums are rescaled",
       Changing(Code::kWgWait, 2, leaves_one_more),
       {Fault::kAccumulator, Fault::kRace}},
      {"values are made again while a product reads them",
       Changing(Code::kWgWait, 2, without_last),
       {Fault::kAccumulator}},
      {"sums are rescaled with no wait for them",
       Changing(Code::kWgWait, 2, without_first),
       {Fault::kAccumulator}},
      {"the last products may be running at the end",
       Changing(Code::kWgWait, 3, leaves_one_more),
       {Fault::kAccumulator, Fault::kRace}},
      {"keys come before their stage is empty",
       Changing(Code::kMbWait, 0, Drop),
       {Fault::kRace, Fault::kMisuse}},
      {"values come before their stage is empty",
       Changing(Code::kMbWait, 1, Drop),
       {Fault::kRace, Fault::kMisuse}},
      {"rows are not waited for",
       Changing(Code::kMbWait, 2, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"the first keys are not waited for",
       Changing(Code::kMbWait, 3, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"keys are not waited for",
       Changing(Code::kMbWait, 5, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"values are not waited for",
       Changing(Code::kMbWait, 6, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"the last values are not waited for",
       Changing(Code::kMbWait, 7, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"the other parity of keys",
       Changing(Code::kMbWait, 5, other_parity),
       {Fault::kRace, Fault::kUninitialised, Fault::kEndlessWait}},
      {"the other parity of the last values",
       Changing(Code::kMbWait, 7, other_parity),
       {Fault::kRace, Fault::kUninitialised, Fault::kEndlessWait}},
      {"nobody has the first turn",
       Changing(Code::kMbWait, 4,
                [](ProgramBuilder& b, Instruction& i) {
                  i.src[2] = b.Int(0);
                  return true;
                }),
       {Fault::kEndlessWait}},
      {"the first keys are never released",
       Changing(Code::kMbArrive, 0, Drop),
       {Fault::kEndlessWait}},
      {"no turn is passed on", Changing(Code::kMbArrive, 1, Drop), {Fault::kEndlessWait}},
      {"keys are never released", Changing(Code::kMbArrive, 2, Drop), {Fault::kEndlessWait}},
      {"values are never released", Changing(Code::kMbArrive, 3, Drop), {Fault::kEndlessWait}},
      {"half of the bytes of rows are expected",
       Changing(Code::kMbExpect, 0,
                [](ProgramBuilder&, Instruction& i) {
                  i.imm[0] /= 2;
                  return true;
                }),
       {Fault::kEndlessWait, Fault::kRace, Fault::kUninitialised}},
      {"barriers are used before all know of them",
       Without(Code::kBarrier),
       {Fault::kRace, Fault::kUninitialised}},
      {"products are in no group",
       Without(Code::kWgCommit),
       {Fault::kAccumulator, Fault::kRace}},
      {"one of two warpgroups empties a stage",
       Changing(Code::kMbInit, 3,
                [](ProgramBuilder&, Instruction& i) {
                  i.imm[0] = 1;
                  return true;
                }),
       {Fault::kRace, Fault::kMisuse, Fault::kEndlessWait}},
  };
}

TEST(OnlineHopper, EveryPlantedMistake_IsFoundInEveryOrder) {
  constexpr OnlineTile kParts = {8, 1, 32, 2, true, 2};
  for (const auto& [width, tile] : {std::pair{64, kTwoGroups}, {128, kParts}}) {
    const OneKernel kernel({.queries = tile.parts == 1 ? 128 : 256,
                            .keys = 5 * tile.steps,
                            .width = width,
                            .dtype = DType::kBF16,
                            .batch = 1});
    const program::Program right = ProgramOf(kernel.ast(), ByGroups(tile));
    int found = 0;
    for (const PlantedMistake& planted : Mistakes()) {
      SCOPED_TRACE(testing::Message() << planted.name << ", " << tile.parts << " parts");
      const program::Program wrong = Edited(right, planted.edit);
      ASSERT_NE(wrong, right);
      bool every = true;
      for (uint32_t seed = 1; seed <= 3; ++seed) {
        Buffers buffers = kernel.start;
        const program::RunReport report = program::Interpret(wrong, buffers, {}, {.seed = seed});
        const bool expected = std::find(planted.faults.begin(), planted.faults.end(),
                                        report.fault) != planted.faults.end();
        EXPECT_TRUE(expected) << "seed " << seed << ": " << Name(report.fault) << ": "
                              << report.message;
        every = every && expected;
      }
      found += every;
    }
    std::printf("%d of %zu planted mistakes found\n", found, Mistakes().size());
  }
}

// Without Opts: by warpgroups where there is a block for each multiprocessor and boxes can copy all
// matrices.
TEST(OnlineHopper, ByDefault_WhereItFits) {
  constexpr int kFew = 8;
  const auto uses = [](const AttentionShape& shape, const char* arch, int multiprocessors) {
    const OneKernel kernel(shape);
    const auto compiled =
        CompileKernel(kernel.ast(), {.target = CudaTarget(arch, multiprocessors)});
    OB_CHECK_OK(compiled.status());
    return absl::StrContains(compiled->object, "wgmma.mma_async");
  };
  const AttentionShape fits = {.queries = 512, .keys = 512, .width = 64, .dtype = DType::kBF16};
  EXPECT_TRUE(uses(fits, "sm_90a", kFew));
  EXPECT_FALSE(uses(fits, "sm_90a", kMultiprocessors)) << "smaller tiles have more blocks";
  EXPECT_FALSE(uses(fits, "sm_90", kFew));
  AttentionShape other = fits;
  other.width = 80;
  EXPECT_FALSE(uses(other, "sm_90a", kFew)) << "no whole boxes of columns";
  other = fits;
  other.causal = true;
  other.dtype = DType::kF16;
  other.width = 128;
  EXPECT_TRUE(uses(other, "sm_90a", kFew));
}

TEST(OnlineHopper, OptsThatDoNotFit) {
  const OneKernel kernel({.queries = 256, .keys = 256, .width = 128, .dtype = DType::kBF16});
  const auto code = [&](const OnlineTile& tile, const char* arch = "sm_90a") {
    return CompileKernel(kernel.ast(), {.target = CudaTarget(arch, kMultiprocessors),
                                        .opts = OptsOf(tile)})
        .status()
        .code();
  };
  EXPECT_EQ(code(kTwoGroups), absl::StatusCode::kOk);
  EXPECT_EQ(code(kTwoGroups, "sm_90"), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({2, 1, 64, 2, true}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({8, 2, 64, 2, true}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({8, 1, 32, 2, true}), absl::StatusCode::kOk);
  EXPECT_EQ(code({8, 1, 64, 2, true, 2}), absl::StatusCode::kOk);
  EXPECT_EQ(code({8, 1, 64, 2, true, 4}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({8, 1, 16, 2, true}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({8, 1, 64, 3, true}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({8, 1, 128, 4, true}), absl::StatusCode::kResourceExhausted);
}

TEST(OnlineHopper, ATile_IsWhatItsAmountSays) {
  for (const OnlineTile& tile :
       {kOneGroup, kTwoGroups, OnlineTile{8, 1, 128, 4, true}, OnlineTile{4, 2, 64, 1},
        OnlineTile{8, 1, 16, 2}, OnlineTile{8, 1, 32, 2, true, 3},
        OnlineTile{2, 1, 16, 2, false, 2}})
    EXPECT_EQ(program::OnlineTileOf(program::OnlineAmount(tile)), tile);
  EXPECT_EQ(program::OnlineAmount({8, 1, 128, 2, true}), 10812812);
  EXPECT_EQ(program::OnlineAmount({8, 1, 32, 2, true, 2}), 110803212);
}

}  // namespace
}  // namespace outboard::test
