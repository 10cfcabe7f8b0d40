// Convolutional networks as users write them, batch, channels, rows, columns, in bf16 and f16, for
// sm_90a: what the schedule makes of conv2d and of its gradients, all of it run on the PTX machine
// against the reference interpreter. Every product that warpgroups can compute is left to them,
// however small.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

struct Net {
  const char* name;
  DType dtype = DType::kBF16;
  int64_t batch = 2, channels = 16, height = 9, width = 11, filters = 64;
  int64_t stride = 1, padding = 1, kernel = 3;
  size_t by_warpgroups = 1;  // kernels, at least
  int64_t dilation = 1, groups = 1;
  int64_t first_stride = 1;
};

// Two convolutions with a ReLU between, their result and all gradients.
void Record(const Net& net) {
  const auto held = [&](const Dims& dims) { return Tensor::zeros(dims, net.dtype).state_(); };
  const auto weight = [&](const Dims& dims) {
    return Tensor::zeros(dims, net.dtype).requires_grad_();
  };
  const Tensor x = weight({net.batch, net.channels, net.height, net.width});
  const Tensor w1 = weight({net.filters, net.channels, 3, 3}),
               w2 = weight({net.filters, net.filters / net.groups, net.kernel, net.kernel});
  const Tensor y = x.conv2d(w1, {}, {.stride = net.first_stride, .padding = 1}).relu();
  const Tensor z = y.conv2d(w2, {},
                            {.groups = net.groups,
                             .stride = net.stride,
                             .dilation = net.dilation,
                             .padding = net.padding});
  std::vector<Tensor> results = {z};
  for (Tensor& gradient : z.gradient({x, w1, w2}, held(z.shape()))) results.push_back(gradient);
  realize(results);
}

std::vector<HostTensor> SmallParams(const UOp* sink) {
  std::mt19937_64 random(3);
  return FloatParams(
      sink, [&] { return static_cast<double>(static_cast<int>(random() % 17) - 8) / 32; });
}

// Nothing where warpgroups cannot.
std::optional<CompiledKernel> ByWarpgroups(const UOp* ast, const Target& target) {
  Graph guards;
  const codegen::LoopNest nest =
      ValueOrDie(codegen::AnalyzeKernel(ValueOrDie(GuardedKernel(guards, ast, target))));
  if (nest.groups.size() != 1 || nest.groups[0].ranges.empty()) return std::nullopt;
  CompileOptions options{.target = target};
  options.opts = {{codegen::OptKind::kWgmma, nest.groups[0].ranges[0],
                   program::WgmmaAmount({.columns = 64, .stages = 2})}};
  absl::StatusOr<CompiledKernel> compiled = CompileKernel(ast, options);
  if (!compiled.ok()) return std::nullopt;
  return *std::move(compiled);
}

// Runs all kernels; returns the results and counts those that are products by warpgroups.
std::vector<std::string> RunKernels(const schedule::Schedule& schedule, const Target& target,
                                    const std::vector<HostTensor>& params, size_t results,
                                    size_t* by_warpgroups) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Buffers all;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    all.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind == Kind::kInput) all.back() = params[static_cast<size_t>(buffer.index)].bytes;
  }
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = schedule.kernels[k];
    const std::optional<CompiledKernel> by_groups = ByWarpgroups(kernel.ast, target);
    const bool groups = by_groups.has_value();
    const CompiledKernel compiled =
        groups ? *by_groups : ValueOrDie(CompileKernel(kernel.ast, {.target = target}));
    EXPECT_EQ(absl::StrContains(compiled.object, "wgmma.mma_async"), groups);
    *by_warpgroups += groups;
    if (std::getenv("DUMP") != nullptr)
      std::printf("%s  %s\n", KernelToString(schedule, k).c_str(),
                  groups                                           ? "wgmma"
                  : absl::StrContains(compiled.object, "mma.sync") ? "mma.sync"
                                                                   : "plain");
    if (const std::string ptxas = FindPtxas(); groups && !ptxas.empty()) {
      EXPECT_EQ(ValueOrDie(StackBytesOf(ptxas, compiled.object, "sm_90a")), 0);
    }
    Buffers own;
    for (const int buffer : kernel.buffers) own.push_back(all[static_cast<size_t>(buffer)]);
    OB_CHECK_OK(RunOnPtxMachine(compiled, own));
    for (size_t i = 0; i < kernel.buffers.size(); ++i)
      all[static_cast<size_t>(kernel.buffers[i])] = own[i];
  }
  std::vector<std::string> out(results);
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (schedule.buffers[i].kind == Kind::kOutput)
      out[static_cast<size_t>(schedule.buffers[i].index)] = all[i];
  return out;
}

TEST(HopperConvPrograms, RunAsTheReference) {
  const Net nets[] = {
      {.name = "3 x 3", .by_warpgroups = 5},
      {"stride 2, odd sizes, f16", DType::kF16, 2, 16, 9, 7, 64, 2, 1, 3, 4},
      {"few channels, no border", DType::kBF16, 2, 3, 10, 9, 64, 1, 0, 3, 4},
      {"stride 2, 1 x 1", DType::kBF16, 2, 16, 8, 8, 64, 2, 0, 1, 2},
      {"stride 2", DType::kBF16, 2, 16, 8, 12, 64, 2, 1, 3, 5},
      {"stride 3, 4 x 4, no border", DType::kBF16, 1, 16, 10, 13, 64, 3, 0, 4, 4},
      {"stride 3, 2 x 2", DType::kBF16, 2, 16, 9, 8, 64, 3, 0, 2, 3},
      {"stride 2, dilation", DType::kF16, 2, 16, 9, 10, 64, 2, 2, 3, 3, 2},
      {"stride 2, groups", DType::kBF16, 2, 16, 7, 8, 64, 2, 1, 3, 2, 1, 2},
      {"stride 2, odd sizes, one image", DType::kBF16, 1, 16, 13, 11, 64, 2, 1, 3, 4},
      {.name = "stride 2 first", .height = 12, .width = 16, .by_warpgroups = 4, .first_stride = 2},
  };
  const Target target = CudaTarget("sm_90a", 132);
  for (const Net& net : nets) {
    SCOPED_TRACE(net.name);
    Graph recorded, g;
    const UOp* const sink =
        RecordProgram(recorded, {net.name, [&](Size) { Record(net); }}, Size::kSmall);
    const std::vector<HostTensor> params = SmallParams(sink);
    const Results want = ValueOrDie(Interpret(sink, params));
    const schedule::Schedule schedule = ValueOrDie(schedule::MakeSchedule(g, sink, target));
    size_t by_warpgroups = 0;
    const std::vector<std::string> got =
        RunKernels(schedule, target, params, want.size(), &by_warpgroups);
    EXPECT_GE(by_warpgroups, net.by_warpgroups) << ScheduleToString(schedule);
    for (size_t r = 0; r < want.size(); ++r) {
      const std::vector<double> numbers = FloatsOf(want[r]);
      double largest = 0;
      for (const double number : numbers) largest = std::max(largest, std::abs(number));
      ASSERT_GT(largest, 0);
      const int width = ByteWidth(want[r].dtype);
      for (size_t i = 0; i < numbers.size(); ++i)
        ASSERT_NEAR(LoadFloat(want[r].dtype, got[r].data() + i * static_cast<size_t>(width)),
                    numbers[i], largest / 64)
            << "result " << r << " element " << i;
    }
  }
}

// One kernel computes it, and no temporary has a number for each tap of each window. The products
// are too small for copies of inputs.
TEST(HopperConvPrograms, TheInputsGradientStoresNoWindows) {
  constexpr int64_t kChannels = 64;
  for (const char* arch : {"sm_90", "sm_90a"})
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
      for (const auto& [kernel, dilation, groups, stride, side] :
           {std::tuple{3, 1, 1, 1, 28}, {5, 1, 1, 1, 28}, {3, 2, 1, 1, 28}, {3, 1, 2, 1, 28},
            {3, 1, 1, 2, 28}, {7, 1, 1, 2, 28}, {7, 1, 1, 3, 30}, {3, 1, 2, 2, 28}}) {
        if (stride > 1 && dtype == DType::kF32) continue;  // no rounding between the sums
        SCOPED_TRACE(absl::StrCat(arch, " ", kernel, " ", dilation, " ", groups, " ", stride));
        Graph recorded, g;
        const UOp* const sink = RecordProgram(
            recorded,
            {"gradient",
             [&](Size) {
               const auto held = [&](const Dims& dims) {
                 return Tensor::zeros(dims, dtype).state_();
               };
               const Tensor x = held({4, kChannels, side, side});
               const Tensor w = held({kChannels, kChannels / groups, kernel, kernel});
               const Tensor y = x.conv2d(w, {},
                                         {.groups = groups,
                                          .stride = stride,
                                          .dilation = dilation,
                                          .padding = kernel / 2 * dilation});
               realize(y.gradient({x}, held(y.shape())));
             }},
            Size::kSmall);
        const schedule::Schedule schedule =
            ValueOrDie(schedule::MakeSchedule(g, sink, CudaTarget(arch, 132)));
        EXPECT_EQ(schedule.kernels.size(), 1) << ScheduleToString(schedule);
      }
}

// Also where the sides of the input are no multiples of the stride, and of one image.
TEST(HopperConvPrograms, TheInputsGradientOfStridedWindowsIsMultipliedByAUnit) {
  struct Sides {
    int64_t kernel, stride, padding, height, width;
  };
  constexpr Sides kSides[] = {{3, 2, 1, 28, 28}, {3, 2, 1, 35, 35}, {3, 2, 0, 35, 35},
                              {3, 2, 1, 34, 35}, {3, 2, 1, 35, 34}, {7, 2, 3, 35, 35},
                              {7, 3, 3, 30, 30}, {4, 3, 1, 32, 32}, {6, 4, 2, 28, 28},
                              {7, 5, 3, 35, 35}};
  constexpr int64_t kChannels = 64;
  for (const char* arch : {"sm_90", "sm_90a"})
    for (const int64_t batch : {1, 8})
      for (const Sides& s : kSides) {
        SCOPED_TRACE(absl::StrCat(arch, " batch ", batch, " kernel ", s.kernel, " stride ",
                                  s.stride, " sides ", s.height, " ", s.width));
        Graph recorded, g;
        const UOp* const sink = RecordProgram(
            recorded,
            {"gradient",
             [&](Size) {
               const auto held = [&](const Dims& dims) {
                 return Tensor::zeros(dims, DType::kBF16).state_();
               };
               const Tensor x = held({batch, kChannels, s.height, s.width});
               const Tensor w = held({kChannels, kChannels, s.kernel, s.kernel});
               const Tensor y = x.conv2d(w, {}, {.stride = s.stride, .padding = s.padding});
               realize(y.gradient({x}, held(y.shape())));
             }},
            Size::kSmall);
        const Target target = CudaTarget(arch, 132);
        const schedule::Schedule schedule = ValueOrDie(schedule::MakeSchedule(g, sink, target));
        int by_units = 0;
        for (const schedule::ScheduledKernel& kernel : schedule.kernels)
          for (const auto& opts : ValueOrDie(StartingOpts(kernel.ast, target)))
            by_units += !opts.empty() && (opts[0].kind == codegen::OptKind::kMma ||
                                          opts[0].kind == codegen::OptKind::kWgmma);
        EXPECT_GE(by_units, 1) << ScheduleToString(schedule);
      }
}

// Beside a convolution its result's sums over all places, as for a batch norm: rows are places of
// images, whose number is divided and put together again, of tiles in groups of which the last one
// is smaller. All of that is proved.
TEST(HopperConvPrograms, SumsOverRowsAreBesideProductsByWarpgroups) {
  constexpr int64_t kPictures = 32, kChannels = 128, kSide = 28;
  const Target target = CudaTarget("sm_90a", 132);
  Graph recorded, g;
  const UOp* const sink = RecordProgram(
      recorded,
      {"sums",
       [&](Size) {
         const auto held = [&](const Dims& dims) {
           return Tensor::zeros(dims, DType::kBF16).state_().permute({0, 3, 1, 2});
         };
         const Tensor x = held({kPictures, kSide, kSide, kChannels}),
                      w = held({kChannels, 3, 3, kChannels}), next = held({64, 3, 3, kChannels});
         const Tensor y = x.conv2d(w, {}, {.padding = 1}).cast(DType::kF32);
         const Tensor centred = (y - y.mean({0, 2, 3}, /*keepdim=*/true)).cast(DType::kBF16);
         const std::vector<Tensor> results = {centred.relu().conv2d(next, {}, {.padding = 1})};
         realize(results);
       }},
      Size::kSmall);
  const schedule::Schedule schedule = ValueOrDie(
      schedule::MakeSchedule(g, sink, target, /*donated=*/{}, ScheduleOptionsFor(target)));
  int beside = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (!codegen::HasRowSums(kernel.ast)) continue;
    const CompiledKernel compiled = ValueOrDie(CompileKernel(kernel.ast, {.target = target}));
    EXPECT_EQ(absl::StrJoin(compiled.given_up, "; "), "");
    EXPECT_TRUE(absl::StrContains(compiled.object, "wgmma.mma_async"));
    ++beside;
  }
  EXPECT_EQ(beside, 1) << ScheduleToString(schedule);
}

}  // namespace
}  // namespace outboard::test
