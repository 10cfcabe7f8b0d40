// Products of few and of many rows by packed weights on a processor: the weights are never kept
// unpacked in memory, and what is computed is what the interpreter says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/opt.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/packed_weights.h"

namespace outboard::test {
namespace {

using Kind = schedule::ScheduledBuffer::Kind;

// The largest array that the schedule keeps for itself.
int64_t LargestTemporary(const PackedProduct& product) {
  Graph recorded, graph;
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(graph, product.Record(recorded), TestTarget()));
  int64_t most = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
    if (buffer.kind == Kind::kTemporary) most = std::max(most, buffer.bytes());
  return most;
}

int64_t BytesOfTemporaries(const PackedProduct& product) {
  Graph recorded, graph;
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(graph, product.Record(recorded), TestTarget()));
  int64_t bytes = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
    if (buffer.kind == Kind::kTemporary) bytes += buffer.bytes();
  return bytes;
}

TEST(PackedRows, WeightsAreNeverUnpackedToMemory) {
  for (const auto& [weights, name] : kAllWeights)
    for (const int64_t rows : {1, 4, 8, 16, 61, 64, 256, 4096}) {
      const PackedProduct product{.rows = rows, .columns = 512, .weights = weights};
      // Of other rows than these no part is kept.
      EXPECT_LE(LargestTemporary(product), std::min(product.BytesOfSums(), product.WeightBytes()))
          << rows << " rows, " << name;
    }
}

// Scales of six bits are a kernel of their own on a processor, which picks them one by one: what it
// writes is what scales and least values have as f32, and nothing has as many numbers as weights.
TEST(PackedRows, ScalesOfSixBitsAreAllThatIsWritten) {
  for (const auto& [weights, name] : kWeightsOfManyScales)
    for (const int64_t rows : {1, 8, 64, 256}) {
      const PackedProduct product{.rows = rows, .columns = 512, .weights = weights};
      const int64_t of_scales =
          product.columns * product.terms / (weights == Weights::kQ4K ? 32 : 16) * 4;
      EXPECT_LE(LargestTemporary(product), of_scales) << rows << " rows, " << name;
      const bool has_least = weights != Weights::kQ6K;
      EXPECT_LE(BytesOfTemporaries(product), has_least ? 2 * of_scales : of_scales)
          << rows << " rows, " << name;
    }
}

// Those of one f16 are read where the weights of a few rows are unpacked.
TEST(PackedRows, ScalesOfAFewRowsAreNotWritten) {
  for (const Weights weights : {Weights::kQ8, Weights::kQ4, Weights::kIq4Nl})
    for (const int64_t rows : {1, 4, 8})
      EXPECT_EQ(BytesOfTemporaries({.rows = rows, .columns = 512, .weights = weights}), 0)
          << rows << " rows, " << static_cast<int>(weights);
}

// A panel of the weights is unpacked for many rows at once, in memory of the thread's own.
TEST(PackedRows, ManyRows_ShareWhatIsUnpacked) {
  for (const Weights weights : {Weights::kInt8, Weights::kQ8, Weights::kQ4, Weights::kIq4Nl,
                                Weights::kIq4Xs, Weights::kMxfp4, Weights::kU32}) {
    Graph recorded, graph;
    const PackedProduct product{.rows = 256, .columns = 512, .weights = weights};
    const auto schedule =
        ValueOrDie(schedule::MakeSchedule(graph, product.Record(recorded), TestTarget()));
    bool copies_unpacked = false;
    std::string opts;
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      Graph guards;
      const codegen::LoopNest nest = ValueOrDie(
          codegen::AnalyzeKernel(ValueOrDie(PlainKernel(guards, kernel.ast, TestTarget()))));
      const auto loads = static_cast<int64_t>(codegen::LoadsOf(nest).size());
      const auto lists = ValueOrDie(StartingOpts(kernel.ast, TestTarget()));
      for (const codegen::Opt& opt : lists[0]) {
        opts += codegen::OptToString(opt) + " ";
        copies_unpacked |= opt.kind == codegen::OptKind::kLocal && opt.axis >= loads;
      }
    }
    EXPECT_TRUE(copies_unpacked) << opts << "\n" << ScheduleToString(schedule);
  }
}

void ExpectComputed(const PackedProduct& product) {
  Graph recorded, graph;
  const UOp* const sink = product.Record(recorded);
  std::mt19937 random(1);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink))
    params.push_back({param->dtype, StaticDims(param->shape), product.RandomBytes(param, random)});
  const std::vector<double> want = FloatsOf(ValueOrDie(Interpret(sink, params))[0]);
  const Target& target = HostTarget();
  const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, sink, target));
  Buffers memory;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind == Kind::kInput) memory.back() = params[buffer.index].bytes;
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    Buffers own;
    for (const int i : kernel.buffers) own.push_back(memory[i]);
    const auto loaded =
        ValueOrDie(LoadedKernel::Load(ValueOrDie(CompileKernel(kernel.ast, {.target = target}))));
    loaded->RunGuarded(own, /*pieces=*/2);
    for (size_t slot = 0; slot < own.size(); ++slot) memory[kernel.buffers[slot]] = own[slot];
  }
  for (size_t i = 0; i < schedule.buffers.size(); ++i) {
    if (schedule.buffers[i].kind != Kind::kOutput) continue;
    const std::vector<double> got =
        FloatsOf({DType::kF32, {product.rows, product.columns}, memory[i]});
    for (size_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got[k], want[k], 1e-4 * (1 + std::abs(want[k]))) << k;
  }
}

TEST(PackedRows, ComputeWhatTheInterpreterDoes) {
  std::vector<std::pair<Weights, const char*>> all(std::begin(kAllWeights), std::end(kAllWeights));
  all.insert(all.end(), std::begin(kWeightsOfManyScales), std::end(kWeightsOfManyScales));
  for (const auto& [weights, name] : all)
    for (const int64_t rows : {1, 8, 33, 130}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows, ", name));
      ExpectComputed({.rows = rows, .columns = 80, .terms = 256, .weights = weights});
    }
}

TEST(PackedRows, EightNumbersInAWord) {
  for (const int64_t rows : {1, 8, 33, 256, 4096}) {
    SCOPED_TRACE(rows);
    const PackedProduct product{.rows = rows, .columns = 512, .weights = Weights::kU32};
    EXPECT_LE(LargestTemporary(product), std::min(product.BytesOfSums(), product.WeightBytes()));
  }
  for (const int64_t rows : {1, 8, 33, 130}) {
    SCOPED_TRACE(rows);
    ExpectComputed({.rows = rows, .columns = 80, .terms = 256, .weights = Weights::kU32});
  }
}

}  // namespace
}  // namespace outboard::test
