#include "gateway/service/bookkeeper.h"

#include <chrono>
#include <utility>

#include "gateway/service/clock.h"
#include "gateway/service/log.h"

namespace outboard::gateway {

namespace {
// Worth another try: the file may be writable again.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}
}  // namespace

Bookkeeper::Bookkeeper(Ledger* ledger, SessionRows* rows)
    : ledger_(ledger), rows_(rows), thread_([this] { Work(); }) {}
Bookkeeper::~Bookkeeper() { Stop(); }

void Bookkeeper::Post(std::vector<Charge> charges) {
  Add([this, charges = std::move(charges)] { return ledger_->Post(charges, WallNow()).status(); });
}
void Bookkeeper::Write(SessionRow row) {
  Add([this, row = std::move(row)] { return rows_->Put(row); });
}
void Bookkeeper::Grant(LeaseRow row) {
  Add([this, row = std::move(row)] { return rows_->GrantLease(row).status(); });
}
void Bookkeeper::EndLease(LeaseId lease, std::string why) {
  Add([this, lease, why = std::move(why)] { return rows_->EndLease(lease, why, WallNow()); });
}
void Bookkeeper::Then(std::function<void()> job) {
  Add([job = std::move(job)] {
    job();
    return absl::OkStatus();
  });
}

void Bookkeeper::Add(Job job) {
  std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void Bookkeeper::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Bookkeeper::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = jobs_.front();  // stays at the front until it is done; others only push behind it
    lock.unlock();
    absl::Status status = job();
    if (!status.ok()) Log("accounts file: " + status.ToString());
    lock.lock();
    if (!status.ok() && IsPassing(status) && !stopping_) {
      wake_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; });
      continue;
    }
    jobs_.pop_front();
  }
}

}  // namespace outboard::gateway
