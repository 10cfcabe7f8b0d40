#include "gateway/server/ledger_writer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/thread_slice.h"
#include "gateway/accounts/folder_turn.h"
#include "gateway/base/clock.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/receipt_rows.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"

namespace outboard::gateway {

namespace {
constexpr std::chrono::seconds kTryAgainAfter{1};

// True if a retry may succeed: the file may be writable again.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}
}  // namespace

LedgerWriter::LedgerWriter(Ledger* ledger, SessionRows* rows, MicroUsd credit_limit,
                           HeadSigner* heads, ReceiptRows* receipts,
                           std::function<absl::Status()> sync)
    : ledger_(ledger),
      rows_(rows),
      credit_limit_(credit_limit),
      heads_(heads),
      receipts_(receipts),
      sync_(std::move(sync)),
      thread_([this] { Work(); }) {}
LedgerWriter::~LedgerWriter() { Stop(); }

void LedgerWriter::Post(std::vector<Charge> charges, Refused refused) {
  Add({[this, charges = std::move(charges), refused = std::move(refused)] {
         return PostEach(charges, refused);
       },
       nullptr, nullptr});
}

absl::Status LedgerWriter::PostEach(const std::vector<Charge>& charges, const Refused& refused) {
  const auto accounts = ledger_->PostEach(charges, WallNow());
  if (!accounts.ok()) return accounts.status();
  for (const AccountPosting& account : *accounts)
    if (IsReplaced(account.status)) return account.status;  // not the account's fault
  std::set<TenantId> not_posted;
  for (const AccountPosting& account : *accounts) {
    if (account.status.ok()) continue;
    not_posted.insert(account.tenant);
    telemetry::Count(telemetry::Metric::kPostingsRefused);
    telemetry::LogError("posting_refused", {{"account", account.tenant.value},
                                            {"message", account.status.ToString()},
                                            {"effect", "its leases stop"}});
    refused(account.tenant, account.status);
  }
  CountPosted(charges, not_posted);
  for (const AccountPosting& account : *accounts) heads_due_.insert(account.tenant);
  return absl::OkStatus();
}

// A bill without it is no worse than it was: the next posting tries again.
void LedgerWriter::SignHead(TenantId tenant) {
  if (heads_ == nullptr) return;
  if (absl::Status status = heads_->RefreshSome(tenant); !status.ok())
    telemetry::LogWarning("head_not_signed",
                          {{"account", tenant.value}, {"message", status.ToString()}});
}

// Before anybody is told of what was written.
void LedgerWriter::Sync() {
  if (std::exchange(is_unsynced_, false) && sync_ != nullptr)
    if (const absl::Status status = sync_(); !status.ok()) {
      telemetry::LogError("ledger_sync_failed", {{"message", status.ToString()},
                                                 {"effect", "this gateway ends"}});
      std::unique_lock lock(mutex_);
      return GiveUp(lock, status);
    }
  for (const TenantId tenant : std::exchange(heads_due_, {})) SignHead(tenant);
}

// What the ledger refuses is an answer, too; only what may pass is tried again. A hold ends with
// its gateway, so nobody waits until it is durable.
void LedgerWriter::Hold(HoldRequest request, std::function<void(HoldAnswer)> then) {
  Add({[this, request = std::move(request), then = std::move(then)] {
         auto answer = ledger_->Hold(request, credit_limit_);
         if (IsPassing(answer.status()) && !stopping()) return answer.status();
         if (IsReplaced(answer.status())) {
           then({0, absl::UnavailableError("another gateway has taken this one's place")});
           return answer.status();
         }
         if (heads_ != nullptr && heads_->Of(request.tenant) == nullptr)
           heads_due_.insert(request.tenant);
         then(answer.ok() ? *std::move(answer) : HoldAnswer{0, answer.status()});
         return absl::OkStatus();
       },
       nullptr, nullptr, /*must_last=*/false});
}

void LedgerWriter::EndHold(LeaseId lease) {
  Add({[this, lease] { return ledger_->EndHold(lease); }, nullptr, nullptr});
}

void LedgerWriter::Write(SessionRow row) {
  Add({[this, row = std::move(row)] { return OrTell(row.session, rows_->Put(row)); }, nullptr,
       nullptr});
}
void LedgerWriter::Grant(LeaseRow row) {
  Add({[this, row = std::move(row)]() -> absl::Status {
         // First, so that a retry reserves no second number. They are the same then.
         absl::Status status;
         if (receipts_ != nullptr)
           status = receipts_->NameDevices(row.lease, row.physical_devices);
         if (status.ok()) status = rows_->GrantLease(row).status();
         return OrTell(row.lease.session, std::move(status));
       },
       nullptr, nullptr});
}
// What waits for it (Then) comes behind, and finds the session ended.
absl::Status LedgerWriter::OrTell(SessionId session, absl::Status written) {
  if (written.ok() || IsPassing(written) || IsReplaced(written)) return written;
  NotWritten tell;
  {
    std::lock_guard lock(mutex_);
    tell = not_written_;
  }
  if (tell != nullptr) tell(session, written);
  return written;
}
void LedgerWriter::OnNotWritten(NotWritten then) {
  std::lock_guard lock(mutex_);
  not_written_ = std::move(then);
}
void LedgerWriter::KeepReceipts(std::vector<proto::Receipt> receipts, ReceiptRefused refused) {
  if (receipts_ == nullptr) return;
  Add({[this, receipts = std::move(receipts), refused = std::move(refused)]() -> absl::Status {
         OB_ASSIGN_OR_RETURN(const std::vector<absl::Status> kept, receipts_->Keep(receipts));
         for (size_t i = 0; i < kept.size(); ++i)
           if (!kept[i].ok()) refused(receipts[i], kept[i]);
         return absl::OkStatus();
       },
       nullptr, nullptr});
}
void LedgerWriter::EndLease(LeaseId lease, LeaseEnd why) {
  // Stamped here: the write may wait for the disk.
  Add({[this, lease, why, now = WallNow()] { return rows_->EndLease(lease, why, now); }, nullptr,
       nullptr});
}
void LedgerWriter::Then(std::function<void(absl::Status)> job) {
  Add({nullptr, std::move(job), nullptr});
}
void LedgerWriter::ThenOrAtOnce(std::function<void()> job) {
  Add({nullptr, nullptr, std::move(job)});
}

bool LedgerWriter::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void LedgerWriter::CountPosted(const std::vector<Charge>& charges, const std::set<TenantId>& but) {
  std::lock_guard lock(mutex_);
  for (const Charge& charge : charges) {
    if (but.contains(charge.tenant)) continue;
    Usage& charged = charged_[charge.tenant.value];
    const int64_t device_ms = HoldsDevice(charge.use) ? charge.to_ms - charge.from_ms : 0;
    charged.device_ms += device_ms;
    charged.amount.value += charge.amount.value;
    telemetry::Count(telemetry::Metric::kPostings);
    telemetry::Count(telemetry::Metric::kChargedTime, static_cast<uint64_t>(device_ms));
    telemetry::Count(telemetry::Metric::kChargedUsd, static_cast<uint64_t>(charge.amount.value));
  }
}

LedgerWriter::Figures LedgerWriter::figures() const {
  std::lock_guard lock(mutex_);
  return {jobs_.size(), !trouble_.ok(), !audit_.ok(), charged_};
}

absl::Status LedgerWriter::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_.ok() ? audit_ : trouble_;
}

void LedgerWriter::SetAudit(absl::Status audit) {
  std::lock_guard lock(mutex_);
  audit_ = std::move(audit);
}

void LedgerWriter::Add(Job job) {
  std::lock_guard lock(mutex_);
  if (corks_ > 0) return corked_.push_back(std::move(job));
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void LedgerWriter::Cork() {
  std::lock_guard lock(mutex_);
  ++corks_;
}

void LedgerWriter::Uncork() {
  std::lock_guard lock(mutex_);
  OB_CHECK(corks_ > 0);
  if (--corks_ > 0) return;
  if (corked_.empty()) return wake_.notify_one();  // Stop may wait for it
  std::stable_partition(corked_.begin(), corked_.end(),
                        [](const Job& job) { return job.write != nullptr; });
  std::move(corked_.begin(), corked_.end(), std::back_inserter(jobs_));
  corked_.clear();
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
  YieldToOthers(0);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return (stopping_ && corks_ == 0) || !jobs_.empty(); });
    if (jobs_.empty()) return;  // all is synced
    Job& job = jobs_.front();  // stays at the front until it is done; others only append
    lock.unlock();
    absl::Status status;
    if (job.write == nullptr) Sync();
    if (job.write != nullptr && is_over_) {
      status = given_up_;
    } else if (job.write != nullptr) {
      const auto begin = std::chrono::steady_clock::now();
      PassFailpoint("writer.before_write");
      status = job.write();
      PassFailpoint("writer.after_write");
      telemetry::ObserveNs(
          telemetry::Metric::kLedgerWriteTime,
          std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
      if (!status.ok()) telemetry::Count(telemetry::Metric::kLedgerErrors);
      is_unsynced_ |= job.must_last;
    } else if (job.then != nullptr)
      job.then(given_up_);
    else
      job.goodbye();
    const bool passing = IsPassing(status) && !is_over_;
    if (!status.ok() && !passing)
      telemetry::LogError("ledger_write_failed", {{"message", status.ToString()}});
    lock.lock();
    if (IsReplaced(status)) GiveUp(lock, status);
    if (job.write != nullptr && !is_over_)
      SetTrouble(passing ? status : absl::OkStatus());
    if (!passing || stopping_) {
      if (passing) given_up_ = status;
      jobs_.pop_front();
      if (!jobs_.empty()) continue;
      lock.unlock();
      Sync();
      lock.lock();
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

void LedgerWriter::GiveUp(std::unique_lock<std::mutex>& lock, const absl::Status& why) {
  is_over_ = true;
  given_up_ = trouble_ = why;
  const auto on_given_up = std::exchange(on_given_up_, nullptr);
  if (on_given_up == nullptr) return;
  lock.unlock();
  on_given_up(why);
  lock.lock();
}

void LedgerWriter::OnGivenUp(std::function<void(const absl::Status&)> given_up) {
  std::lock_guard lock(mutex_);
  on_given_up_ = std::move(given_up);
}

void LedgerWriter::SetTrouble(absl::Status status) {
  if (status.ok() != trouble_.ok()) {
    if (status.ok())
      telemetry::LogInfo("ledger_written_again");
    else
      telemetry::LogError("ledger_blocked", {{"message", status.ToString()},
                                             {"retry_seconds", kTryAgainAfter.count()}});
  }
  trouble_ = std::move(status);
}

}  // namespace outboard::gateway
