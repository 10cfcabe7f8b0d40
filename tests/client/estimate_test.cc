// What is counted of graphs, what becomes of it for a class of devices, and a session without one.
#include "client/session/estimate/estimate.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/session/current_session.h"
#include "client/session/dry_session.h"
#include "client/session/estimate/recording_session.h"
#include "client/session/estimate/run_log.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using session::DeviceClass;
using session::EstimateFor;
using session::GraphWork;
using session::RecordedWork;
using session::WorkOf;

// f32[n, k] times f32[k, m].
const UOp* Product(Graph& g, const UOp* a, const UOp* b) {
  const Dim n = a->shape[0], k = a->shape[1], m = b->shape[1];
  const UOp* const left = Expand(g, Reshape(g, a, {n, k, 1}), {n, k, m});
  const UOp* const right = Expand(g, Reshape(g, b, {1, k, m}), {n, k, m});
  return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {n, m});
}

TEST(GraphWork, AProduct_CountsTwoOperationsAPairAndEachBufferOnce) {
  Graph g;
  const UOp* const a = Param(g, 0, DType::kF32, {8, 16});
  const UOp* const b = Param(g, 1, DType::kF32, {16, 4});
  const GraphWork work = WorkOf(Sink(g, {Product(g, a, b)}));
  EXPECT_EQ(work.products(), 2 * 8 * 16 * 4);
  EXPECT_EQ(work.others(), 0);
  // The product is stored, and the result reads it.
  EXPECT_GE(work.bytes(), 4 * (8 * 16 + 16 * 4 + 8 * 4));
}

TEST(GraphWork, AFunctionOfOneElement_CountsAsTheInstructionsThatItTakes) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {100});
  const GraphWork sum = WorkOf(Sink(g, {Add(g, x, x)}));
  const GraphWork exponential = WorkOf(Sink(g, {Alu(g, Op::kExp, x)}));
  EXPECT_EQ(sum.others(), 100);
  EXPECT_EQ(sum.bytes(), 800);
  EXPECT_EQ(sum.count(), 1);
  EXPECT_GT(exponential.others(), 10 * sum.others());
}

TEST(GraphWork, RowsReadByAnIndex_AreNoProduct) {
  Graph g;
  const UOp* const rows = Param(g, 0, DType::kF32, {1000, 8});
  const UOp* const index = Param(g, 1, DType::kI64, {4, 1});
  const UOp* const places =
      Expand(g, Reshape(g, Iota(g, DType::kI64, 1000), {1, 1000}), {4, 1000});
  const UOp* const is_there = Alu(g, Op::kCmpEq, places, Expand(g, index, {4, 1000}));
  const UOp* const mask =
      Expand(g, Reshape(g, Cast(g, is_there, DType::kF32), {4, 1000, 1}), {4, 1000, 8});
  const UOp* const all = Expand(g, Reshape(g, rows, {1, 1000, 8}), {4, 1000, 8});
  const GraphWork work = WorkOf(Sink(g, {Reduce(g, Op::kAdd, Mul(g, mask, all), {1})}));
  EXPECT_EQ(work.products(), 0);
  EXPECT_LT(work.others(), 1000);
  EXPECT_LT(work.bytes(), 1000 * 8 * 4) << "rows that are not read do not count";
}

TEST(GraphWork, AVariable_HasTheValueOfItsBinding) {
  Graph g;
  const UOp* const n = Var(g, 0, 1, 1000);
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(n)});
  const UOp* const sink = Sink(g, {Add(g, x, x)});
  const Binding small[] = {{0, 10}}, large[] = {{0, 500}};
  EXPECT_EQ(WorkOf(sink, small).others(), 10);
  EXPECT_EQ(WorkOf(sink, large).others(), 500);
  EXPECT_EQ(session::DimsOf(sink->src[0], large), std::vector<int64_t>{500});
}

RecordedWork SomeWork() {
  return {.runs = 10,
          .steps = 20,
          .graphs = 1,
          .client_s = 0.5,
          .kernels = {{.products = 2e9, .others = 1e6, .bytes = 1e7, .count = 10}}};
}

TEST(Estimate, AFasterClass_TakesLess_AndCostsByItsPrice) {
  const DeviceClass slow{.name = "slow", .gflops = 100, .memory_gb_per_s = 10,
                         .run_per_hour_micro_usd = 360'000};
  DeviceClass fast = slow;
  fast.gflops = 200;
  RecordedWork work = SomeWork();
  work.client_s = 0;
  const auto of_slow = EstimateFor(slow, work), of_fast = EstimateFor(fast, work);
  ASSERT_TRUE(of_slow.seconds.has_value()) << of_slow.unknown;
  EXPECT_GT(of_slow.seconds->expected, 1.5 * of_fast.seconds->expected);
  EXPECT_LT(of_slow.seconds->low, of_slow.seconds->expected);
  EXPECT_GT(of_slow.seconds->high, of_slow.seconds->expected);
  EXPECT_NEAR(of_slow.micro_usd->expected, 100 * of_slow.seconds->expected, 1e-6);
}

TEST(Estimate, WhatIsNotSaid_IsUnknown) {
  const DeviceClass silent{.name = "silent", .run_per_hour_micro_usd = 1};
  EXPECT_FALSE(EstimateFor(silent, SomeWork()).seconds.has_value());
  EXPECT_FALSE(EstimateFor(silent, SomeWork()).unknown.empty());
  DeviceClass half = silent;
  half.gflops = 5;
  EXPECT_FALSE(EstimateFor(half, SomeWork()).seconds.has_value());
  half.memory_gb_per_s = 5;
  EXPECT_TRUE(EstimateFor(half, SomeWork()).seconds.has_value());
  RecordedWork several = SomeWork();
  several.devices = 2;
  EXPECT_FALSE(EstimateFor(half, several).seconds.has_value());
  EXPECT_FALSE(EstimateFor(half, RecordedWork{}).seconds.has_value());
}

TEST(Estimate, MoreSteps_TakeInProportion) {
  const DeviceClass of{.gflops = 10, .memory_gb_per_s = 10, .run_per_hour_micro_usd = 3600};
  const double once = EstimateFor(of, SomeWork()).seconds->expected;
  const RecordedWork more = session::WithSteps(SomeWork(), 200);
  EXPECT_EQ(more.steps, 200u);
  EXPECT_NEAR(EstimateFor(of, more).seconds->expected, 10 * once, 1e-6 * once);
  EXPECT_NEAR(session::EstimateMeasured(of, 200, 0.25).seconds->expected, 50, 1e-9);
}

TEST(Estimate, TheRecordOfAProgram_IsReadAsItWasWritten) {
  RecordedWork work = SomeWork();
  work.unknown = "two\nlines";
  const auto read = session::WorkFromText(ToText(work));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kernels, work.kernels);
  EXPECT_EQ(read->steps, 20u);
  EXPECT_EQ(read->unknown, "two lines");
  for (const char* text : {"", "end \n", "outboard-work-1 sessions=1\nend \n"})
    EXPECT_FALSE(session::WorkFromText(text).ok()) << text;
  std::string damaged = ToText(work);
  damaged.replace(damaged.find("10000000"), 8, "-1000000");
  EXPECT_FALSE(session::WorkFromText(damaged).ok());
}

TEST(Estimate, KernelsOfLittleWork_CostTheirStart) {
  const std::vector<session::KernelWork> little = {{.others = 100, .bytes = 400, .count = 1000}};
  // 40 us at 100 GB/s.
  const std::vector<session::KernelWork> more = {{.bytes = 4e6, .count = 1000}};
  const DeviceClass slow{.gflops = 500, .memory_gb_per_s = 100},
      fast{.gflops = 50'000, .memory_gb_per_s = 100};
  EXPECT_NEAR(session::DeviceSeconds(little, slow), 0.001, 0.0001) << "a thread's";
  EXPECT_NEAR(session::DeviceSeconds(more, slow), 0.08, 0.001) << "threads are woken";
  EXPECT_NEAR(session::DeviceSeconds(little, fast), 0.005, 0.0001) << "launches";
  EXPECT_NEAR(session::DeviceSeconds(more, fast), 0.045, 0.001);
}

TEST(Estimate, ProductsByMatrixUnits_HaveTheirOwnRates) {
  using session::ProductKind;
  const DeviceClass of{.gflops = 10'000, .memory_gb_per_s = 1e6, .tf32_gflops = 60'000,
                       .half_gflops = 100'000, .f8_gflops = 200'000};
  const auto seconds = [&](const DeviceClass& at, ProductKind kind) {
    return session::DeviceSeconds({{.products = 1e15, .kind = kind}}, at);
  };
  const double f32 = seconds(of, ProductKind::kF32);
  EXPECT_NEAR(f32 / seconds(of, ProductKind::kThreeTf32), 2, 0.01);
  EXPECT_NEAR(f32 / seconds(of, ProductKind::kTf32), 6, 0.01);
  EXPECT_NEAR(f32 / seconds(of, ProductKind::kHalf), 10, 0.01);
  EXPECT_NEAR(f32 / seconds(of, ProductKind::kF8), 20, 0.01);
  DeviceClass without = of;
  without.tf32_gflops = without.f8_gflops = 0;
  EXPECT_EQ(seconds(without, ProductKind::kTf32), f32);
  EXPECT_EQ(seconds(without, ProductKind::kF8), seconds(of, ProductKind::kHalf));
}

// The rate check measures f32 and memory alone.
TEST(Estimate, AProductAtARateOnPaper_HasTheWideRange) {
  const DeviceClass of{.gflops = 30'000, .memory_gb_per_s = 1'000, .tf32_gflops = 60'000,
                       .half_gflops = 300'000};
  const auto is_wide = [&](session::ProductKind kind, double products) {
    RecordedWork work = SomeWork();
    work.kernels = {{.products = 1e9}, {.products = products, .bytes = 1e6, .kind = kind}};
    const session::ClassEstimate estimate = EstimateFor(of, work);
    const double factor = estimate.seconds->high / estimate.seconds->expected;
    EXPECT_NEAR(factor, estimate.of.rates_on_paper ? session::kRatesOnPaperRangeFactor
                                                   : session::kGraphRangeFactor, 1e-9);
    return estimate.of.rates_on_paper;
  };
  using session::ProductKind;
  EXPECT_FALSE(is_wide(ProductKind::kF32, 1e12));
  EXPECT_TRUE(is_wide(ProductKind::kHalf, 1e12));
  EXPECT_TRUE(is_wide(ProductKind::kTf32, 1e12));
  EXPECT_TRUE(is_wide(ProductKind::kF8, 1e12)) << "as bf16";
  EXPECT_FALSE(is_wide(ProductKind::kThreeTf32, 1e12)) << "f32 is faster, and measured";
  EXPECT_FALSE(is_wide(ProductKind::kHalf, 0));
}

// One graph with products of 130 sizes, run with 512 values of its variable.
TEST(RunLog, KernelsPastTheLimit_KeepTheirKind) {
  Graph g;
  const Dim n(Var(g, 0, 1, 1000));
  std::vector<const UOp*> results;
  for (int64_t i = 0; i < 130; ++i) {
    const Dim k(2000 + i);
    const auto of = [&](int64_t slot, Dim rows, Dim columns) {
      return Cast(g, Param(g, slot, DType::kBF16, {rows, columns}), DType::kF32);
    };
    results.push_back(Product(g, of(2 * i, n, k), of(2 * i + 1, k, Dim(1))));
  }
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(Sink(g, results)));
  const auto graph = std::make_shared<const std::string>(encoded.bytes);
  session::RunLog log;
  double products = 0;
  for (uint32_t run = 0; run < session::kGraphsLoggedMax; ++run) {
    const int64_t value = 1 + run;
    session::RunRequest request{.graph = graph, .bindings = {{0, value}}};
    request.graph_id[0] = static_cast<uint8_t>(run % 256);
    request.graph_id[1] = static_cast<uint8_t>(run / 256);
    log.NoteRun(request, {});
    for (int64_t i = 0; i < 130; ++i) products += 2.0 * static_cast<double>(value * (2000 + i));
  }
  const RecordedWork work = log.Work();
  EXPECT_EQ(work.unknown, "");
  EXPECT_LE(work.kernels.size(), session::kWorkKernelsMax);
  EXPECT_GT(work.kernels.size(), session::kWorkKernelsMax - 10) << "all of them have room";
  double half = 0;
  for (const session::KernelWork& k : work.kernels) {
    if (k.products == 0) continue;
    ASSERT_EQ(k.kind, session::ProductKind::kHalf);
    half += k.products * k.count;
  }
  EXPECT_NEAR(half / products, 1, 1e-9);
}

TEST(GraphWork, AProductIsOfTheNarrowestFloatsOnTheWayOfItsWiderOperand) {
  Graph g;
  const UOp* const a = Param(g, 0, DType::kBF16, {8, 16});
  const UOp* const b = Param(g, 1, DType::kF32, {16, 4});
  const UOp* const wide = Cast(g, a, DType::kF32);
  const auto kind = [&](const UOp* x, const UOp* y) {
    for (const session::KernelWork& k : WorkOf(Sink(g, {Product(g, x, y)})).kernels)
      if (k.products > 0) return k.kind;
    return session::ProductKind::kF8;
  };
  EXPECT_EQ(kind(wide, b), session::ProductKind::kF32);
  const UOp* const rounded = Cast(g, Cast(g, b, DType::kBF16), DType::kF32);
  EXPECT_EQ(kind(wide, rounded), session::ProductKind::kHalf);
}

TEST(Estimate, TheGraphsOfAProgram_AreReadAsTheyWereWritten) {
  std::map<std::pair<uint64_t, uint64_t>, session::SentGraph> graphs;
  const auto encoding = std::make_shared<const std::string>("two\nlines \xff");
  session::SentGraph sent{.encoding = encoding, .bindings = {{3, 17}, {4, -1}}, .donated = {0, 2},
                          .steps = 5};
  ASSERT_TRUE(AddGraphLine(session::ToLine(1, 0, sent, true), graphs).ok());
  sent.steps = 9;
  sent.donated = {};
  ASSERT_TRUE(AddGraphLine(session::ToLine(1, 0, sent, false), graphs).ok());
  ASSERT_EQ(graphs.size(), 1u);
  const session::SentGraph& read = graphs.begin()->second;
  EXPECT_EQ(*read.encoding, *encoding);
  EXPECT_EQ(read.steps, 9u);
  EXPECT_TRUE(read.donated.empty());
  ASSERT_EQ(read.bindings.size(), 2u);
  EXPECT_EQ(read.bindings[1].slot, 4);
  EXPECT_EQ(read.bindings[1].value, -1);
  EXPECT_FALSE(AddGraphLine(session::ToLine(1, 1, sent, false), graphs).ok()) << "never whole";
  for (const char* line :
       {"graph", "graph 1 0 5 bound: donated: *", "graph 1 0 5 bound:3 donated: known",
        "graph 1 900 5 bound: donated: AAAA", "graph 1 0 x bound: donated: known"})
    EXPECT_FALSE(session::AddGraphLine(line, graphs).ok()) << line;
}

TEST(StepPace, TheFirstTenSteps_DoNotCount) {
  session::StepPace times;
  const session::StepPace::Clock::time_point begin;
  const auto at = [&](int ms) { return begin + std::chrono::milliseconds(ms); };
  for (int step = 1; step <= 10; ++step) times.Note(step, at(step * 1000));
  EXPECT_FALSE(times.PerStep().has_value());
  times.Note(15, at(10'050));
  EXPECT_FALSE(times.PerStep().has_value()) << "five say little";
  times.Note(30, at(10'200));
  ASSERT_TRUE(times.PerStep().has_value());
  EXPECT_EQ(times.PerStep()->steps, 20u);
  EXPECT_NEAR(times.PerStep()->seconds_per_step, 0.01, 1e-9);
}

// A program of two kinds of steps has the mean of both; what happens once is left out.
TEST(StepPace, WhatHappensOnce_DoesNotCount_AndWhatAlternates_Does) {
  session::StepPace times;
  session::StepPace::Clock::time_point now;
  for (int step = 1; step <= 40; ++step) {
    now += std::chrono::milliseconds(step == 20 ? 5000 : step % 2 == 0 ? 30 : 10);
    times.Note(step, now);
  }
  ASSERT_TRUE(times.PerStep().has_value());
  EXPECT_EQ(times.PerStep()->steps, 21u);  // half a second of them, and that one
  EXPECT_NEAR(times.PerStep()->seconds_per_step, 0.02, 0.001);
}

// A step takes 0.2 ms, and a gateway answers for ten, one by one, when the last is done.
TEST(StepPace, AnswersThatComeAtOnce_CountWithTheTimeThatTheyTook) {
  session::StepPace times;
  session::StepPace::Clock::time_point now;
  for (int step = 1; step <= 200; ++step) {
    now += std::chrono::microseconds(step % 10 == 1 ? 1910 : 10);
    times.Note(step, now);
  }
  EXPECT_NEAR(times.PerStep()->seconds_per_step, 0.0002, 0.00002);
}

// Half a second of them, however many steps those are.
TEST(StepPace, ShortStepsThatTakeTurns_CountForHalfASecond) {
  session::StepPace times;
  session::StepPace::Clock::time_point now;
  for (int step = 1; step <= 2000; ++step) {
    now += std::chrono::microseconds(step / 100 % 2 == 0 ? 300 : 500);
    times.Note(step, now);
  }
  EXPECT_NEAR(times.PerStep()->seconds_per_step, 0.0004, 0.00003);
  EXPECT_NEAR(static_cast<double>(times.PerStep()->steps), 1250, 150);
}

// What came long ago says nothing of now.
TEST(StepPace, TheLatestSteps_Count) {
  session::StepPace times;
  session::StepPace::Clock::time_point now;
  for (int step = 1; step <= 2000; ++step) {
    now += std::chrono::milliseconds(step <= 1000 ? 10 : 20);
    times.Note(step, now);
  }
  EXPECT_NEAR(times.PerStep()->seconds_per_step, 0.02, 1e-9);
}

TEST(StepPace, IsEnough_AfterASecond_AndTenAtLeast) {
  const auto enough_at = [](int ms_per_step) {
    session::StepPace times;
    session::StepPace::Clock::time_point now;
    int step = 0;
    while (!times.HasEnough()) {
      now += std::chrono::milliseconds(ms_per_step);
      times.Note(++step, now);
    }
    return step;
  };
  EXPECT_EQ(enough_at(1), 10 + 1000);
  EXPECT_EQ(enough_at(50), 10 + 20);
  EXPECT_EQ(enough_at(1000), 10 + 10);
}

TEST(RecordingSession, ProgramsRun_AndReadValuesThatAreMadeUp) {
  SetSession(MakeRecordingSession({}));
  Tensor w = Tensor::from<float>({1, 2, 3, 4}).state_();
  for (int i = 0; i < 3; ++i) {
    w.assign(w * 2);
    w.realize();
  }
  EXPECT_EQ(w.to_vector<double>(), std::vector<double>({1, 1, 1, 1}));
  EXPECT_EQ((w.sum() > 3).item(), 0);
  EXPECT_EQ(SessionIfConnected()->stats().steps, 4u);
  // Without a gateway there are no classes.
  EXPECT_EQ(session::EstimatesOf(*SessionIfConnected()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CloseSession().ok());
  SetSession(MakeDrySession());
  EXPECT_EQ(session::EstimatesOf(*SessionIfConnected()).status().code(),
            absl::StatusCode::kUnimplemented);
  SetSession(nullptr);
}

}  // namespace
}  // namespace outboard
