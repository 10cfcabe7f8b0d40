#include "tests/bench/trade_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "gateway/base/clock.h"
#include "gateway/core/core.h"
#include "gateway/ledger/ledger.h"
#include "telemetry/log.h"
#include "tests/bench/estimate_figures.h"
#include "tests/bench/fork_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/sweep_figures.h"
#include "tests/gateway/support.h"
#include "tests/sim/fleet.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

using gateway::Charge;
using gateway::kNsPerMs;
using gateway::LeasedDevice;
using gateway::Ledger;
using gateway::MicroUsd;
using gateway::MonoTime;
using gateway::TenantId;
using Clock = std::chrono::steady_clock;

constexpr MicroUsd kPrice{2'000'000};

LeasedDevice DeviceOf(uint64_t session) { return {{{7, session}, 1}, 0}; }

Charge ChargeOf(uint64_t session, TenantId tenant, int64_t from_ms, int64_t to_ms) {
  return {.device = DeviceOf(session),
          .tenant = tenant,
          .price_per_hour = kPrice,
          .from_ms = from_ms,
          .to_ms = to_ms,
          .amount = {gateway::ChargeAfter(kPrice, to_ms).value -
                     gateway::ChargeAfter(kPrice, from_ms).value}};
}

// A heartbeat of a fleet: 64 accounts, each with four leases.
void PostingFigures() {
  constexpr uint64_t kAccounts = 64, kLeases = 256;
  constexpr int64_t kMsPerPosting = 5000, kRounds = 100;
  test::TempFolder folder;
  const auto ledger = ValueOrDie(Ledger::Open(folder / "books.db"));
  const auto tenant_of = [](uint64_t lease) {
    return TenantId{static_cast<int64_t>(lease % kAccounts) + 1};
  };
  const Clock::time_point holds_begin = Clock::now();
  for (uint64_t lease = 0; lease < kLeases; ++lease)
    OB_CHECK_OK(ledger
                    ->Hold({.lease = DeviceOf(lease).lease,
                            .tenant = tenant_of(lease),
                            .prices_per_hour = {kPrice},
                            .to_ms = kMsPerPosting * kRounds})
                    .status());
  const std::chrono::duration<double> holds = Clock::now() - holds_begin;
  const Clock::time_point begin = Clock::now();
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<Charge> charges;
    for (uint64_t lease = 0; lease < kLeases; ++lease)
      charges.push_back(
          ChargeOf(lease, tenant_of(lease), round * kMsPerPosting, (round + 1) * kMsPerPosting));
    for (const auto& account : ValueOrDie(ledger->PostEach(charges, gateway::WallNow())))
      OB_CHECK_OK(account.status);
  }
  const std::chrono::duration<double> passed = Clock::now() - begin;
  Report("ledger_postings_per_s", static_cast<double>(kLeases * kRounds) / passed.count(), "1/s",
         "", absl::StrFormat("durable; %d accounts in a heartbeat", kAccounts));
  const Clock::time_point audit_begin = Clock::now();
  const gateway::VerifyReport audit = ValueOrDie(ledger->Verify());
  const std::chrono::duration<double> audited = Clock::now() - audit_begin;
  Report("audit_entries_per_s", static_cast<double>(audit.entries) / audited.count(), "1/s", "",
         absl::StrFormat("%d entries, everything computed anew", audit.entries));
  Report("ledger_holds_per_s", static_cast<double>(kLeases) / holds.count(), "1/s", "",
         "durable, each in a transaction of its own");
}

// With all checks after every event, money included (tests/sim/books.h).
void SimulatorFigure() {
  constexpr int64_t kEvents = 1'000'000;
  int64_t events = 0;
  uint64_t seed = 0;
  telemetry::StartLogging({.level = telemetry::LogLevel::kOff});  // what liars send
  const Clock::time_point begin = Clock::now();
  while (events < kEvents) {
    sim::Fleet fleet(++seed, sim::Planted::kNone);
    OB_CHECK(fleet.Run().empty());
    events += fleet.world().steps();
  }
  const std::chrono::duration<double> passed = Clock::now() - begin;
  telemetry::StopLogging();
  Report("simulated_events_per_s", static_cast<double>(events) / passed.count(), "1/s", "",
         absl::StrFormat("%d worlds with faults; every invariant checked after each event", seed));
}

void ShortLeaseFigure() {
  constexpr int kLeases = 1000;
  constexpr int64_t kLeaseMs = 900;
  gateway::Meter meter;
  int64_t billed_ms = 0;
  for (uint64_t i = 0; i < kLeases; ++i) {
    const MonoTime begin{static_cast<int64_t>(i) * 1000 * kNsPerMs + 123'456};
    OB_CHECK_OK(meter.Grant({DeviceOf(i), TenantId{1}, kPrice, {}}, begin));
    for (const Charge& charge :
         ValueOrDie(meter.Release(DeviceOf(i), {begin.ns + kLeaseMs * kNsPerMs})))
      billed_ms += charge.to_ms - charge.from_ms;
  }
  Report("short_lease_unbilled_ratio",
         1.0 - static_cast<double>(billed_ms) / static_cast<double>(kLeases * kLeaseMs), "", "",
         absl::StrFormat("%d leases of %d ms", kLeases, kLeaseMs));
}

// Prepaid accounts with more leases than money, in a gateway that is restarted; the model counts
// confirmed time for itself.
class Trade {
 public:
  explicit Trade(const std::string& path) : ledger_(ValueOrDie(Ledger::Open(path))) {
    for (int64_t tenant = 1; tenant <= kAccounts; ++tenant) Credit(tenant, 1'000'000);
  }

  void Run(int64_t intervals) {
    for (int64_t i = 0; i < intervals; ++i) {
      now_ms_ += Below(2000);
      if (leases_.size() < kLeases) Begin();
      auto at = leases_.begin();
      std::advance(at, Below(static_cast<int64_t>(leases_.size())));
      Step(at, now_ms_ - (Below(10) == 0 ? Below(3000) : 0));
      if (i % 20'000 == 19'999) Restart();
      if (i % 500 == 0) Credit(1 + Below(kAccounts), 20'000);
    }
    Restart();
    for (int64_t tenant = 1; tenant <= kAccounts; ++tenant) {
      const int64_t left = ValueOrDie(ledger_->Balance(TenantId{tenant})).value;
      overshoot_ += std::max<int64_t>(0, -left);
      error_ += std::abs(credited_[tenant] - due_[tenant] - left);
    }
    OB_CHECK_OK(ledger_->Verify().status());
  }
  int64_t error() const { return error_; }
  int64_t overshoot() const { return overshoot_; }
  int64_t refusals() const { return refusals_; }

 private:
  static constexpr int64_t kAccounts = 20;
  static constexpr size_t kLeases = 100;
  struct Lease {
    int64_t tenant, confirmed_ms, usable_ms = 0, funded_ms = 0;
    bool paused = false;
  };
  using Leases = std::map<uint64_t, Lease>;

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  void Credit(int64_t tenant, int64_t amount) {
    credited_[tenant] += amount;
    OB_CHECK_OK(
        ledger_->Credit({tenant}, {amount}, absl::StrFormat("%d", ++credits_), {}).status());
  }
  int64_t Hold(uint64_t session, int64_t tenant, int64_t to_ms) {
    const auto answer = ValueOrDie(ledger_->Hold({.lease = DeviceOf(session).lease,
                                                  .tenant = {tenant},
                                                  .prices_per_hour = {kPrice},
                                                  .to_ms = to_ms},
                                                 MicroUsd{0}));
    refusals_ += !answer.why.ok();
    return answer.funded_ms;
  }
  void Begin() {
    const uint64_t session = ++sessions_;
    const int64_t tenant = 1 + Below(kAccounts);
    const int64_t funded_ms = Hold(session, tenant, gateway::kHoldMs);
    if (funded_ms == 0) Credit(tenant, 200'000);  // or nothing would run in the end
    leases_[session] = {.tenant = tenant, .confirmed_ms = now_ms_, .funded_ms = funded_ms};
    OB_CHECK_OK(
        meter_->Grant({DeviceOf(session), {tenant}, kPrice, {}, funded_ms}, {now_ms_ * kNsPerMs}));
  }
  void Confirm(Lease& lease, int64_t told_ms) {
    if (told_ms <= lease.confirmed_ms) return;
    if (!lease.paused)
      lease.usable_ms = std::min(lease.usable_ms + told_ms - lease.confirmed_ms, lease.funded_ms);
    lease.confirmed_ms = told_ms;
  }
  void Post(const std::vector<Charge>& charges) {
    const bool twice = Below(5) == 0;  // an answer was lost
    for (int i = 0; i < (twice ? 2 : 1); ++i)
      for (const auto& account : ValueOrDie(ledger_->PostEach(charges, {})))
        OB_CHECK_OK(account.status);
  }
  void Step(Leases::iterator at, int64_t told_ms) {
    auto& [session, lease] = *at;
    const LeasedDevice device = DeviceOf(session);
    const MonoTime told{told_ms * kNsPerMs};
    switch (Below(60)) {
      case 0:
        Confirm(lease, told_ms);
        Post(ValueOrDie(meter_->Release(device, told)));
        return End(at);
      case 1: Post(ValueOrDie(meter_->Lose(device))); return End(at);
      case 2:
        Confirm(lease, told_ms);
        Post(ValueOrDie(meter_->Pause(device, gateway::PauseReason::kReplay, told)));
        lease.paused = true;
        return;
      case 3:
      case 4:
        Confirm(lease, told_ms);
        Post(ValueOrDie(meter_->Resume(device, gateway::PauseReason::kReplay, told)));
        lease.paused = false;
        return;
      default: break;
    }
    Confirm(lease, told_ms);
    Post(ValueOrDie(meter_->Confirm(device, told)));
    if (lease.funded_ms - lease.usable_ms >= gateway::kHoldMs / 2) return;
    lease.funded_ms =
        std::max(lease.funded_ms, Hold(session, lease.tenant, lease.funded_ms + gateway::kHoldMs));
    meter_->Fund(device, lease.funded_ms);
  }
  void End(Leases::iterator at) {
    due_[at->second.tenant] += kPrice.value * at->second.usable_ms / 3'600'000;
    OB_CHECK_OK(ledger_->EndHold(DeviceOf(at->first).lease));
    leases_.erase(at);
  }
  // In order, so that what was confirmed is posted.
  void Restart() {
    while (!leases_.empty()) {
      Post(ValueOrDie(meter_->Lose(DeviceOf(leases_.begin()->first))));
      End(leases_.begin());
    }
    meter_ = std::make_unique<gateway::Meter>();
    OB_CHECK_OK(ledger_->EndAllHolds().status());
  }

  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<gateway::Meter> meter_ = std::make_unique<gateway::Meter>();
  std::mt19937_64 random_{17};
  Leases leases_;
  std::map<int64_t, int64_t> credited_, due_;
  uint64_t sessions_ = 0;
  int64_t now_ms_ = 0, credits_ = 0, error_ = 0, overshoot_ = 0, refusals_ = 0;
};

// Executors that are lost in the middle: what the bill grows by until the point reached before.
int64_t ReplayBilledMs() {
  using namespace gateway;
  constexpr int kLosses = 1000;
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  std::mt19937_64 random(23);
  int64_t billed_ms = 0, now_ns = 1;
  for (int i = 0; i < kLosses; ++i) {
    GatewayCore core(options);
    const SessionId id{1, 1};
    uint64_t done = 0;
    const auto tell = [&](const Event& event, const auto& again) -> void {
      for (const Action& action : core.On(event, {now_ns}))
        if (const auto* hold = std::get_if<TakeHold>(&action))
          again(HoldAnswered{id, hold->number, {hold->request.to_ms, {}}}, again);
        else if (const auto* lease = std::get_if<BeginLease>(&action))
          again(LeaseWritten{lease->lease}, again);
    };
    const auto step = [&](bool advance) {
      now_ns += static_cast<int64_t>(1 + random() % 200) * kNsPerMs;
      if (advance) ++done;
      tell(WorkerHeartbeat{{1}, {id}}, tell);
      tell(SessionProgress{id, true, done}, tell);
      tell(Tick{}, tell);
    };
    tell(WorkerJoined{{1}, "w#", std::vector<DeviceSlot>(1), "w", {}}, tell);
    tell(ClientOpen{{1}, {1}, 1, id, {1, 1}, {}}, tell);
    tell(ExecutorAttached{id, {}}, tell);
    for (uint64_t steps = 50 + random() % 100; steps > 0; --steps) step(true);
    const uint64_t kept = random() % done, reached = done;
    tell(SnapshotKept{id, "root", kept}, tell);
    for (uint64_t steps = random() % 50; steps > 0; --steps) step(false);
    tell(ExecutorGone{id, absl::UnavailableError("killed")}, tell);
    tell(ExecutorAttached{id, {}}, tell);
    const int64_t before_ms = core.BillOf(id).ms;
    // Somewhat faster than before.
    for (done = kept; done < reached;) {
      now_ns += static_cast<int64_t>(random() % 20) * kNsPerMs;
      ++done;
      if (done == reached) break;
      tell(WorkerHeartbeat{{1}, {id}}, tell);
      tell(SessionProgress{id, true, done}, tell);
      tell(Tick{}, tell);
    }
    billed_ms += core.BillOf(id).ms - before_ms;
  }
  return billed_ms;
}

}  // namespace

void TradeFigures() {
  PostingFigures();
  SimulatorFigure();
  ShortLeaseFigure();
  constexpr int64_t kIntervals = 1'000'000;
  // In memory: a disk would take an hour for as many transactions.
  const gateway::test::TempDir folder;
  Trade trade(folder.File("books.db"));
  trade.Run(kIntervals);
  const std::string note =
      absl::StrFormat("%d intervals, %d holds cut short", kIntervals, trade.refusals());
  Report("billing_error_micro_usd", static_cast<double>(trade.error()), "", "", note);
  Report("cap_overshoot_micro_usd", static_cast<double>(trade.overshoot()), "", "", note);
  Report("replay_billed_ms", static_cast<double>(ReplayBilledMs()), "ms", "",
         "1,000 executors that are lost");
  ForkFigures();
  EstimateFigures();
  SweepFigures();
}

}  // namespace outboard::bench
