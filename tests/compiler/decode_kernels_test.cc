// Products of one row, and of a few, with a matrix of weights, as decoding tokens has them, on a
// GPU: that packed weights are never expanded in memory, and how many sectors the PTX machine
// counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/packed_weights.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;

absl::Status Launch(const CompiledKernel& kernel, const std::vector<uint64_t>& addresses,
                    ptx::Machine& machine) {
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.shared_bytes = SharedBytesOfLaunch(kernel);
  for (size_t axis = 0; axis < 3; ++axis) {
    config.grid[axis] = static_cast<uint32_t>(kernel.blocks[axis]);
    config.block[axis] = static_cast<uint32_t>(kernel.threads[axis]);
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (machine.reports().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(machine.reports()[0].ToString());
}

// Sectors to the fewest: weights once, and for each result the row.
double CheckDecoded(int64_t rows, Weights weights) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Graph recorded, graph;
  const PackedProduct product{.rows = rows, .weights = weights};
  const UOp* const sink = product.Record(recorded);
  std::mt19937 random(1);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink))
    params.push_back({param->dtype, StaticDims(param->shape), product.RandomBytes(param, random)});
  const std::vector<double> want = FloatsOf(ValueOrDie(Interpret(sink, params))[0]);
  const Target target = CudaTarget("sm_90", kMultiprocessors);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, sink, target));
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  std::vector<uint64_t> addresses;
  uint64_t result = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    addresses.push_back(memory.Allocate(static_cast<size_t>(buffer.bytes())));
    if (buffer.kind == Kind::kTemporary) {
      EXPECT_LE(buffer.bytes(), product.BytesOfSums()) << "weights are expanded in memory";
    }
    if (buffer.kind == Kind::kOutput) result = addresses.back();
    if (buffer.kind == Kind::kInput) {
      const std::string& bytes = params[buffer.index].bytes;
      OB_CHECK(memory.Write(addresses.back(), bytes.data(), bytes.size()));
    }
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    std::vector<uint64_t> own;
    for (const int i : kernel.buffers) own.push_back(addresses[i]);
    const CompiledKernel compiled = ValueOrDie(
        CompileKernel(kernel.ast, {.target = target, .dump = std::getenv("DUMP") != nullptr}));
    const absl::Status ran = Launch(compiled, own, machine);
    EXPECT_EQ(ran, absl::OkStatus()) << ran;
  }
  std::vector<float> got(want.size());
  OB_CHECK(memory.Read(result, got.data(), got.size() * sizeof(float)));
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i]))) << i;
  std::printf("%llu instructions of warps; ",
              static_cast<unsigned long long>(machine.counters().warp_instructions));
  const int64_t of_rows = rows * product.columns * product.terms * 2;
  const double least = static_cast<double>(product.WeightBytes() + of_rows) / 32;
  return static_cast<double>(machine.counters().global_sectors) / least;
}

size_t KernelsOf(const PackedProduct& product) {
  Graph recorded, graph;
  return ValueOrDie(schedule::MakeSchedule(graph, product.Record(recorded),
                                           CudaTarget("sm_90", kMultiprocessors)))
      .kernels.size();
}

TEST(DecodeKernels, PackedWeightsAreUnpackedInRegisters) {
  for (const auto& [weights, name] : kAllWeights) {
    SCOPED_TRACE(name);
    const double ratio = CheckDecoded(1, weights);
    EXPECT_LE(ratio, 1.05);
    std::printf("sectors of a row by %s weights: %.3f of the fewest\n", name, ratio);
  }
}

// The six bits of a scale cost a thread some operations for each four weights, and a kernel of its
// own the bytes that it moves: with one row the bytes are more (FindParts in materialize.cc).
TEST(DecodeKernels, ScalesOfSixBitsOfARowAreUnpackedInRegisters) {
  for (const auto& [weights, name] : kWeightsOfManyScales) {
    SCOPED_TRACE(name);
    const double ratio = CheckDecoded(1, weights);
    EXPECT_LE(ratio, 1.05);
    std::printf("sectors of a row by %s weights: %.3f of the fewest\n", name, ratio);
    EXPECT_EQ(KernelsOf({.weights = weights}), 1u);
    EXPECT_GT(KernelsOf({.rows = 8, .weights = weights}), 1u) << "eight rows pick in vain";
  }
}

// A small batch, or guesses of the next tokens that are checked together.
TEST(DecodeKernels, PackedWeightsOfAFewRowsAreUnpackedInRegisters) {
  for (const int64_t rows : {4, 8, 16, 64}) {
    for (const auto& [weights, name] : kAllWeights) {
      SCOPED_TRACE(absl::StrCat(rows, " rows, ", name));
      const double ratio = CheckDecoded(rows, weights);
      EXPECT_LE(ratio, rows < 8 ? 1.65 : 0.3);
      std::printf("sectors of %d rows by %s weights: %.3f of the fewest\n", static_cast<int>(rows),
                  name, ratio);
    }
  }
}

// As large as models have them: a block copies its rows, leaves room for others, and keeps what it
// computes in registers.
TEST(DecodeKernels, RowsOfLargePackedWeights_AreCopiedWhole) {
  const std::string ptxas = FindPtxas();
  const Target target = CudaTarget("sm_90", kMultiprocessors);
  for (const auto& [columns, terms] :
       {std::pair<int64_t, int64_t>{4096, 4096}, {11008, 4096}, {4096, 11008}, {50257, 768}})
    for (const Weights weights : {Weights::kQ8, Weights::kQ4}) {
      SCOPED_TRACE(absl::StrCat(columns, " by ", terms, weights == Weights::kQ8 ? ", Q8" : ", Q4"));
      Graph recorded, graph;
      const PackedProduct product{.columns = columns, .terms = terms, .weights = weights};
      const auto schedule =
          ValueOrDie(schedule::MakeSchedule(graph, product.Record(recorded), target));
      ASSERT_EQ(schedule.kernels.size(), 1);
      const CompiledKernel compiled =
          ValueOrDie(CompileKernel(schedule.kernels[0].ast, {.target = target}));
      EXPECT_TRUE(absl::StrContains(compiled.object, "cp.async")) << compiled.object;
      constexpr int64_t kBytesOfThread = 64;
      EXPECT_LE(compiled.shared_bytes, kBytesOfThread * compiled.threads[0] + 1024);
      if (ptxas.empty()) continue;
      const auto assembled = AssembleKernel(ptxas, compiled.object, "sm_90");
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      EXPECT_EQ(assembled->spill_bytes, 0);
      std::printf("%lld by %lld: %lld blocks of %lld threads, %lld bytes, %lld registers\n",
                  static_cast<long long>(columns), static_cast<long long>(terms),
                  static_cast<long long>(compiled.blocks[0]),
                  static_cast<long long>(compiled.threads[0]),
                  static_cast<long long>(compiled.shared_bytes),
                  static_cast<long long>(assembled->registers));
    }
}

}  // namespace
}  // namespace outboard::test
