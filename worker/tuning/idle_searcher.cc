#include "worker/tuning/idle_searcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "telemetry/log.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kEndWaitMs = 1000;  // for a process that has closed its socket to say how it ended
// A process that fails so often in a row will fail again.
constexpr int kFailuresMax = 3;

}  // namespace

class IdleSearcher::Impl {
 public:
  explicit Impl(IdleSearcherOptions options)
      : options_(std::move(options)),
        watch_(options_.quiet),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Main(); }) {}

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      Kill();
    }
    Wake();
    thread_.join();
    close(wake_);
  }

  void Sent(const std::string& session, uint64_t seq) {
    std::lock_guard lock(mutex_);
    watch_.Sent(session, seq, Clock::now());
    if (seq > 0) Kill();
  }
  void Applied(const std::string& session, uint64_t through_seq) {
    std::lock_guard lock(mutex_);
    watch_.Applied(session, through_seq, Clock::now());
    WorkWasDone();
  }
  void Ended(const std::string& session) {
    std::lock_guard lock(mutex_);
    watch_.Ended(session, Clock::now());
    WorkWasDone();
  }

 private:
  // With mutex_ held, all three.
  void Kill() {
    if (child_.pid() <= 0 || killed_) return;
    kill(child_.pid(), SIGKILL);
    killed_ = true;
  }
  void WorkWasDone() {
    new_round_ = true;
    if (!std::exchange(hope_, true)) Wake();
  }
  // Until when there is nothing to do but wait; nullopt: until somebody wakes us.
  std::optional<Clock::time_point> StartIfIdle(std::unique_lock<std::mutex>& lock) {
    if (child_.pid() > 0 || !hope_ || failures_ >= kFailuresMax) return std::nullopt;
    if (const auto later = NotIdleUntil()) return later;
    std::unique_ptr<SearchJob> job;
    if (options_.prepare) {
      const bool new_round = std::exchange(new_round_, false);
      lock.unlock();  // it reads files, and whoever sends work must not wait for that
      job = options_.prepare(new_round);
      lock.lock();
      if (job == nullptr) {
        hope_ = new_round_;  // work that was done meanwhile
        return hope_ ? std::optional(Clock::now() + options_.quiet) : std::nullopt;
      }
      if (stopping_) return std::nullopt;
      if (const auto later = NotIdleUntil()) {
        new_round_ = true;
        return later;
      }
    }
    killed_ = false;
    if (auto child = StartSearch(); child.ok()) {
      child_ = *std::move(child);
      job_ = std::move(job);
      if (job_ != nullptr) job_->Begin(child_);
    } else {
      telemetry::LogWarning("search_not_started", {{"message", child.status().ToString()}});
      failures_ = kFailuresMax;
    }
    return std::nullopt;
  }

  absl::StatusOr<ChildProcess> StartSearch() {
    OB_ASSIGN_OR_RETURN(const int output, ChildOutput::EndFor(ChildOutput::Of::kSearch, output_));
    absl::StatusOr<ChildProcess> child =
        ChildProcess::Start(options_.command, {.profile = SandboxProfile::kSearch,
                                               .cores = options_.cores,
                                               .memory_bytes_max = options_.memory_bytes_max,
                                               .output = output});
    if (output_ != nullptr) output_->Started();
    return child;
  }

  // nullopt: now.
  std::optional<Clock::time_point> NotIdleUntil() const {
    const std::optional<Clock::time_point> from = watch_.IdleFrom();
    // While busy nobody wakes us for each answer: steps must not pay for it.
    if (!from.has_value()) return Clock::now() + options_.quiet;
    return *from > Clock::now() ? from : std::nullopt;
  }

  void Main() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const std::optional<Clock::time_point> until = StartIfIdle(lock);
      if (stopping_) break;
      pollfd waited[] = {{wake_, POLLIN, 0}, {child_.fd(), POLLIN, 0}};  // -1 is left out
      int timeout_ms = -1;
      if (until.has_value())
        timeout_ms = static_cast<int>(
            std::max<int64_t>(0, std::chrono::ceil<milliseconds>(*until - Clock::now()).count()));
      lock.unlock();
      poll(waited, 2, timeout_ms);
      uint64_t ignored;
      if (read(wake_, &ignored, sizeof ignored) < 0) ignored = 0;  // nobody has woken us
      lock.lock();
      if (waited[1].revents != 0) OnEnd(lock);
    }
    child_.Stop();
    output_.reset();
    job_.reset();
  }

  // With the lock, but not while it waits: whoever sends work must not wait for a process to end.
  void OnEnd(std::unique_lock<std::mutex>& lock) {
    ChildProcess ended = std::move(child_);
    std::unique_ptr<SearchJob> job = std::move(job_);
    std::unique_ptr<ChildOutput> output = std::move(output_);
    const bool killed = killed_;
    // Until work is done, which may be while we wait; a round goes on.
    if (!killed && !options_.prepare) hope_ = false;
    lock.unlock();
    const ChildEnd how = ended.Wait(kEndWaitMs);
    ended.Stop();
    output.reset();
    job.reset();
    lock.lock();
    if (killed) return;  // goes on when the worker is idle again
    failures_ = how.IsExit(0) ? 0 : failures_ + 1;
    if (failures_ > 0) telemetry::LogWarning("search_failed", {{"how", how.ToString()}});
    if (options_.on_end) options_.on_end(how.ToString());
  }

  void Wake() { eventfd_write(wake_, 1); }

  const IdleSearcherOptions options_;
  std::mutex mutex_;
  IdleWatch watch_;
  ChildProcess child_;
  std::unique_ptr<SearchJob> job_;       // of child_
  std::unique_ptr<ChildOutput> output_;  // of child_
  bool killed_ = false;             // child_, by us
  bool hope_ = false;  // that there is something to search for: work was done since the last end
  bool new_round_ = true;  // work was done since `prepare` was called
  int failures_ = 0;       // in a row
  bool stopping_ = false;
  const int wake_;
  std::thread thread_;
};

IdleSearcher::IdleSearcher(IdleSearcherOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
IdleSearcher::~IdleSearcher() = default;
void IdleSearcher::Sent(const std::string& session, uint64_t seq) { impl_->Sent(session, seq); }
void IdleSearcher::Applied(const std::string& session, uint64_t through_seq) {
  impl_->Applied(session, through_seq);
}
void IdleSearcher::Ended(const std::string& session) { impl_->Ended(session); }

void IdleWatch::Sent(const std::string& session, uint64_t seq, Time now) {
  Session& at = sessions_[session];
  const bool was_busy = at.sent > at.applied;
  at.sent = std::max(at.sent, seq);
  busy_ += !was_busy && at.sent > at.applied;
  last_ = now;
}

void IdleWatch::Applied(const std::string& session, uint64_t through_seq, Time now) {
  Session& at = sessions_[session];
  const bool was_busy = at.sent > at.applied;
  at.applied = std::max(at.applied, through_seq);
  busy_ -= was_busy && at.sent <= at.applied;
  last_ = now;
}

void IdleWatch::Ended(const std::string& session, Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  busy_ -= found->second.sent > found->second.applied;
  sessions_.erase(found);
  last_ = now;
}

std::optional<IdleWatch::Time> IdleWatch::IdleFrom() const {
  if (busy_ > 0) return std::nullopt;
  return last_ + quiet_;
}

}  // namespace outboard::worker
