// Attention without its matrix of scores (compiler/schedule/attention.h): that nothing of its size
// is kept, and that all numbers are those of the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/check.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/operands/panel_opts.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/schedule_programs.h"
#include "tests/support/device.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"

namespace outboard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Shape = AttentionShape;

const UOp* Attention(Graph& graph, const Shape& shape) { return AttentionGraph(graph, shape); }

schedule::Schedule Scheduled(Graph& graph, const UOp* sink, bool flash) {
  return ValueOrDie(schedule::MakeSchedule(
      graph, sink, TestTarget(), {},
      {.scores = flash ? schedule::ScorePolicy::kRecompute : schedule::ScorePolicy::kKeep}));
}

TEST(Attention, KeepsNothingOfTheSizeOfItsScores) {
  for (const bool backward : {false, true}) {
    int64_t arena[2];
    for (const int i : {0, 1}) {
      Graph g, kept;
      const int64_t time = 256 << i;
      const UOp* const sink = Attention(g, {.heads = 2,
                                            .queries = time,
                                            .keys = time,
                                            .width = 64,
                                            .causal = true,
                                            .backward = backward});
      const auto flash = Scheduled(g, sink, true), plain = Scheduled(kept, sink, false);
      EXPECT_EQ(flash.kernels.size(), backward ? 2 : 1);
      EXPECT_EQ(plain.kernels.size(), backward ? 8 : 3);
      arena[i] = flash.arena_bytes;
      const int64_t scores_bytes = 2 * 2 * time * time * 4;
      EXPECT_GE(plain.arena_bytes, scores_bytes);
      for (const schedule::ScheduledBuffer& buffer : flash.buffers)
        if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary) {
          EXPECT_LT(buffer.bytes(), scores_bytes / 16);
        }
      for (const schedule::ScheduledKernel& kernel : flash.kernels)
        EXPECT_EQ(proof::CheckInRange({kernel.ast}), absl::OkStatus());
    }
    EXPECT_LE(arena[1], 2 * arena[0]) << "memory grows with the length";
  }
}

TEST(Attention, SmallFloatsKeepNothingOfTheSizeOfTheirScores) {
  Target tiles = TestTarget();
  tiles.bf16 = Bf16Products::kTiles;
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const Target& target : {TestTarget(), tiles})
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)),
                                  target.bf16 == Bf16Products::kTiles ? ", tiles" : "",
                                  backward ? ", backward" : ""));
        constexpr int64_t kTime = 512, kHeads = 2, kBatch = 2;
        Graph g, h;
        const UOp* const sink = Attention(g, {.heads = kHeads,
                                              .queries = kTime,
                                              .keys = kTime,
                                              .width = 64,
                                              .causal = true,
                                              .backward = backward,
                                              .dtype = dtype,
                                              .batch = kBatch});
        const auto schedule = ValueOrDie(schedule::MakeSchedule(
            h, sink, target, {}, {.scores = schedule::ScorePolicy::kRecompute}));
        EXPECT_EQ(schedule.kernels.size(), backward ? 2 : 1) << ScheduleToString(schedule);
        for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
          if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary) {
            EXPECT_LT(buffer.elements, kBatch * kHeads * kTime * kTime / 16);
          }
      }
}

TEST(Attention, KernelsOfPrograms) {
  std::string kernels = "\n";
  for (const Program& program : Programs()) {
    if (program.name == "gpt_step_12_layers") continue;
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const auto flash = Scheduled(g, sink, true), plain = Scheduled(g, sink, false);
    if (ScheduleToString(flash) == ScheduleToString(plain)) continue;
    absl::StrAppend(&kernels, program.name, " ", plain.kernels.size(), " ", flash.kernels.size(),
                    "\n");
  }
  // Only those with attention, whatever else multiplies, sums and takes maxima.
  EXPECT_EQ(kernels, R"(
attention 3 1
attention_backward 8 2
transformer_block 11 9
transformer_block_backward 36 31
gpt_step_1_layer 50 45
gpt_step_2_layers 86 76
)");
}

std::vector<HostTensor> RandomParams(const UOp* sink, std::mt19937_64& random) {
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    tensor.bytes.resize(tensor.ElementCount() * ByteWidth(param->dtype));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i)
      StoreFloat(param->dtype, std::uniform_real_distribution<>(-2, 2)(random),
                 tensor.bytes.data() + i * ByteWidth(param->dtype));
    params.push_back(std::move(tensor));
  }
  return params;
}

Results Compiled(const UOp* sink, std::span<const HostTensor> params, int threads) {
  worker::InProcessCompiler compiler;
  const auto engine =
      worker::MakeCompiledEngine(&compiler, test::MakeDevice(int64_t{1} << 30, threads),
                                 {.scores = schedule::ScorePolicy::kRecompute});
  std::vector<worker::DeviceArrayPtr> inputs;
  for (const HostTensor& param : params) {
    const auto array = ValueOrDie(engine->NewArray(param.dtype, param.dims));
    test::SetBytes(*array, param.bytes);
    inputs.push_back(array);
  }
  const auto outputs =
      ValueOrDie(engine->Execute(ValueOrDie(EncodeGraph(sink)).id, sink, inputs, {}));
  Results results;
  for (const worker::DeviceArrayPtr& output : outputs)
    results.push_back({output->dtype, output->dims, test::BytesOf(*output)});
  return results;
}

// Within the documented bounds of the interpreter's results, and NaN where it says NaN.
void ExpectAsInterpreted(const UOp* sink, std::span<const HostTensor> params,
                         size_t kernels_below = 4) {
  const Results expected = ValueOrDie(Interpret(sink, params));
  const std::vector<ErrorInfo> bounds = InfosOfResults(sink, params);
  Graph g;
  const auto schedule = Scheduled(g, sink, true);
  ASSERT_LT(schedule.kernels.size(), kernels_below) << "the scores were kept";
  const Results results = Compiled(sink, params, 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(Difference(expected[i], results[i], bounds[i]), "") << "result " << i;
    const std::vector<double> want = FloatsOf(expected[i]), got = FloatsOf(results[i]);
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(std::isnan(want[k]), std::isnan(got[k])) << "result " << i << ", element " << k;
      if (std::isnan(want[k]) || expected[i].dtype != DType::kF32) continue;
      ASSERT_NEAR(want[k], got[k], 1e-5 * (1 + std::abs(want[k]))) << i << " " << k;
    }
  }
}

TEST(Attention, AsInterpreted) {
  const Shape shapes[] = {
      {.queries = 4, .keys = 5, .width = 2, .causal = true, .bias = true},
      {.queries = 16, .keys = 16, .width = 4},
      {.heads = 2, .queries = 33, .keys = 37, .width = 5},
      {.queries = 7, .keys = 50, .width = 3, .bias = true},
      {.heads = 3, .queries = 19, .keys = 19, .width = 8, .causal = true},
      {.queries = 65, .keys = 9, .width = 2, .causal = true, .bias = true},
      {.queries = 12, .keys = 40, .width = 1},
      {.queries = 131, .keys = 131, .width = 3, .causal = true},
      {.queries = 61, .keys = 150, .width = 2, .causal = true, .bias = true},
      {.queries = 101, .keys = 101, .width = 3, .band = 17},
      {.queries = 90, .keys = 40, .width = 2, .band = 3},  // some rows see nothing
  };
  std::mt19937_64 random(1);
  for (Shape shape : shapes)
    for (const bool backward : {false, true}) {
      shape.backward = backward;
      SCOPED_TRACE(absl::StrCat(shape.queries, " queries, ", shape.keys, " keys, width ",
                                shape.width, backward ? ", backward" : ""));
      Graph g;
      const UOp* const sink = Attention(g, shape);
      ExpectAsInterpreted(sink, RandomParams(sink, random));
    }
}

// Attention of f16 and bf16 is that of f32 behind casts.
TEST(Attention, SmallFloatsAsInterpreted) {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (Shape shape : {Shape{.queries = 33, .keys = 37, .width = 5},
                        Shape{.heads = 2, .queries = 61, .keys = 61, .width = 8, .causal = true},
                        Shape{.queries = 4, .keys = 2500, .width = 3}}) {
      shape.dtype = dtype;
      SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)), ", ", shape.keys, " keys"));
      Graph g;
      const UOp* const sink = Attention(g, shape);
      ExpectAsInterpreted(sink, RandomParams(sink, random), 2);
    }
}

// A kernel's plan as a program, interpreted after every pass: races, memory that was never written.
void ExpectProgramsAgree(const UOp* kernel, Buffers start, const std::vector<codegen::Opt>& opts,
                         codegen::LoopPlan& plan) {
  Buffers want = start;
  ASSERT_EQ(WalkKernel(kernel, want), absl::OkStatus());
  const Target target = TestTarget();
  const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(kernel), opts, target);
  ASSERT_TRUE(planned.ok()) << planned.status();
  plan = planned->plan;
  std::vector<program::PassResult> passes;
  const auto made = program::ExpandPlan(planned->kernel, planned->plan, &passes);
  ASSERT_TRUE(made.ok()) << made.status() << codegen::OptsToString(opts);
  for (const program::PassResult& pass : passes) {
    Buffers got = start;
    const program::RunReport report = program::Interpret(pass.program, got, {});
    ASSERT_TRUE(report.ok()) << pass.pass << ": " << report.message;
    ExpectClose(kernel, got, want, 2e-3);
    if (testing::Test::HasFatalFailure()) FAIL() << pass.pass << codegen::OptsToString(opts);
  }
}

TEST(Attention, PanelsAsPrograms) {
  int panels = 0, windows = 0;
  for (const Shape& shape :
       {Shape{.queries = 9, .keys = 19, .width = 3, .bias = true},
        Shape{.queries = 9, .keys = 19, .width = 3, .bias = true, .backward = true},
        Shape{.queries = 11, .keys = 11, .width = 2, .causal = true, .backward = true}}) {
    Graph g;
    const UOp* const sink = Attention(g, shape);
    const auto schedule = Scheduled(g, sink, true);
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      codegen::LoopPlan plan;
      ExpectProgramsAgree(kernel.ast, RandomBuffers(kernel.ast, 1),
                          codegen::HeuristicOpts(*codegen::AnalyzeKernel(kernel.ast), TestTarget()),
                          plan);
      panels += static_cast<int>(plan.panels.size());
      windows += plan.visible.range >= 0 ? 1 : 0;
    }
  }
  EXPECT_GE(panels, 2);
  EXPECT_EQ(windows, 2) << "each kernel with a causal mask leaves steps out";
}

// The same with running maxima, in blocks that do not divide the rows.
TEST(Attention, OnlineAsPrograms) {
  for (const Shape& shape :
       {Shape{.queries = 5, .keys = 29, .width = 2, .bias = true},
        Shape{.queries = 19, .keys = 19, .width = 2, .causal = true, .backward = true}}) {
    SCOPED_TRACE(shape.backward ? "backward" : "forward");
    Graph g;
    const auto schedule = Scheduled(g, Attention(g, shape), true);
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      codegen::LoopPlan plan;
      const std::vector<codegen::Opt> opts =
          codegen::OnlineOpts(*codegen::AnalyzeKernel(kernel.ast), TestTarget(), 4);
      ASSERT_FALSE(opts.empty());
      ExpectProgramsAgree(kernel.ast, RandomBuffers(kernel.ast, 1), opts, plan);
      EXPECT_LT(plan.online.block, shape.keys);
    }
  }
}

// A causal mask ends rows of keys, and begins rows of queries; a band does both.
TEST(Attention, MasksLeaveStepsOut) {
  const auto windows = [](const Shape& shape) {
    Graph g;
    std::string out;
    for (const schedule::ScheduledKernel& kernel :
         Scheduled(g, Attention(g, shape), true).kernels) {
      const auto planned = codegen::ApplyOpts(
          *codegen::AnalyzeKernel(kernel.ast),
          codegen::HeuristicOpts(*codegen::AnalyzeKernel(kernel.ast), TestTarget()), TestTarget());
      const codegen::VisibleSteps& visible = planned->plan.visible;
      absl::StrAppend(&out, visible.first.size(), " ", visible.last.size(), " ",
                      visible.guards.size(), "; ");
    }
    return out;
  };
  Shape shape{.queries = 64, .keys = 64, .width = 8, .bias = true, .backward = true};
  EXPECT_EQ(windows(shape), "0 0 0; 0 0 0; ");
  shape.causal = true;
  EXPECT_EQ(windows(shape), "0 1 0; 1 0 1; ");
  shape.causal = false;
  shape.band = 10;
  EXPECT_EQ(windows(shape), "1 1 0; 1 1 1; ");
}

// Result and gradients in one pass each, but for those of the queries, which wait for a sum.
TEST(Attention, OnlinePhases) {
  Graph g;
  const UOp* const sink =
      Attention(g, {.queries = 64, .keys = 64, .width = 8, .causal = true, .backward = true});
  std::vector<size_t> phases;
  for (const schedule::ScheduledKernel& kernel : Scheduled(g, sink, true).kernels) {
    const auto planned = codegen::ApplyOpts(
        *codegen::AnalyzeKernel(kernel.ast),
        codegen::OnlineOpts(*codegen::AnalyzeKernel(kernel.ast), TestTarget(), 16), TestTarget());
    ASSERT_TRUE(planned.ok()) << planned.status();
    phases.push_back(planned->plan.online.phases.size());
  }
  EXPECT_EQ(phases, (std::vector<size_t>{2, 1}));
}

// Rows too long for panels of whole ones.
TEST(Attention, LongRowsAsInterpreted) {
  const Shape shapes[] = {
      {.queries = 3, .keys = 2111, .width = 2},
      {.queries = 5, .keys = 2053, .width = 2, .causal = true, .bias = true, .backward = true},
      {.queries = 4, .keys = 2500, .width = 3, .dtype = DType::kBF16},
      {.queries = 6, .keys = 9001, .width = 4, .bias = true, .backward = true},
  };
  std::mt19937_64 random(5);
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(absl::StrCat(shape.keys, " keys"));
    Graph g;
    const UOp* const sink = Attention(g, shape);
    ExpectAsInterpreted(sink, RandomParams(sink, random));
  }
}

// The mean loss of labels, from products of rows and the weights of classes, and its gradients.
const UOp* CrossEntropy(Graph& graph, int64_t rows, int64_t classes, int64_t width) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const Tensor x = Tensor::zeros({rows, width}).requires_grad_();
  const Tensor weights = Tensor::zeros({classes, width}).requires_grad_();
  const Tensor labels = Tensor::arange(rows) * 7 % classes;
  const Tensor loss = x.matmul(weights.transpose()).sparse_categorical_crossentropy(labels);
  std::vector<Tensor> results = {loss};
  for (const Tensor& gradient : loss.gradient({x, weights})) results.push_back(gradient);
  realize(results);
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

TEST(Attention, LogitsAsInterpreted) {
  std::mt19937_64 random(6);
  for (const auto& [rows, classes] : {std::pair{37, 211}, {19, 3001}}) {
    SCOPED_TRACE(absl::StrCat(rows, " rows, ", classes, " classes"));
    Graph g, h;
    const UOp* const sink = CrossEntropy(g, rows, classes, 5);
    ExpectAsInterpreted(sink, RandomParams(sink, random), 6);
    for (const schedule::ScheduledBuffer& buffer : Scheduled(h, sink, true).buffers)
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary) {
        EXPECT_LT(buffer.elements, rows * classes) << "logits are kept";
      }
  }
}

// Where it takes less time; else scores are kept.
TEST(Attention, ScoresAreRecomputedByCost) {
  const auto kernels = [](const UOp* sink, const Target& target) {
    Graph g;
    return ValueOrDie(schedule::MakeSchedule(g, sink, target)).kernels.size();
  };
  const auto attention = [&](int64_t length, bool causal, bool backward, int64_t width) {
    Graph g;
    return kernels(Attention(g, {.queries = length,
                                 .keys = length,
                                 .width = width,
                                 .causal = causal,
                                 .backward = backward}),
                   TestTarget());
  };
  EXPECT_EQ(attention(127, true, false, 64), 3u);
  EXPECT_EQ(attention(128, true, false, 64), 1u);
  EXPECT_EQ(attention(1024, false, false, 256), 3u);
  EXPECT_EQ(attention(255, true, true, 64), 8u);
  EXPECT_EQ(attention(256, true, true, 64), 2u);
  EXPECT_EQ(attention(1000, false, true, 64), 8u);
  EXPECT_EQ(attention(1024, false, true, 64), 2u);
  EXPECT_EQ(attention(1024, false, true, 256), 8u);
  Graph g, h, i;
  EXPECT_EQ(kernels(CrossEntropy(g, 512, 9000, 64), TestTarget()),
            kernels(CrossEntropy(h, 1024, 32000, 768), TestTarget()));
  EXPECT_LT(kernels(CrossEntropy(i, 1024, 32000, 256), TestTarget()),
            kernels(CrossEntropy(h, 1024, 32000, 768), TestTarget()));
  Target blocks = TestTarget();
  blocks.block_threads = 64;
  Target tiles = TestTarget();
  tiles.bf16 = Bf16Products::kTiles;
  const UOp* const sink = Attention(g, {.queries = 512, .keys = 512, .width = 64, .causal = true});
  EXPECT_EQ(kernels(sink, blocks), 3u) << "blocks of threads have no panels";
  EXPECT_EQ(kernels(sink, tiles), 1u);
  const UOp* const bf16 = Attention(
      i, {.queries = 512, .keys = 512, .width = 64, .causal = true, .dtype = DType::kBF16});
  EXPECT_EQ(kernels(bf16, tiles), 3u) << "panels do without the matrix unit";
  EXPECT_EQ(kernels(bf16, TestTarget()), 1u);
  const auto small = [&](int64_t length, bool causal, bool backward, const Target& target) {
    Graph graph;
    return kernels(Attention(graph, {.queries = length,
                                     .keys = length,
                                     .width = 64,
                                     .causal = causal,
                                     .backward = backward,
                                     .dtype = DType::kF16,
                                     .batch = 1}),
                   target);
  };
  EXPECT_EQ(small(127, true, false, TestTarget()), 3u);
  EXPECT_EQ(small(128, true, false, tiles), 1u) << "no tiles for f16";
  EXPECT_EQ(small(1024, false, false, TestTarget()), 3u) << "casts cost what is saved";
  EXPECT_GT(small(256, true, true, TestTarget()), 2u);
  EXPECT_EQ(small(512, true, true, TestTarget()), 2u);
  EXPECT_EQ(small(8192, false, false, TestTarget()), 1u) << "256 MiB of scores";
  const UOp* const long_rows =
      Attention(h, {.queries = 8192, .keys = 8192, .width = 64, .dtype = DType::kBF16, .batch = 1});
  EXPECT_EQ(kernels(long_rows, tiles), 1u) << "256 MiB of scores";
}

// Without panels a kernel of scores would compute them again for each element of its results.
TEST(Attention, WhateverIsRecomputedHasPanels) {
  struct Case {
    const char* name;
    Dims query, key;
    DType dtype = DType::kF32;
    AttentionOptions options = {};
    bool capped = false;
  };
  const Dims wide = {2, 4, 300, 48};
  const Case cases[] = {
      {"plain", wide, wide},
      {"causal", wide, wide, DType::kF32, {.is_causal = true}},
      {"no heads", {300, 48}, {300, 48}, DType::kF32, {.is_causal = true}},
      {"three axes", {3, 300, 48}, {3, 300, 48}},
      {"other keys", {2, 4, 137, 48}, {2, 4, 1031, 48}},
      {"few queries", {2, 4, 50, 48}, {2, 4, 3000, 48}},
      {"long", {1, 1, 9000, 48}, {1, 1, 9000, 48}, DType::kF32, {.is_causal = true}},
      {"groups", {2, 8, 300, 48}, {2, 2, 300, 48}, DType::kF32, {.enable_gqa = true}},
      {"dropout", wide, wide, DType::kF32, {.dropout_p = 0.1, .is_causal = true}},
      {"bf16", wide, wide, DType::kBF16, {.is_causal = true}},
      {"f16", wide, wide, DType::kF16},
      {"f64", wide, wide, DType::kF64, {.is_causal = true}},
      {"capped", wide, wide, DType::kF32, {}, true},
      {"broad", {1, 2, 2048, 512}, {1, 2, 2048, 512}, DType::kF32, {.is_causal = true}},
  };
  int recomputed = 0;
  for (const Case& test : cases)
    for (const bool backward : {false, true})
      for (const bool masked : {false, true}) {
        SCOPED_TRACE(
            absl::StrCat(test.name, backward ? ", backward" : "", masked ? ", masked" : ""));
        if (masked && test.options.is_causal) continue;
        const auto session = std::make_shared<FakeSession>();
        session->evaluate = false;
        SetSession(session);
        const auto leaf = [&](const Dims& dims) {
          return Tensor::zeros(dims, test.dtype).requires_grad_();
        };
        const Tensor q = leaf(test.query), k = leaf(test.key), v = leaf(test.key);
        AttentionOptions options = test.options;
        const int64_t rows = test.query[test.query.size() - 2];
        const int64_t keys = test.key[test.key.size() - 2];
        if (masked) options.mask = Tensor::zeros({rows, keys}, DType::kBool).state_();
        Tensor out;
        if (test.capped) {
          Tensor scores = (q.matmul(k.transpose()) * 0.02).tanh() * 50;
          if (masked) scores = options.mask.where(scores, -kInfinity);
          out = scores.softmax().matmul(v);
        } else {
          out = scaled_dot_product_attention(q, k, v, options);
        }
        std::vector<Tensor> results = {out};
        if (backward)
          for (const Tensor& gradient :
               out.gradient({q, k, v}, Tensor::zeros(out.shape(), test.dtype).state_()))
            results.push_back(gradient);
        realize(results);
        Graph g, h;
        const UOp* const sink = ValueOrDie(DecodeGraph(g, *session->last.graph));
        SetSession(nullptr);
        const auto schedule = ValueOrDie(schedule::MakeSchedule(h, sink, TestTarget()));
        for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
          const auto nest = codegen::AnalyzeKernel(kernel.ast);
          ASSERT_TRUE(nest.ok()) << nest.status();
          const bool nested = std::any_of(nest->groups.begin(), nest->groups.end(),
                                          [&](const codegen::ReduceGroup& group) {
                                            return (group.deps & ~nest->OutputSet()) != 0;
                                          });
          if (!nested) continue;
          ++recomputed;
          const auto opts = codegen::PanelOpts(*nest, TestTarget());
          EXPECT_FALSE(opts.empty()) << schedule::ScheduleToString(schedule);
        }
      }
  EXPECT_GE(recomputed, 30);
}

// A row that is masked everywhere, one with a NaN, one with a score of +infinity.
TEST(Attention, RowsThatAreNoNumbers) {
  for (int variant = 0; variant < 8; ++variant) {
    const bool backward = variant & 1, causal = variant & 2, online = variant & 4;
    SCOPED_TRACE(absl::StrCat(backward ? "backward " : "", causal ? "causal" : ""));
    Graph g;
    const Shape shape{.queries = 20,
                      .keys = online ? 2060 : 24,
                      .width = 4,
                      .causal = causal,
                      .bias = true,
                      .backward = backward};
    const UOp* const sink = Attention(g, shape);
    std::mt19937_64 random(2);
    std::vector<HostTensor> params = RandomParams(sink, random);
    for (HostTensor& param : params) {
      if (param.dims != std::vector<int64_t>{shape.queries, shape.keys}) continue;
      const auto set = [&](int64_t row, int64_t key, double value) {
        StoreFloat(DType::kF32, value, param.bytes.data() + 4 * (row * shape.keys + key));
      };
      for (int64_t key = 0; key < shape.keys; ++key) set(3, key, -kInfinity);
      set(5, 7, std::nan(""));
      set(9, 0, kInfinity);
      for (int64_t key = 1; key < shape.keys; ++key) set(11, key, -kInfinity);
    }
    ExpectAsInterpreted(sink, params);
  }
}

TEST(Attention, AnyNumberOfThreadsGivesTheSameBits) {
  Graph g;
  const UOp* const sink = Attention(
      g, {.heads = 3, .queries = 70, .keys = 70, .width = 8, .causal = true, .backward = true});
  std::mt19937_64 random(3);
  const std::vector<HostTensor> params = RandomParams(sink, random);
  const Results one = Compiled(sink, params, 1), three = Compiled(sink, params, 3);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].bytes, three[i].bytes) << i;
}

// Panels change speed only: any that are legal, and none.
TEST(Attention, PanelsAreOpts) {
  Graph g, h;
  const UOp* const sink = Attention(g, {.queries = 21, .keys = 18, .width = 4, .causal = true});
  const auto schedule = Scheduled(h, sink, true);
  ASSERT_EQ(schedule.kernels.size(), 1u);
  const UOp* const kernel = schedule.kernels[0].ast;
  std::mt19937_64 random(4);
  Buffers inputs;
  for (const int b : schedule.kernels[0].buffers) {
    inputs.emplace_back(schedule.buffers[b].bytes(), '\0');
    for (int64_t i = 0; i < schedule.buffers[b].elements; ++i)
      StoreFloat(DType::kF32, std::uniform_real_distribution<>(-2, 2)(random),
                 inputs.back().data() + 4 * i);
  }
  Buffers expected = inputs;
  ValueOrDie(LoadedKernel::Load(ValueOrDie(CompileKernel(kernel, {.no_opt = true}))))
      ->RunGuarded(expected);
  for (const char* const text :
       {"", "PANEL:0:1", "PANEL:2:5", "VECTOR:1:4 UPCAST:1:2 PANEL:0:18 PANEL:1:7",
        "VECTOR:1:8 UPCAST:2:3 THREAD:0:2 PANEL:0:4 PANEL:1:4 PANEL:2:4", "SWAP:1:2 PANEL:1:2",
        "VECTOR:2:4 PANEL:0:3 PANEL:2:3", "UPCAST:1:3 THREAD:0:1 LOCAL:1:2 PANEL:0:6",
        "ONLINE:4:6 PANEL:0:1", "ONLINE:4:5 VECTOR:1:4 UPCAST:2:3 THREAD:0:2 PANEL:0:5 PANEL:1:1",
        "ONLINE:4:1 UPCAST:1:2 PANEL:1:1"}) {
    SCOPED_TRACE(text);
    const auto compiled = CompileKernel(kernel, {.opts = ValueOrDie(codegen::ParseOpts(text))});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Buffers actual = inputs;
    ValueOrDie(LoadedKernel::Load(*compiled))->RunGuarded(actual, 2);
    for (size_t i = 0; i < expected[0].size(); i += 4)
      ASSERT_NEAR(LoadFloat(DType::kF32, expected[0].data() + i),
                  LoadFloat(DType::kF32, actual[0].data() + i), 1e-5);
  }
  for (const char* const text :
       {"PANEL:3:1", "PANEL:-1:1", "PANEL:0:0", "PANEL:0:19", "PANEL:1:1 PANEL:0:1",
        "PANEL:0:1 PANEL:0:1", "ONLINE:4:6", "ONLINE:4:18 PANEL:0:1", "PANEL:0:1 ONLINE:4:6",
        "ONLINE:0:6 PANEL:0:1", "ONLINE:4:6 PANEL:0:4"})
    EXPECT_EQ(CompileKernel(kernel, {.opts = ValueOrDie(codegen::ParseOpts(text))}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
}

}  // namespace
}  // namespace outboard::test
