#include "tests/bench/gpu_step_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "runtime/devices.h"
#include "tests/support/executor_link.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

constexpr int kWarmSteps = 2;  // the first compiles, the second records the launches
constexpr int64_t kTextTokens = 1'000'000;
constexpr double kLearningRate = 1e-4;

// Tokens that are drawn, so that losses are those of a training.
Tensor Text(const GptStep& step) {
  const int64_t tokens =
      std::max(step.options.context * 2, std::min(kTextTokens, step.options.vocabulary * 20));
  return Tensor::randint({tokens}, 0, step.options.vocabulary).cast(DType::kI32);
}

absl::StatusOr<double> Train(const GptStep& step, int steps) {
  try {
    Tensor::manual_seed(1);
    examples::GptTrainer trainer(Text(step), step.options, step.batch, kLearningRate);
    for (int i = 0; i < kWarmSteps; ++i) trainer.Step();
    OB_RETURN_IF_ERROR(SessionIfConnected()->Sync());
    const auto begin = std::chrono::steady_clock::now();
    Tensor loss;
    for (int i = 0; i < steps; ++i) loss = trainer.Step();
    const double value = loss.item();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (!std::isfinite(value))
      return absl::InternalError(absl::StrCat("after ", kWarmSteps + steps, " steps of ", step.name,
                                              " the loss is ", value));
    return taken.count() / steps;
  } catch (const Error& error) {
    return absl::InternalError(absl::StrCat(step.name, ": ", error.what()));
  }
}

}  // namespace

std::vector<GptStep> Gpt2Steps() {
  const examples::GptOptions gpt2 = {.vocabulary = 50257,
                                     .layers = 12,
                                     .width = 768,
                                     .heads = 12,
                                     .context = 1024,
                                     .products = DType::kBF16};
  return {{"gpt2_step", gpt2, 8}, {"gpt2_step_32", gpt2, 32}};
}

absl::StatusOr<double> MeasureGptStep(const GptStep& step, int steps) {
  OB_ASSIGN_OR_RETURN(auto device, runtime::MakeDevice(std::string(runtime::kCuda), {}));
  worker::InProcessCompiler compiler({.target = worker::TargetOfDevice(device->properties())});
  OB_ASSIGN_OR_RETURN(
      auto session,
      Session::ConnectLink(std::make_unique<test::ExecutorLink>(
                               worker::MakeCompiledEngine(&compiler, std::move(device), {})),
                           session::SessionOptions{}));
  SetSession(std::move(session));
  const absl::StatusOr<double> seconds = Train(step, steps);
  const absl::Status closed = CloseSession().status();
  SetSession(nullptr);
  if (seconds.ok() && !closed.ok()) return closed;
  return seconds;
}

double ModelFlops(const GptStep& step) {
  const examples::GptOptions& o = step.options;
  const auto width = static_cast<double>(o.width), context = static_cast<double>(o.context);
  const double weights = 12.0 * static_cast<double>(o.layers) * width * width +
                         static_cast<double>(o.vocabulary) * width;
  const double of_a_token = 6 * weights + 12 * static_cast<double>(o.layers) * width * context;
  return of_a_token * static_cast<double>(step.batch) * context;
}

double PeakBf16Flops(const runtime::DeviceProperties& properties) {
  const std::string& name = properties.name;
  if (absl::StrContains(name, "H100 PCIe")) return 756e12;
  if (absl::StrContains(name, "H100 NVL") || absl::StrContains(name, "H200 NVL")) return 835e12;
  if (absl::StrContains(name, "H100") || absl::StrContains(name, "H200")) return 989e12;
  if (absl::StrContains(name, "A100")) return 312e12;
  return 0;
}

}  // namespace outboard::bench
