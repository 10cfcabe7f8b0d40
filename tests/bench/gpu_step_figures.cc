#include "tests/bench/gpu_step_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/examples/mnist.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "tests/bench/gpu_engine_session.h"
#include "tests/bench/report.h"

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

class Training {
 public:
  // `step` returns its loss.
  Training(std::string name, int rounds, std::function<Tensor()> step)
      : name_(std::move(name)), rounds_(rounds), step_(std::move(step)) {}

  absl::StatusOr<double> Seconds(int steps) {
    for (int i = 0; i < kWarmSteps; ++i) step_();
    OB_RETURN_IF_ERROR(SessionIfConnected()->Sync());
    std::vector<double> rounds;
    for (int round = 0; round < rounds_; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      Tensor loss;
      for (int i = 0; i < steps; ++i) loss = step_();
      const double value = loss.item();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (!std::isfinite(value))
        return absl::InternalError(absl::StrCat("a loss of ", name_, " is ", value));
      rounds.push_back(taken.count() / steps);
    }
    return Quantile(rounds, 0.5);
  }

 private:
  const std::string name_;
  const int rounds_;
  const std::function<Tensor()> step_;
};

// In a session of its own; `begin` makes what is trained, and returns its step.
absl::StatusOr<SessionTimes> Train(const std::string& name, int rounds, int steps,
                                   double search_seconds,
                                   const std::function<std::function<Tensor()>()>& begin) {
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<GpuEngineSession> session, GpuEngineSession::Open());
  try {
    Tensor::manual_seed(1);
    Training training(name, rounds, begin());
    OB_ASSIGN_OR_RETURN(const double nobeam, training.Seconds(steps));
    SessionTimes times = {nobeam, nobeam};
    session->SearchAndMeasure(name, search_seconds, times, [&] { return training.Seconds(steps); });
    return times;
  } catch (const Error& error) {
    return absl::InternalError(absl::StrCat(name, ": ", error.what()));
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

GptStep SmallStep(GptStep step) {
  step.options = {.vocabulary = 64,
                  .layers = 1,
                  .width = 32,
                  .heads = 2,
                  .context = 16,
                  .products = step.options.products};
  step.batch = 1;
  return step;
}

absl::StatusOr<SessionTimes> MeasureGptStep(const GptStep& step, int steps, double search_seconds) {
  return Train(step.name, kRounds, steps, search_seconds, [&] {
    const auto trainer =
        std::make_shared<examples::GptTrainer>(Text(step), step.options, step.batch, kLearningRate);
    return [trainer] { return trainer->Step(); };
  });
}

absl::StatusOr<SessionTimes> MeasureMnistStep(const MnistSizes& sizes, int steps,
                                              double search_seconds) {
  return Train("mnist_step", sizes.rounds, steps, search_seconds, [&] {
    const auto drawn = [](const Dims& dims, int64_t end) {
      Tensor values = Tensor::randint(dims, 0, end).cast(DType::kU8).state_();
      values.realize();
      return values;
    };
    const auto trainer = std::make_shared<examples::MnistTrainer>(
        drawn({sizes.pictures, 1, 28, 28}, 256), drawn({sizes.pictures}, 10), sizes.batch);
    return [trainer] { return trainer->Step(); };
  });
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
