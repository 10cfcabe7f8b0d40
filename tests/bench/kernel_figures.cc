#include "tests/bench/kernel_figures.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/beam.h"
#include "compiler/target.h"
#include "runtime/devices.h"
#include "tests/bench/one_dnn.h"
#include "tests/bench/open_blas.h"
#include "tests/bench/report.h"
#include "worker/compile/compile_pool.h"
#include "worker/process/message_limits.h"
#include "worker/tuning/kernel_measurer.h"

namespace outboard::bench {
namespace {

constexpr int kRounds = 5;
constexpr double kSecondsPerTurn = 0.15;
// OpenBLAS's threads look for work for some milliseconds after a call; ours must not meet them.
constexpr std::chrono::milliseconds kPause(60);

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What BEAM=4 finds within `seconds`.
search::BeamResult Searched(runtime::Device& device, const UOp* sink, double seconds) {
  worker::CompilePool compilers;
  worker::KernelMeasurer local(ValueOrDie(EncodeGraph(sink)).bytes, &compilers, &device,
                               {.batch = worker::kBatchCandidatesMax});
  OB_CHECK_OK(local.Open());
  const double end = Now() + seconds;
  search::BeamOptions options;
  options.stop = [&] { return Now() > end; };
  return ValueOrDie(search::Beam(sink, local, options));
}

// The kernels of one graph over buffers of their own.
class Kernels {
 public:
  // `make` returns the results' SINK over PARAMs; `opts` are for all kernels, instead of the
  // heuristic's.
  Kernels(runtime::Device& device, const std::function<const UOp*(Graph&)>& make,
          std::optional<std::vector<codegen::Opt>> opts = std::nullopt)
      : device_(device) {
    Graph g;
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, make(g), HostTarget()));
    arena_.push_back(Zeros(schedule.arena_bytes));
    for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary) {
        pointers_.push_back(arena_[0].address() + buffer.index);
        continue;
      }
      arena_.push_back(Zeros(buffer.bytes()));
      pointers_.push_back(arena_.back().address());
      auto& list = buffer.kind == schedule::ScheduledBuffer::Kind::kInput ? inputs_ : outputs_;
      list.resize(std::max(list.size(), static_cast<size_t>(buffer.index) + 1));
      list[buffer.index] = pointers_.back();
    }
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      programs_.push_back(
          ValueOrDie(device.Load(ValueOrDie(CompileKernel(kernel.ast, {.opts = opts})))));
      slots_.emplace_back();
      for (const int buffer : kernel.buffers) slots_.back().push_back(pointers_[buffer]);
    }
  }

  void Run() {
    for (size_t i = 0; i < programs_.size(); ++i)
      OB_CHECK_OK(device_.Launch(*programs_[i], slots_[i], {}));
  }
  template <typename T = float>
  T* input(int slot) const {
    return HostPointer<T>(inputs_[slot]);
  }
  template <typename T = float>
  T* output(int place) const {
    return HostPointer<T>(outputs_[place]);
  }

 private:
  // The CPU device's addresses are pointers.
  template <typename T>
  static T* HostPointer(runtime::DeviceAddress address) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
  }
  runtime::DeviceBuffer Zeros(int64_t bytes) {
    runtime::DeviceBuffer buffer = ValueOrDie(device_.Allocate(bytes));
    OB_CHECK_OK(device_.Fill(buffer.address(), 0, bytes));
    return buffer;
  }

  runtime::Device& device_;
  std::vector<runtime::DeviceBuffer> arena_;
  std::vector<runtime::DeviceAddress> pointers_, inputs_, outputs_;
  std::vector<std::unique_ptr<runtime::DeviceKernel>> programs_;
  std::vector<std::vector<runtime::DeviceAddress>> slots_;
};

// Seconds of one call: the fastest over a turn's time, since other programs only make it slower.
double SecondsOf(const std::function<void()>& call) {
  std::vector<double> times;
  const double end = Now() + kSecondsPerTurn;
  do {
    const double begin = Now();
    call();
    times.push_back(Now() - begin);
  } while (Now() < end);
  return Quantile(times, 0);
}

struct Comparison {
  double ratio, ours_s, theirs_s;
};

Comparison Compare(const std::function<void()>& ours, const std::function<void()>& theirs) {
  ours();
  theirs();
  std::vector<double> ratios, our_times, their_times;
  for (int round = 0; round < kRounds; ++round) {
    std::this_thread::sleep_for(kPause);
    our_times.push_back(SecondsOf(ours));
    their_times.push_back(SecondsOf(theirs));
    ratios.push_back(their_times.back() / our_times.back());
  }
  return {Quantile(ratios, 0.5), Quantile(our_times, 0.5), Quantile(their_times, 0.5)};
}

// Processors that this process may use, so that `taskset` decides for both sides.
int Threads() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// As the Tensor API writes it: products and sums in f32.
const UOp* MatMul(Graph& g, int64_t n, DType dtype = DType::kF32) {
  const Shape full = {Dim(n), Dim(n), Dim(n)}, matrix = {Dim(n), Dim(n)};
  const auto operand = [&](int slot, const Shape& shape) {
    return Expand(g, Reshape(g, Cast(g, Param(g, slot, dtype, matrix), DType::kF32), shape), full);
  };
  const UOp* const product =
      Mul(g, operand(0, {Dim(n), Dim(n), Dim(1)}), operand(1, {Dim(1), Dim(n), Dim(n)}));
  const UOp* const sum = Reshape(g, Reduce(g, Op::kAdd, product, {1}), matrix);
  return Sink(g, {Cast(g, sum, dtype)});
}

// Of bf16 the bits: the upper half of an f32's, exact for so few digits.
template <typename T>
void FillSmall(T* data, int64_t count, int seed) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = 0.125f * static_cast<float>((i * 7 + seed) % 17 - 8);
    if constexpr (std::is_same_v<T, float>) {
      data[i] = value;
    } else {
      data[i] = static_cast<T>(std::bit_cast<uint32_t>(value) >> 16);
    }
  }
}

}  // namespace

namespace {

// The product of n x n by the heuristic's Opts, or by others, against OpenBLAS.
void ReportMatMul(const std::string& figure, runtime::Device& device, int64_t n,
                  const std::optional<std::vector<codegen::Opt>>& opts) {
  const int threads = device.properties().compute_units;
  const auto blas = OpenBlas::Load(threads);
  if (!blas.ok()) return ReportSkipped(figure, std::string(blas.status().message()));
  Kernels kernels(
      device, [&](Graph& g) { return MatMul(g, n); }, opts);
  FillSmall(kernels.input(0), n * n, 1);
  FillSmall(kernels.input(1), n * n, 2);
  std::vector<float> want(n * n);
  const Comparison c = Compare([&] { kernels.Run(); },
                               [&] {
                                 (*blas)->MatMul(static_cast<int>(n), kernels.input(0),
                                                 kernels.input(1), want.data());
                               });
  // Sums of multiples of 1/64 that f32 holds exactly: equal in any order.
  OB_CHECK(std::equal(want.begin(), want.end(), kernels.output(0)));
  const double flops = 2.0 * static_cast<double>(n * n * n);
  Report(figure, c.ratio, "ratio",
         absl::StrFormat("ours %.1f, OpenBLAS %.1f GFLOP/s", flops / c.ours_s / 1e9,
                         flops / c.theirs_s / 1e9),
         absl::StrCat(threads, " threads; ", (*blas)->config()));
}

}  // namespace

void MatMulFigures() {
  const auto owned = runtime::MakeCpuDevice({.threads = Threads()});
  runtime::Device& device = *owned;
  for (const int64_t n : {512, 1024, 2048, 4096})
    ReportMatMul(absl::StrCat("matmul_fp32_", n, "_vs_openblas_nobeam"), device, n, std::nullopt);
}

void MatMulBf16Figures() {
  const int threads = Threads();
  const auto dnn = OneDnn::Load(threads);
  const auto owned = runtime::MakeCpuDevice({.threads = threads});
  runtime::Device& device = *owned;
  for (const int64_t n : {512, 1024, 2048, 4096}) {
    const std::string figure = absl::StrCat("matmul_bf16_", n, "_vs_onednn");
    if (!dnn.ok()) {
      ReportSkipped(figure, std::string(dnn.status().message()));
      continue;
    }
    Kernels kernels(device, [&](Graph& g) { return MatMul(g, n, DType::kBF16); });
    auto *const a = kernels.input<uint16_t>(0), *const b = kernels.input<uint16_t>(1);
    FillSmall(a, n * n, 1);
    FillSmall(b, n * n, 2);
    std::vector<uint16_t> want(n * n);
    const Comparison c = Compare([&] { kernels.Run(); }, (*dnn)->MatMul(n, a, b, want.data()));
    // Sums of multiples of 1/64 that f32 holds exactly: rounded once, they are equal.
    OB_CHECK(std::equal(want.begin(), want.end(), kernels.output<uint16_t>(0)));
    const double flops = 2.0 * static_cast<double>(n * n * n);
    Report(figure, c.ratio, "ratio",
           absl::StrFormat("ours %.1f, oneDNN %.1f GFLOP/s", flops / c.ours_s / 1e9,
                           flops / c.theirs_s / 1e9),
           absl::StrCat(threads, " threads"));
  }
}

void BeamFigures() {
  constexpr double kSecondsMax = 60;
  const int threads = Threads();
  const auto owned = runtime::MakeCpuDevice({.threads = threads});
  runtime::Device& device = *owned;
  for (const int64_t n : {512, 1024, 2048, 4096}) {
    Graph g;
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, MatMul(g, n), HostTarget()));
    OB_CHECK(schedule.kernels.size() == 1);
    const double begin = Now();
    const search::BeamResult result = Searched(device, schedule.kernels[0].ast, kSecondsMax);
    Report(absl::StrCat("beam_matmul_", n, "_s"), Now() - begin, "s", "",
           absl::StrCat(result.finished ? "" : "stopped; ", result.trials.size(), " trials, ",
                        threads, " threads; ", codegen::OptsToString(result.best.opts)));
    Report(absl::StrCat("beam_matmul_", n, "_gain"),
           static_cast<double>(result.start_ns) / static_cast<double>(result.best.time_ns),
           "ratio", "the heuristic's Opts", "of the times that the search measured");
    ReportMatMul(absl::StrCat("matmul_fp32_", n, "_vs_openblas"), device, n, result.best.opts);
  }
}

// ---- streams

namespace {

#define OB_BEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))

OB_BEST_VECTORS void ScaleLoop(const float* a, float* c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) c[i] = 3 * a[i];
}
OB_BEST_VECTORS void AddLoop(const float* a, const float* b, float* c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) c[i] = a[i] + b[i];
}
// Enough independent sums that additions do not wait for each other.
OB_BEST_VECTORS float SumLoop(const float* a, int64_t begin, int64_t end) {
  constexpr int kSums = 64;
  float sums[kSums] = {};
  for (int64_t i = begin; i + kSums <= end; i += kSums)
    for (int k = 0; k < kSums; ++k) sums[k] += a[i + k];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

#undef OB_BEST_VECTORS

// body(begin, end) for one contiguous part a thread, all at once.
void OnThreads(int threads, int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i)
    others.emplace_back(body, count * i / threads, count * (i + 1) / threads);
  body(0, count / threads);
  for (std::thread& thread : others) thread.join();
}

}  // namespace

void StreamFigures() {
  constexpr int64_t kCount = (int64_t{256} << 20) / sizeof(float);
  const int threads = Threads();
  const auto owned = runtime::MakeCpuDevice({.threads = threads});
  runtime::Device& device = *owned;
  const Shape shape = {Dim(kCount)};
  const auto report = [&](const char* name, int arrays, const Comparison& c) {
    const double bytes = static_cast<double>(kCount) * sizeof(float) * arrays;
    Report(absl::StrCat("stream_ratio_", name), c.ratio, "ratio",
           absl::StrFormat("ours %.1f, loop %.1f GB/s", bytes / c.ours_s / 1e9,
                           bytes / c.theirs_s / 1e9),
           absl::StrCat("arrays of 256 MB, ", threads, " threads"));
  };
  {
    Kernels kernels(device, [&](Graph& g) {
      const UOp* const x = Param(g, 0, DType::kF32, shape);
      return Sink(g, {Mul(g, x, Full(g, ConstFloat(g, DType::kF32, 3), shape))});
    });
    FillSmall(kernels.input(0), kCount, 1);
    const float* const a = kernels.input(0);
    float* const c = kernels.output(0);
    report("scale", 2,
           Compare([&] { kernels.Run(); },
                   [&] {
                     OnThreads(threads, kCount,
                               [&](int64_t i, int64_t end) { ScaleLoop(a, c, i, end); });
                   }));
  }
  {
    Kernels kernels(device, [&](Graph& g) {
      return Sink(g, {Add(g, Param(g, 0, DType::kF32, shape), Param(g, 1, DType::kF32, shape))});
    });
    const float *const a = kernels.input(0), *const b = kernels.input(1);
    float* const c = kernels.output(0);
    FillSmall(kernels.input(0), kCount, 1);
    FillSmall(kernels.input(1), kCount, 2);
    report("add", 3,
           Compare([&] { kernels.Run(); },
                   [&] {
                     OnThreads(threads, kCount,
                               [&](int64_t i, int64_t end) { AddLoop(a, b, c, i, end); });
                   }));
  }
  {
    Kernels kernels(device, [&](Graph& g) {
      return Sink(g, {Reduce(g, Op::kAdd, Param(g, 0, DType::kF32, shape), {0})});
    });
    FillSmall(kernels.input(0), kCount, 1);
    const float* const a = kernels.input(0);
    volatile float sink = 0;
    report("sum", 1,
           Compare([&] { kernels.Run(); },
                   [&] {
                     OnThreads(threads, kCount,
                               [&](int64_t i, int64_t end) { sink = SumLoop(a, i, end); });
                   }));
  }
}

void FunctionFigures() {
  struct Function {
    Op op;
    double (*of_library)(double);
  };
  constexpr Function kFunctions[] = {{Op::kExp, std::exp},   {Op::kExp2, std::exp2},
                                     {Op::kLog, std::log},   {Op::kLog2, std::log2},
                                     {Op::kSin, std::sin},   {Op::kCos, std::cos},
                                     {Op::kTanh, std::tanh}};
  constexpr int64_t kCount = 16384;  // stays in the second cache
  const auto owned = runtime::MakeCpuDevice({.threads = 1});
  double logs = 0;
  std::string all;
  for (const Function& f : kFunctions) {
    Kernels kernels(*owned, [&](Graph& g) {
      return Sink(g, {Alu(g, f.op, Param(g, 0, DType::kF64, {Dim(kCount)}))});
    });
    double* const in = kernels.input<double>(0);
    for (int64_t i = 0; i < kCount; ++i) in[i] = 0.1 + 0.0005 * static_cast<double>(i);
    std::vector<double> out(kCount);
    const auto library = [&] {
      for (int64_t i = 0; i < kCount; ++i) out[i] = f.of_library(in[i]);
    };
    const Comparison c = Compare([&] { kernels.Run(); }, library);
    logs += std::log(c.ratio);
    absl::StrAppend(&all, all.empty() ? "" : ", ", std::string(Name(f.op)),
                    absl::StrFormat(" %.2f ns (%.1f)", c.ours_s / kCount * 1e9, c.ratio));
  }
  Report("f64_functions_vs_libm", std::exp(logs / std::size(kFunctions)), "ratio", all,
         "geometric mean of seven functions of f64, one thread, 16,384 numbers from 0.1 to 8.3");
}

}  // namespace outboard::bench
