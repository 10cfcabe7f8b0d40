#include "tests/bench/gpu_device_figures.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/optimize/opt.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/beam.h"
#include "tests/bench/gpu_plan.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/device_target.h"
#include "worker/tuning/kernel_measurer.h"

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

const UOp* Product(Graph& g, DType dtype, int64_t n) {
  const UOp* x = Expand(g, Reshape(g, Param(g, 0, dtype, {n, n}), {n, n, 1}), {n, n, n});
  const UOp* w = Expand(g, Reshape(g, Param(g, 1, dtype, {n, n}), {1, n, n}), {n, n, n});
  const UOp* const sum =
      Reduce(g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, w, DType::kF32)), {1});
  return Sink(g, {Cast(g, sum, ByteWidth(dtype) == 1 ? DType::kBF16 : dtype)});
}

constexpr int kFp8Capability = 89;  // sm_89: the first with products of 8-bit floats

// ---- figures

class Measurement {
 public:
  Measurement(runtime::Device& device, const DeviceSizes& sizes)
      : device_(device), sizes_(sizes), target_(worker::TargetOfDevice(device.properties())) {}

  absl::StatusOr<DeviceMeasured> Run() {
    for (const auto part : {&Measurement::Scrub, &Measurement::Copies, &Measurement::Snapshot,
                            &Measurement::Streams, &Measurement::Launches, &Measurement::Products,
                            &Measurement::Search})
      OB_RETURN_IF_ERROR((this->*part)());
    return std::move(measured_);
  }

 private:
  void Figure(const std::string& name, double value, const std::string& unit,
              const std::string& note) {
    measured_.figures.push_back({name, unit, note, value});
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
    double up = 0, down = 0;
    for (int i = 0; i < 5; ++i) {
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
      up = std::max(up, giga / (between - begin));
      down = std::max(down, giga / (Now() - between));
    }
    Figure("cuda_upload_gb_per_s", up, "GB/s", "through pinned pieces; at least 10 are wanted");
    Figure("cuda_park_gb_per_s", down, "GB/s", "without the disk; at least 10 are wanted");
    return absl::OkStatus();
  }

  // Steps while a second thread reads what none of them writes, to steps alone.
  absl::Status Snapshot() {
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> steps, StreamPlan(kStreams[0]));
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

  absl::StatusOr<std::unique_ptr<Plan>> StreamPlan(const Stream& stream) {
    return Plan::Make(device_, target_, [&](Graph& g) {
      return stream.graph(g, sizes_.stream_rows, sizes_.stream_columns);
    });
  }

  absl::Status Streams() {
    const int64_t bytes = sizes_.stream_rows * sizes_.stream_columns * 4;
    OB_ASSIGN_OR_RETURN(const double copied,
                        CopiedBytesPerSecond(device_, bytes, sizes_.repeats));
    for (const Stream& stream : kStreams) {
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, StreamPlan(stream));
      OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(sizes_.repeats));
      Figure(absl::StrCat("cuda_stream_ratio_", stream.name),
             static_cast<double>(stream.matrices * bytes) / seconds / copied, "ratio",
             "to a copy within the device, without BEAM; at least 0.92 is wanted");
      measured_.times.push_back({absl::StrCat("stream_", stream.name, "_nobeam"), seconds});
    }
    return absl::OkStatus();
  }

  absl::Status Launches() {
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> small,
                        Plan::Make(device_, target_, [](Graph& g) {
                          return Sink(g, {Add(g, Matrix(g, 0, 8, 32), Matrix(g, 1, 8, 32))});
                        }));
    double least = 0, host = 0;
    for (int i = 0; i < sizes_.repeats; ++i) {
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double begin = Now();
      OB_RETURN_IF_ERROR(small->Queue(sizes_.kernels));
      const double queued = Now() - begin;
      OB_RETURN_IF_ERROR(device_.Synchronize());
      const double seconds = Now() - begin;
      if (i == 0) continue;  // one by one, before there is a graph
      least = least == 0 ? seconds : std::min(least, seconds);
      host = host == 0 ? queued : std::min(host, queued);
    }
    Figure("cuda_graph_us_per_kernel", least * 1e6 / sizes_.kernels, "us",
           absl::StrCat("of ", sizes_.kernels, " small kernels in one graph; at most 1.6"));
    Figure("cuda_host_us_per_step", host * 1e6, "us",
           absl::StrCat("to queue the same graph of ", sizes_.kernels, " kernels; at most 50"));
    return absl::OkStatus();
  }

  absl::Status Products() {
    const auto n = static_cast<double>(sizes_.product);
    for (const auto& [name, dtype] :
         {std::pair("bf16", DType::kBF16), {"fp32", DType::kF32}, {"fp8", DType::kF8E4M3}}) {
      if (ByteWidth(dtype) == 1 && device_.properties().compute_capability < kFp8Capability)
        continue;  // reported as skipped
      OB_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                          Plan::Make(device_, target_, [&, type = dtype](Graph& g) {
                            return Product(g, type, sizes_.product);
                          }));
      OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(sizes_.repeats));
      Figure(absl::StrCat("cuda_matmul_", name, "_", sizes_.product, "_tflops"),
             2 * n * n * n / seconds / 1e12, "TFLOP/s", "without BEAM");
      measured_.times.push_back({absl::StrCat("matmul_", name, "_nobeam"), seconds});
    }
    return absl::OkStatus();
  }

  absl::Status Search() {
    Graph g;
    OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                        schedule::MakeSchedule(g, Product(g, DType::kBF16, sizes_.product),
                                               target_));
    if (schedule.kernels.size() != 1) return absl::InternalError("a product of several kernels");
    const UOp* const kernel = schedule.kernels[0].ast;
    worker::InProcessCompiler compiler({.target = target_});
    OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(kernel));
    worker::KernelMeasurer measurer(std::move(encoded.bytes), &compiler, &device_, {});
    OB_RETURN_IF_ERROR(measurer.Open());
    const double begin = Now();
    search::BeamOptions options{.width = sizes_.beam_width,
                                .stop = [&] { return Now() - begin > sizes_.beam_seconds; },
                                .target = target_};
    OB_ASSIGN_OR_RETURN(const search::BeamResult result,
                        search::Beam(kernel, measurer, options));
    Figure(absl::StrCat("cuda_beam_matmul_", sizes_.product, "_s"), Now() - begin, "s",
           absl::StrCat(result.finished ? "" : "stopped; ", result.trials.size(),
                        " trials, compiled one by one in this process; ",
                        codegen::OptsToString(result.best.opts)));
    measured_.times.push_back({"matmul_bf16", static_cast<double>(result.best.time_ns) / 1e9});
    return absl::OkStatus();
  }

  runtime::Device& device_;
  const DeviceSizes& sizes_;
  const Target target_;
  DeviceMeasured measured_;
};

}  // namespace

absl::StatusOr<DeviceMeasured> MeasureGpuDevice(runtime::Device& device, const DeviceSizes& sizes) {
  if (device.properties().form != CompiledKernel::Form::kPtx)
    return absl::InvalidArgumentError("no CUDA device");
  return Measurement(device, sizes).Run();
}

}  // namespace outboard::bench
