// Kernels in which several products of matrices meet (compiler/schedule/materialize/
// products_apart.h): which of them are computed by matrix units, with the products stored apart and
// as they were, and their results on the PTX machine and on this processor against the reference
// interpreter.
#include "compiler/schedule/materialize/products_apart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/schedule_eval.h"

namespace outboard::test {
namespace {

constexpr DType F32 = DType::kF32, F16 = DType::kF16, BF16 = DType::kBF16;
using Results = std::vector<Tensor>;

bool HasProduct(const UOp* kernel) {
  for (const UOp* node : PostOrder(kernel))
    if (schedule::ProductSummed(node) != nullptr) return true;
  return false;
}

// The launches of a schedule, in order: w by warpgroups, m by mma.sync, p a product by plain
// threads, - none. `apart`: with products stored apart.
std::string LaunchesOf(const UOp* sink, const Target& target, bool apart) {
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  if (!apart) options.uses_matrix_unit = nullptr;
  Graph graph;
  const schedule::Schedule schedule =
      ValueOrDie(schedule::MakeSchedule(graph, sink, target, {}, options));
  Compiler compiler({.target = target});
  std::string launches;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (kernel.together == 0) continue;
    const std::string ptx = ValueOrDie(compiler.Compile(kernel.ast)).object;
    launches += absl::StrContains(ptx, "wgmma.mma_async") ? 'w'
                : absl::StrContains(ptx, "mma.sync")      ? 'm'
                : HasProduct(kernel.ast)                  ? 'p'
                                                          : '-';
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

  Tensor X() const { return Input({rows, in}, dtype); }
  Tensor W(int64_t from, int64_t to) const { return Input({from, to}, dtype); }
};

// x @ W + scale * (x @ A) @ B, as LoRA has it: W stays.
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
  const Tensor y =
      x.conv2d(w3, {}, {.stride = c.stride, .padding = 1}) + x.conv2d(w1, {}, {.stride = c.stride});
  return WithGradients(y, c.gradients ? Results{x, w3, w1} : Results{});
}

// ---- Launches.

struct Case {
  const char* name;
  std::function<Results()> program;
  const char *sm_80, *sm_80_before, *sm_90a, *sm_90a_before;
  bool tf32 = false;
};

class Sizes : public testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  const Layer layer, with{.gradients = true}, f32{.dtype = F32}, f16{.dtype = F16},
      f32_with{.dtype = F32, .gradients = true}, short_layer{.rows = 256, .in = 256, .out = 256};
  const Conv last{.channels_last = true}, last_with{.gradients = true, .channels_last = true},
      strided{.stride = 2, .gradients = true, .channels_last = true};
  return {
      // x @ A, on sm_80 in parts; (x @ A) @ B; x @ W and the sum.
      {"lora", [=] { return Lora(layer, 16, 1); }, "m-mm", "m-p", "wmw", "wp"},
      {"lora_scaled", [=] { return Lora(layer, 16, 2); }, "m-mm", "m-p", "wmw", "wp"},
      {"lora_f16", [=] { return Lora(f16, 16, 1); }, "m-mm", "m-p", "wmw", "wp"},
      // A product of few steps, or columns, is one of threads; the large one no longer is.
      {"lora_rank_8", [=] { return Lora(layer, 8, 1); }, "m-pm", "m-p", "wpw", "wp"},
      {"lora_rank_4", [=] { return Lora(layer, 4, 1); }, "ppm", "pp", "ppw", "pp"},
      // Of f32 the ADD makes one sum, the scale two.
      {"lora_f32", [=] { return Lora(f32, 16, 1); }, "m-m", "m-m", "ww", "ww"},
      {"lora_f32_scaled", [=] { return Lora(f32, 64, 2); }, "m-mm", "m-p", "wmw", "wp"},
      // Rounded to TF32, 16 steps are enough.
      {"lora_tf32", [=] { return Lora(f32, 16, 2); }, "m-mm", "m-p", "wmw", "wp", true},
      // Beside the three: g @ B^T, the gradients of A and B, and two for x.
      {"lora_gradients", [=] { return Lora(with, 16, 1); }, "m-mmm-mmm-m-", "m-pm-pm-m-",
       "wmwwmwm-w-", "wpwpm-w-"},
      {"lora_gradients_scaled", [=] { return Lora(with, 16, 2); }, "m-mm-m-mmm-m-", "m-p-m-pm-m-",
       "wmw-w-mwm-w-", "wp-w-pm-w-"},
      {"lora_gradients_f32", [=] { return Lora(f32_with, 16, 2); }, "m-pm-m-mm-m-", "m-p-m-mm-m-",
       "wpw-w-www-", "wp-w-www-"},
      // What the gate computes twice from is stored anyway.
      {"silu", [=] { return Gated(layer, Gate::kSilu); }, "mm", "mm", "ww", "ww"},
      {"sigmoid", [=] { return Gated(layer, Gate::kSigmoid); }, "mm", "mm", "ww", "ww"},
      {"silu_gradients", [=] { return Gated(with, Gate::kSilu); }, "mmmm", "mmmm", "wwww", "wwww"},
      {"relu", [=] { return Gated(layer, Gate::kRelu); }, "mm", "p", "ww", "p"},
      // Two of three are one launch.
      {"three", [=] { return Three(layer, true); }, "mm", "p", "ww", "p"},
      {"three_inputs", [=] { return Three(layer, false); }, "mm", "p", "ww", "p"},
      {"three_f32", [=] { return Three(f32, true); }, "m", "m", "w", "w"},
      {"shortcut", [] { return Shortcut({}); }, "--mm", "--p", "--ww", "--p"},
      {"shortcut_stride_2", [] { return Shortcut({.stride = 2}); }, "--mm", "--p", "--ww", "--p"},
      {"shortcut_last", [=] { return Shortcut(last); }, "--mm", "--p", "--ww", "--p"},
      {"shortcut_f32", [] { return Shortcut({.dtype = F32}); }, "m", "m", "m", "m"},
      {"shortcut_gradients", [=] { return Shortcut(last_with); }, "---mmmmmm-", "---ppmm-",
       "---wwwwww-", "---ppww-"},
      {"shortcut_stride_2_gradients", [=] { return Shortcut(strided); }, "----mmmmmm-",
       "----pmmmm-", "----wwwwww-", "----pwwww-"},
      {"small", [=] { return Lora(short_layer, 16, 1); }, "mp", "mp", "mp", "mp"},
  };
}

// With the products apart where that pays, and as it was.
TEST_P(Sizes, AreByMatrixUnits) {
  const Tf32Mode tf32(GetParam().tf32);
  Graph graph;
  const UOp* const sink = RecordResults(graph, GetParam().program).sink;
  for (const auto& [arch, want, before] :
       {std::tuple("sm_80", GetParam().sm_80, GetParam().sm_80_before),
        std::tuple("sm_90a", GetParam().sm_90a, GetParam().sm_90a_before)}) {
    EXPECT_EQ(LaunchesOf(sink, CudaTarget(arch, 132), true), want) << arch;
    EXPECT_EQ(LaunchesOf(sink, CudaTarget(arch, 132), false), before) << arch;
  }
}

INSTANTIATE_TEST_SUITE_P(ProductsApart, Sizes, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// What is stored apart is loaded by warpgroups that have little room beside their sums.
TEST(ProductsApart, OfWarpgroups_NothingIsSpilled) {
  const Layer layer, f32{.dtype = F32};
  const Conv last{.channels_last = true};
  for (const std::function<Results()>& program : std::vector<std::function<Results()>>{
           [=] { return Lora(layer, 16, 2); }, [=] { return Lora(f32, 64, 2); },
           [=] { return Gated(layer, Gate::kRelu); }, [=] { return Three(layer, false); },
           [=] { return Shortcut(last); }}) {
    Graph graph;
    ExpectNoSpills(GpuSchedule(RecordResults(graph, program).sink, "sm_90a"), "sm_90a");
  }
}

// Kernels of the schedule with a product, and how many of these a matrix unit computes.
std::pair<int, int> ProductsOf(const Target& target, const std::function<Results()>& program) {
  Graph recorded, graph;
  const UOp* const sink = RecordResults(recorded, program).sink;
  const schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  const schedule::Schedule schedule =
      ValueOrDie(schedule::MakeSchedule(graph, sink, target, {}, options));
  int products = 0, by_units = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (!HasProduct(kernel.ast)) continue;
    ++products;
    by_units += options.uses_matrix_unit != nullptr && options.uses_matrix_unit(kernel.ast);
  }
  return {products, by_units};
}

TEST(ProductsApart, AlsoByUnitsOfAmd) {
  for (const char* const arch : {"gfx942", "gfx1100"})
    EXPECT_EQ(ProductsOf(AmdTarget(arch, 96), [] { return Lora({}, 16, 1); }), std::pair(3, 3));
}

// Products of f32 are computed by threads: one kernel of them less is better.
TEST(ProductsApart, WithoutAUnitForTheType_NothingIsStored) {
  const auto of_f32 = [] { return Lora({.dtype = F32}, 64, 2); };
  EXPECT_EQ(ProductsOf(CudaTarget("sm_89", 128), of_f32), std::pair(2, 0));
  EXPECT_EQ(ProductsOf(AmdTarget("gfx942", 96), of_f32), std::pair(2, 0));
}

// ---- Processors.

Target WithTiles() {
  Target target = TestTarget();
  target.bf16 = Bf16Products::kTiles;
  return target;
}

TEST(ProductsApart, AlsoByTilesOfProcessors) {
  constexpr Layer kLayer{.rows = 256, .in = 256, .out = 256};
  const auto lora = [=] { return Lora(kLayer, 16, 2); };
  EXPECT_EQ(ProductsOf(WithTiles(), lora), std::pair(3, 3));
  EXPECT_EQ(ProductsOf(TestTarget(), lora), std::pair(2, 0));
  EXPECT_EQ(ProductsOf(WithTiles(), [=] { return Gated(kLayer, Gate::kRelu); }), std::pair(2, 2));
  EXPECT_EQ(ProductsOf(WithTiles(), [=] { return Three(kLayer, false); }), std::pair(3, 3));
  // With windows tiles are no faster, and the shortcut alone by tiles does not pay.
  const Conv conv{.images = 4, .channels = 64, .side = 16, .filters = 96};
  EXPECT_EQ(ProductsOf(WithTiles(), [=] { return Shortcut(conv); }), std::pair(1, 0));
  // x @ A is.
  EXPECT_EQ(ProductsOf(WithTiles(), [] { return Lora({.rows = 64, .in = 64, .out = 64}, 16, 2); }),
            std::pair(2, 1));
}

struct OfProcessor {
  RecordedResults recorded;
  std::vector<HostTensor> params;
  schedule::Schedule schedule;
};
OfProcessor ScheduledFor(Graph& graph, Graph& kernels, const Target& target,
                         const std::function<Results()>& program) {
  OfProcessor out{RecordResults(graph, program), {}, {}};
  out.params = SmallInputs(out.recorded.sink);
  out.schedule = ValueOrDie(
      schedule::MakeSchedule(kernels, out.recorded.sink, target, {}, ScheduleOptionsFor(target)));
  return out;
}

void ExpectClose(const HostTensor& got, const HostTensor& want) {
  const std::vector<double> found = FloatsOf(got), wanted = FloatsOf(want);
  double largest = 0;
  for (const double number : wanted) largest = std::max(largest, std::abs(number));
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], 0x1p-7 * largest) << "element " << i;
}

std::vector<std::function<Results()>> OfTiles() {
  constexpr Layer kLayer{.rows = 128, .in = 128, .out = 128};
  return {[=] { return Lora(kLayer, 16, 2); }, [=] { return Gated(kLayer, Gate::kRelu); },
          [=] { return Three(kLayer, false); }};
}

TEST(ProductsApart, OfTiles_KernelsAreThoseOfTheProgram) {
  for (const auto& program : OfTiles()) {
    Graph graph, kernels;
    const OfProcessor made = ScheduledFor(graph, kernels, WithTiles(), program);
    const auto got = ValueOrDie(EvaluateSchedule(made.schedule, made.recorded.sink, made.params));
    ExpectClose(got[0], ValueOrDie(Interpret(made.recorded.sink, made.params, {}))[0]);
  }
}

TEST(ProductsApart, ByTilesOfThisProcessor_ResultsAreThoseOfTheInterpreter) {
  const Target& target = HostTarget();
  if (target.bf16 != Bf16Products::kTiles) GTEST_SKIP() << "this processor has no tiles";
  for (const auto& program : OfTiles()) {
    Graph graph, kernels;
    const OfProcessor made = ScheduledFor(graph, kernels, target, program);
    HostTensor got{BF16, {128, 128}, {}};
    std::vector<std::string> memory;
    for (const schedule::ScheduledBuffer& buffer : made.schedule.buffers) {
      memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xff');
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput)
        memory.back() = made.params[static_cast<size_t>(buffer.index)].bytes;
    }
    for (const schedule::ScheduledKernel& kernel : made.schedule.kernels) {
      const auto loaded =
          ValueOrDie(LoadedKernel::Load(ValueOrDie(CompileKernel(kernel.ast, {.target = target}))));
      Buffers own;
      for (const int buffer : kernel.buffers) own.push_back(memory[static_cast<size_t>(buffer)]);
      loaded->RunGuarded(own);
      for (size_t slot = 0; slot < own.size(); ++slot)
        memory[static_cast<size_t>(kernel.buffers[slot])] = own[slot];
    }
    for (size_t i = 0; i < memory.size(); ++i)
      if (made.schedule.buffers[i].kind == schedule::ScheduledBuffer::Kind::kOutput)
        got.bytes = memory[i];
    ExpectClose(got, ValueOrDie(Interpret(made.recorded.sink, made.params, {}))[0]);
  }
}

// ---- Results. Sizes from which on a product is worth a kernel of its own.

constexpr Layer kSmall{.rows = 512, .in = 512, .out = 256};

void ExpectResults(const char* arch, const std::string& units, double tolerance,
                   const std::function<Results()>& program) {
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, program);
  EXPECT_EQ(LaunchesOf(recorded.sink, CudaTarget(arch, 132), true), units);
  const GpuSchedule gpu(recorded.sink, arch);
  gpu.ExpectAsInterpreted(recorded.sink, recorded.bindings, tolerance);
  ExpectNoSpills(gpu, arch);
}

TEST(ProductsApart, ResultsAreThoseOfTheInterpreter) {
  constexpr double kBf16 = 0x1p-7, kF16 = 0x1p-10, kF32 = 0x1p-16;
  Layer f16 = kSmall, f32 = kSmall;
  f16.dtype = F16, f32.dtype = F32;
  ExpectResults("sm_80", "mmm", kBf16, [] { return Lora(kSmall, 16, 2); });
  ExpectResults("sm_90a", "mmm", kF16, [=] { return Lora(f16, 16, 2); });
  ExpectResults("sm_90a", "mmm", kF32, [=] { return Lora(f32, 64, 2); });
  ExpectResults("sm_90a", "mm", kBf16, [] { return Gated(kSmall, Gate::kRelu); });
  ExpectResults("sm_90a", "mm", kBf16, [] { return Three(kSmall, false); });
}

TEST(ProductsApart, ResultsOfConvolutionsAreThoseOfTheInterpreter) {
  const Conv conv{.images = 4, .channels = 64, .side = 16, .filters = 96};
  ExpectResults("sm_90a", "mm", 0x1p-7, [=] { return Shortcut(conv); });
}

TEST(ProductsApart, ResultsOfGradientsAreThoseOfTheInterpreter) {
  Layer with = kSmall;
  with.gradients = true;
  ExpectResults("sm_80", "mmm-mmmmm", 0x1p-7, [=] { return Lora(with, 16, 2); });
}

// ---- What is stored.

// Sums of experts, each behind a gate of its own. Inputs are (rows, in) of each, W, and the gates.
Results Experts(const Layer& l, int count) {
  const Tensor gates = Input({l.rows, count}, l.dtype);
  Tensor y;
  for (int i = 0; i < count; ++i) {
    const Tensor one = gates.shrink({{0, l.rows}, {i, i + 1}}) * l.X().matmul(l.W(l.in, l.out));
    y = i == 0 ? one : y + one;
  }
  return {y};
}

schedule::Schedule ScheduleOf(Graph& graph, const Target& target,
                              const std::function<Results()>& program) {
  Graph recorded;
  const UOp* const sink = RecordResults(recorded, program).sink;
  return ValueOrDie(schedule::MakeSchedule(graph, sink, target, {}, ScheduleOptionsFor(target)));
}

TEST(ProductsApart, OfManySums_TwoResultsAreInMemory) {
  for (const int count : {4, 9})
    for (const char* const arch : {"sm_80", "sm_90a"}) {
      Graph graph;
      const Target target = CudaTarget(arch, 132);
      const auto experts = [&] { return Experts({.rows = 8192, .in = 1024, .out = 4096}, count); };
      EXPECT_LE(ScheduleOf(graph, target, experts).arena_bytes, 2 * 8192 * 4096 * 2);
      EXPECT_EQ(ProductsOf(target, experts), std::pair(count, count)) << arch;
    }
}

TEST(ProductsApart, OfManySumsThatMeetInNoChain_NoMoreIsStoredThanAFewTimesTheInputs) {
  const auto tree = [] {
    const Tensor x = Input({8192, 256}, BF16);
    Results all;
    for (int i = 0; i < 16; ++i) all.push_back(x.matmul(Input({256, 4096}, BF16)).relu());
    for (; all.size() > 1; all.resize(all.size() / 2))
      for (size_t i = 0; i < all.size() / 2; ++i) all[i] = all[i] + all[all.size() / 2 + i];
    return all;
  };
  Graph graph;
  EXPECT_EQ(ScheduleOf(graph, CudaTarget("sm_80", 132), tree).arena_bytes, 0);
}

TEST(ProductsApart, ResultsOfChainsAreThoseOfTheInterpreter) {
  const auto experts = [] { return Experts({.rows = 1024, .in = 64, .out = 1024}, 4); };
  ExpectResults("sm_80", "mmmm", 0x1p-6, experts);
  Graph graph;
  EXPECT_LE(ScheduleOf(graph, CudaTarget("sm_80", 132), experts).arena_bytes, 2 * 1024 * 1024 * 2);
}

// The terms of all sums, altogether.
double TermsComputed(const schedule::Schedule& schedule) {
  double terms = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels)
    for (const UOp* node : PostOrder(kernel.ast))
      if (node->op == Op::kReduceLoop) terms += schedule::TermsOf(node);
  return terms;
}

TEST(ProductsApart, NoMoreOfASumIsComputedThanItsKernelNeeds) {
  constexpr int64_t kRows = 4096, kHalf = kRows / 2;
  const auto halves = [=] {
    const Tensor c = Input({kRows, 1024}, BF16).matmul(Input({1024, 1024}, BF16)).cast(F32);
    const Tensor other = Input({kHalf, 4096}, BF16).matmul(Input({4096, 1024}, BF16)).cast(F32);
    return Results{c.shrink({{0, kHalf}, {0, 1024}}).relu(),
                   c.shrink({{kHalf, kRows}, {0, 1024}}) * other};
  };
  Graph graph;
  EXPECT_EQ(TermsComputed(ScheduleOf(graph, CudaTarget("sm_80", 132), halves)),
            (kRows + 4 * kHalf) * 1024 * 1024);
}

// Some rows of what sums meet in: a kernel computes the sums for these rows alone.
TEST(ProductsApart, OfRowsThatAreRead_NoOthersAreStored) {
  constexpr int64_t kRows = 8192, kRead = 128, kSteps = 4096, kColumns = 1024;
  const auto products = [](const std::function<Results()>& program) {
    Graph graph;
    return TermsComputed(ScheduleOf(graph, CudaTarget("sm_90a", 132), program));
  };
  const auto gate = [=] {
    const Tensor x = Input({kRows, kSteps}, BF16);
    const auto times = [&] { return x.matmul(Input({kSteps, kColumns}, BF16)); };
    return times().relu() * times();
  };
  EXPECT_EQ(products([=] { return Results{gate().shrink({{0, kRead}, {0, kColumns}})}; }),
            2 * kRead * kSteps * kColumns);
  EXPECT_EQ(products([=] { return Results{gate().take(Input({kRead}, DType::kI32), 0)}; }),
            2 * kRead * kSteps * kColumns);
  const auto chain = [=] {
    const Tensor x = Input({kRows, kSteps}, BF16);
    Tensor all = x.matmul(Input({kSteps, kColumns}, BF16)).relu();
    for (int i = 0; i < 3; ++i) all = all + x.matmul(Input({kSteps, kColumns}, BF16)).relu();
    return Results{all.shrink({{0, kRead}, {0, kColumns}})};
  };
  EXPECT_EQ(products(chain), 4 * kRead * kSteps * kColumns);
}

// A value that a kernel before computes as well is not stored behind it.
TEST(ProductsApart, WhatAKernelBeforeComputesIsNotStored) {
  constexpr int64_t kRows = 4096, kHalf = kRows / 2, kQuarter = kRows / 4;
  const auto parts = [=] {
    const Tensor c = Input({kRows, 1024}, BF16).matmul(Input({1024, 1024}, BF16)).cast(F32);
    const Tensor other = Input({kQuarter, 8192}, BF16).matmul(Input({8192, 1024}, BF16)).cast(F32);
    const auto rows = [&](int64_t from, int64_t to) { return c.shrink({{from, to}, {0, 1024}}); };
    return Results{rows(0, kHalf).relu(),
                   rows(kHalf, kHalf + kQuarter) * other + rows(kHalf + kQuarter, kRows)};
  };
  Graph graph;
  EXPECT_EQ(TermsComputed(ScheduleOf(graph, CudaTarget("sm_80", 132), parts)),
            (kRows + 8 * kQuarter) * 1024 * 1024);
}

// Of short sums the stores of a processor take longer than what tiles gain.
TEST(ProductsApart, OfTiles_ManyShortSumsStayTogether) {
  EXPECT_EQ(
      ProductsOf(
          WithTiles(),
          [] {
            Tensor y;
            for (int i = 0; i < 8; ++i) {
              const Tensor one = Input({1024, 32}, BF16).matmul(Input({32, 1024}, BF16)).relu();
              y = i == 0 ? one : y + one;
            }
            return Results{y};
          }),
      std::pair(1, 0));
}

// ---- What is asked.

int64_t AsksOf(const std::function<Results()>& program) {
  Graph recorded, graph;
  const UOp* const sink = RecordResults(recorded, program).sink;
  const Target target = CudaTarget("sm_90a", 132);
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  int64_t asks = 0;
  options.uses_matrix_unit = [&, asked = options.uses_matrix_unit](const UOp* kernel) {
    ++asks;
    return asked(kernel);
  };
  OB_CHECK_OK(schedule::MakeSchedule(graph, sink, target, {}, options).status());
  return asks;
}

TEST(ProductsApart, EqualKernelsAreAskedAboutOnce) {
  const auto layers = [](int count) {
    Tensor x = Input({1024, 1024}, BF16);
    for (int i = 0; i < count; ++i) {
      const auto w = [](int64_t in, int64_t out) { return Input({in, out}, BF16); };
      x = (x.matmul(w(1024, 1024)) + x.matmul(w(1024, 16)).matmul(w(16, 1024))).relu();
    }
    return Results{x};
  };
  // The kernel, what is stored of it, and what is left of it.
  EXPECT_EQ(AsksOf([&] { return layers(1); }), 3);
  EXPECT_EQ(AsksOf([&] { return layers(12); }), 3);
}

TEST(ProductsApart, AKernelOfManyProducts_IsAskedAboutOnceForEach) {
  constexpr int kProducts = 24;
  EXPECT_LE(AsksOf([] {
              const Tensor x = Input({512, 512}, BF16);
              Tensor y;
              for (int i = 0; i < kProducts; ++i) {
                const Tensor product = x.matmul(Input({512, 512}, BF16)).tanh();
                y = i == 0 ? product : y * product;
              }
              return Results{y};
            }),
            kProducts + 1);
}

TEST(ProductsApart, OfSmallProductsNothingIsAsked) {
  EXPECT_EQ(AsksOf([] { return Lora({.rows = 256, .in = 256, .out = 256}, 16, 1); }), 0);
}

TEST(ProductsApart, WhereDividingCannotPayNothingIsAsked) {
  EXPECT_EQ(AsksOf([] { return Experts({.rows = 4096, .in = 16, .out = 4096}, 6); }), 0);
}

// Of graphs from strangers: no more is asked than there are steps for.
TEST(ProductsApart, AsksEndWhereNodesAreSpent) {
  constexpr int64_t kNodes = 1 << 12;
  Graph g;
  int64_t asked = 0;
  schedule::MatrixUnitKernels units(
      [&](const UOp* kernel) {
        asked += static_cast<int64_t>(PostOrder(kernel).size());
        return true;
      },
      /*tf32=*/false);
  const auto kernel = [&](int64_t number) {
    const UOp* value = ConstFloat(g, F32, static_cast<double>(number));
    for (int64_t i = 0; i < kNodes; ++i) value = Alu(g, Op::kSqrt, value);
    return value;
  };
  EXPECT_TRUE(units.Computes(g, kernel(0)));
  for (int64_t i = 1; i < 3 * schedule::kAskedNodesMax / kNodes / 2; ++i)
    units.Computes(g, kernel(i));
  EXPECT_TRUE(units.Computes(g, kernel(0)));  // it is known
  EXPECT_FALSE(units.Computes(g, kernel(-1)));
  EXPECT_FALSE(units.AreAsked());
  EXPECT_LE(asked, schedule::kAskedNodesMax);
}

}  // namespace
}  // namespace outboard::test
