// Products of matrices with fewer tiles of results than a GPU has multiprocessors: their sums are
// divided among blocks and joined by a second kernel (compiler/schedule/split.h). Graphs are
// scheduled for a GPU; their kernels run on the PTX machine.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/parts.h"
#include "compiler/proof/in_range.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

// x [m, k] times y [k, n], of a type, summed in f32.
struct SplitProduct {
  int64_t m = 64, n = 64, k = 4096;
  DType dtype = DType::kBF16;
  bool exponential = false;  // of x: the weights of a softmax
  int64_t slices = 1;        // of so many columns, y has the last n

  const UOp* Of(Graph& g) const {
    const UOp* x = BufferNode(g, 0, dtype, {Dim(m), Dim(k)});
    const UOp* y = BufferNode(g, 1, dtype, {Dim(k), Dim(n * slices)});
    if (slices > 1) y = Shrink(g, y, {0, Dim(k), Dim(n * (slices - 1)), Dim(n * slices)});
    if (exponential) x = Alu(g, Op::kExp, x);
    const Shape all = {Dim(m), Dim(n), Dim(k)};
    const auto wide = [&](const UOp* node, const Shape& ones) {
      if (dtype != DType::kF32) node = Cast(g, node, DType::kF32);
      return Expand(g, Reshape(g, node, ones), all);
    };
    const UOp* const left = wide(x, {Dim(m), Dim(1), Dim(k)});
    const UOp* const right = wide(Permute(g, y, {1, 0}), {Dim(1), Dim(n), Dim(k)});
    return Reduce(g, Op::kAdd, Mul(g, left, right), {2});
  }
};

// As the worker schedules for a GPU.
schedule::Schedule ScheduleOf(Graph& g, const UOp* result, const Target& target) {
  const std::string bytes = EncodeGraph(Sink(g, {result}))->bytes;
  const auto sink = DecodeGraph(g, bytes);
  OB_CHECK_OK(sink.status());
  auto schedule = schedule::MakeSchedule(g, *sink, target, {}, ScheduleOptionsFor(target));
  OB_CHECK_OK(schedule.status());
  return *std::move(schedule);
}
schedule::Schedule ScheduleOf(Graph& g, const SplitProduct& product, const Target& target) {
  return ScheduleOf(g, product.Of(g), target);
}

// The product that a kernel leaves to matrix units.
std::optional<codegen::MmaProduct> ProductOf(const UOp* ast, const Target& target) {
  Graph guards;
  const auto nest = codegen::AnalyzeKernel(*proof::GuardUnproved(guards, ast));
  OB_CHECK_OK(nest.status());
  const auto plan = codegen::PlanMma(*nest, target, nullptr);
  if (!plan.ok() || !plan->has_value()) return std::nullopt;
  return (*plan)->product;
}

// Runs all kernels; returns the result. `inputs` by slot.
std::string RunKernels(const schedule::Schedule& schedule, const Target& target,
                       const std::vector<std::string>& inputs) {
  Buffers all;
  size_t result = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    all.emplace_back(static_cast<size_t>(buffer.bytes()), '\0');
    if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput)
      all.back() = inputs[static_cast<size_t>(buffer.index)];
    if (buffer.kind == schedule::ScheduledBuffer::Kind::kOutput) result = all.size() - 1;
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const auto compiled = CompileKernel(kernel.ast, {.target = target});
    OB_CHECK_OK(compiled.status());
    Buffers arguments;
    for (const int buffer : kernel.buffers) arguments.push_back(all[static_cast<size_t>(buffer)]);
    OB_CHECK_OK(RunOnPtxMachine(*compiled, arguments));
    for (size_t i = 0; i < kernel.buffers.size(); ++i)
      all[static_cast<size_t>(kernel.buffers[i])] = arguments[i];
  }
  return all[result];
}

TEST(MmaSplit, FewTilesAreSplit_AndJoinedInAFixedOrder) {
  const Target target = CudaTarget("sm_90", 132);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    const SplitProduct p{.dtype = dtype};
    std::mt19937 random(5);
    const auto width = static_cast<size_t>(ByteWidth(dtype));
    std::vector<std::string> inputs(2);
    for (std::string& input : inputs) {
      input.resize(static_cast<size_t>(p.m * p.k) * width);
      for (size_t i = 0; i < input.size(); i += width)
        StoreFloat(dtype, RoundTo(dtype, static_cast<double>(random() >> 8) * 0x1p-23 - 1),
                   &input[i]);
    }
    Graph g;
    const schedule::Schedule schedule = ScheduleOf(g, p, target);
    ASSERT_EQ(schedule.kernels.size(), 2u) << ScheduleToString(schedule);
    const auto product = ProductOf(schedule.kernels[0].ast, target);
    ASSERT_TRUE(product.has_value());
    EXPECT_EQ(product->batches, 8);
    EXPECT_EQ(product->steps, 512);
    const std::string got = RunKernels(schedule, target, inputs);
    for (int64_t m = 0; m < p.m; m += 3)
      for (int64_t n = 0; n < p.n; n += 5) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          const double term =
              LoadFloat(dtype, &inputs[0][static_cast<size_t>(m * p.k + k) * width]) *
              LoadFloat(dtype, &inputs[1][static_cast<size_t>(k * p.n + n) * width]);
          sum += term;
          size += std::abs(term);
        }
        const double y = LoadFloat(DType::kF32, &got[static_cast<size_t>(m * p.n + n) * 4]);
        EXPECT_LE(std::abs(y - sum), static_cast<double>(p.k) * 0x1p-24 * size) << m << " " << n;
      }
    // The same bits each time on a device of this class.
    Graph again;
    EXPECT_EQ(RunKernels(ScheduleOf(again, p, target), target, inputs), got);
  }
}

TEST(MmaSplit, WhatFillsADevice_OrIsShort_OrIsAttention_IsNot) {
  const Target target = CudaTarget("sm_90", 132);
  // Parts of the first product that is left to matrix units; 0: there is none.
  const auto parts = [&](const SplitProduct& p, const Target& of) -> int64_t {
    Graph g;
    const schedule::Schedule schedule = ScheduleOf(g, p, of);
    SCOPED_TRACE(ScheduleToString(schedule));
    for (const schedule::ScheduledKernel& kernel : schedule.kernels)
      if (const auto product = ProductOf(kernel.ast, of)) return product->batches;
    return 0;
  };
  EXPECT_EQ(parts({.m = 64}, target), 8);
  EXPECT_EQ(parts({.m = 64, .slices = 16}, target), 8) << "what is not read does not count";
  EXPECT_EQ(parts({.m = 1024, .n = 1024}, target), 1) << "256 tiles";
  EXPECT_EQ(parts({.m = 512, .n = 256, .k = 1024}, target), 1) << "few steps";
  EXPECT_EQ(parts({.m = 2, .n = 4096}, target), 0) << "no product for matrix units";
  EXPECT_EQ(parts({.dtype = DType::kF32, .exponential = true}, target), 1);
  EXPECT_EQ(parts({.m = 64}, CudaTarget("sm_90", 1)), 1);
  Graph processor;
  EXPECT_EQ(ScheduleOf(processor, {.m = 64}, TestTarget()).kernels.size(), 1u);
  // One with twice as many multiprocessors divides further.
  Graph g;
  const schedule::Schedule more = ScheduleOf(g, {.m = 512, .n = 512, .k = 16384}, target);
  ASSERT_EQ(more.kernels.size(), 2u);
  EXPECT_EQ(ProductOf(more.kernels[0].ast, target)->batches, 2);
  const Target larger = CudaTarget("sm_90", 264);
  Graph other;
  const schedule::Schedule most = ScheduleOf(other, {.m = 512, .n = 512, .k = 16384}, larger);
  EXPECT_EQ(ProductOf(most.kernels[0].ast, larger)->batches, 4);
}

// Clusters of four blocks divide a sum without a second kernel; nearly as far is far enough.
TEST(MmaSplit, WhatWarpgroupsDivide_IsNotDividedBefore) {
  const Target warpgroups = CudaTarget("sm_90a", 132), warps = CudaTarget("sm_90", 132);
  const auto kernels = [](const SplitProduct& p, const Target& target) {
    Graph g;
    return ScheduleOf(g, p, target).kernels.size();
  };
  const SplitProduct in_four{.m = 128, .n = 128, .k = 4096};
  EXPECT_EQ(kernels(in_four, warps), 2u);
  EXPECT_EQ(kernels(in_four, warpgroups), 1u);
  Graph g;
  EXPECT_GT(program::PartsOfSum(ScheduleOf(g, in_four, warpgroups).kernels[0].ast, warpgroups), 1);
  // 32 parts are far better than four.
  const SplitProduct far{.m = 128, .n = 128, .k = 65536};
  EXPECT_EQ(kernels(far, warpgroups), 2u);
  // Rows of 8 bytes no view describes, and no warpgroup copies: other units need the second kernel.
  const SplitProduct narrow{.m = 128, .n = 4, .k = 4096};
  EXPECT_EQ(kernels(narrow, warpgroups), kernels(narrow, warps));
  // An operand that is computed may be computed in the kernel.
  const SplitProduct computed{.m = 128, .n = 128, .k = 4096, .exponential = true};
  EXPECT_EQ(kernels(computed, warpgroups), kernels(computed, warps));
}

// The gradient of a 1 x 1 convolution's weights: [images, m, places] times [images, n, places],
// summed over images and places.
struct OfImages {
  int64_t images = 4, m = 64, n = 64, places = 1024;

  const UOp* Of(Graph& g) const {
    const UOp* const x = BufferNode(g, 0, DType::kBF16, {Dim(images), Dim(m), Dim(places)});
    const UOp* const y = BufferNode(g, 1, DType::kBF16, {Dim(images), Dim(n), Dim(places)});
    const Shape all = {Dim(images), Dim(m), Dim(n), Dim(places)};
    const auto wide = [&](const UOp* node, const Shape& ones) {
      return Expand(g, Reshape(g, Cast(g, node, DType::kF32), ones), all);
    };
    const UOp* const left = wide(x, {Dim(images), Dim(m), Dim(1), Dim(places)});
    const UOp* const right = wide(y, {Dim(images), Dim(1), Dim(n), Dim(places)});
    return Reduce(g, Op::kAdd, Mul(g, left, right), {0, 3});
  }
};

TEST(MmaSplit, AnInnerAxisIsDivided_WhereThatMakesManyMoreBlocks) {
  const Target warps = CudaTarget("sm_90", 132), warpgroups = CudaTarget("sm_90a", 132);
  const auto parts = [](const OfImages& p, const Target& target) {
    Graph g;
    const schedule::Schedule schedule = ScheduleOf(g, p.Of(g), target);
    return ProductOf(schedule.kernels[0].ast, target)->batches;
  };
  EXPECT_EQ(parts({.images = 8, .n = 256, .places = 3136}, warps), 32) << "not 8";
  EXPECT_EQ(parts({.images = 28, .n = 256, .places = 3136}, warps), 28) << "not 32";
  EXPECT_EQ(parts({.images = 32, .places = 3136}, warps), 112) << "not 32";
  EXPECT_EQ(parts({.images = 32, .places = 3136}, warpgroups), 32) << "boxes copy images";

  const OfImages p;
  std::mt19937 random(5);
  std::vector<std::string> inputs(2);
  for (std::string& input : inputs) {
    input.resize(static_cast<size_t>(p.images * p.m * p.places) * 2);
    for (size_t i = 0; i < input.size(); i += 2)
      StoreFloat(DType::kBF16,
                 RoundTo(DType::kBF16, static_cast<double>(random() >> 8) * 0x1p-23 - 1),
                 &input[i]);
  }
  Graph g;
  const schedule::Schedule schedule = ScheduleOf(g, p.Of(g), warps);
  ASSERT_EQ(schedule.kernels.size(), 2u) << ScheduleToString(schedule);
  EXPECT_EQ(ProductOf(schedule.kernels[0].ast, warps)->batches, 8);
  const std::string got = RunKernels(schedule, warps, inputs);
  for (int64_t m = 0; m < p.m; m += 5)
    for (int64_t n = 0; n < p.n; n += 7) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < p.images; ++i)
        for (int64_t k = 0; k < p.places; ++k) {
          const auto at = [&](const std::string& of, int64_t rows, int64_t row) {
            return LoadFloat(DType::kBF16,
                             &of[static_cast<size_t>((i * rows + row) * p.places + k) * 2]);
          };
          const double term = at(inputs[0], p.m, m) * at(inputs[1], p.n, n);
          sum += term;
          size += std::abs(term);
        }
      const double y = LoadFloat(DType::kF32, &got[static_cast<size_t>(m * p.n + n) * 4]);
      EXPECT_LE(std::abs(y - sum), static_cast<double>(p.images * p.places) * 0x1p-24 * size)
          << m << " " << n;
    }
}

}  // namespace
}  // namespace outboard::test
