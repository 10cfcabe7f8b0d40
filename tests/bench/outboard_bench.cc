// The figures of docs/measurements/: run by scripts/bench.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/examples/mnist.h"
#include "client/session/current_session.h"
#include "runtime/devices.h"
#include "tests/bench/allreduce_figures.h"
#include "tests/bench/blob_figures.h"
#include "tests/bench/cloud.h"
#include "tests/bench/decode_figures.h"
#include "tests/bench/estimate_figures.h"
#include "tests/bench/first_step_figures.h"
#include "tests/bench/flood_figures.h"
#include "tests/bench/gpu_amd_figures.h"
#include "tests/bench/gpu_failure_figures.h"
#include "tests/bench/gpu_figures.h"
#include "tests/bench/gpu_groups.h"
#include "tests/bench/gpu_kernel_figures.h"
#include "tests/bench/gpu_memory_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/group_figures.h"
#include "tests/bench/install_figures.h"
#include "tests/bench/kernel_figures.h"
#include "tests/bench/network_figures.h"
#include "tests/bench/nodes_figures.h"
#include "tests/bench/python_figures.h"
#include "tests/bench/queue_figures.h"
#include "tests/bench/random_tensor.h"
#include "tests/bench/repeat_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/rewrite_figures.h"
#include "tests/bench/schedule_figures.h"
#include "tests/bench/shard_figures.h"
#include "tests/bench/shelf_figures.h"
#include "tests/bench/spread_figures.h"
#include "tests/bench/sweep_figures.h"
#include "tests/bench/tiny_steps.h"
#include "tests/bench/tls_figures.h"
#include "tests/bench/trade_figures.h"
#include "tests/bench/training_figures.h"
#include "tests/bench/wall_figures.h"
#include "tests/e2e/in_process.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kBatch = 128;
constexpr int64_t kImages = 60000;
constexpr int kWarmSteps = 3;
constexpr int kSteps = 15;
constexpr int kRegisteredSteps = 20'000;
constexpr int kRegisteredRounds = 5;

double Ms(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct StepFigures {
  double first_step_s = 0, step_ms = 0;
  double bytes_up = 0, bytes_down = 0, round_trips = 0, kernels = 0;
};

// Training steps of the example's network on the current engine, the loss read every step.
StepFigures MeasureSteps() {
  const Tensor images = Tensor::from_host(RandomTensor({kImages, 1, 28, 28}, 256));
  const Tensor labels = Tensor::from_host(RandomTensor({kImages}, 10));
  examples::MnistTrainer trainer(images, labels, kBatch);
  StepFigures figures;
  const Clock::time_point first = Clock::now();
  trainer.Step().item();
  figures.first_step_s = Ms(first) / 1e3;
  for (int i = 0; i < kWarmSteps; ++i) trainer.Step().item();
  const session::Stats before = SessionIfConnected()->stats();
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) {
    const Clock::time_point begin = Clock::now();
    trainer.Step().item();
    times.push_back(Ms(begin));
  }
  const session::Stats after = SessionIfConnected()->stats();
  figures.step_ms = Quantile(times, 0.5);
  const auto per_step = [](uint64_t a, uint64_t b) { return static_cast<double>(b - a) / kSteps; };
  figures.bytes_up = per_step(before.bytes_up, after.bytes_up);
  figures.bytes_down = per_step(before.bytes_down, after.bytes_down);
  figures.round_trips = per_step(before.blocking_round_trips, after.blocking_round_trips);
  figures.kernels = per_step(before.kernels_launched, after.kernels_launched);
  return figures;
}

// Steps of which none is read, by second: the median of several rounds.
double MeasureRegisteredSteps(Session& session) {
  TinySteps steps(session);
  std::vector<double> rates;
  for (int round = 0; round < kRegisteredRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kRegisteredSteps; ++i) steps.Run(/*fetch=*/false);
    OB_CHECK_OK(session.Sync());
    rates.push_back(kRegisteredSteps / (Ms(begin) / 1e3));
  }
  const HostTensor value = ValueOrDie(session.Await(steps.Run(/*fetch=*/true), 0));
  float counted = 0;
  std::memcpy(&counted, value.bytes.data(), sizeof counted);
  OB_CHECK(counted == kRegisteredRounds * kRegisteredSteps + 1);
  return Quantile(rates, 0.5);
}

StepFigures MeasureStepsInProcess() {
  SetSession(test::InProcessSession(test::EngineKind::kCompiled));
  const StepFigures figures = MeasureSteps();
  OB_CHECK_OK(CloseSession().status());
  SetSession(nullptr);
  return figures;
}

// Kernels of the forward and backward pass alone: the loss and every gradient, no optimiser.
double KernelsForwardBackward() {
  SetSession(test::InProcessSession(test::EngineKind::kCompiled));
  double kernels = 0;
  {
    const TrainingMode training(true);
    const examples::MnistNet net;
    const std::vector<Tensor> parameters = nn::parameters(net);
    for (Tensor parameter : parameters) parameter.requires_grad_();
    const Tensor images = Tensor::from_host(RandomTensor({kBatch, 1, 28, 28}, 256));
    const Tensor labels = Tensor::from_host(RandomTensor({kBatch}, 10));
    realize(parameters);
    const Tensor loss = net(images.cast(DType::kF32) / 255).sparse_categorical_crossentropy(labels);
    loss.backward();
    std::vector<Tensor> results = {loss};
    for (const Tensor& parameter : parameters)
      if (!parameter.grad().empty()) results.push_back(parameter.grad());
    OB_CHECK_OK(SessionIfConnected()->Sync());
    const uint64_t before = SessionIfConnected()->stats().kernels_launched;
    realize(results);
    OB_CHECK_OK(SessionIfConnected()->Sync());
    kernels = static_cast<double>(SessionIfConnected()->stats().kernels_launched - before);
  }
  OB_CHECK_OK(CloseSession().status());
  SetSession(nullptr);
  return kernels;
}

void Steps() {
  // Before and after the other, and the better of both: the machine is not ours alone.
  StepFigures in_process = MeasureStepsInProcess();
  const Cloud cloud(1);
  SetSession(ConnectTo(cloud));
  const StepFigures loopback = MeasureSteps();
  OB_CHECK_OK(CloseSession().status());
  SetSession(nullptr);

  in_process.step_ms = std::min(in_process.step_ms, MeasureStepsInProcess().step_ms);

  Report("step_ms_in_process", in_process.step_ms, "ms", "",
         "batch 128, loss read every step, median of 15");
  Report("step_ms_loopback", loopback.step_ms, "ms",
         absl::StrFormat("%.3f of step_ms_in_process", loopback.step_ms / in_process.step_ms),
         "through gateway, supervisor and executor");
  Report("bytes_up_per_step", loopback.bytes_up, "bytes");
  Report("bytes_down_per_step", loopback.bytes_down, "bytes");
  Report("round_trips_per_step", loopback.round_trips, "count", "", "loss read every step");
  Report("kernels_per_step", loopback.kernels, "count", "", "forward, backward and Adam");
  Report("kernels_forward_backward", KernelsForwardBackward(), "count", "",
         "the loss and every gradient, without the optimiser");
  Report("first_step_s_cold", loopback.first_step_s, "s", "",
         "in an open session: schedule, compile, run");
}

void Overhead() {
  static worker::InProcessCompiler compiler;
  auto in_process = ValueOrDie(
      Session::ConnectLink(std::make_unique<test::ExecutorLink>(worker::MakeCompiledEngine(
                               &compiler, ValueOrDie(runtime::MakeDevice(runtime::kCpu, {})), {})),
                           {}));
  const Cloud cloud(1);
  auto loopback = ConnectTo(cloud);
  const std::vector<double> direct = MeasureTinySteps(*in_process),
                            far = MeasureTinySteps(*loopback);
  for (const auto& [name, q] : {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}})
    Report(absl::StrCat("step_overhead_us_", name), Quantile(far, q) - Quantile(direct, q), "us",
           absl::StrFormat("in process: %.1f us", Quantile(direct, q)),
           "x + 1 on 4 numbers, value read");
  const double here = MeasureRegisteredSteps(*in_process),
               there = MeasureRegisteredSteps(*loopback);
  const session::Stats stats = loopback->stats();
  Report("registered_steps_per_s", there, "1/s", absl::StrFormat("in process: %.0f", here),
         absl::StrFormat("x + 1 on 4 numbers, nothing read; %d waits for the cloud, a window of %d",
                         stats.window_waits, stats.window_items));
  OB_CHECK_OK(loopback->Close());
  OB_CHECK_OK(in_process->Close());
}

struct Group {
  std::string name;
  void (*run)();
  bool only_by_name = false;  // takes many minutes
};

int Main(int argc, char** argv) {
  const std::vector<Group> groups = {{"steps", Steps},
                                     {"overhead", Overhead},
                                     {"network", NetworkFigures},
                                     {"repeat", RepeatFigures},
                                     {"first", FirstStepFigures},
                                     {"decode", DecodeFigures},
                                     {"blobs", BlobFigures},
                                     {"walls",
                                      [] {
                                        TlsFigures();
                                        WallFigures();
                                      }},
                                     {"floods", FloodFigures, true},  // of walls
                                     {"gpu_failures", GpuFailureFigures},
                                     {"trade", TradeFigures},
                                     {"estimates", EstimateFigures, true},  // of trade
                                     {"sweeps", SweepFigures, true},        // of trade
                                     {"devices",
                                      [] {
                                        ShardFigures();
                                        GroupFigures();
                                        SpreadFigures();
                                        AllReduceFigures();
                                        ManyDevicesFigures();
                                        ShelfFigures();
                                      }},
                                     {"spread", SpreadFigures, true},  // of devices
                                     {"shelf", ShelfFigures, true},    // of devices
                                     {"nodes", NodeFigures, true},
                                     {"queue", QueueFigures},
                                     {"rewrites", RewriteFigures},
                                     {"schedule", ScheduleFigures},
                                     {"beam", BeamFigures},
                                     {"matmul", MatMulFigures},
                                     {"matmul_bf16", MatMulBf16Figures},
                                     {"stream", StreamFigures},
                                     {"functions", FunctionFigures},
                                     {"gpu", GpuFigures},
                                     {"gpu_compile", GpuCompileFigures, true},      // of gpu
                                     {"gpu_assembled", GpuAssemblerFigures, true},  // of gpu
                                     {"gpu_amd", GpuAmdFigures, true},              // of gpu
                                     {"gpu_memory", GpuMemoryFigures, true},        // of gpu
                                     {"gpu_machine", GpuTestFigures, true},         // of gpu
                                     {"gpu_device", [] { GpuDeviceGroup(); }},
                                     {"gpu_shapes", [] { GpuShapesGroup(); }},
                                     {"gpu_programs", [] { GpuProgramsGroup(); }},
                                     {"gpu_steps", [] { GpuStepsGroup(); }},
                                     {"gpu_service", GpuServiceGroup},
                                     {"gpu_tests", GpuTestsGroup},
                                     {"training", TrainingFigures},
                                     {"long_training", LongTrainingFigures},
                                     {"vision", VisionFigures},
                                     {"python", PythonFigures},
                                     {"install", InstallFigures},
                                     {"tuned_training", TunedTrainingFigures, true}};
  std::set<std::string> only;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") {
      report_json = true;
    } else if (flag == "--only" && i + 1 < argc) {
      only.insert(argv[++i]);
    } else if (flag == "--list-figures" && i + 1 < argc) {
      const std::vector<std::string> names = GpuFigureNames(argv[++i]);
      for (const std::string& name : names) std::printf("%s\n", name.c_str());
      return names.empty() ? 2 : 0;
    } else if (flag == "--list-device-tests") {
      for (const std::string& name : DeviceTestPrograms()) std::printf("%s\n", name.c_str());
      return 0;
    } else {
      std::fprintf(stderr, "usage: outboard_bench [--json] [--only GROUP ...]\n"
                   "       outboard_bench --list-figures GROUP    of one that needs a GPU\n"
                   "       outboard_bench --list-device-tests     of cuda_device_tests_ratio\n"
                   "groups:\n");
      for (const Group& group : groups)
        std::fprintf(stderr, "  %s%s\n", group.name.c_str(),
                     group.only_by_name ? " (takes minutes; runs only where it is named)" : "");
      return flag == "--help" ? 0 : 2;
    }
  }
  const bool all = only.empty();
  for (const Group& group : groups)
    if (all ? !group.only_by_name : only.erase(group.name) > 0) group.run();
  for (const std::string& name : only)
    std::fprintf(stderr, "outboard_bench: there is no group %s\n", name.c_str());
  return only.empty() ? 0 : 2;
}

}  // namespace
}  // namespace outboard::bench

int main(int argc, char** argv) { return outboard::bench::Main(argc, argv); }
