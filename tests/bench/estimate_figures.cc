#include "tests/bench/estimate_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/examples/gpt.h"
#include "client/examples/mnist.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/session/estimate/recording_session.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/tensor.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "worker/devices/device_rates.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Step = std::function<void()>;

// The steps before are not timed: they compile, and are measured for the second figure.
constexpr int kFirstSteps = 12, kTimedSteps = 20, kTurns = 3;

struct Program {
  const char* name;
  std::function<Step()> make;  // in the current session
};

Step Perceptron(int64_t batch, std::vector<int64_t> widths, bool waits) {
  struct Net {
    std::vector<nn::Linear> layers;
    std::unique_ptr<optim::Adam> adam;
    Tensor x, y;
  };
  auto net = std::make_shared<Net>();
  nn::StateDict state;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    net->layers.emplace_back(widths[i], widths[i + 1]);
    net->layers.back().Collect(state, absl::StrCat("layer", i));
  }
  net->adam = std::make_unique<optim::Adam>(nn::parameters(state), 0.01);
  net->x = Tensor::randn({batch, widths.front()}).realize();
  net->y = Tensor::randn({batch, widths.back()}).realize();
  return [net, waits] {
    Tensor h = net->x;
    for (size_t i = 0; i < net->layers.size(); ++i) {
      h = net->layers[i](h);
      if (i + 1 < net->layers.size()) h = h.relu();
    }
    const Tensor loss = h.mse_loss(net->y);
    loss.backward();
    net->adam->step({loss});
    if (waits) loss.item();
  };
}

Step Mnist(int64_t batch) {
  const Tensor images = Tensor::uniform({512, 1, 28, 28}, 0, 255).cast(DType::kU8).realize();
  const Tensor labels = Tensor::uniform({512}, 0, 10).cast(DType::kU8).realize();
  auto trainer = std::make_shared<examples::MnistTrainer>(images, labels, batch);
  return [trainer] { trainer->Step(false); };
}

Step Gpt(const examples::GptOptions& options, int64_t batch) {
  const Tensor text = Tensor::uniform({4096}, 0, 255).cast(DType::kI32).realize();
  auto trainer = std::make_shared<examples::GptTrainer>(text, options, batch);
  return [trainer] { trainer->Step(); };
}

Step Products(int64_t n, int count) {
  const Tensor w = (Tensor::randn({n, n}) * 0.01).realize();
  auto x = std::make_shared<Tensor>(Tensor::randn({n, n}).realize());
  return [w, x, count] {
    Tensor y = *x;
    for (int i = 0; i < count; ++i) y = y.matmul(w).tanh();
    x->assign(y);
    x->realize();
  };
}

Step Elements(int64_t n) {
  auto x = std::make_shared<Tensor>(Tensor::randn({n}).realize());
  return [x] {
    x->assign((*x * 0.99 + 0.01).sin());
    x->realize();
  };
}

Step Logistic(int64_t rows, int64_t columns) {
  struct State {
    Tensor x, y, w;
  };
  auto s = std::make_shared<State>(
      State{Tensor::randn({rows, columns}).realize(), Tensor::rand({rows, 1}).realize(),
            Tensor::zeros({columns, 1}).realize()});
  return [s] {
    const Tensor error = s->x.matmul(s->w).sigmoid() - s->y;
    s->w.assign(s->w - s->x.transpose().matmul(error) * (0.1 / 16384));
    s->w.realize();
  };
}

std::vector<Program> Programs() {
  return {
      {"curve", [] { return Perceptron(64, {1, 16, 1}, true); }},
      {"small perceptron", [] { return Perceptron(256, {256, 256, 256}, false); }},
      {"perceptron", [] { return Perceptron(128, {784, 512, 512, 10}, true); }},
      {"mnist 64", [] { return Mnist(64); }},
      {"mnist 256", [] { return Mnist(256); }},
      {"gpt 2 x 64",
       [] {
         return Gpt({.layers = 2, .width = 64, .heads = 4, .context = 64}, 8);
       }},
      {"gpt 4 x 128",
       [] {
         return Gpt({.layers = 4, .width = 128, .heads = 4, .context = 128}, 4);
       }},
      {"products", [] { return Products(1024, 4); }},
      {"elements", [] { return Elements(1 << 22); }},
      {"logistic", [] { return Logistic(16384, 256); }},
  };
}

struct Times {
  double by_graphs = 0, after_ten = 0, actual = 0;  // seconds per step
};

void Repeat(const Step& step, int count) {
  for (int i = 0; i < count; ++i) step();
}

double ByGraphs(const Program& program, const session::DeviceClass& of) {
  const std::shared_ptr<Session> session = MakeRecordingSession({});
  const SessionScope scope(session);
  Tensor::manual_seed(1);
  const Step step = program.make();
  const auto& log = dynamic_cast<const session::Estimated&>(*session);
  const session::RecordedWork before = log.Recorded();
  Repeat(step, kTimedSteps);
  const session::RecordedWork work = session::Since(log.Recorded(), before);
  const session::ClassEstimate estimate = EstimateFor(of, work);
  OB_CHECK(estimate.seconds.has_value());
  return estimate.seconds->expected / kTimedSteps;
}

Times Measure(const Program& program, const Cloud& cloud, const session::DeviceClass& of) {
  Times times{.by_graphs = ByGraphs(program, of)};
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  absl::StatusOr<std::unique_ptr<Session>> opened = Session::Connect(options);
  OB_CHECK_OK(opened.status());
  const std::shared_ptr<Session> session = *std::move(opened);
  {
    const SessionScope scope(session);
    Tensor::manual_seed(1);
    const Step step = program.make();
    // Programs that wait for nothing are answered for several steps at a time.
    for (int i = 0; i < 2; ++i) {
      Repeat(step, kFirstSteps);
      OB_CHECK_OK(session->Sync());
    }
    const auto estimates = session::EstimatesOf(*session, 1);
    OB_CHECK_OK(estimates.status());
    OB_CHECK(estimates->front().is_measured);
    times.after_ten = estimates->front().seconds->expected;
    std::vector<double> turns;
    for (int turn = 0; turn < kTurns; ++turn) {
      const Clock::time_point begin = Clock::now();
      Repeat(step, kTimedSteps);
      OB_CHECK_OK(session->Sync());
      turns.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kTimedSteps);
    }
    times.actual = Quantile(turns, 0.5);
  }
  OB_CHECK_OK(session->Close());
  return times;
}

}  // namespace

void EstimateFigures() {
  const auto rates = worker::RatesFromLine(
      OutputOf(absl::StrCat(Beside("outboard"), " measure-device ''")) + "\n");
  OB_CHECK_OK(rates.status());
  const session::DeviceClass here{.name = "here",
                                  .gflops = rates->gflops(),
                                  .memory_gb_per_s = rates->memory_gb_per_s()};
  const Cloud cloud(1);
  std::vector<double> by_graphs, after_ten;
  std::string note;
  for (const Program& program : Programs()) {
    const Times times = Measure(program, cloud, here);
    by_graphs.push_back(session::ErrorOf(times.by_graphs, times.actual));
    after_ten.push_back(session::ErrorOf(times.after_ten, times.actual));
    absl::StrAppend(&note, note.empty() ? "" : "; ",
                    absl::StrFormat("%s %.2f ms, by graphs %.2f, after ten %.2f", program.name,
                                    times.actual * 1e3, times.by_graphs * 1e3,
                                    times.after_ten * 1e3));
  }
  const std::string device = absl::StrFormat("; %.0f GFLOP/s, %.1f GB/s by the join test",
                                             here.gflops, here.memory_gb_per_s);
  Report("estimate_error_p90_ratio", Quantile(by_graphs, 0.9), "", "", note + device);
  Report("estimate_measured_error_p90_ratio", Quantile(after_ten, 0.9), "", "",
         "the same programs, after ten steps");
}

}  // namespace outboard::bench
