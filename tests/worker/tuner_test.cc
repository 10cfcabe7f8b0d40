// An engine that searches, and one that uses what was found: the same answers, nothing searched
// twice, and a store that holds nonsense costs nothing but speed.
#include "worker/tuning/tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "tests/support/device.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/tuning/kernel_measurer.h"
#include "worker/tuning/tuning_key.h"

namespace outboard::worker {
namespace {

class CountingCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    sources.insert(sources.end(), kernels.begin(), kernels.end());
    if (preempted) return {kernels.size(), absl::CancelledError("somebody waits")};
    auto compiled = compiler_.Compile(kernels);
    for (size_t i = 0; i < kernels.size(); ++i)
      if (compiled[i].ok() && refused.contains(kernels[i].opts)) compiled[i]->object = "no object";
    return compiled;
  }
  const Target& target() const override { return compiler_.target(); }
  std::vector<KernelSource> sources;
  bool preempted = false;
  std::set<std::optional<std::string>> refused;  // Opts whose code no device takes

 private:
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
};

// x @ w, f32 of 48 by 40 and 40 by 64, as one kernel.
const UOp* Product(Graph& g) {
  const UOp* const x =
      Expand(g, Reshape(g, Param(g, 0, DType::kF32, {48, 40}), {48, 40, 1}), {48, 40, 64});
  const UOp* const w =
      Expand(g, Reshape(g, Param(g, 1, DType::kF32, {40, 64}), {1, 40, 64}), {48, 40, 64});
  return Sink(g, {Reduce(g, Op::kAdd, Mul(g, x, w), {1})});
}

class TunerTest : public ::testing::Test {
 protected:
  // What a new process does with the store as it is.
  std::vector<float> RunOnce(int beam) {
    compiler_.sources.clear();
    const auto engine = MakeCompiledEngine(&compiler_, test::MakeDevice(1 << 26, 2),
                                           {.store = store_.get(), .beam = beam});
    return Answer(*engine);
  }
  std::vector<float> Answer(Engine& engine) {
    Graph g;
    const UOp* const sink = Product(g);
    std::vector<DeviceArrayPtr> inputs;
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const auto& dims : {std::vector<int64_t>{48, 40}, {40, 64}}) {
      auto array = ValueOrDie(engine.NewArray(DType::kF32, dims));
      std::vector<float> values(static_cast<size_t>(array->bytes() / 4));
      for (float& value : values) value = uniform(random);
      test::SetFloats(*array, values);
      inputs.push_back(array);
    }
    const auto out = ValueOrDie(engine.Execute(EncodeGraph(sink)->id, sink, inputs, {}));
    return test::FloatsOf(*out[0]);
  }
  void ExpectRight(const std::vector<float>& got) {
    const auto reference = MakeReferenceEngine(test::MakeDevice(1 << 26));
    const std::vector<float> want = Answer(*reference);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * (1 + std::fabs(want[i])));
  }
  TuningKey KeyOfProduct() {
    Graph g;
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, Product(g), HostTarget()));
    EXPECT_EQ(schedule.kernels.size(), 1u);
    return {ValueOrDie(CanonicalKernel(schedule.kernels[0].ast)).id.ToBytes(),
            search::kSpaceVersion, HostTarget().Fingerprint()};
  }

  test::TempFolder folder_;
  std::unique_ptr<TuningFile> store_ = ValueOrDie(TuningFile::Open(folder_ / "kernels.db"));
  CountingCompiler compiler_;
};

TEST_F(TunerTest, WithoutBeamNothingIsSearched) {
  ExpectRight(RunOnce(0));
  EXPECT_EQ(compiler_.sources.size(), 1u);
  EXPECT_FALSE(compiler_.sources[0].opts.has_value());
  EXPECT_TRUE(ValueOrDie(store_->List()).empty());
}

TEST_F(TunerTest, WhatWasSearchedOnceIsUsedFromThenOn) {
  ExpectRight(RunOnce(2));
  EXPECT_GT(compiler_.sources.size(), 10u);
  const std::vector<Tuning> known = ValueOrDie(store_->List());
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].key.kernel, KeyOfProduct().kernel);
  EXPECT_EQ(known[0].width, 2);
  ASSERT_NE(known[0].best(), nullptr);
  EXPECT_LE(known[0].best()->time_ns, known[0].trials[0].time_ns);
  // Other processes, one that would search and one that would not.
  for (const int beam : {2, 0}) {
    ExpectRight(RunOnce(beam));
    ASSERT_EQ(compiler_.sources.size(), 1u) << beam;
    EXPECT_EQ(compiler_.sources[0].opts, codegen::OptsToString(known[0].best()->opts));
  }
  // A wider search goes on from there: only what had no chance before may be tried again.
  ExpectRight(RunOnce(3));
  const std::vector<Tuning> wider = ValueOrDie(store_->List());
  EXPECT_EQ(wider[0].width, 3);
  ASSERT_GE(wider[0].trials.size(), known[0].trials.size());
  for (size_t i = 0; i < known[0].trials.size(); ++i) {
    const search::Trial &before = known[0].trials[i], &after = wider[0].trials[i];
    EXPECT_EQ(after.opts, before.opts);
    if (before.verified || !before.works()) {
      EXPECT_EQ(after, before);
    }
  }
}

TEST_F(TunerTest, AStoreThatHoldsNonsenseCostsNothingButSpeed) {
  // Fast, "verified", and not legal for this kernel; then legal and slow.
  const TuningKey key = KeyOfProduct();
  ASSERT_TRUE(
      store_->Add(key, "x", {ValueOrDie(codegen::ParseOpts("VECTOR:7:16")), 1, true, true}).ok());
  ExpectRight(RunOnce(0));
  EXPECT_EQ(compiler_.sources.size(), 2u);
  EXPECT_FALSE(compiler_.sources[1].opts.has_value());
  ASSERT_EQ(ValueOrDie(store_->Remove("")), 1);
  ASSERT_TRUE(store_->Add(key, "x", {{}, 1, true, true}).ok());
  ExpectRight(RunOnce(0));
  EXPECT_EQ(compiler_.sources.size(), 1u);
  EXPECT_EQ(compiler_.sources[0].opts, "");
}

// Cases 138 and 139 of hostile input: entries as somebody may have put them into the store, under
// the key of another kernel among them, as if two kernels had one hash.
TEST_F(TunerTest, AnEntryOfAnotherKernel_IsIgnoredOrGivesTheRightResult) {
  const struct {
    const char* opts;
    bool is_legal_here;
  } cases[] = {
      {"VECTOR:9:8", false},                                   // an axis that this kernel has not
      {"VECTOR:1:7", false},                                   // no width
      {"VECTOR:1:1073741824", false},                          // far beyond the extent
      {"LOCAL:0:0", true},
      {"UPCAST:3:-7", false},
      {"VECTOR:1:16 VECTOR:1:16", false},
      {"VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0", false},  // of bf16 on matrix units
      {"VECTOR:1:8 UPCAST:0:4", true},                         // of a larger product
  };
  for (const auto& c : cases) {
    auto opts = codegen::ParseOpts(c.opts);
    ASSERT_TRUE(opts.ok()) << c.opts << ": " << opts.status();
    ASSERT_TRUE(store_->Add(KeyOfProduct(), "another kernel", {*opts, 1, true, true}).ok());
    ExpectRight(RunOnce(0));
    ASSERT_FALSE(compiler_.sources.empty()) << c.opts;
    // What runs in the end: the entry's, or the kernel without it.
    EXPECT_EQ(compiler_.sources.back().opts.has_value(), c.is_legal_here) << c.opts;
    ASSERT_EQ(ValueOrDie(store_->Remove("")), 1);
  }
}

// As a driver may: what was tuned, then what the compiler chooses.
TEST_F(TunerTest, CodeThatTheDeviceDoesNotTake_IsStruck_AndSimplerCodeRuns) {
  const std::string tuned = "VECTOR:1:8 UPCAST:0:4";
  const std::vector<codegen::Opt> opts = ValueOrDie(codegen::ParseOpts(tuned));
  ASSERT_TRUE(store_->Add(KeyOfProduct(), "x", {opts, 1, true, true}).ok());
  compiler_.refused = {tuned};
  ExpectRight(RunOnce(0));
  ASSERT_EQ(compiler_.sources.size(), 2u);
  EXPECT_EQ(compiler_.sources[0].opts, tuned);
  EXPECT_EQ(compiler_.sources[1].opts, std::nullopt);
  EXPECT_EQ(ValueOrDie(store_->List())[0].best(), nullptr);
  compiler_.refused.insert(std::nullopt);
  ExpectRight(RunOnce(0));
  ASSERT_EQ(compiler_.sources.size(), 2u);
  EXPECT_EQ(compiler_.sources[0].opts, std::nullopt) << "not the Opts that are struck";
  EXPECT_EQ(compiler_.sources[1].opts, "");
}

// The compiler refuses what the store says, and the device what the compiler chooses instead.
TEST_F(TunerTest, OptsThatTheCompilerRefuses_AreNotStruckForTheDevice) {
  const std::vector<codegen::Opt> illegal = ValueOrDie(codegen::ParseOpts("VECTOR:7:16"));
  ASSERT_TRUE(store_->Add(KeyOfProduct(), "x", {illegal, 1, true, true}).ok());
  compiler_.refused = {std::nullopt};
  ExpectRight(RunOnce(0));
  ASSERT_EQ(compiler_.sources.size(), 3u);
  EXPECT_EQ(compiler_.sources[2].opts, "");
  EXPECT_EQ(ValueOrDie(store_->List())[0].trials.size(), 1u);
}

const auto kNobody = [] { return false; };
const auto kSomebody = [] { return true; };

class IdleTimeTest : public TunerTest {
 protected:
  // In a process with its compiler for idle time.
  std::unique_ptr<Engine> NewEngine() {
    return MakeCompiledEngine(&compiler_, test::MakeDevice(1 << 26, 2),
                              {.store = store_.get(), .idle_compiler = &idle_});
  }
  std::optional<Demand> Costliest() {
    return ValueOrDie(store_->Costliest(search::kSpaceVersion, HostTarget().Fingerprint(), 2));
  }
  void Measured(std::string_view opts, int64_t time_ns) {
    ASSERT_TRUE(
        store_
            ->Add(KeyOfProduct(), "x", {ValueOrDie(codegen::ParseOpts(opts)), time_ns, true, true})
            .ok());
  }

  CountingCompiler idle_;
};

TEST_F(IdleTimeTest, WhatRunsHaveCostIsSearchedFor) {
  const auto engine = NewEngine();
  ExpectRight(Answer(*engine));
  engine->TellCosts(kSomebody);
  EXPECT_FALSE(Costliest().has_value());
  engine->TellCosts(kNobody);
  const std::optional<Demand> demand = Costliest();
  ASSERT_TRUE(demand.has_value());
  EXPECT_EQ(demand->key.kernel, KeyOfProduct().kernel);
  engine->TellCosts(kNobody);  // told already
  EXPECT_EQ(Costliest()->cost_us, demand->cost_us);

  // What the search process does.
  const auto device = test::MakeDevice(0, 2);
  Tuner tuner(store_.get(), &idle_, device.get(), {.width = 2});
  ASSERT_TRUE(tuner.SearchFor(*demand).ok());
  EXPECT_FALSE(Costliest().has_value());
  const Tuning found = ValueOrDie(store_->List())[0];
  EXPECT_EQ(found.width, 2);
  // The next process has it from the beginning.
  ExpectRight(Answer(*NewEngine()));
  EXPECT_EQ(compiler_.sources.back().opts, codegen::OptsToString(found.best()->opts));
}

TEST_F(IdleTimeTest, WhatCannotBeSearchedCountsAsSearched) {
  Demand demand{.key = KeyOfProduct(), .name = "x", .encoding = "no kernel", .cost_us = 5};
  ASSERT_TRUE(store_->AddCosts({&demand, 1}).ok());
  const auto device = test::MakeDevice(0, 1);
  Tuner tuner(store_.get(), &idle_, device.get(), {.width = 2});
  ASSERT_TRUE(tuner.SearchFor(*Costliest()).ok());
  EXPECT_FALSE(Costliest().has_value());
}

TEST_F(IdleTimeTest, ABetterKernelIsSwitchedInBetweenRuns) {
  const auto engine = NewEngine();
  ExpectRight(Answer(*engine));
  const std::vector<KernelVersion> first = engine->TakeVersions();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_FALSE(first[0].opts.has_value());
  EXPECT_TRUE(engine->TakeVersions().empty());

  Measured("VECTOR:1:8", 1000);  // the first counts as the heuristic's
  Measured("VECTOR:1:4", 990);
  engine->UseBetterKernels(kNobody);
  EXPECT_TRUE(engine->TakeVersions().empty()) << "not enough better";
  Measured("VECTOR:1:4 UPCAST:0:2", 500);
  engine->UseBetterKernels(kSomebody);
  idle_.preempted = true;
  engine->UseBetterKernels(kNobody);
  EXPECT_TRUE(engine->TakeVersions().empty()) << "somebody waited";
  idle_.preempted = false;
  engine->UseBetterKernels(kNobody);
  const std::vector<KernelVersion> better = {{first[0].kernel, "VECTOR:1:4 UPCAST:0:2"}};
  EXPECT_EQ(engine->TakeVersions(), better);
  ExpectRight(Answer(*engine));
  EXPECT_TRUE(engine->TakeVersions().empty());

  Measured("VECTOR:7:16", 1);  // not legal for it: tried once
  idle_.sources.clear();
  engine->UseBetterKernels(kNobody);
  engine->UseBetterKernels(kNobody);
  EXPECT_TRUE(engine->TakeVersions().empty());
  EXPECT_EQ(idle_.sources.size(), 1u);
  EXPECT_EQ(compiler_.sources.size(), 1u) << "the engine's own is for Runs";
}

// Versions decide bits: what a replay is told goes before what is known to be faster.
TEST_F(IdleTimeTest, APinnedVersionStays) {
  const KernelVersion wanted{[&] {
                               const auto engine = NewEngine();
                               Answer(*engine);
                               return engine->TakeVersions()[0].kernel;
                             }(),
                             "VECTOR:1:4"};
  Measured("VECTOR:1:8", 1000);
  Measured("UPCAST:0:2", 100);
  const auto engine = NewEngine();
  engine->Pin(wanted);
  ExpectRight(Answer(*engine));
  engine->UseBetterKernels(kNobody);
  EXPECT_EQ(engine->TakeVersions(), std::vector<KernelVersion>{wanted});
  engine->Pin({wanted.kernel, std::nullopt});  // now in use
  EXPECT_EQ(engine->TakeVersions(), (std::vector<KernelVersion>{{wanted.kernel, std::nullopt}}));
  ExpectRight(Answer(*engine));
}

}  // namespace
}  // namespace outboard::worker
