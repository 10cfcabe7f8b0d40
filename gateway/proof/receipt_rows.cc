#include "gateway/proof/receipt_rows.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/use_state.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

// Append-only: a change is another step at the end. `device` counts within the session.
constexpr const char* kReceiptsSchema[] = {
    R"sql(
CREATE TABLE lease_device(
  session BLOB NOT NULL CHECK(length(session) = 16),
  grant_number INTEGER NOT NULL,
  device INTEGER NOT NULL,
  physical TEXT NOT NULL,
  PRIMARY KEY(session, grant_number, device)
) STRICT, WITHOUT ROWID;
CREATE TABLE receipt(
  session BLOB NOT NULL CHECK(length(session) = 16),
  grant_number INTEGER NOT NULL,
  device INTEGER NOT NULL,
  number INTEGER NOT NULL,
  usable_ms INTEGER NOT NULL,
  busy_ms INTEGER NOT NULL,
  physical TEXT NOT NULL,
  key BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY(session, grant_number, device)
) STRICT, WITHOUT ROWID;
)sql",
};

proto::Receipt ReceiptFrom(const Statement& row) {
  proto::Receipt receipt;
  receipt.set_session_id(std::string(row.Blob(0)));
  receipt.set_grant(static_cast<uint64_t>(row.Int(1)));
  receipt.set_device(static_cast<uint32_t>(row.Int(2)));
  receipt.set_number(static_cast<uint64_t>(row.Int(3)));
  receipt.set_usable_ms(static_cast<uint64_t>(row.Int(4)));
  receipt.set_busy_ms(static_cast<uint64_t>(row.Int(5)));
  receipt.set_physical_device(std::string(row.Text(6)));
  receipt.set_key(std::string(row.Blob(7)));
  receipt.set_signature(std::string(row.Blob(8)));
  return receipt;
}

Statement& BindPlace(Statement& statement, const LeaseId& lease, int64_t device) {
  return statement.BindBlob(1, lease.session.Bytes())
      .Bind(2, static_cast<int64_t>(lease.grant))
      .Bind(3, device);
}

absl::Status Conflict(const proto::Receipt& receipt, std::string_view what) {
  return absl::AbortedError(
      absl::StrCat("receipt ", receipt.number(), " of lease ", receipt.grant(), " ",
                   std::string(what)));
}

// RR2 and RR3, against the one before.
absl::Status CheckFollows(const proto::Receipt& before, const proto::Receipt& receipt) {
  if (before.number() == receipt.number() &&
      before.SerializeAsString() != receipt.SerializeAsString())
    return Conflict(receipt, "came before with other content");
  const bool later = receipt.number() > before.number();
  const proto::Receipt &first = later ? before : receipt, &second = later ? receipt : before;
  if (second.usable_ms() < first.usable_ms() || second.busy_ms() < first.busy_ms())
    return Conflict(receipt, "counts less than one before it");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReceiptRows>> ReceiptRows::Open(
    const std::string& path, const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("receipts", kReceiptsSchema, path, options));
  return std::unique_ptr<ReceiptRows>(new ReceiptRows(std::move(db)));
}

absl::Status ReceiptRows::NameDevices(const LeaseId& lease,
                                      std::span<const std::string> physical_devices) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement add,
                        db_->Prepare("INSERT INTO lease_device VALUES(?, ?, ?, ?) "
                                     "ON CONFLICT DO UPDATE SET physical = excluded.physical"));
    for (size_t i = 0; i < physical_devices.size(); ++i) {
      add.Reset();
      OB_RETURN_IF_ERROR(
          BindPlace(add, lease, static_cast<int64_t>(i)).BindText(4, physical_devices[i]).Run());
    }
    return absl::OkStatus();
  }, "receipts.name_devices");
}

absl::StatusOr<std::vector<absl::Status>> ReceiptRows::Keep(
    std::span<const proto::Receipt> receipts) {
  std::vector<absl::Status> kept;
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    kept.clear();
    OB_ASSIGN_OR_RETURN(Statement named,
                        db_->Prepare("SELECT physical FROM lease_device WHERE session = ? AND "
                                     "grant_number = ? AND device = ?"));
    OB_ASSIGN_OR_RETURN(
        Statement find,
        db_->Prepare("SELECT session, grant_number, device, number, usable_ms, busy_ms, physical, "
                     "key, signature FROM receipt "
                     "WHERE session = ? AND grant_number = ? AND device = ?"));
    OB_ASSIGN_OR_RETURN(Statement put, db_->Prepare("INSERT OR REPLACE INTO receipt VALUES"
                                                    "(?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    for (const proto::Receipt& receipt : receipts) {
      const std::optional<SessionId> session = SessionId::FromBytes(receipt.session_id());
      OB_CHECK(session.has_value());
      absl::Status& result = kept.emplace_back();
      const LeaseId lease{*session, receipt.grant()};
      named.Reset();
      OB_ASSIGN_OR_RETURN(const bool is_named,
                          BindPlace(named, lease, receipt.device()).Step());
      if (!is_named || named.Text(0) != receipt.physical_device()) {
        result = absl::PermissionDeniedError(
            absl::StrCat("lease ", receipt.grant(), " is not of this device"));
        continue;
      }
      find.Reset();
      OB_ASSIGN_OR_RETURN(const bool has, BindPlace(find, lease, receipt.device()).Step());
      if (has) {
        const proto::Receipt before = ReceiptFrom(find);
        result = CheckFollows(before, receipt);
        if (!result.ok() || before.number() >= receipt.number()) continue;
      }
      put.Reset();
      OB_RETURN_IF_ERROR(BindPlace(put, lease, receipt.device())
                             .Bind(4, static_cast<int64_t>(receipt.number()))
                             .Bind(5, static_cast<int64_t>(receipt.usable_ms()))
                             .Bind(6, static_cast<int64_t>(receipt.busy_ms()))
                             .BindText(7, receipt.physical_device())
                             .BindBlob(8, receipt.key())
                             .BindBlob(9, receipt.signature())
                             .Run());
    }
    return absl::OkStatus();
  }, "receipts.keep"));
  return kept;
}

absl::StatusOr<std::vector<proto::Receipt>> ReceiptRows::Of(const LeaseId& lease) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT session, grant_number, device, number, usable_ms, busy_ms, physical, "
                   "key, signature FROM receipt "
                   "WHERE session = ? AND grant_number = ? ORDER BY device"));
  query.BindBlob(1, lease.session.Bytes()).Bind(2, static_cast<int64_t>(lease.grant));
  std::vector<proto::Receipt> receipts;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return receipts;
    receipts.push_back(ReceiptFrom(query));
  }
}

absl::StatusOr<int64_t> ReceiptRows::Verify() {
  absl::MutexLock lock(&mutex_);
  int64_t count = 0;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement query,
        db_->Prepare("SELECT session, grant_number, device, number, usable_ms, busy_ms, physical, "
                     "key, signature FROM receipt"));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, query.Step());
      if (!more) return absl::OkStatus();
      const proto::Receipt receipt = ReceiptFrom(query);
      if (!signing::CheckReceipt(receipt).ok())
        return absl::DataLossError(absl::StrCat("receipts: that of lease ", receipt.grant(),
                                                " of session ",
                                                SessionId::FromBytes(receipt.session_id())->Hex(),
                                                " is not what its worker signed"));
      ++count;
    }
  }));
  return count;
}

absl::StatusOr<std::vector<ReceiptShortfall>> ReceiptRows::Shortfalls(size_t most) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT r.session, r.grant_number, r.device, r.physical, r.usable_ms, "
                   "MAX(e.to_s * e.unit_ms) AS charged_ms FROM receipt r JOIN ledger_entry e "
                   "ON e.session = r.session AND e.grant_number = r.grant_number AND "
                   "e.device = r.device WHERE e.use IN (?, ?) "
                   "GROUP BY r.session, r.grant_number, r.device "
                   "HAVING charged_ms > r.usable_ms + ? ORDER BY r.physical LIMIT ?"));
  query.Bind(1, static_cast<int64_t>(UseState::kRun))
      .Bind(2, static_cast<int64_t>(UseState::kHeld))
      .Bind(3, kReceiptSlackMs)
      .Bind(4, static_cast<int64_t>(most));
  std::vector<ReceiptShortfall> all;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return all;
    const std::optional<SessionId> session = SessionId::FromBytes(query.Blob(0));
    OB_CHECK(session.has_value());  // the table checks it
    all.push_back({.device = {{*session, static_cast<uint64_t>(query.Int(1))},
                              static_cast<uint32_t>(query.Int(2))},
                   .physical_device = std::string(query.Text(3)),
                   .charged_ms = query.Int(5),
                   .signed_ms = query.Int(4)});
  }
}

}  // namespace outboard::gateway
