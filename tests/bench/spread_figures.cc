#include "tests/bench/spread_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/examples/gpt.h"
#include "client/examples/mnist.h"
#include "client/nn/state.h"
#include "client/ops/elementwise/promote.h"
#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/free_port.h"
#include "tests/support/http.h"
#include "tests/support/random_bytes.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kDevicesMost = 8;
constexpr double kSecondTurnWithin = 1.5;
constexpr const char* kSpreads[] = {"auto", "data", "fsdp", "tensor"};

struct Trained {
  std::vector<double> losses;
  double step_ms = 0;  // median, without the first two
  int mismatches = 0;  // copies of a weight that are not rank 0's
};

// What a training is: how it steps, and its weights.
struct Training {
  std::function<Tensor()> step;
  nn::StateDict weights;
};

Tensor Bytes(std::vector<int64_t> dims, int below) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  const std::string bytes = test::RandomBytesBelow(count, below);
  return Tensor::from<uint8_t>(
      std::vector<uint8_t>(bytes.begin(), bytes.end()), std::move(dims));
}

Training Mnist() {
  Tensor::manual_seed(1);
  const Tensor images = Bytes({6000, 1, 28, 28}, 256), labels = Bytes({6000}, 10);
  auto trainer = std::make_shared<examples::MnistTrainer>(images, labels, /*batch=*/128);
  return {[trainer] { return trainer->Step(); }, nn::state_dict(trainer->net())};
}

Training Gpt() {
  Tensor::manual_seed(1);
  const Tensor text = Bytes({1 << 16}, 96);
  auto trainer =
      std::make_shared<examples::GptTrainer>(text, examples::GptOptions{}, /*batch=*/4);
  return {[trainer] { return trainer->Step(); }, nn::state_dict(trainer->net())};
}

// Row r of the result is rank r's copy: each rank makes all rows of what it has, and keeps one.
int Mismatches(const nn::StateDict& weights, uint32_t devices) {
  int found = 0;
  for (const auto& [name, weight] : weights) {
    const int64_t length = weight.numel();
    const Tensor copies =
        weight.reshape({1, length}).expand({static_cast<int64_t>(devices), length}).shard(0);
    const std::string all = copies.to_host().bytes;
    const size_t size = all.size() / devices;
    for (uint32_t rank = 1; rank < devices; ++rank)
      found += std::memcmp(all.data(), all.data() + rank * size, size) != 0;
  }
  return found;
}

Trained TrainOn(const Cloud& cloud, uint32_t devices, const std::string& spread, int steps,
                const std::function<Training()>& make) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  options.devices = devices;
  options.spread = spread;
  options.tell = [](const std::string&) {};
  SetSession(ValueOrDie(Session::Connect(options)));
  Trained trained;
  {
    const Training training = make();
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
      const Clock::time_point begin = Clock::now();
      trained.losses.push_back(training.step().item());
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    times.erase(times.begin(), times.begin() + std::min<int64_t>(2, steps - 1));
    trained.step_ms = Quantile(times, 0.5);
    if (devices > 1) trained.mismatches = Mismatches(training.weights, devices);
  }
  ValueOrDie(CloseSession());
  SetSession(nullptr);
  return trained;
}

// The most of any step; NaN where a loss is no number.
double RelativeError(const std::vector<double>& losses, const std::vector<double>& expected) {
  double most = 0;
  for (size_t i = 0; i < losses.size() && !std::isnan(most); ++i) {
    const double apart = std::abs(losses[i] - expected.at(i)) / std::abs(expected.at(i));
    if (!(apart <= most)) most = apart;
  }
  return most;
}

// Of the worker's metrics: kernels compiled, whether well or not.
double KernelsCompiled(int port) {
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const int fd = test::ConnectTo(address);
  if (fd < 0) return -1;
  close(fd);
  std::istringstream lines(test::Get(address, "/metrics"));
  double sum = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("outboard_kernels_compiled_total"))
      sum += std::stod(line.substr(line.rfind(' ')));
  return sum;
}

}  // namespace

void SpreadFigures() {
  const int port = test::FreePort();  // and its successor, which is most likely free, too
  const Cloud cloud(1, {},
                    {"--devices", absl::StrCat(kDevicesMost), "--metrics-listen",
                     absl::StrCat("127.0.0.1:", port)});
  struct Program {
    std::string name;
    int steps;
    // Of the losses, which are to be those of one device. The decisions of RELU and MAX fall
    // otherwise in f32 where a sum has another order, on one device too; in f64 they do not
    // (docs/decisions/134-kinks.md).
    DType compared_in;
    std::function<Training()> make;
  };
  const std::vector<Program> programs = {{"mnist", 20, DType::kF64, Mnist},
                                         {"gpt", 5, DType::kF32, Gpt}};
  double error = 0, auto_vs_best = 0;
  int mismatches = 0;
  std::string worst, slowest;
  for (const Program& program : programs) {
    const Trained alone = TrainOn(cloud, 1, "auto", program.steps, program.make);
    // A session of its own where the times are of f32 and the losses are not.
    const auto losses = [&](uint32_t devices, const char* spread, const Trained& in_f32) {
      if (program.compared_in == DType::kF32) return in_f32.losses;
      SetDefaultFloat(program.compared_in);
      Trained trained = TrainOn(cloud, devices, spread, program.steps, program.make);
      SetDefaultFloat(DType::kF32);
      return std::move(trained.losses);
    };
    const std::vector<double> expected = losses(1, "auto", alone);
    for (const uint32_t devices : {2u, 3u, 4u, kDevicesMost}) {
      std::map<std::string, double> step_ms;
      std::string steps;
      double error_here = 0;
      for (const char* const spread : kSpreads) {
        const Trained trained = TrainOn(cloud, devices, spread, program.steps, program.make);
        const double differs = RelativeError(losses(devices, spread, trained), expected);
        const double in_f32 = RelativeError(trained.losses, alone.losses);
        const std::string what =
            absl::StrFormat("%s, %d devices, %s", program.name, devices, spread);
        if (!(differs <= error)) worst = what, error = differs;
        if (!(in_f32 <= error_here)) error_here = in_f32;
        mismatches += trained.mismatches;
        step_ms[spread] = trained.step_ms;
        absl::StrAppendFormat(&steps, "%s %s %.0f", steps.empty() ? "" : ",", spread,
                              trained.step_ms);
      }
      // The first turn of "auto" is the first of all, and its plan is most often that of "data":
      // what differs between the two is the machine. A second turn, the other way round, for those
      // that may be the best; of both the quicker one counts.
      const auto quickest = [&] {
        return std::ranges::min_element(step_ms, {}, [](const auto& of) { return of.second; })
            ->second;
      };
      const double soon = kSecondTurnWithin * quickest();
      for (auto at = std::rbegin(kSpreads); at != std::rend(kSpreads); ++at) {
        double& ms = step_ms.at(*at);
        if (ms > soon) continue;
        ms = std::min(ms, TrainOn(cloud, devices, *at, program.steps, program.make).step_ms);
        absl::StrAppendFormat(&steps, ", again %s %.0f", *at, ms);
      }
      const double chosen = step_ms.at("auto");
      step_ms.erase("auto");
      const double best = quickest();
      Report(absl::StrFormat("%s_step_ms_%d", program.name, devices), chosen, "ms",
             absl::StrFormat("one device %.0f", alone.step_ms),
             absl::StrFormat("ms of each spread:%s; losses in f32 differ by %.2g, %d copies so far",
                             steps, error_here, mismatches));
      if (chosen / best > auto_vs_best)
        auto_vs_best = chosen / best,
        slowest = absl::StrFormat("%s, %d devices:%s", program.name, devices, steps);
    }
  }
  Report("devices_loss_relative_error", error, "", "one device",
         absl::StrCat("most of 20 steps of beautiful_mnist in f64 and 5 of the GPT in f32 on 2, 3, "
                      "4, 8 devices: ",
                      worst));
  Report("devices_replica_mismatches", mismatches, "", "",
         "weights that are whole on every device and are not rank 0's, after the steps");
  Report("auto_vs_best", auto_vs_best, "ratio", "the best named spread",
         absl::StrCat("the worst of all: ms of ", slowest));
  // A kernel that is compiled is a file.
  const auto files = std::filesystem::recursive_directory_iterator(cloud.objects());
  const auto kernels = std::count_if(begin(files), end(files), [](const auto& entry) {
    return entry.is_regular_file();
  });
  const double compiled = KernelsCompiled(port + 1);
  if (compiled < 0) return ReportSkipped("shard_compiles_per_node", "the port was taken");
  Report("shard_compiles_per_node", compiled / static_cast<double>(kernels), "ratio", "",
         absl::StrFormat("compiled %.0f times, %d kernels, in the sessions above", compiled,
                         static_cast<int>(kernels)));
}

}  // namespace outboard::bench
