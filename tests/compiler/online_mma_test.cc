// Attention by matrix units of a GPU (compiler/program/online): programs in the interpreter, their
// PTX on the PTX machine, both against a walk of the kernel.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "base/check.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/program/online/plan.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/online_run.h"

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
    EXPECT_LE(part, 0.65) << "backward " << backward;
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
                     {.interpreted = width < 64}, 2);
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
                 {}, 2);
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
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 64}), 3u) << "f32";
  EXPECT_EQ(kernels({.queries = 512, .keys = 512, .width = 272, .dtype = DType::kBF16}), 3u);
  // One casts the gradient of the result.
  EXPECT_EQ(
      kernels({.queries = 512, .keys = 512, .width = 128, .backward = true, .dtype = DType::kBF16}),
      3u);
  EXPECT_GT(
      kernels({.queries = 512, .keys = 512, .width = 256, .backward = true, .dtype = DType::kBF16}),
      3u)
      << "sums of two gradients of such a width have no room in registers";
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

TEST(OnlineMma, OptsThatDoNotFit) {
  Graph g, h;
  const auto kernel =
      Scheduled(g,
                AttentionGraph(h, {.queries = 96, .keys = 96, .width = 64, .dtype = DType::kBF16}))
          .kernels[0]
          .ast;
  const auto code = [&](const OnlineTile& tile) {
    return CompileKernel(kernel,
                         {.target = CudaTarget("sm_90", kMultiprocessors), .opts = OptsOf(tile)})
        .status()
        .code();
  };
  EXPECT_EQ(code({4, 1, 64, 2}), absl::StatusCode::kOk);
  EXPECT_EQ(code({3, 1, 64, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 3, 64, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 40, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 64, 3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({4, 1, 128, 2}), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({4, 2, 128, 1}), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::test
