#include "gateway/server/ledger_writer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "gateway/base/clock.h"

namespace outboard::gateway {

namespace {
constexpr std::chrono::seconds kTryAgainAfter{1};

// True if a retry may succeed: the file may be writable again.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}
}  // namespace

LedgerWriter::LedgerWriter(Ledger* ledger, SessionRows* rows)
    : ledger_(ledger), rows_(rows), thread_([this] { Work(); }) {}
LedgerWriter::~LedgerWriter() { Stop(); }

void LedgerWriter::Post(std::vector<Charge> charges) {
  Add({[this, charges = std::move(charges)] { return ledger_->Post(charges, WallNow()).status(); },
       nullptr, nullptr});
}
void LedgerWriter::Write(SessionRow row) {
  Add({[this, row = std::move(row)] { return rows_->Put(row); }, nullptr, nullptr});
}
void LedgerWriter::Grant(LeaseRow row) {
  Add({[this, row = std::move(row)] { return rows_->GrantLease(row).status(); }, nullptr, nullptr});
}
void LedgerWriter::EndLease(LeaseId lease, std::string why) {
  // Stamped here: the write may wait for the disk.
  Add({[this, lease, why = std::move(why), now = WallNow()] {
         return rows_->EndLease(lease, why, now);
       },
       nullptr, nullptr});
}
void LedgerWriter::Then(std::function<void(absl::Status)> job) {
  Add({nullptr, std::move(job), nullptr});
}
void LedgerWriter::ThenOrAtOnce(std::function<void()> job) {
  Add({nullptr, nullptr, std::move(job)});
}

absl::Status LedgerWriter::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

void LedgerWriter::Add(Job job) {
  std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void LedgerWriter::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void LedgerWriter::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = jobs_.front();  // stays at the front until it is done; others only append
    lock.unlock();
    absl::Status status;
    if (job.write != nullptr)
      status = job.write();
    else if (job.then != nullptr)
      job.then(given_up_);
    else
      job.goodbye();
    const bool passing = IsPassing(status);
    if (!status.ok() && !passing) Log("accounts file: " + status.ToString());
    lock.lock();
    if (job.write != nullptr) SetTrouble(passing ? status : absl::OkStatus());
    if (!passing || stopping_) {
      if (passing) given_up_ = status;
      jobs_.pop_front();
      continue;
    }
    const auto again = std::chrono::steady_clock::now() + kTryAgainAfter;
    do {
      SayGoodbyes(lock);
    } while (wake_.wait_until(lock, again) == std::cv_status::no_timeout && !stopping_);
  }
}

// Runs the jobs of ThenOrAtOnce, which do not wait for the disk.
void LedgerWriter::SayGoodbyes(std::unique_lock<std::mutex>& lock) {
  const auto first = std::stable_partition(jobs_.begin(), jobs_.end(),
                                           [](const Job& job) { return job.goodbye == nullptr; });
  const std::vector<Job> goodbyes(std::make_move_iterator(first),
                                  std::make_move_iterator(jobs_.end()));
  jobs_.erase(first, jobs_.end());
  lock.unlock();
  for (const Job& job : goodbyes) job.goodbye();
  lock.lock();
}

void LedgerWriter::SetTrouble(absl::Status status) {
  if (status.ok() != trouble_.ok()) {
    Log(status.ok() ? "accounts file: written again"
                    : "accounts file: " + status.ToString() + "; trying again every second");
  }
  trouble_ = std::move(status);
}

}  // namespace outboard::gateway
