#include "tests/bench/group_figures.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/examples/mnist.h"
#include "client/ops/elementwise/promote.h"
#include "client/session/session.h"
#include "client/tensor/session_scope.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/processes.h"
#include "tests/support/row_sums.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20, kStepsOfRound = 150;

std::unique_ptr<Session> SessionOn(const Cloud& cloud, uint32_t devices) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  options.devices = devices;
  return ValueOrDie(Session::Connect(options));
}

// x + 1 on four numbers, again and again.
class Chain {
 public:
  explicit Chain(Session* session) : session_(session) {
    Graph g;
    const UOp* const x = BufferNode(g, 1, DType::kF32, {Dim(4)});
    const EncodedGraph graph = ValueOrDie(
        EncodeGraph(Sink(g, {Add(g, x, Full(g, ConstFloat(g, DType::kF32, 1), x->shape))})));
    request_.graph_id = graph.id.bytes;
    request_.graph = std::make_shared<const std::string>(graph.bytes);
    request_.outputs = {session->NewHandle()};
    const std::vector<int64_t> dims = {4};
    OB_CHECK_OK(session->Put(request_.outputs[0], DType::kF32, dims, std::string(16, '\0')));
  }
  uint64_t Step(bool fetch) {
    const uint64_t last = request_.outputs[0];
    request_.inputs = {last};
    request_.outputs = {session_->NewHandle()};
    request_.fetch.assign(fetch ? 1 : 0, 0);
    const uint64_t seq = ValueOrDie(session_->Run(request_));
    session_->Release(last);
    return seq;
  }
  // Microseconds of each step, its value read.
  void Measure(std::vector<double>& times) {
    for (int i = 0; i < kStepsOfRound; ++i) {
      const Clock::time_point begin = Clock::now();
      ValueOrDie(session_->Await(Step(/*fetch=*/true), 0));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
  }
  GraphId graph_id() const { return GraphId{request_.graph_id}; }

 private:
  Session* const session_;
  session::RunRequest request_;
};

// How soon the others are free when a partner is killed in a collective, and how soon the step that
// was lost has its value. A session each, since one that loses many executors is ended.
void LossFigures() {
  constexpr int kLosses = 20, kStepsBefore = 30;
  const Cloud cloud(1, {}, {"--devices", "2", "--snapshot-every", "1"});
  std::vector<double> abort_ms, recover_s;
  int unequal = 0;
  std::vector<std::string> undisturbed;
  for (int loss = -1; loss < kLosses; ++loss) {
    session::SessionOptions options;
    options.target = cloud.target();
    options.key = cloud.key();
    options.devices = 2;
    options.spread = test::RowSums::kSpread;
    test::RowSums program(ValueOrDie(Session::Connect(options)));
    std::vector<std::string> values;
    for (int i = 0; i < kStepsBefore; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // snapshots are taken meanwhile
      values.push_back(ValueOrDie(program.Step()));
    }
    if (loss < 0) {
      values.push_back(ValueOrDie(program.Step()));
      undisturbed = std::move(values);
    } else {
      const std::string id = absl::BytesToHexString(program.session().stats().session_id);
      int ranks[2] = {};  // a third process is spare
      for (uint32_t rank = 0; rank < 2; ++rank)
        ranks[rank] = test::ExecutorOf(cloud.log(), id, rank);
      OB_CHECK(ranks[0] > 0 && ranks[1] > 0);
      kill(ranks[1], SIGSTOP);
      std::thread step([&] { values.push_back(ValueOrDie(program.Step())); });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the other one waits
      const Clock::time_point begin = Clock::now();
      const auto since = [&] {
        return std::chrono::duration<double>(Clock::now() - begin).count();
      };
      kill(ranks[1], SIGKILL);
      while (test::IsAlive(ranks[0])) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      abort_ms.push_back(1e3 * since());
      step.join();
      recover_s.push_back(since());
      unequal += values != undisturbed;
    }
    OB_CHECK_OK(program.session().Close());
  }
  Report("group_abort_ms_p99", Quantile(abort_ms, 0.99), "ms",
         absl::StrFormat("median %.0f", Quantile(abort_ms, 0.5)),
         absl::StrFormat("%d times, of two devices one is killed in a collective: until the "
                         "other's process is gone",
                         kLosses));
  Report("group_recover_s", Quantile(recover_s, 1), "s",
         absl::StrFormat("median %.2f", Quantile(recover_s, 0.5)),
         absl::StrFormat("the most of %d: until the step has its value, from a snapshot", kLosses));
  Report("group_recover_mismatches", unequal, "", "",
         absl::StrFormat("of %d such runs, against one that nothing happened to", kLosses));
}

}  // namespace

void GroupFigures() {
  const Cloud cloud(1, {}, {"--devices", "3"});
  const auto one = SessionOn(cloud, 1), two = SessionOn(cloud, 2);
  Chain on_one(one.get()), on_two(two.get());
  std::vector<double> of_one, of_two;
  on_one.Measure(of_one), on_two.Measure(of_two);  // compiles
  of_one.clear(), of_two.clear();
  const session::Stats before_one = one->stats(), before_two = two->stats();
  for (int round = 0; round < kRounds; ++round) {
    on_one.Measure(of_one);
    on_two.Measure(of_two);
  }
  const session::Stats after_one = one->stats(), after_two = two->stats();
  const double steps = kRounds * kStepsOfRound;
  const double median_one = Quantile(of_one, 0.5), median_two = Quantile(of_two, 0.5);
  Report("devices_step_overhead_us_2", median_two - median_one, "us",
         absl::StrFormat("on one device %.0f", median_one),
         absl::StrFormat("x + 1 on 4 numbers, its value read; p90 %.0f, on one device %.0f",
                         Quantile(of_two, 0.9), Quantile(of_one, 0.9)));
  const auto per_step = [&](uint64_t from, uint64_t to) {
    return static_cast<double>(to - from) / steps;
  };
  Report("devices_round_trips_per_step",
         per_step(before_two.blocking_round_trips, after_two.blocking_round_trips), "",
         absl::StrFormat("on one device %.3f",
                         per_step(before_one.blocking_round_trips, after_one.blocking_round_trips)),
         "two devices, the value of each step read");
  Report("devices_bytes_up_per_step", per_step(before_two.bytes_up, after_two.bytes_up), "B",
         absl::StrFormat("on one device %.1f", per_step(before_one.bytes_up, after_one.bytes_up)),
         "two devices");
  const session::Stats before_unread = two->stats();
  for (int i = 0; i < kStepsOfRound; ++i) on_two.Step(/*fetch=*/false);
  OB_CHECK_OK(two->Sync());
  Report(
      "devices_round_trips_unread",
      static_cast<double>(two->stats().blocking_round_trips - before_unread.blocking_round_trips),
      "", "",
      absl::StrFormat("%d steps on two devices without a value read, and one Sync", kStepsOfRound));
  const std::set<std::string> ids = {on_one.graph_id().ToBytes(), on_two.graph_id().ToBytes()};
  Report("devices_graph_ids", static_cast<double>(ids.size()), "", "",
         "of one program on one and on two devices");
  OB_CHECK_OK(one->Close());
  OB_CHECK_OK(two->Close());
  LossFigures();
}

namespace {

constexpr uint32_t kMany = 54, kDevicesOfWorker = 6;
constexpr int kTrainingSteps = 5, kTinyRounds = 10;

// Of the processes that descend from `pid`, without files that they map (proc(5)).
double MemoryGib(pid_t pid) {
  double bytes = 0;
  std::vector<pid_t> family = {pid};
  for (size_t i = 0; i < family.size(); ++i) {
    std::ifstream statm(absl::StrCat("/proc/", family[i], "/statm"));
    uint64_t size = 0, resident = 0, of_files = 0;
    if (statm >> size >> resident >> of_files)
      bytes += static_cast<double>((resident - of_files) *
                                   static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    std::error_code ignored;
    for (const auto& task : std::filesystem::directory_iterator(
             absl::StrCat("/proc/", family[i], "/task"), ignored)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child; children >> child;) family.push_back(child);
    }
  }
  return bytes / (1 << 30);
}

struct Training {
  std::vector<double> losses, seconds;
};

Training TrainOn(const std::shared_ptr<Session>& session) {
  Training training;
  const SessionScope scope(session);
  Tensor::manual_seed(1);
  const Tensor images = Tensor::randint({2048, 1, 28, 28}, 0, 256).cast(DType::kU8);
  const Tensor labels = Tensor::randint({2048}, 0, 10).cast(DType::kU8);
  examples::MnistTrainer trainer(images, labels, 128);
  for (int step = 0; step < kTrainingSteps; ++step) {
    const Clock::time_point begin = Clock::now();
    training.losses.push_back(trainer.Step().item());
    training.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return training;
}

Training InDoubles(const std::shared_ptr<Session>& session) {
  SetDefaultFloat(DType::kF64);
  Training training = TrainOn(session);
  SetDefaultFloat(DType::kF32);
  return training;
}

// The greatest relative difference of a step's losses; NaN where one is no number.
double MostApart(const Training& a, const Training& b) {
  double most = 0;
  for (size_t step = 0; step < a.losses.size(); ++step) {
    const double apart =
        std::abs(a.losses[step] - b.losses[step]) / std::abs(b.losses.at(step));
    if (!(apart <= most)) most = apart;
    if (std::isnan(most)) break;
  }
  return most;
}

}  // namespace

void ManyDevicesFigures() {
  const Cloud cloud(static_cast<int>(kMany / kDevicesOfWorker), {},
                    {"--devices", std::to_string(kDevicesOfWorker), "--worker-timeout", "60"});
  const std::shared_ptr<Session> one = SessionOn(cloud, 1);
  const Training alone = TrainOn(one), exact = InDoubles(one);
  std::vector<double> of_one, of_many;
  {
    Chain chain(one.get());
    for (int round = 0; round <= kTinyRounds; ++round) chain.Measure(of_one);
  }
  OB_CHECK_OK(one->Close());
  const Clock::time_point begin = Clock::now();
  const std::shared_ptr<Session> many = SessionOn(cloud, kMany);
  Report("devices_54_open_s", std::chrono::duration<double>(Clock::now() - begin).count(), "s", "",
         "nine workers with six executors each, on this machine");
  const Training together = TrainOn(many);
  Report("devices_54_memory_gib", MemoryGib(cloud.pid()), "GiB", "",
         "gateway, workers, executors and compilers, after the MNIST training");
  // Later losses of a network with kinks are no measure in f32 (docs/decisions/134-kinks.md).
  Report("devices_54_loss_relative_error", MostApart(InDoubles(many), exact), "", "",
         absl::StrFormat("the most of %d steps of the MNIST training in f64; in f32 %.2g",
                         kTrainingSteps, MostApart(together, alone)));
  Report("devices_54_step_s", Quantile(together.seconds, 0.5), "s",
         absl::StrFormat("on one device %.3f", Quantile(alone.seconds, 0.5)), "the same");
  {
    Chain chain(many.get());
    chain.Measure(of_many);  // compiles
    of_many.clear();
    for (int round = 0; round < kTinyRounds; ++round) chain.Measure(of_many);
  }
  of_one.erase(of_one.begin(), of_one.begin() + kStepsOfRound);
  Report("devices_step_overhead_us_54", Quantile(of_many, 0.5) - Quantile(of_one, 0.5), "us",
         absl::StrFormat("on one device %.0f", Quantile(of_one, 0.5)),
         "x + 1 on 4 numbers, its value read");
  OB_CHECK_OK(many->Close());
}

}  // namespace outboard::bench
