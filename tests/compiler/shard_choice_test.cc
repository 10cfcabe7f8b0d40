// What the choice of a spread knows of memory: state that has no room is stored in parts, and what
// has none even then is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/spec.h"
#include "compiler/schedule/schedule.h"
#include "compiler/shard/lower.h"
#include "compiler/shard/memory.h"
#include "compiler/shard/plan.h"
#include "compiler/shard/shard.h"
#include "compiler/shard/sharding.h"
#include "compiler/shard/step_state.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

using shard::Layout;
using shard::MemoryTrace;
using shard::Mesh;
using shard::Spread;

TEST(MemoryTrace, AValue_LivesUntilItIsReadForTheLastTime) {
  MemoryTrace trace;
  const int in = trace.AddInput({100, 100}, /*donated=*/false);
  const int first = trace.Add({.bytes = 10, .sources = {in}});
  const int second = trace.Add({.bytes = 20, .sources = {first}});  // 130; then `first` goes
  const int third = trace.Add({.bytes = 5, .sources = {second}});   // 125
  trace.Keep(third, {5, 5});
  EXPECT_EQ(trace.peak_bytes(), 130);
  EXPECT_EQ(trace.kept_bytes(), 105);
}

TEST(MemoryTrace, WhatIsComputedWhereItIsRead_KeepsItsSources) {
  MemoryTrace trace;
  const int sum = trace.Add({.bytes = 10});
  const int doubled = trace.Add({.sources = {sum}});
  const int other = trace.Add({.bytes = 50});
  const int last = trace.Add({.bytes = 1, .sources = {doubled, other}});
  trace.Keep(last, {1, 1});
  EXPECT_EQ(trace.peak_bytes(), 61);
}

TEST(MemoryTrace, AResult_TakesThePlaceOfADonatedInput) {
  for (const bool donated : {false, true}) {
    MemoryTrace trace;
    const int in = trace.AddInput({100, 100}, donated);
    const int next = trace.Add({.sources = {in}});
    trace.Keep(next, {100, 100});
    EXPECT_EQ(trace.peak_bytes(), donated ? 100 : 200);
    EXPECT_EQ(trace.kept_bytes(), donated ? 100 : 200);
  }
}

TEST(MemoryTrace, ABody_TakesItsRoomWhileItIsCalled) {
  MemoryTrace trace;
  const int call = trace.Add({.bytes = 10, .within = 30});
  trace.Keep(call, {10, 10});
  EXPECT_EQ(trace.peak_bytes(), 40);
}

constexpr int64_t kMiB = 1 << 20;

// Four weights of 1 MiB, made of nothing.
const UOp* Weights(Graph& g) {
  std::vector<const UOp*> weights;
  for (int i = 0; i < 4; ++i) {
    const UOp* const counted = Cast(g, Iota(g, DType::kI64, 1024 * 256), DType::kF32);
    weights.push_back(Reshape(
        g, Mul(g, counted, Full(g, ConstFloat(g, DType::kF32, i + 1), counted->shape)),
        {1024, 256}));
  }
  return Sink(g, weights);
}

// A step on one of 4 MiB.
const UOp* Halved(Graph& g) {
  const UOp* const w = Param(g, 0, DType::kF32, {1024, 1024});
  return Sink(g, {Mul(g, w, Full(g, ConstFloat(g, DType::kF32, 0.5), w->shape))});
}

TEST(ShardChoice, State_IsCutWhereItHasNoRoomWhole) {
  for (const bool has_room : {true, false}) {
    Graph g;
    const shard::ShardOptions options{.memory = {.bytes = has_room ? 8 * kMiB : 2 * kMiB}};
    const auto first = ShardGraph(g, Weights(g), Mesh{{4}}, {}, options);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_EQ(first->results.size(), 4u);
    for (const Layout& layout : first->results) EXPECT_EQ(layout.is_whole(), has_room);
    const auto step = ShardGraph(g, Halved(g), Mesh{{4}}, {}, options);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->results[0].is_whole(), has_room);
    EXPECT_LE(step->report.kept_bytes, static_cast<double>(options.memory.bytes));
    // As the next step finds it.
    const auto next = ShardGraph(g, Halved(g), Mesh{{4}}, step->results, options);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->results, step->results);
  }
}

TEST(ShardChoice, AnotherModelInTheSession_LeavesLessRoom) {
  Graph g;
  const auto beside = [&](int64_t held) {
    return ShardGraph(g, Halved(g), Mesh{{4}}, {},
                      {.memory = {.bytes = 8 * kMiB, .held_bytes = held}});
  };
  EXPECT_TRUE(beside(0)->results[0].is_whole());
  EXPECT_FALSE(beside(6 * kMiB)->results[0].is_whole());
  EXPECT_EQ(beside(8 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ShardChoice, StateThatDoesNotFitEvenWhenCut_IsRefusedWithTheNumbers) {
  for (const Spread spread : {Spread::kAuto, Spread::kFsdp, Spread::kData}) {
    Graph g;
    const auto sharded = ShardGraph(g, Weights(g), Mesh{{4}}, {},
                                    {.spread = spread, .memory = {.bytes = kMiB / 2}});
    ASSERT_EQ(sharded.status().code(), absl::StatusCode::kResourceExhausted);
    const std::string message(sharded.status().message());
    const int64_t needed = spread == Spread::kData ? 4 * kMiB : kMiB;
    for (const std::string& part : {absl::StrCat(needed), absl::StrCat("has ", kMiB / 2),
                                    std::string("8 devices would do")})
      EXPECT_TRUE(absl::StrContains(message, part)) << part << ": " << message;
  }
  Graph g;
  const auto hopeless = ShardGraph(g, Weights(g), Mesh{{4}}, {}, {.memory = {.bytes = 100}});
  EXPECT_TRUE(absl::StrContains(hopeless.status().message(), "No number")) << hopeless.status();
}

// A result that is fetched cannot be cut; one with a VAR counts with its least length.
TEST(ShardChoice, WhatMayBeShort_IsNotRefused) {
  Graph g;
  const Dim rows(Var(g, 0, 1, 1 << 20));
  const UOp* const x = Param(g, 0, DType::kF32, {rows, Dim(16)});
  const auto sharded = ShardGraph(g, Sink(g, {Add(g, x, x)}), Mesh{{4}}, {},
                                  {.results = {Layout{}}, .memory = {.bytes = kMiB}});
  EXPECT_TRUE(sharded.ok()) << sharded.status();
}

// Real steps: in a tight memory auto chooses parts, and computes what one device does.
TEST(ShardChoice, ATrainingStep_IsStoredInPartsWhereWholeStateHasNoRoom) {
  for (const char* name : {"mnist_step", "gpt_step_12_layers"}) {
    Graph g;
    std::vector<int64_t> donated;
    const UOp* sink = nullptr;
    for (const Program& program : Programs())
      if (program.name == name) sink = RecordProgram(g, program, Size::kReal, &donated);
    shard::ShardOptions options;
    options.state.resize(ParamsOf(sink).size());
    for (const int64_t slot : donated) options.state[slot] = true;
    options.donated = options.state;
    options.results = {Layout{}};
    const auto roomy = ValueOrDie(ShardGraph(g, sink, Mesh{{8}}, {}, options));
    const auto alone = ValueOrDie(ShardGraph(g, sink, Mesh{{1}}, {}, options));
    std::printf("%s: %.1f MB of memory, %.1f kept; on one device %.1f\n", name,
                roomy.report.memory_bytes / 1e6, roomy.report.kept_bytes / 1e6,
                alone.report.memory_bytes / 1e6);
    // What the schedule for one device takes, beside its inputs.
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, HostTarget()));
    double held = static_cast<double>(schedule.arena_bytes);
    for (const UOp* param : ParamsOf(sink))
      held += static_cast<double>(ElementCount(param->shape)) * ByteWidth(param->dtype);
    std::printf("  its schedule takes %.1f MB\n", held / 1e6);
    EXPECT_GT(alone.report.memory_bytes, 0.6 * held) << name;
    EXPECT_LT(alone.report.memory_bytes, 1.3 * held) << name;

    ASSERT_FALSE(donated.empty()) << name;
    double state = 0;
    for (const int64_t slot : donated) {
      const UOp* const param = ParamsOf(sink)[slot];
      state += static_cast<double>(ElementCount(param->shape)) * ByteWidth(param->dtype);
    }
    // Cut weights may also be what takes the least time, with room for all.
    if (roomy.report.kept_bytes < state / 2) {
      EXPECT_EQ(roomy.report.choice, "tensor: weights") << name;
      continue;
    }
    options.memory.bytes = static_cast<int64_t>(roomy.report.kept_bytes - state / 2);
    const auto tight = ValueOrDie(ShardGraph(g, sink, Mesh{{8}}, {}, options));
    EXPECT_TRUE(absl::StrContains(tight.report.choice, "state in parts")) << tight.report.choice;
    EXPECT_LE(tight.report.kept_bytes, static_cast<double>(options.memory.bytes)) << name;
  }
}

// A step of an optimizer with two moments of each weight, as results of one type and shape: the
// moments before the weights, and those of the second weight first.
TEST(StepState, AnOptimizersResults_ReplaceWhatTheyAreComputedFrom) {
  Graph g;
  const Shape shape = {64, 64};
  std::vector<const UOp*> params;
  for (int slot = 0; slot < 6; ++slot) params.push_back(Param(g, slot, DType::kF32, shape));
  const auto times = [&](const UOp* x, double factor) {
    return Mul(g, x, Full(g, ConstFloat(g, DType::kF32, factor), shape));
  };
  const UOp* sum = params[0];
  for (int slot = 1; slot < 6; ++slot) sum = Add(g, sum, params[slot]);
  std::vector<const UOp*> results = {Reduce(g, Op::kAdd, sum, {0, 1})};
  for (const int first : {3, 0}) {  // weight, moment, moment
    const UOp* const w = params[first];
    const UOp* const permuted = Permute(g, params[3 - first], {1, 0});  // no element for element
    const UOp* const gradient = Add(g, permuted, times(w, 0.01));       // with decay of weights
    const UOp* const m = Add(g, times(params[first + 1], 0.9), times(gradient, 0.1));
    const UOp* const v =
        Add(g, times(params[first + 2], 0.99), times(Mul(g, gradient, gradient), 0.01));
    for (const UOp* result : {v, m, Add(g, w, Mul(g, m, v))}) results.push_back(result);
  }
  const UOp* const sink = Sink(g, results);
  const shard::StepState state = shard::StateOf(sink, {.state = std::vector<bool>(6, true)});
  const int none = shard::StepState::kNothing;
  EXPECT_EQ(state.replaced, (std::vector<int>{none, 5, 4, 3, 2, 1, 0}));
  // What is no state is not replaced.
  EXPECT_EQ(shard::StateOf(sink, {.state = {true, true, true, false, false, false}}).replaced,
            (std::vector<int>{none, none, none, none, 2, 1, 0}));
}

TEST(StepState, ResultsOfAnotherKind_ReplaceWhatIsLeftInOrder) {
  Graph g;
  std::vector<const UOp*> params;
  for (int slot = 0; slot < 3; ++slot) params.push_back(Param(g, slot, DType::kF32, {8, 8}));
  const auto turned = [&](int slot) { return Permute(g, params[slot], {1, 0}); };
  const UOp* const other = Reshape(g, turned(0), {64});
  const auto doubled = [&](const UOp* x) { return Add(g, x, x); };
  const UOp* const sink = Sink(
      g, {turned(0), other, doubled(params[0]), turned(1), turned(2), doubled(turned(2))});
  const shard::StepState state = shard::StateOf(sink, {.state = {true, true, true}});
  const int none = shard::StepState::kNothing;
  EXPECT_EQ(state.replaced, (std::vector<int>{1, none, 0, 2, none, none}));
  const std::vector<Layout> cut(6, Layout{{1}});
  EXPECT_EQ(state.LayoutsAfter({}, cut), (std::vector<Layout>(3, Layout{{1}})));
  const auto first = std::vector<Layout>{Layout{{0}}};
  EXPECT_EQ(shard::StateOf(sink, {.state = {false, false, false}}).LayoutsAfter(first, cut),
            (std::vector<Layout>{Layout{{0}}, Layout{}, Layout{}}));
}

// Rows of x times w.
const UOp* Product(Graph& g, const UOp* x, const UOp* w) {
  const Shape all = {x->shape[0], x->shape[1], w->shape[1]};
  const UOp* const left = Expand(g, Reshape(g, x, {all[0], all[1], Dim(1)}), all);
  const UOp* const right = Expand(g, Reshape(g, w, {Dim(1), all[1], all[2]}), all);
  return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {all[0], all[2]});
}

// Two layers whose weights have the type and shape of what they compute, and are only read.
TEST(ShardChoice, WeightsThatAreOnlyRead_AreNotReplaced) {
  Graph g;
  const Shape shape = {256, 256};
  const UOp* const x = Param(g, 0, DType::kF32, shape);
  const UOp* const hidden = Product(g, x, Param(g, 1, DType::kF32, shape));
  const UOp* const bent = Mul(g, hidden, hidden);
  const UOp* const sink = Sink(g, {Product(g, bent, Param(g, 2, DType::kF32, shape))});
  shard::ShardOptions options{.spread = Spread::kData, .state = {false, true, true}};
  const int none = shard::StepState::kNothing;
  EXPECT_EQ(shard::StateOf(sink, options).replaced, (std::vector<int>{1})) << "all of it ends";
  options.donated = {false, false, true};
  EXPECT_EQ(shard::StateOf(sink, options).replaced, (std::vector<int>{2}));
  options.donated = {false, false, false};
  EXPECT_EQ(shard::StateOf(sink, options).replaced, (std::vector<int>{none}));
  // Each step is as the first: nothing is sent.
  const auto inferred = ValueOrDie(ShardGraph(g, sink, Mesh{{4}}, {}, options));
  EXPECT_EQ(inferred.report.bytes_sent, 0);
  EXPECT_EQ(inferred.report.later_s, inferred.report.predicted_s);
}

TEST(StepState, ResultsThatARepetitionCarries_ReplaceWhatItSays) {
  Graph g;
  std::vector<const UOp*> doubled;
  for (int slot = 0; slot < 3; ++slot) {
    const UOp* const w = Param(g, slot, DType::kF32, {8, 8});
    doubled.push_back(Add(g, w, w));
  }
  const UOp* const sink = Sink(g, doubled);
  shard::ShardOptions options{.state = {true, true, true}, .carried_to = {1, 0}};
  EXPECT_EQ(shard::StateOf(sink, options).replaced, (std::vector<int>{1, 0, 2}));
  options.donated = {false, false, false};  // the Run keeps what it began with
  EXPECT_EQ(shard::StateOf(sink, options).replaced,
            (std::vector<int>{1, 0, shard::StepState::kNothing}));
  const std::vector<Layout> results = {Layout{{0}}, Layout{{1}}, Layout{}};
  EXPECT_EQ(shard::StateOf(sink, options).LayoutsAfter({}, results),
            (std::vector<Layout>{Layout{{1}}, Layout{{0}}, Layout{}}));
}

// A step that leaves weights turned: with cut weights the first step sends nothing, and leaves them
// cut along the other dimension, so that every later one adds activations.
const UOp* TurnedStep(Graph& g, int64_t rows, int64_t width) {
  const UOp* const w = Param(g, 0, DType::kF32, {width, width});
  const UOp* const in = Param(g, 1, DType::kF32, {rows, width});
  const UOp* const x = Add(g, in, in);  // computed, as activations are
  const UOp* const outer = Product(g, Permute(g, x, {1, 0}), Product(g, x, w));
  return Sink(g, {Add(g, w, Permute(g, outer, {1, 0}))});
}

TEST(ShardChoice, AStepThatLeavesStateOtherwise_IsJudgedByTheNext) {
  Graph g;
  const UOp* const sink = TurnedStep(g, 4096, 64);  // activations are larger than gradients
  const Mesh mesh{{4}};
  const shard::ShardOptions options{.state = {true, false}};
  shard::ShardOptions tensor = options, data = options;
  tensor.spread = Spread::kTensor;
  data.spread = Spread::kData;
  const auto by_tensor = ValueOrDie(ShardGraph(g, sink, mesh, {}, tensor));
  const auto by_data = ValueOrDie(ShardGraph(g, sink, mesh, {}, data));
  ASSERT_LT(by_tensor.report.predicted_s, by_data.report.predicted_s);
  ASSERT_GT(by_tensor.report.later_s, by_data.report.later_s);
  const auto chosen = ValueOrDie(ShardGraph(g, sink, mesh, {}, options));
  EXPECT_EQ(chosen.report.choice, by_data.report.choice);
  EXPECT_EQ(chosen.report.predicted_s, chosen.report.later_s);
  // What is said of later steps is what they are.
  const auto later = ValueOrDie(ShardGraph(g, sink, mesh, {by_tensor.results[0]}, tensor));
  EXPECT_EQ(later.report.predicted_s, by_tensor.report.later_s);
}

// Cut weights fit now and not in later steps, which add activations; whole ones need a little more
// than there is.
TEST(ShardChoice, AStepAfterWhichTheNextHasNoRoom_IsNotChosen) {
  Graph g;
  const UOp* const sink = TurnedStep(g, 4096, 64);
  shard::ShardOptions options{.state = {true, false}};
  const auto by = [&](Spread spread, std::vector<Layout>& weights) {
    options.spread = spread;
    auto sharded = ValueOrDie(ShardGraph(g, sink, Mesh{{4}}, weights, options));
    weights = std::move(sharded.results);
    return sharded.report.memory_bytes;
  };
  std::vector<Layout> weights, cut;
  const double data = by(Spread::kData, weights), tensor = by(Spread::kTensor, cut);
  ASSERT_LT(tensor, data);
  ASSERT_GT(by(Spread::kTensor, cut), 1.5 * data) << "the next step";
  options.spread = Spread::kAuto;
  options.memory.bytes = static_cast<int64_t>((tensor + data) / 2);
  const auto chosen = ValueOrDie(ShardGraph(g, sink, Mesh{{4}}, {}, options));
  EXPECT_EQ(chosen.report.memory_bytes, data) << chosen.report.choice;
}

TEST(ShardChoice, Groups_AreAlongTheirAxes) {
  const Mesh mesh{{2, 3, 1}};
  for (const auto& [axes, count, stride, along] :
       std::vector<std::tuple<int, int64_t, int64_t, bool>>{{2, 3, 1, true},
                                                            {1, 3, 1, false},
                                                            {1, 2, 3, true},
                                                            {2, 2, 3, false},
                                                            {2, 6, 1, false},
                                                            {3, 6, 1, true},
                                                            {0, 1, 1, true}})
    EXPECT_EQ(shard::IsAlong(mesh, static_cast<shard::AxisSet>(axes), count, stride), along)
        << axes << ": " << count << ", " << stride;
}

// A sum of products over a batch that is cut along the second axis, and in `used` a product of it.
shard::ShardReport PredictSum(const shard::DeviceSpeeds& speeds, bool used) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {64, 1000});
  const UOp* const y = Param(g, 1, DType::kF32, {64, 1000});
  const UOp* const sum = Reduce(g, Op::kAdd, Mul(g, x, y), {0});
  const UOp* const result = used ? Reduce(g, Op::kAdd, Mul(g, sum, sum), {0}) : sum;
  shard::ShardOptions options{.spread = Spread::kData, .state = {false, false}};
  options.results = {Layout{}};
  options.speeds = speeds;
  const std::vector<Layout> cut(2, Layout{{Layout::kWhole, 0}});
  const auto sharded = ShardGraph(g, Sink(g, {result}), Mesh{{1, 4}}, cut, options);
  EXPECT_TRUE(sharded.ok()) << sharded.status();
  return sharded.ok() ? sharded->report : shard::ShardReport{};
}

TEST(ShardChoice, LinksWithinANode_ArePredictedByTheirOwnSpeed) {
  shard::DeviceSpeeds speeds{.link_bytes_per_s = 1e5, .collective_s = 0.01};
  const shard::ShardReport between = PredictSum(speeds, /*used=*/true);
  EXPECT_GT(between.predicted_s, between.bytes_sent / 1e5);
  speeds.inner_axes = 2;
  speeds.inner_bytes_per_s = 1e9;
  speeds.inner_collective_s = 1e-6;
  const shard::ShardReport within = PredictSum(speeds, /*used=*/true);
  EXPECT_EQ(within.bytes_sent, between.bytes_sent);
  EXPECT_LT(within.predicted_s, 0.01 * between.predicted_s);
}

// A sum that only the end of the Run waits for is on its way while other things are computed.
TEST(ShardChoice, WhatBackwardHides_CostsHalf) {
  const shard::DeviceSpeeds speeds{.operations_per_s = 1e3};
  for (const bool used : {false, true}) {
    const shard::ShardReport report = PredictSum(speeds, used);
    const double transfers = report.bytes_sent / speeds.link_bytes_per_s +
                             static_cast<double>(report.collectives.size()) * speeds.collective_s;
    EXPECT_GT(transfers, 0);
    EXPECT_NEAR(report.predicted_s - report.operations / speeds.operations_per_s,
                used ? transfers : transfers / 2, 1e-9);
  }
}

// What no product waits for is hidden behind the rest of a step, whichever was written before it.
TEST(ShardWork, AMaximumOverDevices_IsLateWhereNoProductWaitsForIt) {
  const Mesh mesh{{2}};
  for (const bool waits : {false, true})
    for (const bool comes_last : {false, true}) {
      Graph g;
      const UOp* const x = Param(g, 0, DType::kF32, Shape{8, 16});
      const UOp* const w = Param(g, 1, DType::kF32, Shape{1, 16});
      // One collective each: of a maximum and of a sum; a product waits for one of the two.
      const UOp* const most = Reduce(g, Op::kMax, x, {0});
      const UOp* const sum = Reduce(g, Op::kAdd, x, {0});
      const auto product = [&](const UOp* of) {
        return Reduce(g, Op::kAdd, Mul(g, Mul(g, of, of), w), {1});  // not of parts
      };
      const UOp* const a = waits ? product(most) : most;
      const UOp* const b = waits ? sum : product(sum);
      const UOp* const sink = Sink(g, comes_last ? std::vector<const UOp*>{b, a}
                                                 : std::vector<const UOp*>{a, b});
      shard::PlanInputs inputs;
      const std::vector<shard::Sharding> params = {shard::CutSharding(mesh, x->shape, 0, 1),
                                                   shard::WholeSharding(2)};
      inputs.params = params;
      inputs.results = {shard::WholeSharding(2), shard::WholeSharding(2)};
      shard::GraphNodes nodes;
      shard::Planner planner(mesh, sink, nodes);
      const shard::FramePlan* const plan = ValueOrDie(planner.Plan(sink, inputs));
      // Of seconds, so that bytes do not count.
      shard::RankWriter writer(nullptr, mesh, sink, nullptr, {.collective_s = 1});
      ASSERT_TRUE(writer.Run(*plan).ok());
      EXPECT_EQ(std::lround(writer.work().transfer_s), 2) << waits << comes_last;
      EXPECT_EQ(std::lround(writer.work().late_s), 1) << waits << comes_last;
    }
}

}  // namespace
}  // namespace outboard::test
