#include "tests/bench/first_step_figures.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/bench/training_data.h"

namespace outboard::bench {
namespace {

constexpr int kRepeats = 3;

void Measure(const std::string& net, const Cloud& cloud, const std::string& command) {
  const FirstSteps seconds = MeasureFirstSteps(cloud, command, kRepeats);
  Report(absl::StrCat("first_step_s_", net, "_cold"), seconds.cold, "s", "",
         "from process start; data in the cloud, no kernel known");
  Report(absl::StrCat("first_step_s_", net, "_warm"), seconds.warm, "s", "",
         "the same with its objects on the worker's disk");
}

}  // namespace

// Sessions end with their processes, so all that a later one finds is what is on the worker's disk.
FirstSteps MeasureFirstSteps(const Cloud& cloud, const std::string& command, int repeats) {
  const auto first_step = [&] {
    return NumberIn(OutputOf(cloud.Prefix() + command), "first_step_from_start_s");
  };
  first_step();
  std::vector<double> cold, warm;
  for (int i = 0; i < repeats; ++i) {
    std::filesystem::remove_all(cloud.objects());
    cold.push_back(first_step());
    warm.push_back(first_step());
  }
  return {Quantile(cold, 0.5), Quantile(warm, 0.5)};
}

void FirstStepFigures() {
  const TrainingData data;
  const Cloud cloud(1);
  Measure("mnist", cloud, data.MnistCommand(1));
  Measure("gpt", cloud, data.GptCommand(1));
}

}  // namespace outboard::bench
