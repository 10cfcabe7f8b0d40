#include "tests/bench/estimate_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
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
// A turn takes so long, or kTimedSteps: 20 steps of a millisecond say little of a program of many.
constexpr std::chrono::milliseconds kTurn{500}, kMeasured{1000};

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
  // So that values neither vanish nor grow: a processor takes a hundred times as long for numbers
  // that are almost zero.
  const Tensor w = (Tensor::randn({n, n}) * (1.5 / std::sqrt(n))).realize();
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

Step Counter(int64_t n, bool waits) {
  auto x = std::make_shared<Tensor>(Tensor::zeros({n}).realize());
  return [x, waits] {
    x->assign(*x + 1);
    x->realize();
    if (waits) x->sum().item();
  };
}

// A row of the result reads a row of the matrix, once.
Step MatrixVector(int64_t rows, int64_t columns) {
  const Tensor w = (Tensor::randn({rows, columns}) * (1.5 / std::sqrt(columns))).realize();
  auto x = std::make_shared<Tensor>(Tensor::randn({columns, 1}).realize());
  return [w, x] {
    x->assign(w.matmul(*x).tanh());
    x->realize();
  };
}

Step Sums(int64_t n) {
  const Tensor x = Tensor::randn({n, n}).realize();
  auto y = std::make_shared<Tensor>(Tensor::zeros({n}).realize());
  return [x, y] {
    y->assign(x.sum(0) * 0.5 + x.sum(1) + *y * 0.1);
    y->realize();
  };
}

Step Copies(int64_t n) {
  auto x = std::make_shared<Tensor>(Tensor::zeros({n}).realize());
  const Tensor y = Tensor::ones({n}).contiguous().realize();
  return [x, y] {
    x->assign(*x * 0.5 + y);
    x->realize();
  };
}

Step Softmax(int64_t rows, int64_t columns) {
  auto x = std::make_shared<Tensor>(Tensor::randn({rows, columns}).realize());
  return [x] {
    x->assign((*x * 3).softmax() + x->tanh());
    x->realize();
  };
}

Step Convolutions(int64_t batch, int64_t channels) {
  const Tensor a = (Tensor::randn({channels, 3, 3, 3}) * 0.2).realize();
  const Tensor b = (Tensor::randn({channels, channels, 3, 3}) * 0.1).realize();
  const Tensor x = Tensor::randn({batch, 3, 32, 32}).realize();
  auto y = std::make_shared<Tensor>(Tensor::zeros({batch, channels, 28, 28}).realize());
  return [a, b, x, y] {
    y->assign(x.conv2d(a).relu().conv2d(b).relu() + *y * 0.5);
    y->realize();
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

// The constants of client/session/estimate/estimate.cc are chosen by these, and judged by those
// above.
std::vector<Program> FittingPrograms() {
  return {
      {"counter", [] { return Counter(4, true); }},
      {"counters", [] { return Counter(1 << 16, false); }},
      {"tiny perceptron", [] { return Perceptron(32, {8, 32, 32, 4}, true); }},
      {"wide perceptron", [] { return Perceptron(256, {512, 1024, 512}, false); }},
      {"deep perceptron", [] { return Perceptron(64, {256, 256, 256, 256, 256, 256}, true); }},
      {"rows 4 MB", [] { return MatrixVector(1024, 1024); }},
      {"rows 16 MB", [] { return MatrixVector(2048, 2048); }},
      {"rows 64 MB", [] { return MatrixVector(4096, 4096); }},
      {"products 256", [] { return Products(256, 16); }},
      {"products 512", [] { return Products(512, 8); }},
      {"products 2048", [] { return Products(2048, 1); }},
      {"sums", [] { return Sums(1 << 11); }},
      {"copies", [] { return Copies(1 << 24); }},
      {"exponentials", [] { return Softmax(512, 1024); }},
      {"convolutions 16", [] { return Convolutions(16, 16); }},
      {"convolutions 32", [] { return Convolutions(32, 32); }},
      {"gpt 1 x 128",
       [] {
         return Gpt({.layers = 1, .width = 128, .heads = 2, .context = 32}, 16);
       }},
      {"gpt 3 x 96",
       [] {
         return Gpt({.layers = 3, .width = 96, .heads = 6, .context = 96}, 4);
       }},
  };
}

struct Times {
  double by_graphs = 0, after_ten = 0, actual = 0;  // seconds per step
  double runs_per_step = 1;                         // what a session calls a step is a Run
};

void Repeat(const Step& step, int count) {
  for (int i = 0; i < count; ++i) step();
}

Times ByGraphs(const Program& program, const session::DeviceClass& of) {
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
  return {.by_graphs = estimate.seconds->expected / kTimedSteps,
          .runs_per_step = static_cast<double>(work.steps) / kTimedSteps};
}

Times Measure(const Program& program, const Cloud& cloud, const session::DeviceClass& of) {
  Times times = ByGraphs(program, of);
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
    // As many as `outboard estimate --measure` runs: until a second of them is measured.
    Repeat(step, kFirstSteps);
    OB_CHECK_OK(session->Sync());
    for (const Clock::time_point warm = Clock::now(); Clock::now() - warm < kMeasured;)
      Repeat(step, kTimedSteps);
    OB_CHECK_OK(session->Sync());
    const auto estimates = session::EstimatesOf(*session, 1);
    OB_CHECK_OK(estimates.status());
    OB_CHECK(estimates->front().is_measured);
    times.after_ten = estimates->front().seconds->expected * times.runs_per_step;
    std::vector<double> turns;
    for (int turn = 0; turn < kTurns; ++turn) {
      const Clock::time_point begin = Clock::now();
      int timed = 0;
      for (; timed < kTimedSteps || Clock::now() - begin < kTurn; timed += kTimedSteps)
        Repeat(step, kTimedSteps);
      OB_CHECK_OK(session->Sync());
      turns.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / timed);
    }
    times.actual = Quantile(turns, 0.5);
  }
  OB_CHECK_OK(session->Close());
  return times;
}

// What the rate check finds now. A machine that others share is not as fast in each minute, so each
// program is estimated by a check of its own: the figure judges the estimate, not the machine.
session::DeviceClass ClassNow() {
  const auto rates = worker::RatesFromLine(
      OutputOf(absl::StrCat(Beside("outboard"), " measure-device ''")) + "\n");
  OB_CHECK_OK(rates.status());
  return {.name = "here",
          .gflops = rates->gflops(),
          .memory_gb_per_s = rates->memory_gb_per_s()};
}

// Reports the errors of these programs under the two names.
void Judge(const std::vector<Program>& programs, const Cloud& cloud, const char* by_graphs_name,
           const char* after_ten_name) {
  std::vector<double> by_graphs, after_ten;
  std::string note;
  for (const Program& program : programs) {
    const session::DeviceClass here = ClassNow();
    const Times times = Measure(program, cloud, here);
    by_graphs.push_back(session::ErrorOf(times.by_graphs, times.actual));
    after_ten.push_back(session::ErrorOf(times.after_ten, times.actual));
    absl::StrAppend(&note, note.empty() ? "" : "; ",
                    absl::StrFormat("%s %.2f ms, by graphs %.2f, after ten %.2f (%.0f GFLOP/s, "
                                    "%.1f GB/s)",
                                    program.name, times.actual * 1e3, times.by_graphs * 1e3,
                                    times.after_ten * 1e3, here.gflops, here.memory_gb_per_s));
  }
  Report(by_graphs_name, Quantile(by_graphs, 0.9), "", "", note);
  Report(after_ten_name, Quantile(after_ten, 0.9), "", "",
         "the same programs, as measured behind their first ten steps");
}

}  // namespace

void EstimateFigures() {
  const Cloud cloud(1);
  Judge(Programs(), cloud, "estimate_error_p90_ratio", "estimate_measured_error_p90_ratio");
  // Of the programs by which the constants were chosen.
  Judge(FittingPrograms(), cloud, "estimate_fitted_error_p90_ratio",
        "estimate_fitted_measured_error_p90_ratio");
}

}  // namespace outboard::bench
