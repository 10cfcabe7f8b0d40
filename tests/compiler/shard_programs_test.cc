// Training steps as users write them, on several devices: how the work is shared, what is sent, and
// that small ones compute what one device does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/step_state.h"
#include "tests/compiler/random_values.h"
#include "tests/compiler/schedule_programs.h"
#include "tests/compiler/shard_check.h"

namespace outboard::test {
namespace {

using shard::Layout;
using shard::Mesh;
using shard::Spread;

const Program& ProgramNamed(const std::string& name) {
  for (const Program& program : Programs())
    if (program.name == name) return program;
  OB_CHECK(false && "no such program");
}

// A recorded step with what the gateway knows of it.
struct Recorded {
  Graph graph;
  const UOp* sink;
  shard::ShardOptions options;

  Recorded(const std::string& name, Size size, Spread spread) {
    std::vector<int64_t> donated;
    sink = RecordProgram(graph, ProgramNamed(name), size, &donated);
    options.spread = spread;
    options.state.resize(ParamsOf(sink).size());
    for (const int64_t slot : donated) options.state[slot] = true;
    options.results = {Layout{}};  // the loss is fetched
  }

  shard::ShardedGraph On(const Mesh& mesh, absl::Span<const Layout> layouts = {}) {
    auto sharded = ShardGraph(graph, sink, mesh, layouts, options);
    OB_CHECK_OK(sharded.status());
    return *std::move(sharded);
  }

  // The layouts of the inputs of a next step: those of the results that replace them.
  std::vector<Layout> Next(const shard::ShardedGraph& sharded) const {
    return shard::StateOf(sink, options).LayoutsAfter({}, sharded.results);
  }
};

void Show(const std::string& what, const shard::ShardedGraph& sharded) {
  std::printf("%s: %s; %.3g operations, %.3g bytes, %zu collectives, %.3g s\n", what.c_str(),
              sharded.report.choice.c_str(), sharded.report.operations, sharded.report.bytes_sent,
              sharded.report.collectives.size(), sharded.report.predicted_s);
  if (std::getenv("OUTBOARD_SHOW") == nullptr) return;
  for (const shard::CollectiveUse& use : sharded.report.collectives)
    std::printf("    %s %lld bytes, node %lld: %s%s\n", std::string(Name(use.op)).c_str(),
                static_cast<long long>(use.bytes), static_cast<long long>(use.node),
                use.what.c_str(), use.hinted ? "" : " (no hint)");
}

TEST(ShardPrograms, ADataParallelStepSharesItsWork) {
  for (const char* name : {"mnist_step", "gpt_step_1_layer", "gpt_step_12_layers"}) {
    Recorded step(name, Size::kReal, Spread::kData);
    const double alone = step.On(Mesh{{1}}).report.operations;
    for (const int64_t devices : {2, 4}) {
      const shard::ShardedGraph sharded = step.On(Mesh{{devices}});
      Show(absl::StrCat(name, " on ", devices), sharded);
      EXPECT_LT(sharded.report.operations, 1.1 * alone / static_cast<double>(devices)) << name;
      EXPECT_TRUE(sharded.report.surprises().empty()) << name;
      // Each gradient is added once: what is sent is no more than twice the state that is trained.
      double trained = 0;
      for (const UOp* param : ParamsOf(step.sink))
        if (step.options.state[ParamOf(param).slot()])
          trained += static_cast<double>(ElementCount(param->shape)) * ByteWidth(param->dtype);
      EXPECT_LT(sharded.report.bytes_sent, trained) << name;  // a third of it are weights
    }
  }
}

TEST(ShardPrograms, StateThatIsCutStaysCutAndIsAnEighthOnEight) {
  for (const char* name : {"mnist_step", "gpt_step_12_layers"}) {
    Recorded step(name, Size::kReal, Spread::kFsdp);
    const Mesh mesh{{8}};
    const shard::ShardedGraph first = step.On(mesh);
    const std::vector<Layout> layouts = step.Next(first);
    const shard::ShardedGraph second = step.On(mesh, layouts);
    Show(absl::StrCat(name, " on 8, first step"), first);
    Show(absl::StrCat(name, " on 8, later"), second);
    EXPECT_EQ(second.results, first.results) << name;
    double stored = 0, whole = 0;
    for (const UOp* param : ParamsOf(step.sink)) {
      const auto slot = ParamOf(param).slot();
      if (!step.options.state[slot]) continue;
      const std::vector<int64_t> local = LocalDims(mesh, layouts[slot], StaticDims(param->shape));
      int64_t elements = 1;
      for (const int64_t dim : local) elements *= dim;
      stored += static_cast<double>(elements * ByteWidth(param->dtype));
      whole += static_cast<double>(ElementCount(param->shape) * ByteWidth(param->dtype));
    }
    EXPECT_LT(stored / whole, 0.14) << name;
    // Weights are gathered once, gradients scattered once: no more than data parallel sends.
    Recorded data(name, Size::kReal, Spread::kData);
    EXPECT_LT(second.report.bytes_sent, 1.5 * data.On(mesh).report.bytes_sent) << name;
    EXPECT_LT(second.report.operations, 1.5 * first.report.operations) << name;
  }
}

TEST(ShardPrograms, TensorParallelStepsShareTheirProducts) {
  for (const char* name : {"gpt_step_1_layer", "gpt_step_12_layers"}) {
    Recorded step(name, Size::kReal, Spread::kTensor);
    const double alone = step.On(Mesh{{1}}).report.operations;
    const shard::ShardedGraph first = step.On(Mesh{{2}});
    Show(absl::StrCat(name, " tensor on 2"), first);
    EXPECT_LT(first.report.operations, 0.55 * alone) << name;
    const shard::ShardedGraph later = step.On(Mesh{{2}}, step.Next(first));
    Show(absl::StrCat(name, " tensor on 2, later"), later);
    EXPECT_LT(later.report.operations, 0.55 * alone) << name;
    // Weights and moments stay where they are used: little more is sent than where they are whole.
    EXPECT_LT(later.report.bytes_sent, 1.1 * first.report.bytes_sent) << name;
    EXPECT_EQ(later.results, first.results) << name;
    const shard::ShardedGraph both = step.On(Mesh{{2, 2}});
    Show(absl::StrCat(name, " tensor and data on 2x2"), both);
    EXPECT_LT(both.report.operations, 0.3 * alone) << name;
  }
}

// The choice is the best in the long run, of steps that find weights as those before left them.
TEST(ShardPrograms, TheChoice_IsTheBestOfLaterSteps) {
  for (const char* name : {"mnist_step", "gpt_step_12_layers"}) {
    for (const int64_t devices : {2, 3, 4, 8}) {
      const Mesh mesh{{devices}};
      const auto later_s = [&](Spread spread) {
        Recorded step(name, Size::kReal, spread);
        const shard::ShardedGraph first = step.On(mesh);
        const shard::ShardedGraph later = step.On(mesh, step.Next(first));
        Show(absl::StrCat(name, " ", std::string(shard::Name(spread)), " on ", devices), first);
        Show("  later", later);
        EXPECT_LT(first.report.later_s, 1.05 * later.report.predicted_s);
        EXPECT_GT(first.report.later_s, 0.95 * later.report.predicted_s);
        return later.report.predicted_s;
      };
      const double chosen = later_s(Spread::kAuto);
      for (const Spread spread : {Spread::kData, Spread::kFsdp, Spread::kTensor})
        EXPECT_LT(chosen, 1.02 * later_s(spread)) << name << ", " << shard::Name(spread) << " on "
                                                  << devices;
    }
  }
}

// Inputs for a step: numbers that a model could have.
std::vector<HostTensor> InputsOf(const UOp* sink, uint64_t seed) {
  Random random(seed);
  std::vector<HostTensor> tensors;
  for (const UOp* param : ParamsOf(sink)) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    tensor.bytes.resize(tensor.ElementCount() * ByteWidth(param->dtype));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      char* const place = tensor.bytes.data() + i * ByteWidth(param->dtype);
      if (IsFloat(param->dtype)) {
        StoreFloat(param->dtype, 0.05 + 0.4 * random.Unit(), place);
      } else {
        StoreInt(param->dtype, random.Below(IsBool(param->dtype) ? 2 : 7), place);
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

TEST(ShardPrograms, OneMeshAxisForTwoDimensions_IsRefused) {
  const auto code = [](std::vector<std::pair<int, int>> hints) {  // (mesh axis, dimension)
    Graph g;
    const UOp* x = Param(g, 0, DType::kF32, {4, 8});
    for (const auto& [axis, dim] : hints)
      x = g.MakeChecked(Op::kLayout, x->dtype, {x}, {axis, dim});
    return ShardGraph(g, Sink(g, {x}), Mesh{{2, 2}}, {},
                      {.spread = Spread::kData, .state = {false}, .results = {Layout{}}})
        .status();
  };
  EXPECT_TRUE(code({{0, 0}, {1, 1}}).ok());
  EXPECT_TRUE(code({{0, 0}, {0, -1}, {0, 1}}).ok()) << "whole in between";
  EXPECT_TRUE(code({{0, 1}, {-1, 1}}).ok());
  // A chain of hints is looked at once, not once for each of them.
  EXPECT_TRUE(code(std::vector<std::pair<int, int>>(100'000, {0, 0})).ok());
  for (const auto& hints : std::vector<std::vector<std::pair<int, int>>>{
           {{0, 0}, {0, 1}},
           {{-1, 0}, {1, 1}},
           {{1, 0}, {0, 0}, {1, 1}},
           {{0, 0}, {1, -1}, {0, 1}}})
    EXPECT_EQ(code(hints).code(), absl::StatusCode::kInvalidArgument);
}

// It names the value, the dimension and the VAR.
TEST(ShardPrograms, AHintOnADimensionWithAVar_IsRefused) {
  const auto refused = [](int dim) {
    Graph g;
    const Dim rows(Var(g, 5, 1, 64));
    const UOp* const x = Param(g, 0, DType::kF32, {rows, Dim(16)});
    const UOp* const hint = g.MakeChecked(Op::kLayout, x->dtype, {x}, {0, dim});
    return ShardGraph(g, Sink(g, {hint}), Mesh{{2}}, {},
                      {.spread = Spread::kData, .state = {false}, .results = {Layout{}}})
        .status();
  };
  EXPECT_TRUE(refused(1).ok()) << refused(1);
  const absl::Status status = refused(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  for (const char* word : {"LAYOUT", "dimension 0", "n5"})
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
}

// Seven terms on two devices: what is past the end is masked, and a product stays one.
TEST(ShardPrograms, AnUnevenSumOfProducts_IsStillOne) {
  Graph g;
  const UOp* const a = Param(g, 0, DType::kF32, {5, 7, 1});
  const UOp* const b = Param(g, 1, DType::kF32, {1, 7, 9});
  const UOp* const product = Mul(g, Expand(g, a, {5, 7, 9}), Expand(g, b, {5, 7, 9}));
  const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, product, {1})});
  shard::ShardOptions options{.spread = Spread::kData, .state = {false, false}};
  options.results = {Layout{}};
  const std::vector<Layout> cut = {Layout{{1}}, Layout{{1}}};
  shard::ShardedGraph sharded;
  EXPECT_EQ(ShardDisagreement(g, sink, Mesh{{2}}, cut, options, InputsOf(sink, 7), {}, &sharded),
            "");
  ASSERT_NE(sharded.sink, nullptr);
  int sums = 0;
  for (const UOp* node : PostOrder(sharded.sink)) {
    if (node->op != Op::kReduce) continue;
    ++sums;
    EXPECT_EQ(node->src[0]->op, Op::kMul);
  }
  EXPECT_EQ(sums, 1);
}

// A large sum of 16-bit floats travels in 16 bits, each device's part rounded; a small one in f32.
TEST(ShardPrograms, ALargeSumOf16BitFloats_TravelsInItsOwnType) {
  for (const int64_t devices : {2, 3, 4}) {
    for (const int64_t columns : {1000, 4}) {
      Graph g;
      const UOp* const x = Param(g, 0, DType::kBF16, {12, 37, columns});
      const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, x, {0})});
      const Mesh mesh{{devices}};
      shard::ShardOptions options{.spread = Spread::kData, .state = {false}};
      options.results = {Layout{}};
      options.speeds.operations_per_s = 1;
      const std::vector<Layout> cut = {Layout{{0}}};
      shard::ShardedGraph sharded;
      const bool is_large = columns == 1000;
      EXPECT_EQ(ShardDisagreement(g, sink, mesh, cut, options, InputsOf(sink, 7), {}, &sharded,
                                  is_large ? 1.0 / 64 : 0),
                "");
      ASSERT_NE(sharded.sink, nullptr);
      double bytes = 0;
      for (const shard::CollectiveUse& use : sharded.report.collectives) {
        EXPECT_EQ(use.op, Op::kAllReduce);
        bytes += static_cast<double>(use.bytes);
      }
      for (const UOp* node : PostOrder(sharded.sink))
        if (node->op == Op::kAllReduce)
          EXPECT_EQ(node->dtype, is_large ? DType::kBF16 : DType::kF32);
      EXPECT_TRUE(sharded.report.surprises().empty());
      const double others = static_cast<double>(devices - 1) / static_cast<double>(devices);
      // Twice 4 bytes an element, or 2; padding is less than a twentieth.
      const double elements = 37.0 * static_cast<double>(columns);
      EXPECT_LT(bytes, others * elements * (is_large ? 4 : 8) * 1.06);
    }
  }
}

// Parts of f16 may be beyond its range where their sum is not, as it is on one device.
TEST(ShardPrograms, ALargeSumOfF16_IsAddedInF32) {
  for (const int64_t devices : {2, 4}) {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF16, {12, 37, 1000});
    const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, x, {0})});
    std::vector<HostTensor> inputs = InputsOf(sink, 7);
    const int64_t count = inputs[0].ElementCount(), row = count / 12;
    for (int64_t i = 0; i < count; ++i)  // the parts are 180,000 or more, and as much below 0
      StoreFloat(DType::kF16, (i < count / 2 ? 60000.0 : -60000.0) + (i % row % 7 == 0 ? 32.0 : 0),
                 inputs[0].bytes.data() + 2 * i);
    shard::ShardOptions options{.spread = Spread::kData, .state = {false}};
    options.results = {Layout{}};
    options.speeds.operations_per_s = 1;
    const std::vector<Layout> cut = {Layout{{0}}};
    shard::ShardedGraph sharded;
    EXPECT_EQ(ShardDisagreement(g, sink, Mesh{{devices}}, cut, options, inputs, {}, &sharded, 0),
              "");
    ASSERT_NE(sharded.sink, nullptr);
    EXPECT_FALSE(sharded.report.collectives.empty());
  }
}

TEST(ShardPrograms, StepsComputeWhatOneDeviceDoes) {
  for (const char* name : {"softmax_backward", "cross_entropy", "layer_norm_backward",
                           "transformer_block_backward", "gpt_step_1_layer", "gpt_step_2_layers"}) {
    for (const Spread spread : {Spread::kData, Spread::kFsdp, Spread::kTensor, Spread::kAuto}) {
      for (const Mesh& mesh : {Mesh{{2}}, Mesh{{3}}, Mesh{{4}}, Mesh{{8}}, Mesh{{2, 2}}}) {
        Recorded step(name, Size::kSmall, spread);
        step.options.speeds.operations_per_s = 1;  // so that work is shared though it is little
        const std::vector<HostTensor> params = InputsOf(step.sink, 7);
        shard::ShardedGraph sharded;
        const std::string what =
            absl::StrCat(name, " ", std::string(shard::Name(spread)), " on ", ToString(mesh));
        EXPECT_EQ(ShardDisagreement(step.graph, step.sink, mesh, {}, step.options, params, {},
                                    &sharded, 1e-4),
                  "")
            << what;
        if (sharded.sink == nullptr) continue;
        Show(what, sharded);
        // As the next step finds its state.
        EXPECT_EQ(ShardDisagreement(step.graph, step.sink, mesh, step.Next(sharded), step.options,
                                    params, {}, nullptr, 1e-4),
                  "")
            << what << ", the next step";
      }
    }
  }
}

}  // namespace
}  // namespace outboard::test
