#include "gateway/server/ledger_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/thread_slice.h"
#include "gateway/accounts/folder_turn.h"
#include "gateway/base/clock.h"
#include "gateway/base/thrown.h"
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

// Of books that cannot be gone on with. Made while there is memory.
const absl::Status& BooksMetABug() {
  static const auto* const status = new absl::Status(AfterThrown("writing the books"));
  return *status;
}
const absl::Status& kBooksMetABug = BooksMetABug();

// Whoever is told of a write, which is done, is not told again: no lack of memory passes here.
template <typename Tell>
absl::Status Told(Tell&& tell) noexcept {
  const absl::Status status = ErrorIfThrown("what waits for the books", [&] {
    tell();
    return absl::OkStatus();
  });
  return status.ok() ? status : kBooksMetABug;
}

// A line of the log for which there is no memory is left out: it must not stop a write, nor let it
// be made twice.
template <typename Line>
void Logged(const Line& line) noexcept {
  ErrorIfThrown("a line of the log", [&] {
    line();
    return absl::OkStatus();
  }).IgnoreError();
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
  for (const AccountPosting& account : *accounts) heads_due_.insert(account.tenant);
  std::set<TenantId> not_posted;
  for (const AccountPosting& account : *accounts)
    if (!account.status.ok()) not_posted.insert(account.tenant);
  CountPosted(charges, not_posted);
  // Nothing throws from here on: it would all be told again.
  absl::Status told;
  for (const AccountPosting& account : *accounts) {
    if (account.status.ok()) continue;
    telemetry::Count(telemetry::Metric::kPostingsRefused);
    Logged([&] {
      telemetry::LogError("posting_refused", {{"account", account.tenant.value},
                                              {"message", account.status.ToString()},
                                              {"effect", "its leases stop"}});
    });
    told.Update(Told([&] { refused(account.tenant, account.status); }));
  }
  return told;
}

// A bill without it is no worse than it was: the next posting tries again.
void LedgerWriter::SignHead(TenantId tenant) {
  if (heads_ == nullptr) return;
  const absl::Status status =
      ErrorIfThrown("signing a head", [&] { return heads_->RefreshSome(tenant); });
  if (status.ok()) return;
  Logged([&] {
    telemetry::LogWarning("head_not_signed",
                          {{"account", tenant.value}, {"message", status.ToString()}});
  });
}

// Before anybody is told of what was written.
void LedgerWriter::Sync() {
  if (std::exchange(is_unsynced_, false) && sync_ != nullptr)
    if (const absl::Status status = ErrorIfThrown("syncing the books", sync_); !status.ok()) {
      Logged([&] {
        telemetry::LogError("ledger_sync_failed", {{"message", status.ToString()},
                                                   {"effect", "this gateway ends"}});
      });
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
           const absl::Status told = Told([&] {
             then({0, absl::UnavailableError("another gateway has taken this one's place")});
           });
           return told.ok() ? answer.status() : told;
         }
         if (heads_ != nullptr && heads_->Of(request.tenant) == nullptr)
           heads_due_.insert(request.tenant);
         return Told(
             [&] { then(answer.ok() ? *std::move(answer) : HoldAnswer{0, answer.status()}); });
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
  const absl::Status told = Told([&] {
    if (tell != nullptr) tell(session, written);
  });
  return told.ok() ? written : told;
}
void LedgerWriter::OnNotWritten(NotWritten then) {
  std::lock_guard lock(mutex_);
  not_written_ = std::move(then);
}
void LedgerWriter::KeepReceipts(std::vector<proto::Receipt> receipts, ReceiptRefused refused) {
  if (receipts_ == nullptr) return;
  Add({[this, receipts = std::move(receipts), refused = std::move(refused)]() -> absl::Status {
         OB_ASSIGN_OR_RETURN(const std::vector<absl::Status> kept, receipts_->Keep(receipts));
         return Told([&] {
           for (size_t i = 0; i < kept.size(); ++i)
             if (!kept[i].ok()) refused(receipts[i], kept[i]);
         });
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
  for (const Charge& charge : charges)  // all that takes memory, or a retry would count some twice
    if (!but.contains(charge.tenant)) charged_.try_emplace(charge.tenant.value);
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
  std::list<Job> added;
  added.push_back(std::move(job));
  std::lock_guard lock(mutex_);
  std::list<Job>& to = corks_ > 0 ? corked_ : jobs_;
  to.splice(to.end(), added);
  if (corks_ == 0) wake_.notify_one();
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
  std::list<Job> told;
  for (auto job = corked_.begin(); job != corked_.end();) {
    const auto at = job++;
    if (at->write == nullptr) told.splice(told.end(), corked_, at);
  }
  jobs_.splice(jobs_.end(), corked_);
  jobs_.splice(jobs_.end(), told);
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
  for (;;) {
    const absl::Status thrown = ErrorIfThrown("the writer of the books", [this] {
      WriteJobs();
      return absl::OkStatus();
    });
    if (thrown.ok()) return;
    std::unique_lock lock(mutex_);
    GiveUp(lock, thrown);
  }
}

void LedgerWriter::WriteJobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return (stopping_ && corks_ == 0) || !jobs_.empty(); });
    if (jobs_.empty()) return;  // all is synced
    Job& job = jobs_.front();  // stays at the front until it is done; others only append
    lock.unlock();
    absl::Status status, told;
    if (job.write == nullptr) Sync();
    if (job.write != nullptr && is_over_) {
      status = given_up_;
    } else if (job.write != nullptr) {
      const auto begin = std::chrono::steady_clock::now();
      PassFailpoint("writer.before_write");
      status = ErrorIfThrown("writing the books", job.write);
      PassFailpoint("writer.after_write");
      telemetry::ObserveNs(
          telemetry::Metric::kLedgerWriteTime,
          std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
      if (!status.ok()) telemetry::Count(telemetry::Metric::kLedgerErrors);
      is_unsynced_ |= job.must_last;
    } else {
      told = Told([&] { job.then != nullptr ? job.then(given_up_) : job.goodbye(); });
    }
    const bool is_bug = !told.ok() || (IsThrown(status) && !IsPassing(status));
    const bool passing = IsPassing(status) && !is_over_;
    if (!status.ok() && !passing)
      Logged([&] {
        telemetry::LogError("ledger_write_failed", {{"message", status.ToString()}});
      });
    lock.lock();
    if (IsReplaced(status)) GiveUp(lock, status);
    if (is_bug && !is_over_) GiveUp(lock, kBooksMetABug);
    if (job.write != nullptr && !is_over_)
      SetTrouble(passing ? status : absl::OkStatus());
    if (!passing || stopping_) {
      if (passing) given_up_ = status;
      std::list<Job> done;
      done.splice(done.end(), jobs_, jobs_.begin());
      const bool is_last = jobs_.empty();
      lock.unlock();
      done.clear();  // what it holds may wait for a disk, or for who calls this
      if (is_last) Sync();
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
  std::list<Job> goodbyes;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto at = job++;
    if (at->goodbye != nullptr) goodbyes.splice(goodbyes.end(), jobs_, at);
  }
  lock.unlock();
  absl::Status told;
  for (const Job& job : goodbyes) told.Update(Told(job.goodbye));
  goodbyes.clear();
  lock.lock();
  if (!told.ok()) GiveUp(lock, kBooksMetABug);
}

void LedgerWriter::GiveUp(std::unique_lock<std::mutex>& lock, const absl::Status& why) {
  const bool is_first = !std::exchange(is_over_, true);
  given_up_ = trouble_ = why;
  const auto on_given_up = std::exchange(on_given_up_, nullptr);
  lock.unlock();
  if (is_first && IsThrown(why))
    Logged([] {
      telemetry::LogError("gateway_gives_up", {{"message", "the books cannot be gone on with"},
                                               {"effect", "this gateway ends"}});
    });
  if (on_given_up != nullptr) Told([&] { on_given_up(why); }).IgnoreError();
  lock.lock();
}

void LedgerWriter::OnGivenUp(std::function<void(const absl::Status&)> given_up) {
  std::lock_guard lock(mutex_);
  on_given_up_ = std::move(given_up);
}

void LedgerWriter::SetTrouble(absl::Status status) {
  const bool is_new = status.ok() != trouble_.ok();
  trouble_ = std::move(status);
  if (!is_new) return;
  Logged([this] {
    if (trouble_.ok())
      telemetry::LogInfo("ledger_written_again");
    else
      telemetry::LogError("ledger_blocked", {{"message", trouble_.ToString()},
                                             {"retry_seconds", kTryAgainAfter.count()}});
  });
}

}  // namespace outboard::gateway
