// Holds and budgets (L10). Each call is one write transaction, so that what it reads of balances,
// caps and other holds is still so when it writes.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/held_charges.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

std::string NameOf(TenantId tenant) { return absl::StrCat(tenant.value); }

int64_t Number(BudgetScope scope) { return static_cast<int64_t>(scope); }

// What a lease holds so far.
struct Held {
  struct Device {
    MicroUsd price;
    int64_t posted_ms = 0;
  };
  std::vector<Device> devices;
  std::string key_id;
  int64_t funded_ms = 0;
  bool is_new = true;

  // What it costs to hold it up to `ms`, of all devices; more than fits is not wrapped.
  absl::int128 CostTo(int64_t ms) const {
    absl::int128 sum = 0;
    for (const Device& device : devices)
      sum += ChargeAfter(device.price, std::max(ms, device.posted_ms)).value -
             ChargeAfter(device.price, device.posted_ms).value;
    return sum;
  }
};

absl::Status CheckRequest(const HoldRequest& request) {
  if (request.prices_per_hour.empty())
    return absl::InvalidArgumentError("ledger: a hold is of at least one device");
  for (const MicroUsd price : request.prices_per_hour)
    if (const absl::Status sound = CheckPrice(price); !sound.ok())
      return absl::InvalidArgumentError(sound.message());
  if (request.tenant.value <= 0 || request.to_ms <= 0 || request.to_ms > kLeaseMsMax)
    return absl::InvalidArgumentError("ledger: a hold of no lease's time");
  return absl::OkStatus();
}

absl::StatusOr<Held> ReadHeld(Database& db, const HoldRequest& request) {
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db.Prepare("SELECT tenant, key_id, price_per_hour, posted_ms, funded_ms FROM ledger_hold "
                 "WHERE session = ? AND grant_number = ? ORDER BY device"));
  query.BindBlob(1, request.lease.session.Bytes())
      .Bind(2, static_cast<int64_t>(request.lease.grant));
  Held held;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) break;
    if (query.Int(0) != request.tenant.value)
      return absl::InvalidArgumentError("ledger: the lease is another account's");
    held.is_new = false;
    held.key_id = query.Text(1);
    held.devices.push_back({MicroUsd{query.Int(2)}, query.Int(3)});
    held.funded_ms = query.Int(4);
  }
  if (held.is_new) {
    held.key_id = request.key_id;
    for (const MicroUsd price : request.prices_per_hour) held.devices.push_back({price, 0});
  }
  const bool same =
      std::equal(held.devices.begin(), held.devices.end(), request.prices_per_hour.begin(),
                 request.prices_per_hour.end(),
                 [](const Held::Device& device, MicroUsd price) { return device.price == price; });
  if (!same) return absl::InvalidArgumentError("ledger: the lease has other devices or prices");
  return held;
}

absl::StatusOr<SpendBudget> ReadBudget(Database& db, BudgetScope scope, std::string_view name) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT cap, credit_limit, spent, held FROM ledger_budget "
                                 "WHERE scope = ? AND name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, Number(scope)).BindText(2, name).Step());
  SpendBudget budget;
  if (!found) return budget;
  if (!query.IsNull(0)) budget.cap = MicroUsd{query.Int(0)};
  if (!query.IsNull(1)) budget.credit_limit = MicroUsd{query.Int(1)};
  budget.spent = MicroUsd{query.Int(2)};
  budget.held = MicroUsd{query.Int(3)};
  return budget;
}

// What the tightest limit leaves, and the answer of who meets it.
struct Room {
  absl::int128 micro_usd = std::numeric_limits<int64_t>::max();
  absl::Status why;

  void Limit(absl::int128 left, const auto& make_why) {
    if (left >= micro_usd) return;
    micro_usd = left;
    why = make_why();
  }
};

constexpr char kGoOn[] = "; the session's state is kept, and a client that resumes it goes on";

void LimitByCap(const SpendBudget& budget, std::string_view what, std::string_view remedy,
                Room& room) {
  if (!budget.cap.has_value()) return;
  const absl::int128 left =
      absl::int128(budget.cap->value) - budget.spent.value - budget.held.value;
  room.Limit(left, [&] {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the cap of ", std::string(what), " is reached: ", ToString(*budget.cap), ", of which ",
        ToString(budget.spent), " is charged and ", ToString(budget.held),
        " held for running sessions; raise it with `", std::string(remedy), "`", kGoOn));
  });
}

// What a session has cost and holds, of one that had no cap so far.
constexpr char kHeldBySession[] =
    "(SELECT COALESCE(SUM(amount), 0) FROM ledger_hold WHERE session = ?4)";
constexpr char kSpentBySession[] =
    "COALESCE((SELECT session_amount FROM ledger_use WHERE session = ?4 ORDER BY entry DESC LIMIT "
    "1), 0)";

absl::StatusOr<SpendBudget> CountSession(Database& db, const SessionId& session) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare(absl::StrCat("SELECT ", kHeldBySession, ", ", kSpentBySession)));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindBlob(4, session.Bytes()).Step());
  OB_CHECK(found);
  return SpendBudget{.spent = MicroUsd{query.Int(1)}, .held = MicroUsd{query.Int(0)}};
}

absl::StatusOr<Room> RoomFor(Database& db, const HoldRequest& request, const Held& held,
                             MicroUsd default_limit) {
  Room room;
  OB_ASSIGN_OR_RETURN(SpendBudget session,
                      ReadBudget(db, BudgetScope::kSession, request.lease.session.Hex()));
  if (request.is_tentative && request.session_cap.has_value()) {
    // Without a cap so far there may be no row that counts.
    if (!session.cap.has_value()) {
      OB_ASSIGN_OR_RETURN(session, CountSession(db, request.lease.session));
    }
    session.cap = request.session_cap;
  }
  LimitByCap(session, "this session", "CLOUD_MAX_COST", room);
  if (!held.key_id.empty()) {
    OB_ASSIGN_OR_RETURN(const SpendBudget key, ReadBudget(db, BudgetScope::kKey, held.key_id));
    LimitByCap(key, absl::StrCat("the key ", held.key_id),
               absl::StrCat("outboard cap set --key ", held.key_id, " USD"), room);
  }
  OB_ASSIGN_OR_RETURN(const SpendBudget account,
                      ReadBudget(db, BudgetScope::kAccount, NameOf(request.tenant)));
  LimitByCap(account, "the account", "outboard cap set --account NAME USD", room);
  const MicroUsd limit = account.credit_limit.value_or(default_limit);
  if (limit == kNoCreditLimit) return room;
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT balance FROM ledger_account WHERE name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found,
                      query.BindText(1, LedgerAccount::Tenant(request.tenant).name).Step());
  const MicroUsd balance{found ? query.Int(0) : 0};
  room.Limit(absl::int128(balance.value) + limit.value - account.held.value, [&] {
    return absl::FailedPreconditionError(absl::StrCat(
        "the account's credit is used up: its balance is ", ToString(balance), ", of which ",
        ToString(account.held), " is held for running sessions, and its credit limit ",
        ToString(limit), "; ask the operator for credit (`outboard credit add`)", kGoOn));
  });
  return room;
}

// The most milliseconds up to `to_ms` of which the rest costs no more than `room`.
int64_t Affordable(const Held& held, int64_t to_ms, absl::int128 room) {
  const absl::int128 now = held.CostTo(held.funded_ms);
  if (held.CostTo(to_ms) - now <= std::max<absl::int128>(room, 0)) return to_ms;  // as a rule
  int64_t can = held.funded_ms, cannot = to_ms;
  while (cannot - can > 1) {
    const int64_t middle = can + (cannot - can) / 2;
    const absl::int128 more = held.CostTo(middle) - now;
    (more == 0 || more <= room ? can : cannot) = middle;
  }
  return can;
}

absl::Status AddHeld(Database& db, BudgetScope scope, std::string_view name, int64_t more) {
  if (name.empty()) return absl::OkStatus();  // no key
  OB_ASSIGN_OR_RETURN(
      Statement add,
      db.Prepare("UPDATE ledger_budget SET held = held + ? WHERE scope = ? AND name = ?"));
  return add.Bind(1, more).Bind(2, Number(scope)).BindText(3, name).Run();
}

// As a rule it is there: to look takes less than to be about to write.
absl::Status EnsureBudget(Database& db, BudgetScope scope, std::string_view name) {
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db.Prepare("SELECT 1 FROM ledger_budget WHERE scope = ? AND name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, Number(scope)).BindText(2, name).Step());
  if (found) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(Statement add,
                      db.Prepare("INSERT OR IGNORE INTO ledger_budget(scope, name) VALUES(?, ?)"));
  return add.Bind(1, Number(scope)).BindText(2, name).Run();
}

absl::Status WriteHeld(Database& db, const HoldRequest& request, const Held& held,
                       int64_t funded_ms) {
  OB_ASSIGN_OR_RETURN(
      Statement put,
      db.Prepare("INSERT INTO ledger_hold(session, grant_number, device, tenant, key_id, "
                 "price_per_hour, posted_ms, funded_ms, amount) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) "
                 "ON CONFLICT DO UPDATE SET funded_ms = excluded.funded_ms, "
                 "amount = excluded.amount"));
  for (size_t i = 0; i < held.devices.size(); ++i) {
    const Held::Device& device = held.devices[i];
    put.Reset();
    OB_RETURN_IF_ERROR(put.BindBlob(1, request.lease.session.Bytes())
                           .Bind(2, static_cast<int64_t>(request.lease.grant))
                           .Bind(3, static_cast<int64_t>(i))
                           .Bind(4, request.tenant.value)
                           .BindText(5, held.key_id)
                           .Bind(6, device.price.value)
                           .Bind(7, device.posted_ms)
                           .Bind(8, funded_ms)
                           .Bind(9, ChargeAfter(device.price, funded_ms).value -
                                        ChargeAfter(device.price, device.posted_ms).value)
                           .Run());
  }
  const auto more = static_cast<int64_t>(held.CostTo(funded_ms) -
                                         (held.is_new ? 0 : held.CostTo(held.funded_ms)));
  OB_RETURN_IF_ERROR(AddHeld(db, BudgetScope::kAccount, NameOf(request.tenant), more));
  OB_RETURN_IF_ERROR(AddHeld(db, BudgetScope::kKey, held.key_id, more));
  return AddHeld(db, BudgetScope::kSession, request.lease.session.Hex(), more);
}

absl::StatusOr<HoldAnswer> HoldIn(Database& db, const HoldRequest& request, MicroUsd limit) {
  OB_ASSIGN_OR_RETURN(const Held held, ReadHeld(db, request));
  if (held.CostTo(request.to_ms) > kAmountMaxMicroUsd)
    return absl::FailedPreconditionError(
        "what the session's devices cost in a minute is beyond what the books can hold");
  OB_RETURN_IF_ERROR(EnsureBudget(db, BudgetScope::kAccount, NameOf(request.tenant)));
  if (request.session_cap.has_value() && !request.is_tentative) {
    // The cap may come after the session's first hold: it counts what was spent and held before.
    OB_ASSIGN_OR_RETURN(
        Statement cap,
        db.Prepare(absl::StrCat(
            "INSERT INTO ledger_budget(scope, name, cap, held, spent) VALUES(?1, ?2, ?3, ",
            kHeldBySession, ", ", kSpentBySession,
            ") ON CONFLICT DO UPDATE SET cap = excluded.cap")));
    OB_RETURN_IF_ERROR(cap.Bind(1, Number(BudgetScope::kSession))
                           .BindText(2, request.lease.session.Hex())
                           .Bind(3, request.session_cap->value)
                           .BindBlob(4, request.lease.session.Bytes())
                           .Run());
  }
  if (held.funded_ms >= request.to_ms) return HoldAnswer{held.funded_ms, absl::OkStatus()};
  OB_ASSIGN_OR_RETURN(const Room room, RoomFor(db, request, held, limit));
  const int64_t funded_ms = Affordable(held, request.to_ms, room.micro_usd);
  const absl::Status why = funded_ms == request.to_ms ? absl::OkStatus() : room.why;
  if (held.is_new && funded_ms < std::min(request.to_ms, kHoldMsMin)) return HoldAnswer{0, why};
  OB_RETURN_IF_ERROR(WriteHeld(db, request, held, funded_ms));
  return HoldAnswer{funded_ms, why};
}

absl::Status EndHolds(Database& db, const LeaseId& lease) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT tenant, key_id, SUM(amount) FROM ledger_hold "
                                 "WHERE session = ? AND grant_number = ? GROUP BY tenant, key_id"));
  query.BindBlob(1, lease.session.Bytes()).Bind(2, static_cast<int64_t>(lease.grant));
  OB_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return absl::OkStatus();
  const TenantId tenant{query.Int(0)};
  const std::string key_id(query.Text(1));
  const int64_t amount = query.Int(2);
  query.Reset();
  OB_ASSIGN_OR_RETURN(Statement drop,
                      db.Prepare("DELETE FROM ledger_hold WHERE session = ? AND grant_number = ?"));
  OB_RETURN_IF_ERROR(
      drop.BindBlob(1, lease.session.Bytes()).Bind(2, static_cast<int64_t>(lease.grant)).Run());
  OB_RETURN_IF_ERROR(AddHeld(db, BudgetScope::kAccount, NameOf(tenant), -amount));
  OB_RETURN_IF_ERROR(AddHeld(db, BudgetScope::kKey, key_id, -amount));
  return AddHeld(db, BudgetScope::kSession, lease.session.Hex(), -amount);
}

absl::Status CheckBudgetName(BudgetScope scope, std::string_view name) {
  const bool sound = scope == BudgetScope::kAccount
                         ? IsAccountName(absl::StrCat("tenant:", std::string(name)))
                         : !name.empty() && name.size() <= kNameBytesMax;
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError("a budget is of an account, a key or a session");
}

}  // namespace

absl::StatusOr<HeldCharges> HeldCharges::Create(Database& db) {
  OB_ASSIGN_OR_RETURN(
      Statement use,
      db.Prepare("UPDATE ledger_hold SET posted_ms = ?5, amount = amount - ?6 "
                 "WHERE session = ?1 AND grant_number = ?2 AND device = ?3 AND posted_ms = ?4 "
                 "AND funded_ms >= ?5 AND tenant = ?7 AND price_per_hour = ?8 RETURNING key_id"));
  OB_ASSIGN_OR_RETURN(Statement spend,
                      db.Prepare("UPDATE ledger_budget SET held = held - ?3, spent = spent + ?3 "
                                 "WHERE scope = ?1 AND name = ?2"));
  return HeldCharges(std::move(use), std::move(spend));
}

absl::Status HeldCharges::Use(const Charge& charge) {
  const LeaseId& lease = charge.device.lease;
  use_.Reset();
  use_.BindBlob(1, lease.session.Bytes())
      .Bind(2, static_cast<int64_t>(lease.grant))
      .Bind(3, charge.device.device)
      .Bind(4, charge.from_ms)
      .Bind(5, charge.to_ms)
      .Bind(6, charge.amount.value)
      .Bind(7, charge.tenant.value)
      .Bind(8, charge.price_per_hour.value);
  OB_ASSIGN_OR_RETURN(const bool found, use_.Step());
  if (!found)
    return absl::FailedPreconditionError(
        absl::StrCat("ledger: milliseconds [", charge.from_ms, ", ", charge.to_ms, ") of device ",
                     charge.device.device, " of session ", lease.session.Hex(), " are not held"));
  const std::string key_id(use_.Text(0));
  use_.Reset();
  for (const auto& [scope, name] : {std::pair(BudgetScope::kAccount, NameOf(charge.tenant)),
                                    std::pair(BudgetScope::kKey, key_id),
                                    std::pair(BudgetScope::kSession, lease.session.Hex())}) {
    if (name.empty()) continue;
    spend_.Reset();
    OB_RETURN_IF_ERROR(
        spend_.Bind(1, Number(scope)).BindText(2, name).Bind(3, charge.amount.value).Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<HoldAnswer> Ledger::Hold(const HoldRequest& request, MicroUsd credit_limit) {
  OB_RETURN_IF_ERROR(CheckRequest(request));
  absl::MutexLock lock(&mutex_);
  HoldAnswer answer;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(answer, HoldIn(*db_, request, credit_limit));
    return absl::OkStatus();
  }, "ledger.hold"));
  return answer;
}

absl::Status Ledger::EndHold(const LeaseId& lease) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&] { return EndHolds(*db_, lease); },
                          "ledger.end_hold");
}

absl::StatusOr<int64_t> Ledger::EndAllHolds() {
  absl::MutexLock lock(&mutex_);
  int64_t leases = 0;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement count,
                        db_->Prepare("SELECT COUNT(DISTINCT session) FROM ledger_hold"));
    OB_ASSIGN_OR_RETURN(const bool counted, count.Step());
    OB_CHECK(counted);
    leases = count.Int(0);
    count.Reset();
    OB_RETURN_IF_ERROR(db_->Execute("DELETE FROM ledger_hold"));
    return db_->Execute("UPDATE ledger_budget SET held = 0 WHERE held <> 0");
  }, "ledger.end_all_holds"));
  return leases;
}

absl::Status Ledger::SetCap(BudgetScope scope, std::string_view name, std::optional<MicroUsd> cap) {
  OB_RETURN_IF_ERROR(CheckBudgetName(scope, name));
  if (cap.has_value()) {
    OB_RETURN_IF_ERROR(CheckAmount(*cap));
    if (cap->value <= 0) return absl::InvalidArgumentError("a cap is more than nothing");
  }
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(EnsureBudget(*db_, scope, name));
    // A key's or a session's budget that is new has to count what is held already.
    OB_ASSIGN_OR_RETURN(Statement set,
                        db_->Prepare("UPDATE ledger_budget SET cap = ?3, spent = 0, "
                                     "held = CASE scope WHEN 1 THEN held "
                                     "WHEN 2 THEN IFNULL((SELECT SUM(amount) FROM ledger_hold "
                                     "WHERE key_id = ?2), 0) "
                                     "ELSE IFNULL((SELECT SUM(amount) FROM ledger_hold "
                                     "WHERE lower(hex(session)) = ?2), 0) END "
                                     "WHERE scope = ?1 AND name = ?2"));
    set.Bind(1, Number(scope)).BindText(2, name);
    cap.has_value() ? set.Bind(3, cap->value) : set.BindNull(3);
    return set.Run();
  }, "ledger.set_cap");
}

absl::Status Ledger::SetCreditLimit(TenantId tenant, std::optional<MicroUsd> limit) {
  if (tenant.value <= 0) return absl::InvalidArgumentError("there is no such account");
  if (limit.has_value()) {
    OB_RETURN_IF_ERROR(CheckAmount(*limit));
    if (limit->value < 0) return absl::InvalidArgumentError("a credit limit is not below zero");
  }
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(EnsureBudget(*db_, BudgetScope::kAccount, NameOf(tenant)));
    OB_ASSIGN_OR_RETURN(Statement set, db_->Prepare("UPDATE ledger_budget SET credit_limit = ?2 "
                                                    "WHERE scope = 1 AND name = ?1"));
    set.BindText(1, NameOf(tenant));
    limit.has_value() ? set.Bind(2, limit->value) : set.BindNull(2);
    return set.Run();
  }, "ledger.set_credit_limit");
}

absl::StatusOr<SpendBudget> Ledger::BudgetOf(BudgetScope scope, std::string_view name) {
  absl::MutexLock lock(&mutex_);
  return ReadBudget(*db_, scope, name);
}

absl::StatusOr<SpendBudget> Ledger::BudgetOf(TenantId tenant) {
  return BudgetOf(BudgetScope::kAccount, NameOf(tenant));
}

}  // namespace outboard::gateway
