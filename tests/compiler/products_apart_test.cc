// Kernels in which several products of matrices meet (compiler/schedule/materialize/
// products_apart.h): which of them GPUs compute by matrix units, with the products stored apart and
// as they were, and their results on the PTX machine against the reference interpreter.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"

namespace outboard::test {
namespace {

constexpr DType F32 = DType::kF32, F16 = DType::kF16, BF16 = DType::kBF16;
using Results = std::vector<Tensor>;

// The launches of a schedule, in order: w by warpgroups, m by mma.sync or another matrix unit, p a
// product by plain threads, - none.
struct Launches {
  std::string units;
  double flops = 0, by_units = 0;
};

bool HasProduct(const UOp* kernel) {
  for (const UOp* node : PostOrder(kernel))
    if (schedule::ProductSummed(node) != nullptr) return true;
  return false;
}

Launches LaunchesOf(const UOp* sink, const Target& target, bool apart) {
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  if (!apart) options.multiplies = nullptr;
  Graph graph;
  const schedule::Schedule schedule =
      ValueOrDie(schedule::MakeSchedule(graph, sink, target, {}, options));
  Compiler compiler({.target = target});
  Launches launches;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (kernel.together == 0) continue;
    std::string ir;
    const CompiledKernel compiled = ValueOrDie(compiler.Compile(kernel.ast));
    const std::string& ptx = compiled.object;
    const bool by_warpgroups = absl::StrContains(ptx, "wgmma.mma_async"),
               by_units = by_warpgroups || absl::StrContains(ptx, "mma.sync");
    const auto flops = static_cast<double>(compiled.flops * kernel.together);
    launches.units += by_warpgroups ? 'w' : by_units ? 'm' : HasProduct(kernel.ast) ? 'p' : '-';
    launches.flops += flops;
    if (by_units) launches.by_units += flops;
  }
  return launches;
}

// ---- Programs.

// The result, and its gradients with respect to `of`.
Results WithGradients(const Tensor& y, const std::vector<Tensor>& of) {
  Results results = {y};
  if (of.empty()) return results;
  for (const Tensor& gradient : y.gradient(of, Input(y.shape(), y.dtype())))
    results.push_back(gradient);
  return results;
}

struct Layer {
  int64_t rows = 4096, in = 4096, out = 4096;
  DType dtype = BF16;
  bool gradients = false;
  double small = 1;  // that all weights are multiplied by

  Tensor X() const { return Input({rows, in}, dtype); }
  // So that results are about as large as operands.
  Tensor W(int64_t from, int64_t to) const { return Input({from, to}, dtype); }
};

// x @ W + scale * (x @ A) @ B, of weights that stay.
Results Lora(const Layer& l, int64_t rank, double scale) {
  Tensor x = l.X(), w = l.W(l.in, l.out), a = l.W(l.in, rank), b = l.W(rank, l.out);
  x.requires_grad_(), a.requires_grad_(), b.requires_grad_();
  Tensor low = x.matmul(a).matmul(b);
  if (scale != 1) low = low * scale;
  return WithGradients(x.matmul(w) + low, l.gradients ? Results{x, a, b} : Results{});
}

enum class Gate { kSilu, kSigmoid, kRelu };
// gate(x @ W1) * (x @ W2)
Results Gated(const Layer& l, Gate gate) {
  Tensor x = l.X(), w1 = l.W(l.in, l.out), w2 = l.W(l.in, l.out);
  x.requires_grad_(), w1.requires_grad_(), w2.requires_grad_();
  const Tensor opened = x.matmul(w1), value = x.matmul(w2);
  const Tensor gates = gate == Gate::kSilu   ? opened.silu()
                       : gate == Gate::kRelu ? opened.relu()
                                             : opened.sigmoid();
  return WithGradients(gates * value, l.gradients ? Results{x, w1, w2} : Results{});
}

// Of three inputs, or of one.
Results Three(const Layer& l, bool one_input) {
  const Tensor x = l.X();
  const auto product = [&] { return (one_input ? x : l.X()).matmul(l.W(l.in, l.out)); };
  return {product() + product() + product()};
}

struct Conv {
  int64_t images = 32, channels = 256, side = 56, filters = 256, stride = 1;
  DType dtype = BF16;
  bool gradients = false, channels_last = false;
};
// A convolution of 3 x 3 places and a shortcut of one, without norms between.
Results Shortcut(const Conv& c) {
  Tensor x = c.channels_last
                 ? Input({c.images, c.side, c.side, c.channels}, c.dtype).permute({0, 3, 1, 2})
                 : Input({c.images, c.channels, c.side, c.side}, c.dtype);
  Tensor w3 = Input({c.filters, c.channels, 3, 3}, c.dtype),
         w1 = Input({c.filters, c.channels, 1, 1}, c.dtype);
  x.requires_grad_(), w3.requires_grad_(), w1.requires_grad_();
  const Tensor y = x.conv2d(w3, {}, {.stride = c.stride, .padding = 1}) +
                   x.conv2d(w1, {}, {.stride = c.stride});
  return WithGradients(y, c.gradients ? Results{x, w3, w1} : Results{});
}

TEST(ProductsApart, Dump) {
  const Layer layer, with{.gradients = true}, f32{.dtype = F32}, f16{.dtype = F16},
      f32_with{.dtype = F32, .gradients = true};
  const std::vector<std::pair<std::string, std::function<Results()>>> cases = {
      {"lora16", [=] { return Lora(layer, 16, 1); }},
      {"lora16 scaled", [=] { return Lora(layer, 16, 2); }},
      {"lora8", [=] { return Lora(layer, 8, 1); }},
      {"lora4", [=] { return Lora(layer, 4, 1); }},
      {"lora64", [=] { return Lora(layer, 64, 2); }},
      {"lora16 f16", [=] { return Lora(f16, 16, 1); }},
      {"lora16 f32", [=] { return Lora(f32, 16, 1); }},
      {"lora16 f32 scaled", [=] { return Lora(f32, 16, 2); }},
      {"lora64 f32 scaled", [=] { return Lora(f32, 64, 2); }},
      {"lora16 gradients", [=] { return Lora(with, 16, 1); }},
      {"lora16 gradients scaled", [=] { return Lora(with, 16, 2); }},
      {"lora16 gradients scaled f32", [=] { return Lora(f32_with, 16, 2); }},
      {"silu", [=] { return Gated(layer, Gate::kSilu); }},
      {"sigmoid", [=] { return Gated(layer, Gate::kSigmoid); }},
      {"relu", [=] { return Gated(layer, Gate::kRelu); }},
      {"sigmoid f32", [=] { return Gated(f32, Gate::kSigmoid); }},
      {"silu gradients", [=] { return Gated(with, Gate::kSilu); }},
      {"silu gradients f32", [=] { return Gated(f32_with, Gate::kSilu); }},
      {"sigmoid gradients", [=] { return Gated(with, Gate::kSigmoid); }},
      {"three", [=] { return Three(layer, true); }},
      {"three inputs", [=] { return Three(layer, false); }},
      {"three f32", [=] { return Three(f32, true); }},
      {"conv", [=] { return Shortcut({}); }},
      {"conv stride 2", [=] { return Shortcut({.stride = 2}); }},
      {"conv last", [=] { return Shortcut({.channels_last = true}); }},
      {"conv f32", [=] { return Shortcut({.dtype = F32}); }},
      {"conv gradients", [=] { return Shortcut({.gradients = true}); }},
      {"conv last gradients", [=] { return Shortcut({.gradients = true, .channels_last = true}); }},
      {"conv last stride 2 gradients", [=] { return Shortcut({.stride = 2, .gradients = true, .channels_last = true}); }},
      {"small lora", [=] { return Lora({.rows = 256, .in = 256, .out = 256}, 16, 1); }},
      {"512 lora", [=] { return Lora({.rows = 512, .in = 512, .out = 512}, 16, 1); }},
  };
  for (const auto& [name, program] : cases)
    for (const char* arch : {"sm_80", "sm_90a"}) {
      Graph graph;
      const UOp* const sink = RecordResults(graph, program).sink;
      const Target target = CudaTarget(arch, 132);
      const Launches before = LaunchesOf(sink, target, false), now = LaunchesOf(sink, target, true);
      std::printf("%-32s %-7s %-12s %8.1f %8.1f   %-12s %8.1f %8.1f\n", name.c_str(), arch,
                  before.units.c_str(), before.flops / 1e9, before.by_units / 1e9,
                  now.units.c_str(), now.flops / 1e9, now.by_units / 1e9);
      std::fflush(stdout);
    }
}

}  // namespace
}  // namespace outboard::test
