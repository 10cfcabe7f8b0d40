// Attention by matrix units of a GPU (compiler/program/online): programs in the interpreter, their
// PTX on the PTX machine, both against a walk of the kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/online/plan.h"
#include "compiler/proof/in_range.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/online_run.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

using program::OnlineTile;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

TEST(OnlineMma, MasksBiasesAndTypes) {
  for (const DType dtype : kTypes)
    for (const bool bias : {false, true})
      for (const bool causal : {false, true}) {
        CheckAttention({.heads = 2,
                        .queries = 96,
                        .keys = 96,
                        .width = 32,
                        .causal = causal,
                        .bias = bias,
                        .dtype = dtype,
                        .batch = 1});
        if (HasFatalFailure()) return;
      }
  // Sliding windows begin and end rows; where there are fewer keys than queries some see nothing.
  CheckAttention(
      {.queries = 128, .keys = 128, .width = 16, .band = 20, .dtype = DType::kBF16, .batch = 1});
  CheckAttention(
      {.queries = 150, .keys = 70, .width = 16, .band = 9, .dtype = DType::kBF16, .batch = 1});
}

// Rests of rows, steps and columns, and rows that cannot be copied 16 bytes at a time.
TEST(OnlineMma, ShapesThatNoTileDivides) {
  const int64_t sizes[][3] = {
      {70, 90, 24}, {37, 53, 20}, {65, 47, 10}, {33, 130, 9}, {50, 200, 40}};
  for (const auto& [queries, keys, width] : sizes)
    for (const bool causal : {false, true}) {
      CheckAttention({.queries = queries,
                      .keys = keys,
                      .width = width,
                      .causal = causal,
                      .bias = causal,
                      .dtype = DType::kBF16,
                      .batch = 1});
      if (HasFatalFailure()) return;
    }
}

TEST(OnlineMma, Widths) {
  for (const int64_t width : {48, 64, 80, 96, 128, 192, 256}) {
    CheckAttention({.queries = width + 20,
                    .keys = width + 4,
                    .width = width,
                    .causal = true,
                    .dtype = DType::kBF16,
                    .batch = 1},
                   {.interpreted = width < 128});
    if (HasFatalFailure()) return;
  }
}

// Loops over keys end where the rows of a tile see no more, and those over queries begin there.
TEST(OnlineMma, CausalMasksSaveHalfOfTheWork) {
  constexpr OnlineTile kTile = {1, 1, 16, 1};
  constexpr int64_t kLength = 256;
  const auto steps = [&](bool causal, bool backward) {
    Graph graph, g;
    const UOp* const sink = AttentionGraph(graph, {.queries = kLength,
                                                   .keys = kLength,
                                                   .width = 16,
                                                   .causal = causal,
                                                   .backward = backward,
                                                   .dtype = DType::kBF16,
                                                   .batch = 1});
    const std::vector<HostTensor> params = RandomParams(sink, 1);
    int64_t count = 0;
    RunSchedule(Scheduled(g, sink), params, sink->src.size(), [&](const UOp* ast, Buffers& own) {
      RunAsProgram(ast, {.tile = &kTile}, 1, own, &count);
    });
    return static_cast<double>(count);
  };
  for (const bool backward : {false, true}) {
    const double part = steps(true, backward) / steps(false, backward);
    std::printf("instructions of causal attention%s: %.3f of all\n",
                backward ? " and its gradients" : "", part);
    // Of 16 times 8.5 are run; a mask's comparisons come to what is computed of each score, which
    // is little, and least in gradients.
    EXPECT_LE(part, backward ? 0.75 : 0.65) << "backward " << backward;
  }
}

TEST(OnlineMma, Tiles) {
  const OnlineTile tiles[] = {{1, 1, 16, 1}, {1, 2, 32, 2},  {2, 1, 64, 1}, {2, 2, 16, 2},
                              {8, 1, 32, 2}, {4, 1, 128, 1}, {4, 2, 48, 2}};
  for (const OnlineTile& tile : tiles) {
    CheckAttention({.queries = 150,
                    .keys = 130,
                    .width = 16,
                    .causal = true,
                    .bias = true,
                    .dtype = DType::kBF16,
                    .batch = 1},
                   {.tile = &tile, .arch = "sm_80"});
    if (HasFatalFailure()) return;
  }
}

// Of 16 bits each row's sum over keys is one over columns, of which no kernel with scores has any
// (docs/decisions/227-sums-over-columns.md): results, gradients of queries, and those of keys.
TEST(OnlineMma, Gradients) {
  for (const bool causal : {false, true})
    for (const auto& [length, width] : {std::pair{72, 32}, {130, 64}, {140, 128}}) {
      CheckAttention({.queries = length,
                      .keys = length,
                      .width = width,
                      .causal = causal,
                      .backward = true,
                      .dtype = DType::kBF16,
                      .batch = 1},
                     {.interpreted = width < 64}, 3);
      if (HasFatalFailure()) return;
    }
  // Queries that see no key: their gradients are NaN, and so are those of all keys.
  CheckAttention({.queries = 90,
                  .keys = 40,
                  .width = 16,
                  .backward = true,
                  .band = 3,
                  .dtype = DType::kBF16,
                  .batch = 1},
                 {}, 3);
}

// Three products of TF32 for each of f32: within f32's bound. Tiles are those of the heuristic.
TEST(OnlineMma, F32) {
  for (const int64_t width : {48, 64, 80, 128})
    for (const bool causal : {false, true}) {
      CheckAttention({.queries = width + 20,
                      .keys = width + 37,
                      .width = width,
                      .causal = causal,
                      .bias = !causal,
                      .batch = 1},
                     {.interpreted = width == 64});
      if (HasFatalFailure()) return;
    }
  // Sliding windows begin and end rows; where there are fewer keys than queries some see nothing.
  CheckAttention({.queries = 150, .keys = 90, .width = 48, .band = 9, .batch = 1});
}

TEST(OnlineMma, F32Tiles) {
  const OnlineTile tiles[] = {
      {1, 1, 16, 1}, {2, 1, 48, 1}, {2, 1, 16, 2, false, 2}, {4, 1, 32, 1}, {8, 1, 16, 2}};
  for (const OnlineTile& tile : tiles) {
    CheckAttention({.queries = 90, .keys = 70, .width = 64, .causal = true, .batch = 1},
                   {.tile = &tile, .arch = "sm_80"});
    if (HasFatalFailure()) return;
  }
}

TEST(OnlineMma, F32Gradients) {
  for (const bool causal : {false, true})
    for (const auto& [length, width] : {std::pair{72, 64}, {140, 128}}) {
      CheckAttention({.queries = length,
                      .keys = length,
                      .width = width,
                      .causal = causal,
                      .backward = true,
                      .batch = 1},
                     {.interpreted = width == 64}, 2);
      if (HasFatalFailure()) return;
    }
}

// The columns of results are divided among blocks; sums of rows are stored by one of them.
TEST(OnlineMma, PartsOfColumns) {
  const OnlineTile tiles[] = {{2, 1, 16, 2, false, 2}, {1, 2, 32, 1, false, 4}};
  for (const OnlineTile& tile : tiles) {
    CheckAttention({.queries = 90,
                    .keys = 70,
                    .width = 64,
                    .causal = true,
                    .backward = true,
                    .dtype = DType::kBF16,
                    .batch = 1},
                   {.tile = &tile}, 3);
    if (HasFatalFailure()) return;
  }
  for (const int64_t width : {192, 256}) {
    CheckAttention({.queries = width + 4,
                    .keys = width + 4,
                    .width = width,
                    .causal = width == 256,
                    .backward = true,
                    .dtype = width == 256 ? DType::kBF16 : DType::kF16,
                    .batch = 1},
                   {.interpreted = false, .assembled = true}, 3);
    if (HasFatalFailure()) return;
  }
}

// What ptxas makes of the kernels that are chosen for large shapes, by mma.sync and by warpgroups.
TEST(OnlineMma, RegistersOfWhatIsChosen) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas";
  constexpr const char* kArches[] = {"sm_80", "sm_90", "sm_90a"};
  for (const char* const arch : kArches)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const int64_t width : {64, 128, 192, 256})
        for (const bool causal : {false, true}) {
          // Of f32 those of sm_90a are the same as of sm_90.
          if (dtype == DType::kF32 && (width > 128 || arch == kArches[2])) continue;
          Graph graph, g;
          const UOp* const sink = AttentionGraph(graph, {.heads = 12,
                                                         .queries = 1024,
                                                         .keys = 1024,
                                                         .width = width,
                                                         .causal = causal,
                                                         .backward = true,
                                                         .dtype = dtype});
          for (const schedule::ScheduledKernel& kernel : Scheduled(g, sink).kernels) {
            const CompileOptions options{.target = CudaTarget(arch, kMultiprocessors)};
            const auto compiled = CompileKernel(kernel.ast, options);
            ASSERT_TRUE(compiled.ok()) << compiled.status();
            const auto assembled = AssembleKernel(ptxas, compiled->object, arch);
            ASSERT_TRUE(assembled.ok()) << assembled.status();
            // Heads of 128 of f32 need a few registers more than there are, in some of the kernels.
            const int64_t spilled_max = dtype == DType::kF32 && width == 128 ? 64 : 0;
            EXPECT_LE(assembled->stack_bytes + assembled->spill_bytes, spilled_max)
                << arch << " " << Name(dtype) << " width " << width << " causal " << causal;
            EXPECT_FALSE(assembled->serialised);
            EXPECT_FALSE(assembled->ignored);
            std::printf("%s %s heads of %lld%s: %lld registers, %lld threads, %lld blocks%s\n",
                        arch, std::string(Name(dtype)).c_str(), static_cast<long long>(width),
                        causal ? ", causal" : "", static_cast<long long>(assembled->registers),
                        static_cast<long long>(compiled->threads[0]),
                        static_cast<long long>(compiled->blocks[0]),
                        absl::StrContains(compiled->object, "wgmma") ? ", by warpgroups" : "");
          }
        }
}

// The same bits in every run.
TEST(OnlineMma, EqualBits) {
  Graph g, h;
  const UOp* const sink = AttentionGraph(h, {.heads = 2,
                                             .queries = 96,
                                             .keys = 96,
                                             .width = 32,
                                             .causal = true,
                                             .backward = true,
                                             .dtype = DType::kBF16,
                                             .batch = 1});
  const auto schedule = Scheduled(g, sink);
  const std::vector<HostTensor> params = RandomParams(sink, 3);
  const auto run = [&] {
    return RunSchedule(schedule, params, 4,
                       [](const UOp* ast, Buffers& own) { RunAsPtx(ast, {}, own); });
  };
  EXPECT_EQ(run(), run());
}

size_t KernelsByCost(const UOp* sink, const char* arch) {
  Graph g;
  const Target target = CudaTarget(arch, kMultiprocessors);
  return ValueOrDie(schedule::MakeSchedule(g, sink, target, {},
                                           {.computes_scores =
                                                [&](const UOp* kernel) {
                                                  return program::ComputesScores(kernel, target);
                                                }}))
      .kernels.size();
}

// By default where matrix units compute both products; else scores are kept.
TEST(OnlineMma, ScoresAreRecomputedByCost) {
  const auto kernels = [](const AttentionShape& shape) {
    Graph g;
    return KernelsByCost(AttentionGraph(g, shape), "sm_90");
  };
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 64, .dtype = DType::kBF16}), 1u);
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 256, .dtype = DType::kF16}), 1u);
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 64}), 1u) << "f32";
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 128, .causal = true}), 1u);
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 256}), 3u) << "wide, of f32";
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 128, .backward = true}), 2u) << "f32";
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 272, .dtype = DType::kBF16}), 3u);
  for (const int64_t width : {128, 192, 256})
    EXPECT_EQ(
        kernels(
            {.queries = 512, .keys = 512, .width = width, .backward = true, .dtype = DType::kBF16}),
        2u)
        << width;
  Graph g;
  EXPECT_EQ(KernelsByCost(AttentionGraph(g, {.queries = 512, .keys = 512, .width = 64}), "sm_89"),
            3u)
      << "three products take more time there than threads";
}

// The client's operator: weights are rounded once, before their product.
TEST(OnlineMma, TheClientsOperator) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const auto input = [] { return Tensor::zeros({1, 2, 80, 32}, DType::kBF16).state_(); };
  realize(std::vector<Tensor>{
      scaled_dot_product_attention(input(), input(), input(), {.is_causal = true})});
  SetSession(nullptr);
  Graph g;
  const UOp* const sink = ValueOrDie(DecodeGraph(g, *session->last.graph));
  EXPECT_EQ(KernelsByCost(sink, "sm_80"), 1u);
  CheckGraph(sink, {}, 1);
}

// What a pass has computed is stored behind it; but what may lie over an input only when nothing
// reads that any more.
TEST(OnlineMma, StoresBehindThePassThatTheyNeed) {
  Graph g, h, guards;
  const AttentionShape shape{.queries = 96,
                             .keys = 96,
                             .width = 64,
                             .causal = true,
                             .backward = true,
                             .batch = 1};
  int later = 0;
  for (const schedule::ScheduledKernel& kernel : Scheduled(g, AttentionGraph(h, shape)).kernels) {
    const auto plan_of = [&](const UOp* ast) {
      return ValueOrDie(
          program::PlanOnline(*codegen::AnalyzeKernel(*proof::GuardUnproved(guards, ast)),
                                 CudaTarget("sm_90", kMultiprocessors), nullptr));
    };
    const auto plan = plan_of(kernel.ast);
    if (!plan || plan->online.phases.size() < 2) continue;  // sums over columns have none
    size_t first = plan->online.phases.size();
    for (const UOp* store : plan->kernel.stores) first = std::min(first, plan->PassOf(store));
    EXPECT_EQ(first, 0u) << "the result needs no second pass";
    // The same, each result over an input of its type that is read.
    for (size_t s = 0; s < kernel.ast->src.size(); ++s) {
      const UOp* const place = kernel.ast->src[s]->src[0];
      for (const UOp* node : PostOrder(kernel.ast)) {
        if (node->op != Op::kLoad || node->dtype != place->src[0]->dtype) continue;
        const UOp* const over = node->src[0]->src[0];
        if (GlobalOf(over).elements() != GlobalOf(place->src[0]).elements()) continue;
        const UOp* const in_place =
            Substitute(g, kernel.ast,
                       {{place, g.MakeChecked(Op::kIndex, DType::kVoid, {over, place->src[1]})}});
        const auto again = plan_of(in_place);
        ASSERT_TRUE(again.has_value());
        EXPECT_EQ(again->PassOf(again->kernel.stores[s]), again->online.phases.size() - 1);
        ++later;
        break;
      }
    }
  }
  EXPECT_GT(later, 0);
}

TEST(OnlineMma, OptsThatDoNotFit) {
  Graph g, h;
  const auto kernel =
      Scheduled(g,
                AttentionGraph(h, {.queries = 96, .keys = 96, .width = 64, .dtype = DType::kBF16}))
          .kernels[0]
          .ast;
  const auto code = [&](const OnlineTile& tile, const char* arch = "sm_90") {
    return CompileKernel(kernel,
                         {.target = CudaTarget(arch, kMultiprocessors), .opts = OptsOf(tile)})
        .status()
        .code();
  };
  EXPECT_EQ(code({4, 1, 64, 2}), absl::StatusCode::kOk);
  EXPECT_EQ(code({3, 1, 64, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 3, 64, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 40, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 64, 3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 64, 2, false, 4}), absl::StatusCode::kOk);
  EXPECT_EQ(code({4, 1, 64, 2, false, 3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 64, 2, false, 5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 128, 2}), absl::StatusCode::kOk);
  EXPECT_EQ(code({4, 1, 128, 2}, "sm_89"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({4, 2, 128, 1}), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::test
