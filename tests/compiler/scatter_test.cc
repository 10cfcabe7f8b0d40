// Sums into places that data say (compiler/schedule/gather/scatter.h) on GPUs: gradients of
// gathers, counts and gated sums, on the PTX machine, against the reference interpreter; the same
// bits as with one part; and that many blocks do the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"

namespace outboard::test {
namespace {

constexpr double kTolerance = 0x1p-18;

Tensor Ids(const Dims& dims) { return Input(dims, DType::kI32); }  // in -100..100
Tensor Numbers(const Dims& dims, DType dtype = DType::kF32) { return Input(dims, dtype); }
// The gradient with regard to `table` of what is read from it.
Tensor Gradient(const Tensor& read, const Tensor& table) {
  return read.gradient({table}, Numbers(read.shape(), read.dtype()))[0];
}
Tensor OfTake(const Dims& table_dims, const Dims& ids, int64_t axis, DType dtype = DType::kF32) {
  const Tensor table = Numbers(table_dims, dtype);
  return Gradient(table.take(Ids(ids), axis), table);
}

Tensor Counts(DType dtype) {
  const Tensor ones = Tensor::ones({300, 100}, dtype), zeros = Tensor::zeros({300, 100}, dtype);
  const Tensor counted = Ids({300, 1}) == Tensor::arange(100);
  return counted.where(ones, zeros).sum({0}).cast(DType::kF32);
}

struct Case {
  const char* name;
  std::function<Tensor()> program;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case>* const cases = new std::vector<Case>{
      {"an embedding of vectors", [] { return OfTake({120, 24}, {3, 50}, 0); }},
      {"odd rows", [] { return OfTake({77, 7}, {131}, 0); }},
      {"pairs", [] { return OfTake({60, 6}, {90}, 0); }},
      {"f64", [] { return OfTake({90, 12}, {100}, 0, DType::kF64); }},
      {"several axes", [] { return OfTake({60, 3, 8}, {2, 40}, 0); }},
      {"the last axis", [] { return OfTake({5, 70}, {120}, 1); }},
      {"an axis between", [] { return OfTake({3, 50, 4}, {110}, 1); }},
      {"an index of each element",
       [] {
         const Tensor table = Numbers({80, 12});
         return Gradient(table.gather(0, Ids({70, 12})), table);
       }},
      {"an index of each element along rows",
       [] {
         const Tensor table = Numbers({6, 90});
         return Gradient(table.gather(1, Ids({6, 85})), table);
       }},
      {"places of a batch",
       [] {
         const Tensor table = Numbers({4, 50, 8}), ids = Ids({4, 100, 1}).expand({4, 100, 8});
         return Gradient(table.gather(1, ids), table);
       }},
      {"rows that a mask leaves out",
       [] {
         const Tensor keeps = Numbers({150}) > 0, table = Numbers({100, 16});
         return Gradient(keeps.reshape({150, 1}).where(table.take(Ids({150})), 0.0), table);
       }},
      {"weighted rows of experts",
       [] {
         const Tensor table = Numbers({64, 20}), weights = Numbers({96, 1});
         return Gradient((table.take(Ids({96})) * weights).tanh(), table);
       }},
      {"counts", [] { return Counts(DType::kI32); }},
      {"counts of i64",
       [] { return Counts(DType::kI64); }},
  };
  return *cases;
}

class Scatter : public testing::TestWithParam<size_t> {};

TEST_P(Scatter, ResultsAreTheInterpreters_AndBitsThoseOfOnePart) {
  Graph graph;
  const RecordedResults recorded =
      RecordResults(graph, [&] { return std::vector{Cases()[GetParam()].program()}; });
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    const GpuSchedule gpu(recorded.sink, arch);
    gpu.ExpectAsInterpreted(recorded.sink, recorded.bindings, kTolerance);
    const GpuSchedule whole(recorded.sink, arch, schedule::ScorePolicy::kByCost,
                            /*multiprocessors=*/0);
    const std::vector<HostTensor> params = SmallInputs(recorded.sink);
    for (const uint64_t seed : {1, 2})
      EXPECT_EQ(gpu.Run(params, {}, nullptr, -1, seed), whole.Run(params, {})) << gpu.ToString();
    const auto tasks = [](const GpuSchedule& schedule) {
      int64_t most = 0;
      for (size_t k = 0; k < schedule.compiled().size(); ++k)
        for (const UOp* node : PostOrder(schedule.schedule().kernels[k].ast))
          if (IsRange(node, RangeKind::kSequence))
            most = std::max(most, schedule.compiled()[k].tasks * schedule.compiled()[k].threads[0]);
      return most;
    };
    EXPECT_GT(tasks(gpu), tasks(whole)) << gpu.ToString();
    EXPECT_GT(tasks(whole), 0) << whole.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Scatter, testing::Range<size_t>(0, Cases().size()),
                         [](const auto& instance) {
                           std::string name = Cases()[instance.param].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// Not run: the sizes of a training step.
TEST(ScatterOfATrainingStep, BlocksOfAllMultiprocessorsAddRows) {
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [] {
    return std::vector{OfTake({50257, 768}, {8, 1024}, 0)};
  });
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), 3u) << gpu.ToString();  // indices, zeros, rows
  const CompiledKernel& adds = gpu.compiled()[2];
  EXPECT_GE(adds.tasks, 2 * 132);
  // 128 parts of 192 threads, of four columns each.
  EXPECT_EQ(adds.tasks * adds.threads[0], 128 * 768 / 4);
}

// Instructions of PTX, of a warp, for a row that is another warp's.
TEST(ScatterOfATrainingStep, ARowOfAnotherPartTakesFewInstructions) {
  constexpr int64_t kRows = 4096;
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [] {
    return std::vector{OfTake({512, 128}, {kRows}, 0)};
  });
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), 3u) << gpu.ToString();
  std::vector<HostTensor> params = SmallInputs(recorded.sink);
  for (HostTensor& param : params)
    if (param.dtype == DType::kI32)
      for (int64_t i = 0; i < kRows; ++i) StoreInt(DType::kI32, 511, param.bytes.data() + 4 * i);
  MachineCounts counts;
  gpu.Run(params, {}, &counts, 2);
  const CompiledKernel& adds = gpu.compiled()[2];
  const auto warps = static_cast<double>(adds.tasks * adds.threads[0] / kWarpThreads);
  ASSERT_GT(warps, 200);
  const double of_row = static_cast<double>(counts.warp_instructions) / (warps * kRows);
  RecordProperty("of_row", std::to_string(of_row));
  EXPECT_LT(of_row, 6) << adds.object;
}

TEST(ScatterParts, FollowFromTheDeviceAndTheSizes) {
  const Target gpu = CudaTarget("sm_90a", 132);
  EXPECT_EQ(schedule::ScatterParts(gpu, 50257, 192, 8192), 128);  // GPT-2's embedding
  EXPECT_EQ(schedule::ScatterParts(gpu, 128256, 1024, 16384), 64);
  EXPECT_EQ(schedule::ScatterParts(gpu, 10, 192, 8192), 16) << "as many as places";
  EXPECT_EQ(schedule::ScatterParts(gpu, 50257, 192, 20), 16) << "no more than rows";
  EXPECT_EQ(schedule::ScatterParts(gpu, 50257, 1, 1 << 20), 16384) << "a thread for each part";
  EXPECT_EQ(schedule::ScatterParts(gpu, 50257, 1 << 20, 8192), 1) << "enough threads";
  EXPECT_EQ(schedule::ScatterParts(CudaTarget("sm_90a", 0), 50257, 192, 8192), 1);
  EXPECT_EQ(schedule::ScatterParts(TestTarget(), 50257, 192, 8192), 1) << "a processor";
}

}  // namespace
}  // namespace outboard::test
