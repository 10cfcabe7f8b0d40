// The compiled engine against the reference engine, and what it does with plans, memory and
// failures.
#include "worker/engine/engine.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/failed_node.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gtest/gtest.h"
#include "tests/support/device.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"

namespace outboard::worker {
namespace {

// The first n rows of a table, twice over, and their sum; n is VAR 0.
const UOp* Rows(Graph& g) {
  const UOp* const table = Param(g, 0, DType::kF32, {Dim(9), Dim(5)});
  const UOp* const rows = Shrink(g, table, {Dim(0), Dim(Var(g, 0, 0, 9)), Dim(0), Dim(5)});
  return Sink(g, {Add(g, rows, rows), Reduce(g, Op::kAdd, rows, {0})});
}

// Counts what is compiled; refuses everything while `refuse`.
class CountingCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    if (refuse)
      return {kernels.size(), absl::ResourceExhaustedError("the compiler ended by signal 6")};
    compiled += static_cast<int>(kernels.size());
    return compiler_.Compile(kernels);
  }
  const Target& target() const override { return compiler_.target(); }
  bool refuse = false;
  int compiled = 0;

 private:
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
};

DeviceArrayPtr Floats(Engine& engine, std::vector<int64_t> dims, unsigned seed) {
  std::shared_ptr<DeviceArray> array = *engine.NewArray(DType::kF32, std::move(dims));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(array->bytes() / 4));
  for (float& value : values) value = uniform(random);
  test::SetFloats(*array, values);
  return array;
}

// relu(x @ w + b) and its sum: f32[m, k], f32[k, n], f32[n].
const UOp* Layer(Graph& g, int64_t m, int64_t k, int64_t n) {
  const UOp* const x =
      Expand(g, Reshape(g, Param(g, 0, DType::kF32, {m, k}), {m, k, 1}), {m, k, n});
  const UOp* const w =
      Expand(g, Reshape(g, Param(g, 1, DType::kF32, {k, n}), {1, k, n}), {m, k, n});
  const UOp* const b = Expand(g, Reshape(g, Param(g, 2, DType::kF32, {n}), {1, n}), {m, n});
  const UOp* const product = Reshape(g, Reduce(g, Op::kAdd, Mul(g, x, w), {1}), {m, n});
  const UOp* const sum = Add(g, product, b);
  const UOp* const relu = Alu(g, Op::kMax, sum, Full(g, ConstFloat(g, DType::kF32, 0), sum->shape));
  return Sink(g, {relu, Reduce(g, Op::kAdd, relu, {0, 1})});
}

class EngineTest : public ::testing::Test {
 protected:
  CountingCompiler compiler_;
  std::unique_ptr<Engine> compiled_ =
      MakeCompiledEngine(&compiler_, test::MakeDevice(1 << 26, 2), {});
  std::unique_ptr<Engine> reference_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
};

TEST_F(EngineTest, CompiledEqualsReference) {
  Graph g;
  const UOp* const sink = Layer(g, 17, 33, 29);
  const GraphId id = EncodeGraph(sink)->id;
  std::vector<std::vector<DeviceArrayPtr>> results;
  for (Engine* engine : {compiled_.get(), reference_.get()}) {
    const std::vector<DeviceArrayPtr> inputs = {
        Floats(*engine, {17, 33}, 1), Floats(*engine, {33, 29}, 2), Floats(*engine, {29}, 3)};
    auto out = engine->Execute(id, sink, inputs, {});
    ASSERT_TRUE(out.ok()) << out.status();
    results.push_back(*std::move(out));
  }
  ASSERT_EQ(results[0].size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(results[0][r]->dims, results[1][r]->dims);
    ASSERT_EQ(results[0][r]->dtype, results[1][r]->dtype);
    const std::vector<float> a = test::FloatsOf(*results[0][r]);
    const std::vector<float> b = test::FloatsOf(*results[1][r]);
    for (int64_t i = 0; i < results[0][r]->bytes() / 4; ++i)
      ASSERT_NEAR(a[i], b[i], 1e-4 * (1 + std::fabs(b[i])));
  }
  EXPECT_GT(compiled_->stats().kernels_launched, 0u);
}

TEST_F(EngineTest, OnePlanForEveryBinding) {
  Graph g;
  const UOp* const sink = Rows(g);
  const GraphId id = EncodeGraph(sink)->id;
  for (int64_t n = 0; n <= 9; ++n) {
    const Binding binding{0, n};
    std::vector<std::vector<DeviceArrayPtr>> results;
    for (Engine* engine : {compiled_.get(), reference_.get()}) {
      auto out = engine->Execute(id, sink, {Floats(*engine, {9, 5}, 1)}, {&binding, 1});
      ASSERT_TRUE(out.ok()) << out.status();
      results.push_back(*std::move(out));
    }
    EXPECT_EQ(results[0][0]->dims, (std::vector<int64_t>{n, 5}));
    for (size_t r = 0; r < 2; ++r)
      for (int64_t i = 0; i < results[1][r]->bytes() / 4; ++i)
        EXPECT_NEAR(test::FloatsOf(*results[0][r])[i], test::FloatsOf(*results[1][r])[i], 1e-5);
  }
  EXPECT_EQ(compiled_->stats().plans_made, 1u);
  EXPECT_LE(compiler_.compiled, 2);
}

TEST_F(EngineTest, BindingsAreChecked) {
  Graph g;
  const UOp* const sink = Rows(g);
  const GraphId id = EncodeGraph(sink)->id;
  const UOp* const of_length =
      Sink(g, {Alu(g, Op::kNeg, Param(g, 0, DType::kF32, {Dim(Var(g, 0, 0, 9))}))});
  const std::vector<std::vector<Binding>> wrong = {
      {}, {{0, 10}}, {{0, -1}}, {{1, 3}}, {{0, 3}, {0, 4}}};
  for (Engine* engine : {compiled_.get(), reference_.get()}) {
    for (const std::vector<Binding>& bindings : wrong) {
      const auto out = engine->Execute(id, sink, {Floats(*engine, {9, 5}, 1)}, bindings);
      EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << out.status();
      EXPECT_NE(std::string(out.status().message()).find("VAR 0"), std::string::npos);
    }
    // An input within the range, but not of the length that is bound: else it would be read beyond.
    const Binding six{0, 6};
    const auto out = engine->Execute(GraphId{}, of_length, {Floats(*engine, {5}, 1)}, {&six, 1});
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << out.status();
  }
}

TEST_F(EngineTest, PlansAndProgramsAreKept) {
  Graph g;
  const UOp* const sink = Layer(g, 4, 4, 4);
  const GraphId id = EncodeGraph(sink)->id;
  const std::vector<DeviceArrayPtr> inputs = {
      Floats(*compiled_, {4, 4}, 1), Floats(*compiled_, {4, 4}, 2), Floats(*compiled_, {4}, 3)};
  std::string first;
  for (int step = 0; step < 3; ++step) {
    auto out = compiled_->Execute(id, sink, inputs, {});
    ASSERT_TRUE(out.ok()) << out.status();
    const std::string bytes = test::BytesOf(*(*out)[0]);
    if (step == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
  const int compiled = compiler_.compiled;
  EXPECT_GT(compiled, 0);
  // The same graph under another id, as after the plan was dropped: its kernels are known.
  ASSERT_TRUE(compiled_->Execute(GraphId{}, sink, inputs, {}).ok());
  EXPECT_EQ(compiler_.compiled, compiled);
}

TEST_F(EngineTest, AFailedCompilationIsSaidAndCanBeTriedAgain) {
  Graph g;
  const UOp* const sink = Layer(g, 4, 4, 4);
  const GraphId id = EncodeGraph(sink)->id;
  const std::vector<DeviceArrayPtr> inputs = {
      Floats(*compiled_, {4, 4}, 1), Floats(*compiled_, {4, 4}, 2), Floats(*compiled_, {4}, 3)};
  compiler_.refuse = true;
  const absl::Status refused = compiled_->Execute(id, sink, inputs, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  // It is about the first result: the only one of a MAX.
  const std::optional<FailedNode> node = FailedNodeOf(refused);
  ASSERT_TRUE(node.has_value());
  EXPECT_EQ(node->op, "MAX");
  EXPECT_EQ(PostOrder(sink)[node->index], sink->src[0]);
  compiler_.refuse = false;
  EXPECT_TRUE(compiled_->Execute(id, sink, inputs, {}).ok());
}

TEST_F(EngineTest, Errors) {
  Graph g;
  const UOp* const sink = Layer(g, 4, 4, 4);
  for (Engine* engine : {compiled_.get(), reference_.get()}) {
    SCOPED_TRACE(engine->kind());
    const DeviceArrayPtr x = Floats(*engine, {4, 4}, 1), b = Floats(*engine, {4}, 2),
                         odd = Floats(*engine, {3}, 3);
    EXPECT_EQ(engine->Execute(GraphId{}, sink, std::vector{x, x}, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(engine->Execute(GraphId{}, sink, std::vector{x, x, odd}, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(engine->NewArray(DType::kF32, {1 << 30}).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(engine->NewArray(DType::kF32, {-1}).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(engine->NewArray(DType::kF64, {int64_t{1} << 40, int64_t{1} << 40}).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

// A graph whose results exceed the memory: said, and nothing is left behind.
TEST_F(EngineTest, MemoryComesBackAfterAFailure) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {1});
  const auto wide = [&](float by) {
    return Expand(g, Mul(g, x, Full(g, ConstFloat(g, DType::kF32, by), x->shape)), {10 << 20});
  };
  const UOp* const sink = Sink(g, {wide(2), wide(3)});  // 40 MiB each, of 64
  const DeviceArrayPtr one = Floats(*compiled_, {1}, 1);
  EXPECT_EQ(compiled_->Execute(EncodeGraph(sink)->id, sink, std::vector{one}, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(compiled_->NewArray(DType::kF32, {10 << 20}).ok());
}

// Before anything is launched: what it needs, what is free, and the largest arrays.
TEST_F(EngineTest, ARunWithoutRoom_SaysWhatItNeedsAndWhatIsFree) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {1});
  const auto wide = [&](float by, int64_t n) {
    return Expand(g, Mul(g, x, Full(g, ConstFloat(g, DType::kF32, by), x->shape)), {n});
  };
  const UOp* const sink = Sink(g, {wide(2, 1 << 20), wide(3, 20 << 20)});  // 4 and 80 MiB, of 64
  const DeviceArrayPtr one = Floats(*compiled_, {1}, 1);
  const absl::Status status =
      compiled_->Execute(EncodeGraph(sink)->id, sink, std::vector{one}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* words : {"needs 84.0 MiB (88080512 bytes)", "free are 6", "limit",
                            "largest: result 1, f32[20971520]: 80.0 MiB", "result 0, f32[1048576]"})
    EXPECT_NE(status.message().find(words), std::string::npos) << words << " in " << status;
  EXPECT_EQ(compiled_->stats().kernels_launched, 0u);
  const std::optional<FailedNode> node = FailedNodeOf(status);
  ASSERT_TRUE(node.has_value());
  EXPECT_EQ(PostOrder(sink)[node->index], sink->src[1]);
  EXPECT_TRUE(compiled_->NewArray(DType::kF32, {10 << 20}).ok());
}

// Temporaries that do not fit: the message is about all of them, the node is a result that they are
// for.
TEST_F(EngineTest, TemporariesThatDoNotFit) {
  Graph g;
  const auto kept = [&](const UOp* x) { return g.MakeChecked(Op::kContiguous, DType::kVoid, {x}); };
  const UOp* const one = Param(g, 0, DType::kF32, {1});
  const UOp* const first =
      kept(Alu(g, Op::kExp2,
               Add(g, Expand(g, one, {10 << 20}),
                   Cast(g, Iota(g, DType::kI32, Dim(10 << 20)), DType::kF32))));
  const UOp* const second = kept(Add(g, first, Flip(g, first, {0})));
  const UOp* const sink = Sink(
      g, {Alu(g, Op::kNeg, one), Reduce(g, Op::kAdd, Mul(g, second, Flip(g, second, {0})), {0})});
  const absl::Status status =
      compiled_->Execute(EncodeGraph(sink)->id, sink, {Floats(*compiled_, {1}, 1)}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("temporary values together"), std::string::npos) << status;
  const std::optional<FailedNode> node = FailedNodeOf(status);
  ASSERT_TRUE(node.has_value());
  EXPECT_EQ(PostOrder(sink)[node->index], sink->src[1]);
}

class DonationTest : public EngineTest {
 protected:
  // x - y / 2, y * 2.
  const UOp* Update(int64_t n) {
    const UOp *const x = Param(g_, 0, DType::kF32, {n}), *const y = Param(g_, 1, DType::kF32, {n});
    const auto by = [&](double v) { return Full(g_, ConstFloat(g_, DType::kF32, v), x->shape); };
    return Sink(g_, {Add(g_, x, Mul(g_, y, by(-0.5))), Mul(g_, y, by(2))});
  }
  std::vector<DeviceArrayPtr> Run(const UOp* sink, std::vector<DeviceArrayPtr> inputs,
                                  const std::vector<int64_t>& donated) {
    auto results = compiled_->Execute(EncodeGraph(sink)->id, sink, std::move(inputs), {}, donated);
    EXPECT_TRUE(results.ok()) << results.status();
    return *std::move(results);
  }
  static std::string Bytes(const DeviceArrayPtr& array) { return test::BytesOf(*array); }

  Graph g_;
};

TEST_F(DonationTest, ResultsAreMadeInDonatedMemory) {
  const UOp* const sink = Update(1001);
  const auto apart = Run(sink, {Floats(*compiled_, {1001}, 1), Floats(*compiled_, {1001}, 2)}, {});
  for (const bool held : {false, true}) {
    std::vector<DeviceArrayPtr> inputs = {Floats(*compiled_, {1001}, 1),
                                          Floats(*compiled_, {1001}, 2)};
    const DeviceArrayPtr other = held ? inputs[0] : nullptr;
    const runtime::DeviceAddress x = inputs[0]->address(), y = inputs[1]->address();
    const auto results = Run(sink, std::move(inputs), {0, 1});
    EXPECT_EQ(results[0]->address() == x, !held);
    EXPECT_EQ(results[1]->address(), y);
    for (size_t r = 0; r < 2; ++r) EXPECT_EQ(Bytes(results[r]), Bytes(apart[r]));
    if (held) {
      EXPECT_EQ(Bytes(other), Bytes(Floats(*compiled_, {1001}, 1)));
    }
  }
}

TEST_F(DonationTest, AnArrayThatIsTwoInputs) {
  const UOp* const sink = Update(64);
  const DeviceArrayPtr x = Floats(*compiled_, {64}, 1);
  const auto apart = Run(sink, {x, x}, {});
  std::vector<DeviceArrayPtr> twice(2, Floats(*compiled_, {64}, 1));
  const auto results = Run(sink, std::move(twice), {0, 1});
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(Bytes(results[r]), Bytes(apart[r]));
}

// The plan that was not used for longest goes, not the one that was made first.
TEST_F(DonationTest, PlansGoByTheirLastUse) {
  constexpr int64_t kPlans = 256;  // as many as are kept
  const DeviceArrayPtr one = Floats(*compiled_, {1}, 1);
  const auto run = [&](int64_t n) {  // other graphs, one kernel
    const UOp* const x = Param(g_, 0, DType::kF32, {1});
    Run(Sink(g_, {Shrink(g_, Pad(g_, x, {0, n}), {0, 1})}), {one}, {});
  };
  for (int64_t n = 0; n < kPlans; ++n) run(n);
  run(0);
  run(kPlans);
  const uint64_t made = compiled_->stats().plans_made;
  run(0);
  EXPECT_EQ(compiled_->stats().plans_made, made);
  run(1);
  EXPECT_EQ(compiled_->stats().plans_made, made + 1);
}

}  // namespace
}  // namespace outboard::worker
