// Opening and posting. L1 to L10 are in the header; each is ensured here:
//   L1, L4  checked before the transaction (entry.cc)
//   L2, L3  Appender::Place, under the write lock, so that no other process posts in between
//   L5, L7  Appender::Append and Finish
//   L6      Appender::AddToBalance
//   L8      one transaction for each call, synchronous=FULL
//   L9      a trigger (ledger_schema.h)
//   L10     HeldCharges and Ledger::Hold (ledger_holds.cc)
#include "gateway/ledger/ledger.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failpoint.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/held_charges.h"
#include "gateway/ledger/ledger_schema.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("ledger: ", std::string(what)));
}

// Appends entries to the ledger within one write transaction.
class Appender {
 public:
  static absl::StatusOr<Appender> Create(Database& db) {
    OB_ASSIGN_OR_RETURN(Statement head,
                        db.Prepare("SELECT number, at_ms, hash FROM ledger_head WHERE id = 1"));
    OB_ASSIGN_OR_RETURN(const bool found, head.Step());
    if (!found || head.Blob(2).size() != kHashBytes) return Damaged("there is no head");
    OB_ASSIGN_OR_RETURN(Statement by_key,
                        db.Prepare("SELECT number, body_hash FROM ledger_entry WHERE key = ?"));
    OB_ASSIGN_OR_RETURN(
        Statement last_range,
        db.Prepare(
            "SELECT tenant, price_per_hour, granted_ms, unit_ms * to_s, use FROM ledger_entry "
            "WHERE session = ? AND grant_number = ? AND device = ? "
            "ORDER BY from_s DESC LIMIT 1"));
    OB_ASSIGN_OR_RETURN(Statement add_entry,
                        db.Prepare("INSERT INTO ledger_entry(number, key, at_ms, memo, body_hash, "
                                   "hash, tenant, session, grant_number, "
                                   "device, price_per_hour, granted_ms, from_s, to_s, "
                                   "use, unit_ms) "
                                   "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"));
    OB_ASSIGN_OR_RETURN(
        Statement add_line,
        db.Prepare("INSERT INTO ledger_line(entry, line, account, amount) VALUES(?, ?, ?, ?)"));
    OB_ASSIGN_OR_RETURN(Statement account,
                        db.Prepare("SELECT id, balance FROM ledger_account WHERE name = ?"));
    OB_ASSIGN_OR_RETURN(
        Statement add_account,
        db.Prepare("INSERT INTO ledger_account(name, balance) VALUES(?, ?) RETURNING id"));
    OB_ASSIGN_OR_RETURN(Statement set_balance,
                        db.Prepare("UPDATE ledger_account SET balance = ? WHERE id = ?"));
    OB_ASSIGN_OR_RETURN(
        Statement set_head,
        db.Prepare("UPDATE ledger_head SET number = ?, at_ms = ?, hash = ? WHERE id = 1"));
    OB_ASSIGN_OR_RETURN(HeldCharges held, HeldCharges::Create(db));
    return Appender(Head{head.Int(0), WallTime{head.Int(1)}, std::string(head.Blob(2))},
                    std::move(by_key), std::move(last_range), std::move(add_entry),
                    std::move(add_line), std::move(account), std::move(add_account),
                    std::move(set_balance), std::move(set_head), std::move(held));
  }

  // The end of the chain. Who rolls back puts it back, too.
  struct Head {
    int64_t number;  // of the last entry
    WallTime at;     // its stamp
    std::string hash;
  };
  const Head& head() const { return head_; }
  void SetHead(Head head) { head_ = std::move(head); }

  // Returns the number of `body`: that of the same entry if it was posted before, else the next
  // one.
  absl::StatusOr<Posting> Place(const EntryBody& body, WallTime now) {
    const std::string body_hash = BodyHash(body);
    by_key_.Reset();
    OB_ASSIGN_OR_RETURN(const bool known, by_key_.BindText(1, body.key).Step());
    if (known) {
      if (by_key_.Blob(1) == body_hash) return Posting{.number = by_key_.Int(0), .replayed = true};
      return absl::AlreadyExistsError(
          absl::StrCat("ledger: ", body.key, " was posted with another body"));
    }
    if (body.charge.has_value()) {
      OB_RETURN_IF_ERROR(CheckContinues(*body.charge));
      OB_RETURN_IF_ERROR(held_.Use(*body.charge));
    }
    return Append(body, body_hash, now);
  }

  absl::Status Finish() {
    return set_head_.Bind(1, head_.number)
        .Bind(2, head_.at.unix_ms)
        .BindBlob(3, head_.hash)
        .Run();
  }

 private:
  Appender(Head head, Statement by_key, Statement last_range, Statement add_entry,
           Statement add_line, Statement account, Statement add_account, Statement set_balance,
           Statement set_head, HeldCharges held)
      : head_(std::move(head)),
        by_key_(std::move(by_key)),
        last_range_(std::move(last_range)),
        add_entry_(std::move(add_entry)),
        add_line_(std::move(add_line)),
        account_(std::move(account)),
        add_account_(std::move(add_account)),
        set_balance_(std::move(set_balance)),
        set_head_(std::move(set_head)),
        held_(std::move(held)) {}

  // L3.
  absl::Status CheckContinues(const Charge& charge) {
    const LeasedDevice& device = charge.device;
    last_range_.Reset();
    OB_ASSIGN_OR_RETURN(const bool found, last_range_.BindBlob(1, device.lease.session.Bytes())
                                              .Bind(2, static_cast<int64_t>(device.lease.grant))
                                              .Bind(3, device.device)
                                              .Step());
    const int64_t charged_to_ms = found ? last_range_.Int(3) : 0;
    if (charge.from_ms < charged_to_ms) {
      return absl::AlreadyExistsError(
          absl::StrCat("ledger: milliseconds [", charge.from_ms, ", ", charge.to_ms, ") of device ",
                       device.device, " of session ", device.lease.session.Hex(),
                       " overlap those charged, up to ", charged_to_ms));
    }
    if (charge.from_ms > charged_to_ms) {
      return absl::FailedPreconditionError(
          absl::StrCat("ledger: milliseconds [", charge.from_ms, ", ", charge.to_ms, ") of device ",
                       device.device, " of session ", device.lease.session.Hex(),
                       " leave a gap after those charged, up to ", charged_to_ms));
    }
    if (found && (last_range_.Int(0) != charge.tenant.value ||
                  last_range_.Int(1) != charge.price_per_hour.value ||
                  last_range_.Int(2) != charge.granted_at.unix_ms ||
                  last_range_.Int(4) != static_cast<int64_t>(charge.use))) {
      return absl::FailedPreconditionError(absl::StrCat(
          "ledger: device ", device.device, " of session ", device.lease.session.Hex(),
          " was charged before to another account, at another price, for another grant or state"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Posting> Append(const EntryBody& body, const std::string& body_hash,
                                 WallTime now) {
    head_.number += 1;
    head_.at = std::max(head_.at, now);  // L7
    head_.hash = EntryHash(head_.hash, head_.number, head_.at, body_hash);
    add_entry_.Reset();
    add_entry_.Bind(1, head_.number)
        .BindText(2, body.key)
        .Bind(3, head_.at.unix_ms)
        .BindText(4, body.memo)
        .BindBlob(5, body_hash)
        .BindBlob(6, head_.hash);
    add_entry_.Bind(15, 0);
    if (body.charge.has_value()) {  // otherwise NULL, as Reset left them
      const Charge& charge = *body.charge;
      add_entry_.Bind(7, charge.tenant.value)
          .BindBlob(8, charge.device.lease.session.Bytes())
          .Bind(9, static_cast<int64_t>(charge.device.lease.grant))
          .Bind(10, charge.device.device)
          .Bind(11, charge.price_per_hour.value)
          .Bind(12, charge.granted_at.unix_ms)
          .Bind(13, charge.from_ms)
          .Bind(14, charge.to_ms)
          .Bind(15, static_cast<int64_t>(charge.use));
    }
    OB_RETURN_IF_ERROR(add_entry_.Run());
    PassFailpoint("ledger.entry.numbered");
    for (size_t line = 0; line < body.lines.size(); ++line) {
      OB_ASSIGN_OR_RETURN(const int64_t account, AddToBalance(body.lines[line]));
      add_line_.Reset();
      OB_RETURN_IF_ERROR(add_line_.Bind(1, head_.number)
                             .Bind(2, static_cast<int64_t>(line))
                             .Bind(3, account)
                             .Bind(4, body.lines[line].amount.value)
                             .Run());
      PassFailpoint("ledger.entry.line");
    }
    return Posting{.number = head_.number};
  }

  // L6. Returns the account's row id.
  absl::StatusOr<int64_t> AddToBalance(const LedgerLine& line) {
    account_.Reset();
    OB_ASSIGN_OR_RETURN(const bool found, account_.BindText(1, line.account.name).Step());
    if (!found) {
      add_account_.Reset();
      OB_ASSIGN_OR_RETURN(
          const bool row,
          add_account_.BindText(1, line.account.name).Bind(2, line.amount.value).Step());
      OB_CHECK(row);
      const int64_t id = add_account_.Int(0);
      OB_ASSIGN_OR_RETURN(const bool more, add_account_.Step());
      OB_CHECK(!more);
      return id;
    }
    const int64_t id = account_.Int(0);
    OB_ASSIGN_OR_RETURN(const MicroUsd balance, Add(MicroUsd{account_.Int(1)}, line.amount));
    set_balance_.Reset();
    OB_RETURN_IF_ERROR(set_balance_.Bind(1, balance.value).Bind(2, id).Run());
    PassFailpoint("ledger.entry.balance");
    return id;
  }

  Head head_;
  Statement by_key_, last_range_, add_entry_, add_line_, account_, add_account_, set_balance_,
      set_head_;
  HeldCharges held_;
};

// True for what the ledger says of one account's charges; any other error is of the file.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) ||
         absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
}

// Of a constant statement that is executed often.
absl::Status Run(Database& db, std::string_view sql) {
  OB_ASSIGN_OR_RETURN(Statement statement, db.Prepare(sql));
  return statement.Run();
}

// Posts the charges of one account, all or none, within a transaction. Returns what the ledger
// refuses in `refused`.
absl::Status PostAccount(Database& db, Appender& appender, std::span<const Charge* const> charges,
                         WallTime now, absl::Status& refused) {
  for (const Charge* const charge : charges) {
    refused = CheckCharge(*charge);
    if (!refused.ok()) return absl::OkStatus();
  }
  OB_RETURN_IF_ERROR(Run(db, "SAVEPOINT account"));
  const Appender::Head before = appender.head();
  for (const Charge* const charge : charges) {
    const absl::Status placed = appender.Place(BodyOf(*charge), now).status();
    if (placed.ok()) continue;
    if (!IsRefusal(placed)) return placed;
    refused = placed;
    appender.SetHead(before);
    OB_RETURN_IF_ERROR(db.Execute("ROLLBACK TO account"));
    break;
  }
  PassFailpoint("ledger.account.posted");
  return Run(db, "RELEASE account");
}

// The caller has checked the bodies.
absl::StatusOr<std::vector<Posting>> PostBodies(Database& db, std::span<const EntryBody> bodies,
                                                WallTime now) {
  std::vector<Posting> postings;
  postings.reserve(bodies.size());
  OB_RETURN_IF_ERROR(db.Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Appender appender, Appender::Create(db));
    for (const EntryBody& body : bodies) {
      OB_ASSIGN_OR_RETURN(const Posting posting, appender.Place(body, now));
      postings.push_back(posting);
    }
    return appender.Finish();
  }, "ledger.post"));
  return postings;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path,
                                                     const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, options));
  if (!options.read_only) {
    const absl::Status status = db->Migrate("ledger", kLedgerSchema);
    // On an intact file our SQL is valid, so an error means damage.
    if (absl::IsInternal(status)) return Damaged("the tables are not those of a ledger");
    if (!status.ok()) return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return std::unique_ptr<Ledger>(new Ledger(std::move(db), folder.empty() ? "." : folder,
                                            options.copied_to_memory ? "" : path));
}

absl::StatusOr<std::vector<Posting>> Ledger::Post(std::span<const Charge> charges, WallTime now) {
  if (charges.empty()) return std::vector<Posting>{};
  if (charges.size() > kChargesPerPostMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ledger: ", charges.size(), " charges in one post, ", kChargesPerPostMax, " are allowed"));
  }
  std::vector<EntryBody> bodies;
  bodies.reserve(charges.size());
  for (const Charge& charge : charges) {
    OB_RETURN_IF_ERROR(CheckCharge(charge));
    bodies.push_back(BodyOf(charge));
  }
  absl::MutexLock lock(&mutex_);
  return PostBodies(*db_, bodies, now);
}

absl::StatusOr<std::vector<AccountPosting>> Ledger::PostEach(std::span<const Charge> charges,
                                                             WallTime now) {
  std::vector<AccountPosting> accounts;
  if (charges.empty()) return accounts;
  if (charges.size() > kChargesPerPostMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ledger: ", charges.size(), " charges in one post, ", kChargesPerPostMax, " are allowed"));
  }
  std::map<TenantId, size_t> places;
  std::vector<std::vector<const Charge*>> by_account;
  for (const Charge& charge : charges) {
    const auto [place, is_new] = places.try_emplace(charge.tenant, accounts.size());
    if (is_new) {
      accounts.push_back({charge.tenant, absl::OkStatus()});
      by_account.emplace_back();
    }
    by_account[place->second].push_back(&charge);
  }
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Appender appender, Appender::Create(*db_));
    for (size_t i = 0; i < accounts.size(); ++i)
      OB_RETURN_IF_ERROR(PostAccount(*db_, appender, by_account[i], now, accounts[i].status));
    return appender.Finish();
  }, "ledger.post_each"));
  return accounts;
}

absl::StatusOr<Posting> Ledger::PostTransfer(const Transfer& transfer, WallTime now) {
  OB_RETURN_IF_ERROR(CheckTransfer(transfer));
  const EntryBody body = BodyOf(transfer);
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(const std::vector<Posting> postings, PostBodies(*db_, {&body, 1}, now));
  return postings.front();
}

absl::StatusOr<Posting> Ledger::Credit(TenantId tenant, MicroUsd amount, std::string_view key,
                                       WallTime now) {
  if (amount <= MicroUsd{}) return absl::InvalidArgumentError("a credit is more than nothing");
  OB_RETURN_IF_ERROR(CheckAmount(amount));
  return PostTransfer(Transfer{.key = std::string(key),
                               .memo = "credit",
                               .lines = {{LedgerAccount::Tenant(tenant), amount},
                                         {LedgerAccount::Payments(), -amount}}},
                      now);
}

}  // namespace outboard::gateway
