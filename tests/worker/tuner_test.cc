// An engine that searches, and one that uses what was found: the same answers, nothing searched
// twice, and a store that holds nonsense costs nothing but speed.
#include "worker/tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/neighbours.h"
#include "tests/support/temp_folder.h"
#include "worker/compiled_engine.h"
#include "worker/hardware_class.h"
#include "worker/in_process_compiler.h"
#include "worker/tuning_key.h"

namespace outboard::worker {
namespace {

class CountingCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    sources.insert(sources.end(), kernels.begin(), kernels.end());
    return compiler_.Compile(kernels);
  }
  std::vector<KernelSource> sources;

 private:
  InProcessCompiler compiler_;
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
    const auto engine = MakeCompiledEngine(
        &compiler_,
        {.memory_bytes_max = 1 << 26, .threads = 2, .store = store_.get(), .beam = beam});
    return Answer(*engine);
  }
  std::vector<float> Answer(Engine& engine) {
    Graph g;
    const UOp* const sink = Product(g);
    std::vector<ArrayPtr> inputs;
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const auto& dims : {std::vector<int64_t>{48, 40}, {40, 64}}) {
      auto array = ValueOrDie(engine.NewArray(DType::kF32, dims));
      for (int64_t i = 0; i < array->bytes() / 4; ++i)
        reinterpret_cast<float*>(array->data())[i] = uniform(random);
      inputs.push_back(array);
    }
    const auto out = ValueOrDie(engine.Run(EncodeGraph(sink)->id, sink, inputs, {}));
    const auto* values = reinterpret_cast<const float*>(out[0]->data());
    return {values, values + 48 * 64};
  }
  void ExpectRight(const std::vector<float>& got) {
    const auto reference = MakeReferenceEngine(1 << 26);
    const std::vector<float> want = Answer(*reference);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * (1 + std::fabs(want[i])));
  }
  TuningKey KeyOfProduct() {
    Graph g;
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, Product(g)));
    EXPECT_EQ(schedule.kernels.size(), 1u);
    return {ValueOrDie(CanonicalKernel(schedule.kernels[0].ast)).id.ToBytes(),
            search::kSpaceVersion, HardwareClass()};
  }

  test::TempFolder folder_;
  std::unique_ptr<KernelStore> store_ = ValueOrDie(KernelStore::Open(folder_ / "kernels.db"));
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

}  // namespace
}  // namespace outboard::worker
