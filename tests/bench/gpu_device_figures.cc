#include "tests/bench/gpu_device_figures.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/opt.h"
#include "tests/bench/gpu_plan.h"
#include "tests/bench/report.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

using runtime::DeviceBuffer;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Plan = GpuPlan;

// ---- graphs

const UOp* Constant(Graph& g, double value, ShapeView shape) {
  return Full(g, ConstFloat(g, DType::kF32, value), shape);
}
const UOp* RowSum(Graph& g, Op op, const UOp* x, int64_t rows, int64_t columns) {
  return Expand(g, Reshape(g, Reduce(g, op, x, {1}), {rows, 1}), {rows, columns});
}
const UOp* Minus(Graph& g, const UOp* a, const UOp* b) { return Add(g, a, Alu(g, Op::kNeg, b)); }

struct Stream {
  const char* name;
  int64_t matrices;  // that are read or written
  const UOp* (*graph)(Graph& g, int64_t rows, int64_t columns);
};

const UOp* Matrix(Graph& g, int64_t slot, int64_t rows, int64_t columns) {
  return Param(g, slot, DType::kF32, {rows, columns});
}

const Stream kStreams[] = {
    {"elementwise", 3,
     [](Graph& g, int64_t m, int64_t n) {
       return Sink(g, {Add(g, Mul(g, Matrix(g, 0, m, n), Constant(g, 3, {m, n})),
                           Matrix(g, 1, m, n))});
     }},
    {"reduce", 1,
     [](Graph& g, int64_t m, int64_t n) {
       return Sink(g, {Reduce(g, Op::kAdd, Matrix(g, 0, m, n), {0, 1})});
     }},
    {"softmax", 2,
     [](Graph& g, int64_t m, int64_t n) {
       const UOp* const x = Matrix(g, 0, m, n);
       const UOp* const e = Alu(g, Op::kExp, Minus(g, x, RowSum(g, Op::kMax, x, m, n)));
       return Sink(g, {Alu(g, Op::kFDiv, e, RowSum(g, Op::kAdd, e, m, n))});
     }},
    {"layer_norm", 2,
     [](Graph& g, int64_t m, int64_t n) {
       const UOp* const x = Matrix(g, 0, m, n);
       const UOp* const part = Constant(g, 1.0 / static_cast<double>(n), {m, n});
       const UOp* const mean = Mul(g, RowSum(g, Op::kAdd, x, m, n), part);
       const UOp* const centred = Minus(g, x, mean);
       const UOp* const square = Mul(g, centred, centred);
       const UOp* const variance =
           Add(g, Mul(g, RowSum(g, Op::kAdd, square, m, n), part), Constant(g, 1e-5, {m, n}));
       return Sink(g, {Alu(g, Op::kFDiv, centred, Alu(g, Op::kSqrt, variance))});
     }},
    {"adamw", 7,
     [](Graph& g, int64_t m, int64_t n) {
       const UOp* const p = Matrix(g, 0, m, n);
       const UOp* const d = Matrix(g, 1, m, n);
       const auto blend = [&](const UOp* old, double keep, const UOp* value) {
         return Add(g, Mul(g, old, Constant(g, keep, {m, n})),
                    Mul(g, value, Constant(g, 1 - keep, {m, n})));
       };
       const UOp* const first = blend(Matrix(g, 2, m, n), 0.9, d);
       const UOp* const second = blend(Matrix(g, 3, m, n), 0.999, Mul(g, d, d));
       const UOp* const root = Add(g, Alu(g, Op::kSqrt, second), Constant(g, 1e-8, {m, n}));
       const UOp* const step = Mul(g, Alu(g, Op::kFDiv, first, root), Constant(g, -1e-3, {m, n}));
       return Sink(g, {Add(g, Mul(g, p, Constant(g, 1 - 1e-5, {m, n})), step), first, second});
     }},
};

// Of 8-bit floats the second factor lies by columns, as torch._scaled_mm asks for it: the unit
// reads it in no other order.
const UOp* Product(Graph& g, DType dtype, int64_t n) {
  const UOp* x = Expand(g, Reshape(g, Param(g, 0, dtype, {n, n}), {n, n, 1}), {n, n, n});
  const UOp* w = Param(g, 1, dtype, {n, n});
  if (ByteWidth(dtype) == 1) w = Permute(g, w, {1, 0});
  w = Expand(g, Reshape(g, w, {1, n, n}), {n, n, n});
  const UOp* const sum =
      Reduce(g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, w, DType::kF32)), {1});
  return Sink(g, {Cast(g, sum, ByteWidth(dtype) == 1 ? DType::kBF16 : dtype)});
}

constexpr int kFp8Capability = 89;  // sm_89: the first with products of 8-bit floats

// ---- figures

// Rows of a product whose error is computed, spread over all of them.
constexpr int64_t kErrorRows = 16;

}  // namespace

absl::StatusOr<double> LargestError(const std::string& x, const std::string& w,
                                    const std::string& got, int64_t n) {
  const auto at = [n](const std::string& matrix, int64_t row, int64_t column) {
    float value = 0;
    std::memcpy(&value, matrix.data() + (row * n + column) * 4, sizeof value);
    return static_cast<double>(value);
  };
  double most = 0;
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < std::min(kErrorRows, n); ++i) {
    const int64_t row = i * n / std::min(kErrorRows, n);
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t k = 0; k < n; ++k) {
      const double term = at(x, row, k);
      for (int64_t column = 0; column < n; ++column)
        sums[static_cast<size_t>(column)] += term * at(w, k, column);
    }
    for (int64_t column = 0; column < n; ++column) {
      const double sum = sums[static_cast<size_t>(column)];
      const double error = std::abs(at(got, row, column) - sum) / sum;
      if (!std::isfinite(error))
        return absl::InternalError(absl::StrCat("a product of f32 is ", at(got, row, column),
                                                " where it should be ", sum));
      most = std::max(most, error);
    }
  }
  return most;
}

namespace {

struct ProductCase {
  const char* name;
  DType dtype;
  bool by_mma_sync = false;  // alone, on a device that multiplies by warpgroups
};
constexpr ProductCase kProducts[] = {{"matmul_bf16", DType::kBF16},
                                     {"matmul_bf16_mma_sync", DType::kBF16, true},
                                     {"matmul_fp32", DType::kF32},
                                     {"matmul_fp8", DType::kF8E4M3}};

class Measurement {
 public:
  Measurement(runtime::Device& device, const DeviceSizes& sizes, const FigureReport& report)
      : device_(device),
        sizes_(sizes),
        report_(report),
        target_(worker::TargetOfDevice(device.properties())) {}

  absl::StatusOr<DeviceMeasured> Run() {
    for (const auto part : {&Measurement::Scrub, &Measurement::Copies, &Measurement::Snapshot,
                            &Measurement::Streams, &Measurement::Launches, &Measurement::Products})
      OB_RETURN_IF_ERROR((this->*part)());
    // Last: a candidate may leave the device of no use, or never end.
    if (sizes_.beam_seconds > 0) TellBeforeSearch(measured_.times);
    if (const absl::Status searched = Search(); !searched.ok()) {
      measured_.failed = std::string(searched.message());
      std::fprintf(stderr, "search: %s\n", searched.ToString().c_str());
    }
    StreamRatios();
    ProductFigures();
    return std::move(measured_);
  }

 private:
  void Figure(const std::string& name, double value, const std::string& unit,
              const std::string& note) {
    measured_.figures.push_back({name, unit, note, value});
    if (report_ != nullptr) report_(measured_.figures.back());
  }

  // Before anything else: it overwrites what is free.
  absl::Status Scrub() {
    const double begin = Now();
    OB_RETURN_IF_ERROR(device_.Scrub());
    Figure("cuda_scrub_s", Now() - begin, "s", "all free memory, shared memory and registers");
    return absl::OkStatus();
  }

  absl::Status Copies() {
    const std::string from(static_cast<size_t>(sizes_.copy_bytes), 'x');
    const auto giga = static_cast<double>(sizes_.copy_bytes) / 1e9;
    std::vector<double> up, down;
    for (int i = 0; i < kRepeatsLeast; ++i) {
      OB_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device_.AllocateForUpload(sizes_.copy_bytes));
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double begin = Now();
      OB_RETURN_IF_ERROR(device_.Upload(buffer.address(), from));
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double between = Now();
      size_t bytes = 0;
      OB_RETURN_IF_ERROR(device_.Download(buffer.address(), sizes_.copy_bytes, 1 << 20,
                                          [&](std::string_view piece) {
                                            bytes += piece.size();
                                            return absl::OkStatus();
                                          }));
      if (bytes != from.size()) return absl::DataLossError("a download is too short");
      up.push_back(giga / (between - begin));
      down.push_back(giga / (Now() - between));
    }
    Figure("cuda_upload_gb_per_s", Quantile(up, 0.5), "GB/s",
           "through pinned pieces; at least 10 are wanted");
    Figure("cuda_park_gb_per_s", Quantile(down, 0.5), "GB/s",
           "without the disk; at least 10 are wanted");
    return absl::OkStatus();
  }

  // Steps while a second thread reads what none of them writes, to steps alone.
  absl::Status Snapshot() {
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> steps, StreamPlan(kStreams[0], 1));
    OB_ASSIGN_OR_RETURN(const DeviceBuffer held, device_.Allocate(sizes_.copy_bytes));
    OB_RETURN_IF_ERROR(device_.Fill(held.address(), 1, sizes_.copy_bytes));
    const auto run = [&]() -> absl::StatusOr<double> {
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double begin = Now();
      for (int i = 0; i < sizes_.repeats; ++i) {
        OB_RETURN_IF_ERROR(steps->Queue());
        OB_RETURN_IF_ERROR(device_.Synchronize());
      }
      return Now() - begin;
    };
    OB_RETURN_IF_ERROR(run().status());
    OB_ASSIGN_OR_RETURN(const double alone, run());
    std::atomic<bool> stop{false};
    absl::Status read = absl::OkStatus();
    std::thread reader([&] {
      while (!stop && read.ok())
        read = device_.Download(held.address(), sizes_.copy_bytes, 1 << 20, [&](std::string_view) {
          return stop ? absl::CancelledError("measured") : absl::OkStatus();
        });
    });
    const absl::StatusOr<double> beside = run();
    stop = true;
    reader.join();
    OB_RETURN_IF_ERROR(beside.status());
    if (!read.ok() && !absl::IsCancelled(read)) return read;
    Figure("cuda_snapshot_slowdown", *beside / alone, "ratio",
           "of steps that stream memory, while a snapshot leaves; at most 1.05 is wanted");
    return absl::OkStatus();
  }

  int64_t RowsOf(const Stream& stream) const {
    return StreamRows(stream.matrices, sizes_.stream_columns, sizes_.stream_bytes,
                      device_.properties().memory_bytes);
  }
  double BytesOf(const Stream& stream) const {
    return static_cast<double>(stream.matrices * RowsOf(stream) * sizes_.stream_columns * 4);
  }

  // Of a share of the rows; with these Opts, if there are any.
  absl::StatusOr<std::unique_ptr<Plan>> StreamPlan(const Stream& stream, int64_t divisor,
                                                   std::span<const Plan::Opts> opts = {}) {
    const int64_t rows = std::max<int64_t>(1, RowsOf(stream) / divisor);
    return Plan::Make(
        device_, target_,
        [&](Graph& g) { return SentProgram{stream.graph(g, rows, sizes_.stream_columns)}; }, opts);
  }

  absl::Status Streams() {
    const int64_t memory = device_.properties().memory_bytes;
    const int64_t copied = memory == 0 ? sizes_.stream_bytes / 2
                                       : std::min(sizes_.stream_bytes / 2, memory / 4);
    OB_ASSIGN_OR_RETURN(copied_, CopiedBytesPerSecond(device_, copied, sizes_.repeats));
    for (const Stream& stream : kStreams) {
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, StreamPlan(stream, 1));
      OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(sizes_.repeats));
      measured_.times.push_back({absl::StrCat("stream_", stream.name), seconds, seconds});
    }
    return absl::OkStatus();
  }

  void StreamRatios() {
    for (const Stream& stream : kStreams) {
      const DeviceTimes& time = TimeOf(absl::StrCat("stream_", stream.name));
      const double bytes = BytesOf(stream);
      const bool smaller = bytes < static_cast<double>(sizes_.stream_bytes);
      Figure(absl::StrCat("cuda_stream_ratio_", stream.name), bytes / time.seconds / copied_,
             "ratio",
             absl::StrCat("of ", bytes / (1 << 30), " GiB", smaller ? ", half of the memory" : "",
                          ", to a copy within the device, ", Searched(time), "; ",
                          bytes / time.seconds_nobeam / copied_,
                          " without BEAM; at least 0.92 is wanted"));
    }
  }

  static const char* Searched(const DeviceTimes& time) {
    return time.searched ? "after BEAM" : "without BEAM";
  }

  DeviceTimes& TimeOf(const std::string& name) {
    return *std::find_if(measured_.times.begin(), measured_.times.end(),
                         [&](const DeviceTimes& time) { return time.name == name; });
  }

  absl::Status Launches() {
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> small,
                        Plan::Make(device_, target_, [](Graph& g) {
                          return SentProgram{
                              Sink(g, {Add(g, Matrix(g, 0, 8, 32), Matrix(g, 1, 8, 32))})};
                        }));
    std::vector<double> all, host;
    for (int i = 0; i <= std::max(sizes_.repeats, kRepeatsLeast); ++i) {
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double begin = Now();
      OB_RETURN_IF_ERROR(small->Queue(sizes_.kernels));
      const double queued = Now() - begin;
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double seconds = Now() - begin;
      if (i == 0) continue;  // one by one, before there is a graph
      all.push_back(seconds);
      host.push_back(queued);
    }
    Figure("cuda_graph_us_per_kernel", Quantile(all, 0.5) * 1e6 / sizes_.kernels, "us",
           absl::StrCat("of ", sizes_.kernels, " small kernels in one graph; at most 1.6"));
    Figure("cuda_host_us_per_step", Quantile(host, 0.5) * 1e6, "us",
           absl::StrCat("to queue the same graph of ", sizes_.kernels, " kernels; at most 50"));
    return absl::OkStatus();
  }

  bool IsPossible(const ProductCase& product) const {  // else reported as skipped
    return ByteWidth(product.dtype) > 1 ||
           device_.properties().compute_capability >= kFp8Capability;
  }

  absl::StatusOr<std::unique_ptr<Plan>> ProductPlan(const ProductCase& product) {
    Target target = target_;
    // Without warpgroups; a device of another kind has none anyway.
    if (product.by_mma_sync && target.arch == "sm_90a") target.arch = "sm_90";
    return Plan::Make(device_, target, [&](Graph& g) {
      return SentProgram{Product(g, product.dtype, sizes_.product)};
    });
  }

  absl::Status Products() {
    for (const ProductCase& product : kProducts) {
      if (!IsPossible(product)) continue;
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, ProductPlan(product));
      OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(sizes_.repeats));
      measured_.times.push_back({product.name, seconds, seconds});
      if (product.dtype == DType::kF32) OB_RETURN_IF_ERROR(MeasureError(*plan));
    }
    return absl::OkStatus();
  }

  absl::Status MeasureError(Plan& plan) {
    OB_ASSIGN_OR_RETURN(const std::string x, plan.Input(0));
    OB_ASSIGN_OR_RETURN(const std::string w, plan.Input(1));
    OB_ASSIGN_OR_RETURN(const std::vector<std::string> results, plan.Results());
    OB_ASSIGN_OR_RETURN(const double error, LargestError(x, w, results[0], sizes_.product));
    measured_.fp32_error = std::max(measured_.fp32_error, error);
    return absl::OkStatus();
  }

  void ProductFigures() {
    const auto n = static_cast<double>(sizes_.product);
    for (const ProductCase& product : kProducts) {
      if (!IsPossible(product)) continue;
      const DeviceTimes& time = TimeOf(product.name);
      Figure(absl::StrCat("cuda_", product.name, "_8192_tflops"),
             2 * n * n * n / time.seconds / 1e12, "TFLOP/s",
             absl::StrCat(Searched(time), "; ", 2 * n * n * n / time.seconds_nobeam / 1e12,
                          " without"));
    }
  }

  absl::Status Search() {
    for (const ProductCase& product : kProducts) {
      if (!IsPossible(product)) continue;
      const bool is_first = &product == &kProducts[0];
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, ProductPlan(product));
      const double begin = Now();
      OB_ASSIGN_OR_RETURN(const PlanSearch search,
                          plan->Search(is_first ? sizes_.beam_seconds : ShareOfSearch(),
                                       sizes_.beam_width));
      if (is_first)
        Figure("cuda_beam_matmul_8192_s", Now() - begin, "s",
               absl::StrCat(search.finished ? "" : "stopped; ", search.trials,
                            " trials, compiled one by one in this process; ",
                            codegen::OptsToString(plan->opts()[0].value_or(
                                std::vector<codegen::Opt>())),
                            "; at most 20 are wanted"));
      DeviceTimes& time = TimeOf(product.name);
      OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(sizes_.repeats));
      if (product.by_mma_sync) OB_RETURN_IF_ERROR(CheckMmaSync(*plan));
      if (product.dtype == DType::kF32) OB_RETURN_IF_ERROR(MeasureError(*plan));
      time.seconds = seconds;
      time.searched = search.searched > 0;
    }
    for (const Stream& stream : kStreams) {
      // A part of the rows: results of all would take longer to compare than to compute.
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> part, StreamPlan(stream, kStreamParts));
      OB_ASSIGN_OR_RETURN(const PlanSearch search,
                          part->Search(ShareOfSearch(), sizes_.beam_width));
      const auto whole = StreamPlan(stream, 1, part->opts());
      if (!whole.ok()) {  // Opts that only the part can have
        std::fprintf(stderr, "stream_%s: %s\n", stream.name,
                     whole.status().ToString().c_str());
        continue;
      }
      DeviceTimes& time = TimeOf(absl::StrCat("stream_", stream.name));
      OB_ASSIGN_OR_RETURN(time.seconds, (*whole)->Seconds(sizes_.repeats));
      time.searched = search.searched > 0;
    }
    return absl::OkStatus();
  }

  // Of the products but the first, and the streams.
  double ShareOfSearch() const {
    return sizes_.search_seconds /
           static_cast<double>(std::size(kProducts) - 1 + std::size(kStreams));
  }

  static absl::Status CheckMmaSync(const Plan& plan) {
    for (const Plan::Opts& opts : plan.opts())
      if (opts.has_value() && absl::StrContains(codegen::OptsToString(*opts), "WGMMA"))
        return absl::InternalError("a product by mma.sync alone has an Opt WGMMA");
    return absl::OkStatus();
  }

  static constexpr int64_t kStreamParts = 16;

  runtime::Device& device_;
  const DeviceSizes& sizes_;
  const FigureReport& report_;
  const Target target_;
  DeviceMeasured measured_;
  double copied_ = 0;  // bytes a second
};

}  // namespace

int64_t StreamRows(int64_t matrices, int64_t columns, int64_t bytes, int64_t memory_bytes) {
  const int64_t row = matrices * columns * 4;
  int64_t rows = 1;
  while (rows * row < bytes) rows *= 2;
  while (memory_bytes > 0 && rows > 1 && rows * row > memory_bytes / 2) rows /= 2;
  return rows;
}

absl::StatusOr<DeviceMeasured> MeasureGpuDevice(runtime::Device& device, const DeviceSizes& sizes,
                                                const FigureReport& report) {
  if (device.properties().form != CompiledKernel::Form::kPtx)
    return absl::InvalidArgumentError("no CUDA device");
  return Measurement(device, sizes, report).Run();
}

}  // namespace outboard::bench
