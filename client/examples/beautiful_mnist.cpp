// Trains a small convolutional network on 60,000 images in the cloud, and checks the bill.
//
//   CLOUD=1 CLOUD_HOST=host:6667 CLOUD_KEY=... beautiful_mnist --target-accuracy 85
//
// Exit codes: 0 done; 1 the target was missed, the bill is too high, or an error; 2 no gateway can
// be reached; 130 Ctrl-C.
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/arguments.h"
#include "client/capture/repeat.h"
#include "client/examples/idx.h"
#include "client/examples/mnist.h"
#include "client/nn/checkpoint.h"
#include "client/report/report.h"
#include "client/session/current_session.h"

namespace outboard::examples {
namespace {

constexpr int64_t kEvalBatch = 500;
constexpr int64_t kGlance = 1000;  // held-out images looked at while training
constexpr double kBillToleranceSeconds = 1;

struct Flags {
  int64_t steps = 1000;
  int64_t batch = 128;
  int64_t eval_every = 50;
  int64_t fetch_every = 1;
  int64_t repeat = 1;          // steps a message
  double target_accuracy = 0;  // percent; 0: train for all of the steps
  std::optional<uint64_t> seed;
  std::string save, load;  // names in the cloud
  std::string data = "/usr/share/datasets/fashion-mnist";
  bool json = false;
};

std::atomic<bool> interrupted = false;

// The first Ctrl-C ends the loop; the second ends the process.
void OnInterrupt(int) {
  interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

using Clock = std::chrono::steady_clock;
const Clock::time_point kProcessStart = Clock::now();  // nearly: of static initialisation
double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Outcome {
  int64_t steps = 0;
  double loss = NAN;
  double accuracy = 0;  // percent, of all held-out images
  double first_step_s = 0, first_step_from_start_s = 0, step_ms = 0, round_trips_per_step = 0;
  bool reached = false;
};

// One line that is overwritten on a terminal, no longer than that is wide; nothing elsewhere.
class Progress {
 public:
  void Show(const std::string& text) {
    if (!terminal_) return;
    std::fprintf(stderr, "\r%s\033[K", text.substr(0, Columns() - 1).c_str());
    std::fflush(stderr);
  }
  void Keep(const std::string& text) {
    std::fprintf(stderr, terminal_ ? "\r%s\033[K\n" : "%s\n", text.c_str());
  }

 private:
  static size_t Columns() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

  const bool terminal_ = isatty(STDERR_FILENO) != 0;
};

// Of one step, or of several in one message.
double LatestOf(const TensorFuture& losses) { return losses.to_vector<double>().back(); }

// The images that no step sees, on which a network is evaluated.
class HeldOut {
 public:
  explicit HeldOut(const Images& data)
      : images_(Tensor::from_host(data.test_images)),
        labels_(Tensor::from_host(data.test_labels)),
        count_(data.test_labels.dims[0] / kEvalBatch * kEvalBatch) {}

  // In percent.
  double Accuracy(const MnistTrainer& trainer) const { return AccuracyOf(trainer, count_); }
  // Of a few of them.
  double Glance(const MnistTrainer& trainer) const {
    return AccuracyOf(trainer, std::min(kGlance, count_));
  }

 private:
  double AccuracyOf(const MnistTrainer& trainer, int64_t count) const {
    return 100.0 * static_cast<double>(trainer.CountRight(images_, labels_, count, kEvalBatch)) /
           static_cast<double>(count);
  }

  const Tensor images_, labels_;
  const int64_t count_;
};

// Time and round trips of the steps after the first, without those of evaluations.
class SteadySteps {
 public:
  explicit SteadySteps(const Session& session) : session_(session) {}

  void Start() {
    runs_ = true;
    begin_ = Clock::now();
    trips_before_ = session_.stats().blocking_round_trips;
  }
  void Stop() {
    seconds_ = seconds();
    trips_ = trips();
    runs_ = false;
  }
  void Add(int64_t steps) { steps_ += steps; }

  bool any() const { return steps_ > 0; }
  double step_ms() const { return 1000 * seconds() / steps_; }
  double round_trips_per_step() const { return static_cast<double>(trips()) / steps_; }

 private:
  double seconds() const { return seconds_ + (runs_ ? SecondsSince(begin_) : 0); }
  uint64_t trips() const {
    return trips_ + (runs_ ? session_.stats().blocking_round_trips - trips_before_ : 0);
  }

  const Session& session_;
  bool runs_ = false;
  Clock::time_point begin_;
  uint64_t trips_before_ = 0, trips_ = 0;
  double seconds_ = 0;
  int64_t steps_ = 0;
};

Outcome Train(const Flags& flags, const Images& data) {
  Progress progress;
  const Session& session = *SessionIfConnected();
  const Tensor train_images = Tensor::from_host(data.train_images);
  const Tensor train_labels = Tensor::from_host(data.train_labels);
  const HeldOut held_out(data);

  Outcome outcome;
  MnistTrainer trainer(train_images, train_labels, flags.batch);
  const nn::StateDict weights = nn::state_dict(trainer.net());
  if (!flags.load.empty()) nn::load_state_dict(weights, load(flags.load));
  SteadySteps steady(session);
  TensorFuture last;  // read when the next one is on its way, so that the device never waits for us
  const auto begin = Clock::now();
  int64_t step = 0;
  while (step < flags.steps && !interrupted) {
    const int64_t before = step, count = step == 0 ? 1 : std::min(flags.repeat, flags.steps - step);
    step += count;
    const auto crosses = [&](int64_t every) { return step / every != before / every; };
    const bool evaluates = flags.target_accuracy > 0 && crosses(flags.eval_every);
    const bool fetched =
        before == 0 || step == flags.steps || evaluates || crosses(flags.fetch_every);
    const auto one_step = [&] { return trainer.Step(fetched); };
    const Tensor loss = count == 1 ? one_step() : repeat(count, one_step);
    outcome.steps = step;
    if (before == 0) {  // compiles
      outcome.loss = loss.item();
      outcome.first_step_s = SecondsSince(begin);
      outcome.first_step_from_start_s = SecondsSince(kProcessStart);
      steady.Start();
      continue;
    }
    if (fetched) {
      const TensorFuture earlier = std::exchange(last, loss.fetch());
      if (!earlier.empty()) outcome.loss = LatestOf(earlier);
    }
    steady.Add(count);
    outcome.step_ms = steady.step_ms();
    progress.Show(absl::StrFormat("step %d  loss %.4f  %.1f ms/step  %.2f round trips/step  $%.6f",
                                  step, outcome.loss, outcome.step_ms,
                                  steady.round_trips_per_step(),
                                  session.stats().cost_micro_usd / 1e6));
    if (!evaluates) continue;

    outcome.loss = LatestOf(std::exchange(last, TensorFuture()));
    steady.Stop();
    // A glance is cheap; only where it is promising all held-out images decide.
    double seen = held_out.Glance(trainer);
    if (seen > flags.target_accuracy) seen = outcome.accuracy = held_out.Accuracy(trainer);
    progress.Keep(absl::StrFormat("step %d  loss %.4f  accuracy %.2f %%  %.1f ms/step", step,
                                  outcome.loss, seen, outcome.step_ms));
    Report(step, {{"loss", outcome.loss}, {"accuracy", seen}});  // to `outboard sweep`, if it asks
    steady.Start();
    if (outcome.accuracy > flags.target_accuracy) {
      outcome.reached = true;
      break;
    }
  }
  if (!last.empty()) outcome.loss = LatestOf(last);
  steady.Stop();
  if (steady.any()) {
    outcome.step_ms = steady.step_ms();
    outcome.round_trips_per_step = steady.round_trips_per_step();
  }
  if (!outcome.reached && !interrupted) {
    outcome.accuracy = held_out.Accuracy(trainer);
    outcome.reached = outcome.accuracy > flags.target_accuracy;
    Report(step, {{"loss", outcome.loss}, {"accuracy", outcome.accuracy}});
  }
  progress.Show("");
  if (!flags.save.empty() && !interrupted) save(flags.save, weights);
  return outcome;
}

// What our own clock says that is to be charged: each device, for as long as the session was open.
double SecondsDue(const session::Stats& stats) { return stats.devices * stats.seconds_open; }

// Whether the cloud charged that.
bool BillIsRight(const session::Stats& stats) {
  return std::abs(stats.seconds_billed - SecondsDue(stats)) <=
         stats.devices * kBillToleranceSeconds;
}

// A session that outlived its worker is charged less than it was open: not for what is between.
bool IsOvercharged(const session::Stats& stats) {
  return !BillIsRight(stats) && stats.seconds_billed > SecondsDue(stats);
}

void Print(const Flags& flags, const Outcome& o, const session::Stats& stats) {
  if (flags.json) {
    absl::PrintF(
        "{\"steps\": %d, \"loss\": %.6f, \"accuracy\": %.3f, \"first_step_s\": %.3f, "
        "\"first_step_from_start_s\": %.3f, "
        "\"step_ms\": %.3f, \"round_trips_per_step\": %.3f, \"bytes_up\": %d, \"bytes_down\": %d, "
        "\"device_time_s\": %.3f, \"kernels_per_step\": %.1f, \"seconds_billed\": %.3f, "
        "\"seconds_open\": %.3f, \"cost_micro_usd\": %d, \"bill_is_right\": %s, "
        "\"device\": \"%s\"}\n",
        o.steps, o.loss, o.accuracy, o.first_step_s, o.first_step_from_start_s, o.step_ms,
        o.round_trips_per_step, stats.bytes_up, stats.bytes_down, stats.device_time_us / 1e6,
        stats.steps == 0 ? 0.0 : static_cast<double>(stats.kernels_launched) / stats.steps,
        stats.seconds_billed, stats.seconds_open, stats.cost_micro_usd,
        BillIsRight(stats) ? "true" : "false", stats.device);
    return;
  }
  absl::PrintF("accuracy      %.2f %% of the held-out images after %d steps\n", o.accuracy,
               o.steps);
  absl::PrintF("a step        %.1f ms, %.2f round trips (the first took %.2f s)\n", o.step_ms,
               o.round_trips_per_step, o.first_step_s);
  absl::PrintF("sent          %.1f MB up, %.1f MB down\n", stats.bytes_up / 1e6,
               stats.bytes_down / 1e6);
  absl::PrintF("billed        %.3f s, $%.6f at $%.2f an hour for each device\n",
               stats.seconds_billed, stats.cost_micro_usd / 1e6,
               stats.price_per_hour_micro_usd / 1e6 / std::max(1u, stats.devices));
  absl::PrintF("own clock     %.2f s%s: the bill is %s\n", stats.seconds_open,
               stats.devices > 1 ? absl::StrCat(" on ", stats.devices, " devices") : "",
               BillIsRight(stats)     ? "right"
               : IsOvercharged(stats) ? "TOO HIGH"
                                      : "lower: time without a worker is not charged");
}

int Main(const Flags& flags) {
  absl::StatusOr<Images> data = ReadImages(flags.data);
  if (!data.ok()) {
    std::fprintf(stderr, "beautiful_mnist: %s\n", data.status().ToString().c_str());
    return 1;
  }
  const absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  if (!session.ok()) {
    std::fprintf(stderr, "beautiful_mnist: %s\n", session.status().ToString().c_str());
    return 2;
  }
  if (!flags.json) absl::PrintF("device        %s\n", (*session)->stats().device);
  if (flags.seed) Tensor::manual_seed(*flags.seed);
  Outcome outcome;
  std::optional<Error> failure;
  try {
    outcome = Train(flags, *data);
  } catch (const Error& error) {
    failure = error;
  }
  const absl::StatusOr<session::Stats> stats = CloseSession();
  if (failure) {
    std::fprintf(stderr, "\nbeautiful_mnist: %s\n", failure->what());
    return 1;
  }
  if (!stats.ok()) {
    std::fprintf(stderr, "beautiful_mnist: %s\n", stats.status().ToString().c_str());
    return 1;
  }
  if (interrupted) {
    std::fprintf(stderr, "\nbeautiful_mnist: interrupted after %lld steps; the session is closed\n",
                 static_cast<long long>(outcome.steps));
    return 130;
  }
  Print(flags, outcome, *stats);
  if (!outcome.reached)
    std::fprintf(stderr, "beautiful_mnist: the accuracy is not over %.2f %%\n",
                 flags.target_accuracy);
  if (IsOvercharged(*stats))
    std::fprintf(stderr,
                 "beautiful_mnist: %.3f s were billed, but the session was open for %.1f s\n",
                 stats->seconds_billed, SecondsDue(*stats));
  return outcome.reached && !IsOvercharged(*stats) ? 0 : 1;
}

}  // namespace
}  // namespace outboard::examples

int main(int argc, char** argv) {
  outboard::examples::Flags flags;
  outboard::cli::Arguments app("beautiful_mnist",
                               "Trains a convolutional network on Fashion-MNIST in the cloud");
  app.Add("--steps", &flags.steps, "Steps to train at most").Positive();
  app.Add("--batch", &flags.batch, "Images a step").Positive();
  app.Add("--data", &flags.data, "Folder with the four IDX files, gzipped or not");
  app.Add("--target-accuracy", &flags.target_accuracy,
          "Stop when the held-out accuracy is over this many percent; 0: after all steps");
  app.Add("--eval-every", &flags.eval_every, "Steps between two looks at the accuracy").Positive();
  app.Add("--fetch-every", &flags.fetch_every,
          "Fetch the loss every so many steps, and look at it when the next is on its way")
      .Positive();
  app.Add("--repeat", &flags.repeat,
          "Send so many steps as one message; the first step, which compiles, goes alone")
      .Positive();
  app.Add("--load", &flags.load, "Begin with the weights under this name in the cloud");
  app.Add("--save", &flags.save, "Keep the weights in the cloud under this name");
  app.Add("--seed", &flags.seed, "Seed of the random numbers (else SEED, else a fresh one)");
  app.Add("--json", &flags.json, "Print the summary as one JSON object");
  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  std::signal(SIGINT, outboard::examples::OnInterrupt);
  return outboard::examples::Main(flags);
}
