#include "cli/sweep/sweep_runner.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/sweep/sweep_table.h"
#include "cli/sweep/trial_process.h"

namespace outboard::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 100;
// Trials report in bursts: to be woken by each report would take the trials' own cores from them.
constexpr std::chrono::milliseconds kReadEvery{10};
constexpr std::chrono::milliseconds kWriteEvery{250};
constexpr size_t kNoteMax = 200;
constexpr int64_t kLeastMicroUsd = 100;  // less than a second of the cheapest device is no trial

struct RunningTrial {
  TrialProcess process;
  std::optional<int64_t> bound_micro_usd;
  int64_t cost_before = 0;  // of earlier attempts
  Clock::time_point first_at{}, last_at{};
  int64_t first_step = -1;
  bool stopped = false;  // by successive halving
};

// What the next trial may cost; without an amount: any.
struct Bound {
  bool is_enough = true;  // else no trial can be begun with it
  std::optional<int64_t> micro_usd;
};

class SweepRunner {
 public:
  SweepRunner(const SweepFolder& folder, SweepPlan plan, std::vector<SweepTrial> trials)
      : folder_(folder), plan_(std::move(plan)), trials_(std::move(trials)) {}

  absl::Status Run(const std::atomic<bool>& stop) {
    for (SweepTrial& trial : trials_)
      if (!trial.ended()) trial.Restart();
    absl::Status status = Save();
    if (status.ok() && plan_.warm_up > 0) {
      status = WarmUp(stop);
      if (!status.ok()) trials_.front().note = std::string(status.message());
    }
    bool stopping = false;
    while (status.ok()) {
      if (stop && !std::exchange(stopping, true))
        for (auto& [number, running] : running_) running.process.Stop();
      if (!stopping && (plan_.warm_up == 0 || warm_up_cost_.has_value())) StartMore();
      if (running_.empty()) break;
      Await();
      for (auto it = running_.begin(); it != running_.end();)
        it = ReadOne(it->first, it->second, stopping) ? running_.erase(it) : std::next(it);
      if (changed_ && Clock::now() - saved_at_ > kWriteEvery) status = Save();
    }
    running_.clear();
    if (status.ok() && plan_.warm_up > 0 && std::ranges::all_of(trials_, &SweepTrial::ended))
      EndWarmUp();
    if (absl::Status last = Save(); status.ok()) status = last;
    return status;
  }

 private:
  // Does the first trial's first steps once, in a session with a name that all trials begin with.
  absl::Status WarmUp(const std::atomic<bool>& stop) {
    if (stop || std::ranges::all_of(trials_, &SweepTrial::ended)) return absl::OkStatus();
    warm_up_cost_ = folder_.ReadWarmUp();
    if (warm_up_cost_.has_value()) return absl::OkStatus();
    EndWarmUp();  // of an attempt that was interrupted
    absl::StatusOr<TrialProcess> process = TrialProcess::Start(
        0, plan_.CommandOf(trials_.front().values), folder_.path() + "/warm-up.log",
        plan_.max_cost_micro_usd,
        {absl::StrCat("CLOUD_SESSION_NAME=", folder_.warm_up_name()),
         absl::StrCat("OUTBOARD_WARM_UP=", plan_.warm_up)});
    if (!process.ok()) return process.status();
    int64_t cost = 0, step = -1;
    const auto read = [&] {
      process->Read([&](const ReportLine& report) {
        cost = std::max(cost, report.cost_micro_usd.value_or(0));
        step = std::max(step, report.step.value_or(-1));
      });
    };
    std::optional<int> status;
    bool stopping = false;
    while (!status.has_value()) {
      pollfd fds[] = {{process->output_fd(), POLLIN, 0}, {process->reports_fd(), POLLIN, 0}};
      poll(fds, 2, kPollMs);
      if (stop && !std::exchange(stopping, true)) process->Stop();
      read();
      status = process->Poll();
    }
    read();
    if (stopping) return absl::OkStatus();  // `resume` begins it again
    if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0 || step < plan_.warm_up)
      return absl::FailedPreconditionError(absl::StrCat(
          "the warm-up ",
          step < plan_.warm_up ? "ended before it reported step " : "failed at step ",
          plan_.warm_up, ": ", process->last_line().substr(0, kNoteMax), "; see ",
          folder_.path(), "/warm-up.log"));
    warm_up_cost_ = cost;
    return folder_.WriteWarmUp(cost);
  }

  // Its session, if there is one. That it cannot be ended is in the log; it ends by itself.
  void EndWarmUp() const {
    absl::StatusOr<TrialProcess> process = TrialProcess::Start(
        0, {"/proc/self/exe", "stop", folder_.warm_up_name()}, folder_.path() + "/warm-up.log", {});
    const Clock::time_point until = Clock::now() + TrialProcess::kStopWithin;
    while (process.ok() && !process->Poll().has_value() && Clock::now() < until) {
      process->Read([](const ReportLine&) {});
      poll(nullptr, 0, kPollMs);
    }
  }

  Bound NextBound() const {
    if (!plan_.max_cost_micro_usd.has_value()) return {};
    int64_t left = *plan_.max_cost_micro_usd - warm_up_cost_.value_or(0), waiting = 0;
    for (const SweepTrial& trial : trials_) {
      left -= trial.cost_micro_usd;
      waiting += trial.state == TrialState::kWaiting ? 1 : 0;
    }
    // What running ones may still use.
    for (const auto& [number, running] : running_)
      left -= std::max<int64_t>(
          0, *running.bound_micro_usd - (trials_[number - 1].cost_micro_usd - running.cost_before));
    const int64_t bound = waiting == 0 ? 0 : left / waiting;
    return {.is_enough = bound >= kLeastMicroUsd, .micro_usd = bound};
  }

  void StartMore() {
    for (SweepTrial& trial : trials_) {
      if (static_cast<int>(running_.size()) >= plan_.at_once) return;
      if (trial.state != TrialState::kWaiting) continue;
      const Bound bound = NextBound();
      if (!bound.is_enough) {
        // What running ones leave over may do; without any this is the end.
        if (running_.empty())
          for (SweepTrial& other : trials_)
            if (other.state == TrialState::kWaiting) other.note = "no money is left for it";
        return;
      }
      trial.note.clear();
      absl::StatusOr<TrialProcess> process = TrialProcess::Start(
          trial.number, plan_.CommandOf(trial.values), folder_.LogOf(trial.number), bound.micro_usd,
          warm_up_cost_.has_value()
              ? std::vector<std::string>{"CLOUD_FORK_OF=" + folder_.warm_up_name()}
              : std::vector<std::string>());
      ++trial.attempts;
      changed_ = true;
      if (!process.ok()) {
        trial.state = TrialState::kFailed;
        trial.note = std::string(process.status().message());
        continue;
      }
      trial.state = TrialState::kRunning;
      running_.emplace(trial.number,
                       RunningTrial{*std::move(process), bound.micro_usd, trial.cost_micro_usd});
    }
  }

  void Await() {
    std::vector<pollfd> all;
    bool ending = false;
    for (const auto& [number, running] : running_) {
      const int output = running.process.output_fd(), reports = running.process.reports_fd();
      ending |= output < 0 && reports < 0;
      for (const int fd : {output, reports, running.process.exit_fd()})
        if (fd >= 0) all.push_back({fd, POLLIN, 0});
    }
    const Clock::duration early = read_at_ + kReadEvery - Clock::now();
    if (!ending && early.count() > 0) std::this_thread::sleep_for(early);
    poll(all.data(), all.size(), kPollMs);
    read_at_ = Clock::now();
  }

  void OnReport(SweepTrial& trial, RunningTrial& running, const ReportLine& report) {
    changed_ = true;
    if (report.cost_micro_usd.has_value())
      trial.cost_micro_usd =
          std::max(trial.cost_micro_usd, running.cost_before + *report.cost_micro_usd);
    const auto it =
        std::ranges::find(report.values, plan_.metric, &std::pair<std::string, double>::first);
    const bool has_metric = it != report.values.end();
    if (!has_metric && !report.step.has_value()) return;
    const size_t rungs = trial.at_rungs.size();
    trial.Note(plan_, report.step, has_metric ? std::optional(it->second) : std::nullopt);
    if (report.step.has_value()) {
      running.last_at = Clock::now();
      if (running.first_step < 0) {
        running.first_step = *report.step;
        running.first_at = running.last_at;
      } else if (*report.step > running.first_step) {
        const std::chrono::duration<double, std::milli> ms = running.last_at - running.first_at;
        trial.ms_per_step = ms.count() / static_cast<double>(*report.step - running.first_step);
      }
    }
    if (trial.at_rungs.size() > rungs && !running.stopped && StopsAtRung(plan_, trials_, trial)) {
      running.stopped = true;
      running.process.Stop();
    }
  }

  // Returns whether it has ended.
  bool ReadOne(int number, RunningTrial& running, bool stopping) {
    SweepTrial& trial = trials_[static_cast<size_t>(number) - 1];
    const auto read = [&] {
      running.process.Read([&](const ReportLine& report) { OnReport(trial, running, report); });
    };
    read();
    const std::optional<int> status = running.process.Poll();
    if (!status.has_value()) return false;
    read();  // what it wrote last
    changed_ = true;
    if (running.stopped) {
      trial.state = TrialState::kStopped;
      trial.note = absl::StrCat("behind others at step ",
                                StepOfRung(plan_, std::max<size_t>(1, trial.at_rungs.size()) - 1));
    } else if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) {
      trial.state = TrialState::kDone;
      if (!trial.metric.has_value()) trial.note = absl::StrCat("it reported no ", plan_.metric);
    } else if (stopping) {
      trial.Restart();
      trial.note = "interrupted";
    } else {
      trial.state = TrialState::kFailed;
      trial.note = WIFSIGNALED(*status) ? absl::StrCat("ended by ", strsignal(WTERMSIG(*status)))
                                        : absl::StrCat("exit code ", WEXITSTATUS(*status));
      if (!running.process.last_line().empty())
        trial.note += ": " + running.process.last_line().substr(0, kNoteMax);
    }
    return true;
  }

  absl::Status Save() {
    changed_ = false;
    saved_at_ = Clock::now();
    absl::Status status = folder_.WriteTrials(trials_);
    if (status.ok()) status = folder_.Write("results.csv", ResultsAsCsv(plan_, trials_));
    if (status.ok()) status = folder_.Write("results.jsonl", ResultsAsJsonLines(plan_, trials_));
    return status;
  }

  const SweepFolder& folder_;
  const SweepPlan plan_;
  std::vector<SweepTrial> trials_;
  std::map<int, RunningTrial> running_;
  std::optional<int64_t> warm_up_cost_;  // once it is done
  bool changed_ = false;
  Clock::time_point saved_at_{}, read_at_{};
};

}  // namespace

absl::Status RunTrials(const SweepFolder& folder, const std::atomic<bool>& stop) {
  absl::StatusOr<SweepPlan> plan = folder.ReadPlan();
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::vector<SweepTrial>> trials = folder.ReadTrials(*plan);
  if (!trials.ok()) return trials.status();
  return SweepRunner(folder, *std::move(plan), *std::move(trials)).Run(stop);
}

}  // namespace outboard::cli
