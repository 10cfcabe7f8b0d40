// The money of a simulated world: the ledger of production, in memory, and beside it a model that
// shares no code with ledger and meter. After every write the two agree, and M1 to M8 hold
// (docs/testing.md):
//
//   M1  what accounts were charged is what the revenue got
//   M2  a millisecond of a leased device is charged once: ranges begin at 0 and touch
//   M3  a charge is at most what is held; what is charged and held is at most what was credited,
//       and, since an account or a key has a cap, at most that or what was held by then
//   M4  a lease is charged for no more time than passed, a worker for no more than its devices have
//   M5  what is repeated after a fault of ours is not charged
//   M6  what was written stays, whatever crashes
//   M7  the ledger's chain, sums and holds verify
//   M8  no hold outlives its lease
//
// A millisecond of a device costs `price_per_ms` micro-dollars here, so that the model needs no
// division.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/ledger.h"
#include "tests/sim/world.h"
#include "tests/support/temp_folder.h"

namespace outboard::sim {

class Books {
 public:
  static constexpr int64_t kNsPerMs = kMs;
  static constexpr int kAccounts = 3;
  static constexpr int64_t kDevicesOfWorker = 3;  // at most

  explicit Books(World* world)
      : world_(world),
        ledger_(ValueOrDie(gateway::Ledger::Open(EmptyBooks(), {.copied_to_memory = true}))),
        price_per_ms_(world->Between(1, 5)),
        prepaid_(world->OneIn(2)) {}
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  gateway::MicroUsd price_per_hour() const { return {3'600'000 * price_per_ms_}; }

  // ---- the operator
  void Credit(int64_t tenant, int64_t ms) {
    const int64_t amount = ms * price_per_ms_;
    accounts_[tenant].credited += amount;
    OB_CHECK_OK(
        ledger_->Credit({tenant}, {amount}, absl::StrCat("credit ", ++credits_), Now()).status());
  }
  bool prepaid() const { return prepaid_; }
  // Of an account, from now on; nothing: no cap any more.
  void SetCap(int64_t tenant, std::optional<int64_t> ms) {
    Account& account = accounts_[tenant];
    account.spent_since = 0;
    account.cap.reset();
    std::optional<gateway::MicroUsd> cap;
    if (ms.has_value()) cap = gateway::MicroUsd{*(account.cap = *ms * price_per_ms_)};
    account.capped_held = account.held;
    OB_CHECK_OK(ledger_->SetCap(gateway::BudgetScope::kAccount, absl::StrCat(tenant), cap));
  }
  // Of a key that nobody has used.
  void SetKeyCap(const std::string& key, int64_t ms) {
    keys_[key].cap = ms * price_per_ms_;
    OB_CHECK_OK(ledger_->SetCap(gateway::BudgetScope::kKey, key,
                                gateway::MicroUsd{ms * price_per_ms_}));
  }
  bool HasCap(const std::string& key) const { return keys_.contains(key); }
  // Whether a session of the account may be refused so for lack of money: a hold of the account met
  // this limit.
  bool IsOfMoney(int64_t tenant, const absl::Status& why) const {
    const auto account = accounts_.find(tenant);
    return account != accounts_.end() &&
           std::ranges::any_of(account->second.refusals, [&](const absl::Status& refusal) {
             return refusal.code() == why.code() &&
                    absl::StartsWith(why.message(), refusal.message());
           });
  }

  // Whether a text says that an account has met one of its limits.
  static bool NamesALimit(const absl::Status& why) {
    return absl::StartsWith(why.message(), kCapReached) ||
           absl::StartsWith(why.message(), kKeyCapReached) ||
           absl::StartsWith(why.message(), kCreditUsedUp);
  }

  // ---- whose key a session is on (RV1 to RV3 of rival.h)
  // A client with this key is told that it has the session.
  void Opens(const gateway::SessionId& session, const std::string& key) {
    thrown_out_.erase(session);
    const Lease* const lease = RunningLeaseOf(session);
    if (lease == nullptr) return world_->Broken("RV1: a client has a session without a lease");
    if (lease->key != key)
      world_->Broken("RV1: a client with the key ", key, " has a session on the key ", lease->key);
  }
  // A client with this key, which is still there, hears that another one has its session.
  void ThrownOut(const gateway::SessionId& session, const std::string& key) {
    const Lease* const lease = RunningLeaseOf(session);
    const auto at = holds_.lower_bound(gateway::LeaseId{session, 0});  // of one that starts
    const bool holds = std::any_of(at, holds_.end(), [&](const auto& hold) {
      return hold.first.session == session && hold.second.key == key;
    });
    if (lease != nullptr ? lease->key == key : holds) thrown_out_.insert(session);
  }
  // Whether that was so, while its own key paid for the device, nobody has had it since, and this
  // other key could not have paid when it was asked.
  bool WasThrownOut(const gateway::SessionId& session, const std::string& by) const {
    return thrown_out_.contains(session) && !could_pay_.contains({session, by});
  }

  // ---- what the gateway decides, when it does
  void LeaseBegins(const gateway::LeaseRow& row) {
    leases_[row.lease] = {.worker = row.worker,
                          .key = row.key_id,
                          .has_device = HoldsDevice(row.use),
                          .began = world_->now()};
    const auto hold = holds_.find(row.lease);
    if (hold == holds_.end() || hold->second.key != row.key_id)
      world_->Broken("RV2: a lease on the key ", row.key_id, " begins without a hold of that");
  }
  void LeaseEnds(const gateway::LeaseId& lease, gateway::LeaseEnd why) {
    const auto at = leases_.find(lease);
    if (at == leases_.end()) return world_->Broken("a lease ends that has not begun");
    Lease& ended = at->second;
    ended.over = true;
    // The end of state alone cuts no step off.
    if (why == gateway::LeaseEnd::kNoCredit && ended.has_device) cut_off_.insert(lease.session);
    // M5: the time between is not known where the worker was not heard from until the end.
    if (why == gateway::LeaseEnd::kWorkerLost || why == gateway::LeaseEnd::kExecutorLost) return;
    const int64_t free_ms = ended.replayed_ns / kMs;
    const int64_t passed_ms = (world_->now() - ended.began) / kMs;
    if (ended.charged_ms + free_ms > passed_ms + 1)
      world_->Broken("M5: of ", passed_ms, " ms of a lease ", free_ms, " repeated work, and ",
                     ended.charged_ms, " are charged");
    if (free_ms > 0) world_->Count("repeated for nothing");
  }
  // Whether its account has had the session cut off since this was asked last: that it repeats what
  // it had done is no fault of ours, and charged.
  bool WasCutOff(const gateway::SessionId& session) { return cut_off_.erase(session) > 0; }
  // Since then the session has repeated what was done before: of its last lease, if that runs. At
  // most five seconds at a time count, since nothing is repeated while a connection stalls.
  void Repeated(const gateway::SessionId& session, int64_t since) {
    auto at = leases_.upper_bound(gateway::LeaseId{session, UINT64_MAX});
    if (at == leases_.begin()) return;
    Lease& lease = (--at)->second;
    if (at->first.session == session && !lease.over)
      lease.replayed_ns += std::min(world_->now() - std::max(since, lease.began), 5 * kSecond);
  }
  // M4, before the charge is on its way to the disk.
  void Charged(const gateway::Charge& charge) {
    const auto at = leases_.find(charge.device.lease);
    if (at == leases_.end()) return world_->Broken("M4: a charge without a lease");
    Lease& lease = at->second;
    lease.charged_ms = charge.to_ms;
    if (charge.to_ms * kMs > world_->now() - lease.began)
      world_->Broken("M4: ", charge.to_ms, " ms are charged of a lease of ",
                     (world_->now() - lease.began) / kMs);
    int64_t& of_worker = charged_of_worker_[lease.worker];
    of_worker += charge.to_ms - charge.from_ms;
    if (of_worker * kMs > kDevicesOfWorker * world_->now())
      world_->Broken("M4: a worker is charged for more time than it had");
  }

  // ---- what reaches the disk
  gateway::HoldAnswer Hold(const gateway::HoldRequest& request) {
    const auto limit = prepaid_ ? gateway::MicroUsd{0} : gateway::kNoCreditLimit;
    const auto answer = ledger_->Hold(request, limit);
    if (!answer.ok()) {
      world_->Broken("the ledger refuses a hold: ", answer.status().ToString());
      return {};
    }
    Account& account = accounts_[request.tenant.value];
    const auto [at, is_new] = holds_.try_emplace(request.lease);
    Held& held = at->second;
    held.tenant = request.tenant.value;
    if (is_new) held.key = request.key_id;
    Key* const key = KeyOf(held);
    held.devices = static_cast<int64_t>(request.prices_per_hour.size());
    const int64_t price_per_ms = price_per_ms_ * held.devices;
    const int64_t wanted_ms = std::max<int64_t>(0, request.to_ms - held.funded_ms);
    const int64_t by_credit =
        prepaid_ ? account.credited - account.spent - account.held : INT64_MAX;
    const int64_t by_cap = account.cap.has_value()
                               ? *account.cap - account.spent_since - account.held
                               : INT64_MAX;
    const int64_t by_key = key != nullptr ? key->cap - key->spent - key->held : INT64_MAX;
    const int64_t left = std::min({by_key, by_cap, by_credit});
    int64_t more_ms = std::min(wanted_ms, std::max<int64_t>(0, left) / price_per_ms);
    if (is_new && more_ms < 1000) more_ms = 0;
    held.funded_ms += more_ms;
    account.held += more_ms * price_per_ms;
    if (key != nullptr) key->held += more_ms * price_per_ms;
    if (answer->funded_ms != held.funded_ms)
      world_->Broken("M3: ", answer->funded_ms, " ms are funded, and ", held.funded_ms,
                     " could be");
    if (answer->why.ok() != (held.funded_ms >= request.to_ms))
      world_->Broken("a hold does not say what it lacks");
    if (!answer->why.ok())
      Refused(account, answer->why,
              by_key == left ? Limit::kKeyCap : by_cap == left ? Limit::kCap : Limit::kCredit);
    if (request.is_tentative && held.funded_ms > 0)
      could_pay_.insert({request.lease.session, request.key_id});
    if (is_new && held.funded_ms == 0) holds_.erase(at);
    Check();
    return *answer;
  }
  void EndHold(const gateway::LeaseId& lease) {
    OB_CHECK_OK(ledger_->EndHold(lease));
    if (const auto at = holds_.find(lease); at != holds_.end()) {
      const Held& held = at->second;
      int64_t left_ms = held.funded_ms * held.devices;
      for (const auto& [device, posted_ms] : held.posted_ms) left_ms -= posted_ms;
      accounts_[held.tenant].held -= left_ms * price_per_ms_;
      if (Key* const key = KeyOf(held)) key->held -= left_ms * price_per_ms_;
      holds_.erase(at);
    }
    Check();
  }
  // A gateway starts.
  void EndAllHolds() {
    OB_CHECK_OK(ledger_->EndAllHolds().status());
    holds_.clear();
    for (auto& [tenant, account] : accounts_) account.held = 0;
    for (auto& [id, key] : keys_) key.held = 0;
    Check();
  }
  void Post(const std::vector<gateway::Charge>& charges) {
    const auto posted = ledger_->PostEach(charges, Now());
    OB_CHECK_OK(posted.status());
    for (const gateway::AccountPosting& account : *posted)
      if (!account.status.ok())
        world_->Broken("M2: the ledger refuses a charge: ", account.status.ToString());
    for (const gateway::Charge& charge : charges) PostOne(charge);
    Check();
  }
  gateway::Usage UsageOf(const gateway::SessionId& session) {
    return ValueOrDie(ledger_->UsageOfSession(session));
  }

  // When all sessions have ended, and their writes are on disk.
  void CheckAtEnd() {
    if (!holds_.empty())
      world_->Broken("M8: ", holds_.size(), " holds are left where no lease runs");
    const auto verified = ledger_->Verify();
    if (!verified.ok()) world_->Broken("M7: ", verified.status().ToString());
  }

 private:
  struct Account {
    int64_t credited = 0, spent = 0, held = 0;
    std::optional<int64_t> cap;
    int64_t spent_since = 0, capped_held = 0;  // since the cap, and when it came
    std::vector<absl::Status> refusals;        // of holds, each once
  };
  struct Key {  // that has a cap, since it was made
    int64_t cap = 0, spent = 0, held = 0;
  };
  enum class Limit { kKeyCap, kCap, kCredit };
  struct Held {
    std::string key;
    int64_t tenant = 0, devices = 1, funded_ms = 0;  // of each
    std::map<uint32_t, int64_t> posted_ms = {};      // by device
  };
  struct Lease {
    std::string worker, key;
    bool has_device = false;
    int64_t began = 0, charged_ms = 0, replayed_ns = 0;
    bool over = false;
  };

  // A ledger without entries, made once: to make its tables takes as long as to simulate a second.
  static std::string EmptyBooks() {
    static const test::TempFolder folder;
    static const std::string path = [] {
      const std::string books = folder / "books.db";
      ValueOrDie(gateway::Ledger::Open(books));
      return books;
    }();
    return path;
  }
  gateway::WallTime Now() const { return {world_->wall_ms()}; }

  static constexpr char kCapReached[] = "the cap of the account is reached";
  static constexpr char kKeyCapReached[] = "the cap of the key ";
  static constexpr char kCreditUsedUp[] = "the account's credit is used up";

  // The limit that is met is named, and no other.
  void Refused(Account& account, const absl::Status& why, Limit by) {
    const bool by_cap = by != Limit::kCredit;
    world_->Count(by == Limit::kKeyCap ? "refused by a key's cap"
                  : by_cap             ? "refused by a cap"
                                       : "refused money");
    const auto code = by_cap ? absl::StatusCode::kResourceExhausted
                             : absl::StatusCode::kFailedPrecondition;
    const char* const text = by == Limit::kKeyCap ? kKeyCapReached
                             : by_cap             ? kCapReached
                                                  : kCreditUsedUp;
    if (why.code() != code || !absl::StartsWith(why.message(), text))
      world_->Broken("a hold meets another limit than it is told: ", why.ToString());
    if (std::ranges::find(account.refusals, why) == account.refusals.end())
      account.refusals.push_back(why);
  }

  Key* KeyOf(const Held& held) {
    const auto at = keys_.find(held.key);
    return at == keys_.end() ? nullptr : &at->second;
  }
  // With a device.
  const Lease* RunningLeaseOf(const gateway::SessionId& session) const {
    auto at = leases_.upper_bound(gateway::LeaseId{session, UINT64_MAX});
    if (at == leases_.begin() || (--at)->first.session != session) return nullptr;
    return at->second.over || !at->second.has_device ? nullptr : &at->second;
  }

  void PostOne(const gateway::Charge& charge) {
    int64_t& charged_ms = charged_ms_[charge.device];
    if (charge.from_ms != charged_ms)
      world_->Broken("M2: time from ", charge.from_ms, " ms is charged after ", charged_ms);
    charged_ms = charge.to_ms;
    const int64_t amount = (charge.to_ms - charge.from_ms) * price_per_ms_;
    if (charge.amount.value != amount)
      world_->Broken("a charge of ", charge.amount.value, " is due as ", amount);
    const auto at = holds_.find(charge.device.lease);
    if (at == holds_.end() || charge.to_ms > at->second.funded_ms)
      return world_->Broken("M3: a charge up to ", charge.to_ms, " ms is not held");
    at->second.posted_ms[charge.device.device] = charge.to_ms;
    if (Key* const key = KeyOf(at->second)) {
      key->held -= amount;
      key->spent += amount;
    }
    Account& account = accounts_[charge.tenant.value];
    account.held -= amount;
    account.spent += amount;
    account.spent_since += amount;
    revenue_ += amount;
  }

  void Check() {
    int64_t spent = 0;
    for (const auto& [tenant, account] : accounts_) {
      spent += account.spent;
      if (prepaid_ && account.spent + account.held > account.credited)
        world_->Broken("M3: account ", tenant, " has more charged and held than credited");
      if (account.cap.has_value() &&
          account.spent_since + account.held > std::max(*account.cap, account.capped_held))
        world_->Broken("M3: account ", tenant, " has more charged and held than its cap");
      if (account.held < 0) world_->Broken("M3: account ", tenant, " holds less than nothing");
      const gateway::TenantId id{tenant};
      const auto balance = ledger_->Balance(id);
      const auto budget = ledger_->BudgetOf(id);
      OB_CHECK(balance.ok() && budget.ok());
      if (balance->value != account.credited - account.spent)
        world_->Broken("M6: account ", tenant, " has ", balance->value, ", due ",
                       account.credited - account.spent);
      if (budget->held.value != account.held)
        world_->Broken("M6: account ", tenant, " holds ", budget->held.value, ", due ",
                       account.held);
    }
    for (const auto& [id, key] : keys_) {
      if (key.spent + key.held > key.cap)
        world_->Broken("M3: the key ", id, " has more charged and held than its cap");
      const auto budget = ledger_->BudgetOf(gateway::BudgetScope::kKey, id);
      OB_CHECK(budget.ok());
      if (budget->held.value != key.held || budget->spent.value != key.spent)
        world_->Broken("RV2: the key ", id, " has ", budget->spent.value, " charged and ",
                       budget->held.value, " held, due ", key.spent, " and ", key.held);
    }
    const auto revenue = ledger_->Balance(gateway::LedgerAccount::Revenue());
    if (spent != revenue_ || revenue->value != revenue_) world_->Broken("M1: the revenue is off");
  }

  World* const world_;
  std::unique_ptr<gateway::Ledger> ledger_;
  const int64_t price_per_ms_;
  const bool prepaid_;
  int64_t credits_ = 0, revenue_ = 0;
  std::map<int64_t, Account> accounts_;
  std::map<std::string, Key> keys_;
  std::map<gateway::LeaseId, Held> holds_;
  std::map<gateway::LeaseId, Lease> leases_;
  std::set<gateway::SessionId> cut_off_;  // by their accounts, see WasCutOff
  std::set<gateway::SessionId> thrown_out_;  // whose client was, see WasThrownOut
  std::set<std::pair<gateway::SessionId, std::string>> could_pay_;  // tentative holds, by key
  std::map<gateway::LeasedDevice, int64_t> charged_ms_;
  std::map<std::string, int64_t> charged_of_worker_;
};

}  // namespace outboard::sim
