#include "tests/bench/network_figures.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/capture/repeat.h"
#include "client/examples/mnist.h"
#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/bench/cloud.h"
#include "tests/bench/random_tensor.h"
#include "tests/bench/report.h"
#include "tests/net/fault_proxy.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFar{100};
constexpr int64_t kBatch = 128, kImages = 10'000;
constexpr int kWindow = 50;  // steps between two looks at the loss
constexpr int kTurns = 3;
constexpr int kReadSteps = 15;
constexpr int kCuts = 15;

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

session::Stats Now() { return SessionIfConnected()->stats(); }

class Network {
 public:
  Network() : cloud_(1), proxy_(cloud_.target()) {
    session::SessionOptions options;
    options.target = proxy_.address();
    options.key = cloud_.key();
    SetSession(ValueOrDie(Session::Connect(options)));
    trainer_.emplace(Tensor::from_host(RandomTensor({kImages, 1, 28, 28}, 256)),
                     Tensor::from_host(RandomTensor({kImages}, 10)), kBatch);
    for (int i = 0; i < 3; ++i) trainer_->Step().item();
  }
  ~Network() {
    trainer_.reset();
    proxy_.SetRoundTrip(milliseconds(0));
    OB_CHECK_OK(CloseSession().status());
    SetSession(nullptr);
  }

  // Of steps under way together: how long each took, and how long the device computed for it.
  struct Pace {
    double wall_ms, device_ms;
  };
  // The loss is asked for every kWindow steps and looked at one window later.
  Pace Windows(milliseconds round_trip) {
    return WindowsOf(round_trip, [&] {
      for (int step = 0; step + 1 < kWindow; ++step) trainer_->Step();
      return trainer_->Step().fetch();
    });
  }
  // A window is one message.
  Pace Repeats(milliseconds round_trip) {
    return WindowsOf(round_trip,
                     [&] { return repeat(kWindow, [&] { return trainer_->Step(); }).fetch(); });
  }

  // Steps with the loss read.
  std::vector<Pace> ReadSteps(milliseconds round_trip) {
    proxy_.SetRoundTrip(round_trip);
    trainer_->Step().item();
    std::vector<Pace> steps;
    for (int i = 0; i < kReadSteps; ++i) {
      const uint64_t before = Now().device_time_us;
      const Clock::time_point begin = Clock::now();
      trainer_->Step().item();
      const double wall = MsSince(begin);
      steps.push_back({wall, static_cast<double>(Now().device_time_us - before) / 1e3});
    }
    return steps;
  }

  // From a cut to the next value, milliseconds.
  double ReconnectMs(milliseconds round_trip) {
    proxy_.SetRoundTrip(round_trip);
    const Tensor one = Tensor::ones({4}).realize();
    std::vector<double> times;
    for (int i = 0; i < kCuts; ++i) {
      (one + 1).sum().item();
      const Clock::time_point begin = Clock::now();
      proxy_.CutAll();
      (one + 1).sum().item();
      times.push_back(MsSince(begin));
    }
    return Quantile(times, 0.5);
  }

 private:
  template <typename Window>
  Pace WindowsOf(milliseconds round_trip, const Window& window) {
    proxy_.SetRoundTrip(round_trip);
    TensorFuture first = window(), second = window();  // the first fills the pipe
    first.wait();
    const Clock::time_point begin = Clock::now();
    const uint64_t device = Now().device_time_us;
    TensorFuture third = window();
    second.wait();
    third.wait();
    constexpr double kSteps = 2 * kWindow;
    return {MsSince(begin) / kSteps,
            static_cast<double>(Now().device_time_us - device) / 1e3 / kSteps};
  }

  const Cloud cloud_;
  test::FaultProxy proxy_;
  std::optional<examples::MnistTrainer> trainer_;
};

// The share of the time in which the device computes, against that without delay: a machine that is
// not ours alone computes at another speed in every turn.
void Throughput(Network& network, const std::string& figure,
                Network::Pace (Network::*measure)(milliseconds), const std::string& how) {
  std::vector<double> near, far, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    const Network::Pace here = (network.*measure)(milliseconds(0)),
                        there = (network.*measure)(kFar);
    near.push_back(here.wall_ms);
    far.push_back(there.wall_ms);
    ratios.push_back((there.device_ms / there.wall_ms) / (here.device_ms / here.wall_ms));
  }
  Report(
      figure, Quantile(ratios, 0.5), "ratio",
      absl::StrFormat("%.1f ms a step without delay", Quantile(near, 0.5)),
      absl::StrFormat("%.1f ms a step; %s; by the device's share of the time, median of %d turns",
                      Quantile(far, 0.5), how, kTurns));
}

void ReadEveryStep(Network& network) {
  const session::Stats before = Now();
  const std::vector<Network::Pace> far = network.ReadSteps(kFar);
  const session::Stats after = Now();
  std::vector<double> extra, near_extra, device;
  for (const auto& [wall_ms, device_ms] : far) {
    extra.push_back(wall_ms - device_ms - static_cast<double>(kFar.count()));
    device.push_back(device_ms);
  }
  for (const auto& [wall_ms, device_ms] : network.ReadSteps(milliseconds(0)))
    near_extra.push_back(wall_ms - device_ms);
  Report("rtt100_step_extra_ms", Quantile(extra, 0.5), "ms",
         absl::StrFormat("%.2f ms without delay", Quantile(near_extra, 0.5)),
         absl::StrFormat("a step with its loss read, less %.1f ms of computing and the round trip; "
                         "median of %d",
                         Quantile(device, 0.5), kReadSteps));
  const double steps = kReadSteps + 1;
  Report("rtt100_round_trips_per_step",
         static_cast<double>(after.blocking_round_trips - before.blocking_round_trips) / steps,
         "count", "", "loss read every step");
}

}  // namespace

void NetworkFigures() {
  Network network;
  Throughput(network, "rtt100_throughput_ratio", &Network::Windows,
             absl::StrFormat("loss asked for every %d steps, looked at one window later", kWindow));
  Throughput(network, "rtt100_repeat_ratio", &Network::Repeats,
             absl::StrFormat(
                 "Runs of %d steps, the next sent before the last one's losses are back", kWindow));
  ReadEveryStep(network);
  Report("reconnect_ms", network.ReconnectMs(milliseconds(0)), "ms", "",
         "from a cut to the next value");
  Report("rtt100_reconnect_ms", network.ReconnectMs(kFar), "ms", "",
         "of round trips of 100 ms: TCP, HTTP/2's settings, the session, the value");
}

}  // namespace outboard::bench
