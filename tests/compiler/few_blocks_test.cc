// How many blocks and threads kernels of a GPU with 132 multiprocessors have: none that moves much
// memory or computes much leaves most of them idle (compiler/schedule/split.h). The sums that are
// divided for that run on the PTX machine, against the reference interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/examples/mnist.h"
#include "client/nn/layers.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;

Tensor Held(const Dims& dims, DType dtype = DType::kF32) {
  return Tensor::zeros(dims, dtype).state_();
}

// The result and its gradients.
void Realize(const Tensor& y, const std::vector<Tensor>& of = {}) {
  std::vector<Tensor> results = {y};
  if (!of.empty())
    for (const Tensor& gradient : y.gradient(of, Held(y.shape(), y.dtype())))
      results.push_back(gradient);
  realize(results);
}

struct Conv {
  int64_t batch = 32, channels = 3, side = 224, filters = 64, kernel = 7, stride = 2;
  DType dtype = DType::kF32;
};
Program ConvGradients(const Conv& c) {
  return {absl::StrCat("convolution of ", c.channels, " channels"), [=](Size) {
            Tensor x = Held({c.batch, c.channels, c.side, c.side}, c.dtype),
                   w = Held({c.filters, c.channels, c.kernel, c.kernel}, c.dtype);
            x.requires_grad_();
            w.requires_grad_();
            Realize(x.conv2d(w, {}, {.stride = c.stride, .padding = c.kernel / 2}), {x, w});
          }};
}

Program RmsNorm(int64_t rows, int64_t width) {
  return {absl::StrCat("rms norm of ", rows, " rows"), [=](Size) {
            const Tensor x = Held({rows, width}, DType::kBF16).cast(DType::kF32);
            const Tensor scale = ((x * x).mean({-1}, true) + 1e-5).rsqrt();
            Realize((x * scale * Held({width})).cast(DType::kBF16));
          }};
}

Program LayerNorm(int64_t rows, int64_t width) {
  return {absl::StrCat("layer norm of ", rows, " rows"), [=](Size) {
            const Tensor x = Held({rows, width}, DType::kBF16).cast(DType::kF32);
            Realize((x.layernorm() * Held({width}) + Held({width})).cast(DType::kBF16));
          }};
}

Program BatchNormGradients(const Dims& images) {
  return {"batch norm", [=](Size) {
            const TrainingMode training(true);
            const nn::BatchNorm2d norm(images[1]);
            const Tensor x = Tensor::zeros(images).requires_grad_();
            Realize(norm(x), {x, norm.weight, norm.bias});
          }};
}

Program Mnist(int64_t batch) {
  return {"mnist", [=](Size) {
            examples::MnistTrainer trainer(Held({60000, 1, 28, 28}, DType::kU8),
                                           Held({60000}, DType::kU8), batch);
            trainer.Step();
          }};
}

Program Sum(const Dims& dims, std::vector<int64_t> axes) {
  return {absl::StrCat("sum of ", dims[0], " rows"),
          [=](Size) { Realize(Held(dims).sum(axes)); }};
}

// What is stored has longer rows than what is added.
Program LongerThanItsSum(int64_t rows) {
  return {"longer than its sum", [=](Size) {
            Realize(Held({rows, 4096}, DType::kBF16) *
                    Held({rows, 4}).sum({1}, true).cast(DType::kBF16));
          }};
}

const std::vector<Program>& Cases() {
  static const std::vector<Program> cases = {
      Sum({262144, 4096}, {0, 1}),
      Sum({8192, 768}, {0}),
      Sum({100, 1000000}, {1}),
      Sum({131, 1000003}, {0, 1}),  // that no number of parts divides
      RmsNorm(4096, 4096),
      RmsNorm(2048, 8192),
      LayerNorm(8192, 4096),
      LongerThanItsSum(4096),
      BatchNormGradients({128, 64, 56, 56}),
      ConvGradients({}),
      ConvGradients({.dtype = DType::kBF16}),
      ConvGradients({.channels = 64, .side = 56, .kernel = 3, .stride = 1,
                     .dtype = DType::kBF16}),
      Mnist(512),
  };
  return cases;
}

// A kernel that moves over 8 MB or has over 10^7 operations, or 10^9 by matrix units, whose blocks
// have some 4 * 10^12 a second each.
constexpr int64_t kBytesLarge = 8'000'000, kOperationsLarge = 10'000'000;
constexpr int64_t kMatrixOperationsLarge = 1'000'000'000;

// The large kernels with too few blocks or threads. A block of matrix units needs the whole of a
// multiprocessor, and parts of a batch are whole ones: half of the multiprocessors are enough.
std::vector<std::string> TooFew(const Program& program) {
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  Graph graph;
  std::vector<int64_t> donated;
  const UOp* const sink = RecordProgram(graph, program, Size::kReal, &donated);
  const schedule::Schedule schedule = ValueOrDie(
      schedule::MakeSchedule(graph, sink, target, donated, ScheduleOptionsFor(target)));
  std::vector<std::string> few;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = schedule.kernels[k];
    if (kernel.together == 0) continue;
    const CompiledKernel compiled = ValueOrDie(CompileKernel(kernel.ast, {.target = target}));
    std::map<int, int64_t> bytes;
    int64_t moved = 0, blocks = kernel.together, threads = 1;
    for (const int buffer : kernel.buffers) bytes[buffer] = schedule.buffers[buffer].bytes();
    for (const auto& [buffer, size] : bytes) moved += size * kernel.together;
    for (const int64_t extent : compiled.blocks) blocks *= extent;
    for (const int64_t extent : compiled.threads) threads *= extent;
    const bool by_matrix_units = absl::StrContains(compiled.object, "mma.sync") ||
                                 absl::StrContains(compiled.object, "wgmma.mma_async");
    if (moved < kBytesLarge &&
        compiled.flops * kernel.together <
            (by_matrix_units ? kMatrixOperationsLarge : kOperationsLarge))
      continue;
    if (blocks < kMultiprocessors / (by_matrix_units ? 2 : 1) || threads < kWarpThreads)
      few.push_back(absl::StrCat(blocks, " blocks of ", threads, " threads: ",
                                 schedule::KernelToString(schedule, k)));
  }
  return few;
}

TEST(FewBlocks, LargeKernelsFillADevice) {
  for (const Program& program : Cases())
    EXPECT_THAT(TooFew(program), testing::IsEmpty()) << program.name;
}

TEST(FewBlocks, OfPrograms_LargeKernelsFillADevice) {
  for (const Program& program : Programs()) {
    if (program.name == "gpt_step_12_layers") continue;  // those of two layers
    std::vector<std::string> few = TooFew(program);
    // MNIST's batch is 128 images, and parts of it are whole ones. It is read from all images, most
    // of which are not moved.
    if (absl::StartsWith(program.name, "mnist"))
      std::erase_if(few, [](const std::string& kernel) {
        return absl::StartsWith(kernel, "128 blocks of 128 threads: out 128x32 ") ||
               absl::StartsWith(kernel, "100 blocks of 256 threads: out 128x28x28 ");
      });
    EXPECT_THAT(few, testing::IsEmpty()) << program.name;
  }
}

struct Small {
  Program program;
  size_t kernels;
  double tolerance = 1e-5;
};

// Sums of a size from which on they are divided.
TEST(FewBlocks, DividedSums_AreAsInterpreted) {
  const Small cases[] = {
      {Sum({128, 4096}, {0, 1}), 2},
      {Sum({131, 4099}, {0, 1}), 2},  // a prime number of rows of a prime length: filled up
      {Sum({16384, 32}, {0}), 2},
      {Sum({32, 16384}, {1}), 2},
      {RmsNorm(132, 4096), 1, 1e-2},
      {LayerNorm(132, 4096), 1, 1e-2},
      {LongerThanItsSum(132), 1, 1e-2},
      {RmsNorm(1, 1600), 1, 1e-2},
      {LayerNorm(1, 1600), 1, 1e-2},
      {ConvGradients({.batch = 16, .channels = 1, .side = 20, .filters = 8, .kernel = 5,
                      .stride = 1}),
       4, 1e-4},
      {BatchNormGradients({16, 4, 96, 96}), 8, 1e-4},
  };
  for (const Small& test : cases) {
    SCOPED_TRACE(test.program.name);
    Graph graph;
    const GpuSchedule gpu(RecordProgram(graph, test.program, Size::kSmall), "sm_90a");
    EXPECT_EQ(gpu.compiled().size(), test.kernels) << gpu.ToString();
    gpu.ExpectAsInterpreted(gpu.sink(), {}, test.tolerance);
  }
}

// A maximum cannot be filled up, so its parts are whole ones.
TEST(FewBlocks, DividedMaximum_IsAsInterpreted) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(16384), Dim(32)});
  const GpuSchedule gpu(Sink(g, {Reduce(g, Op::kMax, x, {0})}), "sm_90a");
  EXPECT_EQ(gpu.compiled().size(), 2u) << gpu.ToString();
  gpu.ExpectAsInterpreted(gpu.sink(), {}, 0);
}

// The gradients of many layers' biases are one launch, which has blocks enough; one that others
// wait for is divided.
TEST(FewBlocks, SumsOfOneLaunch_AreCountedTogether) {
  const auto kernels = [](int64_t sums, bool chained, bool transfers = false) {
    const Target target = CudaTarget("sm_90a", kMultiprocessors);
    Graph g;
    std::vector<const UOp*> results;
    const Shape shape = {Dim(8192), Dim(768)};
    for (int64_t i = 0; i < sums; ++i) {
      const UOp* x = Param(g, i, DType::kF32, shape);
      if (chained && i > 0) x = Add(g, x, Expand(g, Reshape(g, results.back(), {Dim(1), Dim(768)}),
                                                 shape));
      results.push_back(Reduce(g, Op::kAdd, x, {0}));
    }
    const Shape few = {Dim(8)};
    if (transfers)
      results.push_back(g.MakeChecked(Op::kAllReduce, DType::kVoid,
                                      {Param(g, sums, DType::kF32, few)},
                                      {static_cast<int64_t>(Op::kAdd), 2, 1}));
    return ValueOrDie(schedule::MakeSchedule(g, Sink(g, results), target, {},
                                             ScheduleOptionsFor(target)))
        .kernels.size();
  };
  EXPECT_EQ(kernels(1, false), 2u);
  EXPECT_EQ(kernels(11, false), 11u) << "24 blocks each";
  EXPECT_EQ(kernels(10, false), 20u);
  EXPECT_EQ(kernels(11, true), 22u);
  EXPECT_EQ(kernels(11, false, true), 22u + kernels(0, false, true)) << "each is a launch";
}

// One row's sum and what is made of the row are one kernel; what has this row for each of its rows
// is another one, or each of its blocks would add the sum again.
TEST(FewBlocks, OneRow_IsNotFusedWithManyThatReadIt) {
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  Graph g;
  const Shape row = {Dim(4096)}, rows = {Dim(4096), Dim(64)};
  const UOp* const v = Param(g, 0, DType::kF32, row);
  const UOp* const sum = Expand(g, Reshape(g, Reduce(g, Op::kAdd, v, {0}), {Dim(1)}), row);
  const UOp* const scaled = Mul(g, v, sum);
  const UOp* const wide = Expand(g, Reshape(g, scaled, {Dim(4096), Dim(1)}), rows);
  const UOp* const sink = Sink(g, {scaled, Mul(g, wide, Param(g, 1, DType::kF32, rows))});
  const schedule::Schedule schedule =
      ValueOrDie(schedule::MakeSchedule(g, sink, target, {}, ScheduleOptionsFor(target)));
  EXPECT_EQ(schedule.kernels.size(), 2u) << schedule::ScheduleToString(schedule);
}

TEST(FewBlocks, WhereMultiprocessorsAreNotCounted_SumsAreDividedAsOnAProcessor) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(8192), Dim(768)});
  const schedule::Schedule schedule = ValueOrDie(schedule::MakeSchedule(
      g, Sink(g, {Reduce(g, Op::kAdd, x, {0, 1})}), CudaTarget("sm_90a", 0)));
  EXPECT_EQ(schedule.kernels.size(), 2u) << ScheduleToString(schedule);
}

}  // namespace
}  // namespace outboard::test
