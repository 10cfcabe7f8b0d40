#include "tests/bench/gpu_service_figures.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runtime/devices.h"
#include "tests/bench/cloud.h"
#include "tests/bench/first_step_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/training_data.h"
#include "tests/support/executor_link.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

// Microseconds of a tiny step on the device in this process.
absl::StatusOr<double> InThisProcess(int steps) {
  OB_ASSIGN_OR_RETURN(auto device, runtime::MakeDevice(std::string(runtime::kCuda), {}));
  worker::InProcessCompiler compiler({.target = worker::TargetOfDevice(device->properties())});
  OB_ASSIGN_OR_RETURN(
      const auto session,
      Session::ConnectLink(std::make_unique<test::ExecutorLink>(
                               worker::MakeCompiledEngine(&compiler, std::move(device), {})),
                           session::SessionOptions{}));
  const double median = Quantile(MeasureTinySteps(*session, steps), 0.5);
  OB_RETURN_IF_ERROR(session->Close());
  return median;
}

}  // namespace

absl::StatusOr<std::vector<DeviceFigure>> MeasureGpuService(const ServiceTrial& trial) {
  std::vector<DeviceFigure> figures;
  OB_ASSIGN_OR_RETURN(const double direct, InThisProcess(trial.tiny_steps));
  const Cloud cloud(1, trial.environment);
  {
    const auto session = ConnectTo(cloud);
    const double through = Quantile(MeasureTinySteps(*session, trial.tiny_steps), 0.5);
    OB_RETURN_IF_ERROR(session->Close());
    figures.push_back(
        {"cuda_step_extra_us", "us",
         absl::StrCat("x + 1 on 4 numbers, value read, medians: through gateway and "
                      "worker ",
                      through, ", in one process ", direct, "; at most 150 more are wanted"),
         through - direct});
  }
  const TrainingData data;
  const auto first_steps = [&](const std::string& net, const std::string& command,
                               const std::string& wanted) {
    const FirstSteps seconds = MeasureFirstSteps(cloud, command, trial.repeats);
    figures.push_back({absl::StrCat("cuda_first_step_s_", net, "_cold"), "s",
                       absl::StrCat("from process start, without BEAM; ", wanted), seconds.cold});
    figures.push_back({absl::StrCat("cuda_first_step_s_", net, "_warm"), "s",
                       "the same with its objects on the worker's disk", seconds.warm});
  };
  if (trial.mnist) first_steps("mnist", data.MnistCommand(1), "at most 1.5 are wanted");
  first_steps("gpt2",
              absl::StrCat(Beside("gpt"), " --json --seed 1 --write 0 --steps 1 --text ",
                           data.Text(), " ", trial.gpt),
              "at most 3, and 0.8 warm, are wanted");
  return figures;
}

}  // namespace outboard::bench
