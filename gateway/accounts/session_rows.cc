#include "gateway/accounts/session_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/accounts_schema.h"
#include "gateway/base/limits.h"
#include "gateway/ledger/limits.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr char kSessionColumns[] =
    "SELECT id, tenant, epoch, worker, state, opened_ms, closed_ms, resume_hash, attach_hash, "
    "devices, recoverable, snapshot_root, snapshot_seq, price_per_hour, name, "
    "price_class, price_held, price_parked, price_stored, group_state FROM session ";

bool IsLive(SessionRowState state) {
  return state == SessionRowState::kOpen || state == SessionRowState::kDetached;
}

std::optional<WallTime> OptionalTime(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional<WallTime>(WallTime{row.Int(column)});
}

std::optional<MicroUsd> OptionalPrice(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional<MicroUsd>(MicroUsd{row.Int(column)});
}

absl::StatusOr<SessionRow> ReadSession(const Statement& row) {
  const std::optional<SessionId> session = SessionId::FromBytes(row.Blob(0));
  if (!session.has_value()) return absl::DataLossError("sessions: a row's name is damaged");
  return SessionRow{.session = *session,
                    .tenant = TenantId{row.Int(1)},
                    .epoch = static_cast<uint64_t>(row.Int(2)),
                    .worker = std::string(row.Text(3)),
                    .state = static_cast<SessionRowState>(row.Int(4)),
                    .opened_at = WallTime{row.Int(5)},
                    .closed_at = OptionalTime(row, 6),
                    .resume_hash = std::string(row.Blob(7)),
                    .attach_hash = std::string(row.Blob(8)),
                    .devices = static_cast<uint32_t>(row.Int(9)),
                    .recoverable = row.Int(10) != 0,
                    .snapshot_root = std::string(row.Blob(11)),
                    .snapshot_seq = static_cast<uint64_t>(row.Int(12)),
                    .price_per_hour = OptionalPrice(row, 13),
                    .name = std::string(row.Text(14)),
                    .price_class = std::string(row.Text(15)),
                    .idle_prices = {.held = OptionalPrice(row, 16),
                                    .parked = MicroUsd{row.Int(17)},
                                    .stored = MicroUsd{row.Int(18)}},
                    .group_state = std::string(row.Blob(19))};
}

absl::StatusOr<std::optional<SessionRow>> Find(Database& db, const SessionId& session) {
  OB_ASSIGN_OR_RETURN(Statement query, db.Prepare(absl::StrCat(kSessionColumns, "WHERE id = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindBlob(1, session.Bytes()).Step());
  if (!found) return std::optional<SessionRow>();
  OB_ASSIGN_OR_RETURN(SessionRow row, ReadSession(query));
  return std::optional<SessionRow>(std::move(row));
}

// A name, the number of its join, and what is kept of its identity.
constexpr size_t kWorkerBytesMax = 160;

absl::Status CheckText(std::string_view what, std::string_view text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sessions: ", std::string(what), " has ",
                                                 text.size(), " bytes, ", most, " are allowed"));
}

absl::Status CheckRow(const SessionRow& row) {
  if (row.tenant.value <= 0) return absl::InvalidArgumentError("sessions: a row needs an account");
  constexpr auto kMost = static_cast<uint64_t>(INT64_MAX);
  if (row.epoch > kMost || row.snapshot_seq > kMost)
    return absl::InvalidArgumentError("sessions: a number above 2^63");
  if (row.state < SessionRowState::kOpen || row.state > SessionRowState::kLost) {
    return absl::InvalidArgumentError("sessions: no such state");
  }
  if (IsLive(row.state) == row.closed_at.has_value()) {
    return absl::InvalidArgumentError(
        "sessions: closed_at is set exactly when a session has ended");
  }
  OB_RETURN_IF_ERROR(CheckText("its name", row.name, wire::kSessionNameBytesMax));
  OB_RETURN_IF_ERROR(CheckText("the class", row.price_class, kNameBytesMax));
  OB_RETURN_IF_ERROR(CheckText("its arrays", row.group_state, kGroupStateBytesMax));
  return CheckText("the worker's name", row.worker, kWorkerBytesMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionRows>> SessionRows::Open(
    const std::string& path, const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("sessions", kSessionsSchema, path, options));
  return std::unique_ptr<SessionRows>(new SessionRows(std::move(db)));
}

absl::Status SessionRows::Put(const SessionRow& row) {
  OB_RETURN_IF_ERROR(CheckRow(row));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<SessionRow> known, Find(*db_, row.session));
    if (known.has_value()) {
      if (known->tenant != row.tenant)
        return absl::FailedPreconditionError("sessions: another account's session");
      if (known->epoch > row.epoch) {
        return absl::AbortedError(
            absl::StrCat("sessions: epoch ", row.epoch, " is over, ", known->epoch, " began"));
      }
      if (!IsLive(known->state))
        return absl::FailedPreconditionError("sessions: the session has ended");
    }
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare(
            "INSERT INTO session(id, tenant, epoch, worker, state, opened_ms, closed_ms, "
            "resume_hash, attach_hash, devices, recoverable, snapshot_root, snapshot_seq, "
            "price_per_hour, name, price_class, price_held, price_parked, price_stored, "
            "group_state) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT(id) DO UPDATE SET "
            "epoch = excluded.epoch, worker = excluded.worker, state = excluded.state, "
            "closed_ms = excluded.closed_ms, resume_hash = excluded.resume_hash, "
            "attach_hash = excluded.attach_hash, devices = excluded.devices, recoverable = "
            "excluded.recoverable, snapshot_root = excluded.snapshot_root, snapshot_seq = "
            "excluded.snapshot_seq, price_per_hour = excluded.price_per_hour, price_class = "
            "excluded.price_class, price_held = excluded.price_held, price_parked = "
            "excluded.price_parked, price_stored = excluded.price_stored, "
            "group_state = excluded.group_state"));
    write.BindBlob(1, row.session.Bytes())
        .Bind(2, row.tenant.value)
        .Bind(3, static_cast<int64_t>(row.epoch))
        .BindText(4, row.worker)
        .Bind(5, static_cast<int64_t>(row.state))
        .Bind(6, row.opened_at.unix_ms)
        .BindBlob(8, row.resume_hash)
        .BindBlob(9, row.attach_hash)
        .Bind(10, row.devices)
        .Bind(11, row.recoverable ? 1 : 0)
        .BindBlob(12, row.snapshot_root)
        .Bind(13, static_cast<int64_t>(row.snapshot_seq))
        .BindText(15, row.name)
        .BindText(16, row.price_class)
        .Bind(18, row.idle_prices.parked.value)
        .Bind(19, row.idle_prices.stored.value)
        .BindBlob(20, row.group_state);
    if (row.closed_at.has_value()) write.Bind(7, row.closed_at->unix_ms);
    if (row.price_per_hour.has_value()) write.Bind(14, row.price_per_hour->value);
    if (row.idle_prices.held.has_value()) write.Bind(17, row.idle_prices.held->value);
    return write.Run();
  });
}

absl::StatusOr<SessionRow> SessionRows::Get(const SessionId& session) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(std::optional<SessionRow> row, Find(*db_, session));
  if (!row.has_value()) return absl::NotFoundError("sessions: no such session");
  return *std::move(row);
}

absl::StatusOr<std::vector<SessionRow>> SessionRows::ListLive() {
  absl::MutexLock lock(&mutex_);
  return ReadLive();
}

absl::StatusOr<std::vector<SessionRow>> SessionRows::ReadLive() {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare(absl::StrCat(kSessionColumns,
                                                "WHERE closed_ms IS NULL ORDER BY opened_ms, id")));
  std::vector<SessionRow> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return rows;
    OB_ASSIGN_OR_RETURN(SessionRow row, ReadSession(query));
    rows.push_back(std::move(row));
  }
}

absl::Status SessionRows::EndLeases(WallTime now) {
  OB_ASSIGN_OR_RETURN(Statement leases, db_->Prepare("UPDATE lease SET released_ms = ?, end = ? "
                                                     "WHERE released_ms IS NULL"));
  return leases.Bind(1, now.unix_ms).BindText(2, NameOf(LeaseEnd::kGatewayRestarted)).Run();
}

absl::StatusOr<std::vector<TakenOver>> SessionRows::TakeOver(WallTime now) {
  absl::MutexLock lock(&mutex_);
  std::vector<TakenOver> taken;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(EndLeases(now));
    OB_ASSIGN_OR_RETURN(Statement lose,
                        db_->Prepare("UPDATE session SET state = ?, closed_ms = ? WHERE closed_ms "
                                     "IS NULL AND resume_hash = x''"));
    OB_RETURN_IF_ERROR(
        lose.Bind(1, static_cast<int64_t>(SessionRowState::kLost)).Bind(2, now.unix_ms).Run());
    OB_ASSIGN_OR_RETURN(std::vector<SessionRow> rows, ReadLive());
    for (SessionRow& row : rows) {
      OB_ASSIGN_OR_RETURN(Statement last,
                          db_->Prepare("SELECT grant_number, key_id FROM lease WHERE session = ? "
                                       "ORDER BY grant_number DESC LIMIT 1"));
      OB_ASSIGN_OR_RETURN(const bool found, last.BindBlob(1, row.session.Bytes()).Step());
      taken.push_back({.row = std::move(row)});
      if (!found) continue;
      taken.back().last_grant = static_cast<uint64_t>(last.Int(0));
      taken.back().last_key = last.Text(1);
    }
    return absl::OkStatus();
  }));
  return taken;
}

absl::StatusOr<std::vector<SessionRow>> SessionRows::LoseAllLive(WallTime now,
                                                                 bool but_named) {
  absl::MutexLock lock(&mutex_);
  std::vector<SessionRow> lost;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(EndLeases(now));
    OB_ASSIGN_OR_RETURN(lost, ReadLive());
    const char* which = "";
    if (but_named) {
      which = " AND NOT (name <> '' AND recoverable AND snapshot_root <> x'')";
      std::erase_if(lost, [](const SessionRow& row) {
        return !row.name.empty() && row.recoverable && !row.snapshot_root.empty();
      });
    }
    OB_ASSIGN_OR_RETURN(
        Statement lose,
        db_->Prepare(absl::StrCat(
            "UPDATE session SET state = ?, closed_ms = ? WHERE closed_ms IS NULL", which)));
    return lose.Bind(1, static_cast<int64_t>(SessionRowState::kLost)).Bind(2, now.unix_ms).Run();
  }));
  return lost;
}

absl::StatusOr<uint64_t> SessionRows::GrantLease(const LeaseRow& row) {
  if (row.tenant.value <= 0 || row.devices == 0) {
    return absl::InvalidArgumentError("sessions: a lease needs an account and a device");
  }
  OB_RETURN_IF_ERROR(CheckText("the worker's name", row.worker, kWorkerBytesMax));
  OB_RETURN_IF_ERROR(CheckText("the key's id", row.key_id, kNameBytesMax));
  OB_RETURN_IF_ERROR(CheckText("the class", row.price_class, kNameBytesMax));
  absl::MutexLock lock(&mutex_);
  int64_t grant = 0;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement last,
                        db_->Prepare("SELECT max(grant_number) FROM lease WHERE session = ?"));
    OB_ASSIGN_OR_RETURN(const bool found, last.BindBlob(1, row.lease.session.Bytes()).Step());
    grant = (found ? last.Int(0) : 0) + 1;  // max() of nothing is NULL, read as 0
    OB_ASSIGN_OR_RETURN(
        Statement insert,
        db_->Prepare(
            "INSERT INTO lease(session, grant_number, tenant, devices, worker, granted_ms, end, "
            "use, key_id, price_class) VALUES(?, ?, ?, ?, ?, ?, '', ?, ?, ?)"));
    return insert.BindBlob(1, row.lease.session.Bytes())
        .Bind(2, grant)
        .Bind(3, row.tenant.value)
        .Bind(4, row.devices)
        .BindText(5, row.worker)
        .Bind(6, row.granted_at.unix_ms)
        .Bind(7, static_cast<int64_t>(row.use))
        .BindText(8, row.key_id)
        .BindText(9, row.price_class)
        .Run();
  }));
  return static_cast<uint64_t>(grant);
}

absl::Status SessionRows::EndLease(const LeaseId& lease, LeaseEnd why, WallTime now) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement query,
        db_->Prepare("SELECT released_ms FROM lease WHERE session = ? AND grant_number = ?"));
    OB_ASSIGN_OR_RETURN(
        const bool found,
        query.BindBlob(1, lease.session.Bytes()).Bind(2, static_cast<int64_t>(lease.grant)).Step());
    if (!found) return absl::NotFoundError("sessions: no such lease");
    if (!query.IsNull(0)) return absl::OkStatus();
    OB_ASSIGN_OR_RETURN(Statement update,
                        db_->Prepare("UPDATE lease SET released_ms = ?, end = ? WHERE session = ? "
                                     "AND grant_number = ?"));
    return update.Bind(1, now.unix_ms)
        .BindText(2, NameOf(why))
        .BindBlob(3, lease.session.Bytes())
        .Bind(4, static_cast<int64_t>(lease.grant))
        .Run();
  });
}

absl::StatusOr<std::vector<LeaseRow>> SessionRows::LeasesOf(const SessionId& session) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT grant_number, tenant, devices, worker, granted_ms, released_ms, end, "
                   "use, key_id, price_class FROM lease WHERE session = ? ORDER BY grant_number"));
  query.BindBlob(1, session.Bytes());
  std::vector<LeaseRow> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return rows;
    rows.push_back(LeaseRow{.lease = {session, static_cast<uint64_t>(query.Int(0))},
                            .tenant = TenantId{query.Int(1)},
                            .devices = static_cast<uint32_t>(query.Int(2)),
                            .worker = std::string(query.Text(3)),
                            .granted_at = WallTime{query.Int(4)},
                            .released_at = OptionalTime(query, 5),
                            .end = std::string(query.Text(6)),
                            .use = static_cast<UseState>(query.Int(7)),
                            .key_id = std::string(query.Text(8)),
                            .price_class = std::string(query.Text(9))});
  }
}

absl::StatusOr<SessionTimesPage> SessionRows::ListTimes(const SessionTimesQuery& query) {
  std::string sql =
      "SELECT id, tenant, opened_ms, closed_ms FROM session WHERE (opened_ms, id) > (?1, ?2)";
  if (query.tenant.has_value()) sql += " AND tenant = ?3";
  sql += " ORDER BY opened_ms, id";

  absl::MutexLock lock(&mutex_);
  SessionTimesPage page;
  OB_ASSIGN_OR_RETURN(Statement rows, db_->Prepare(sql));
  rows.Bind(1, query.after.opened_at.unix_ms).BindBlob(2, query.after.session.Bytes());
  if (query.tenant.has_value()) rows.Bind(3, query.tenant->value);
  SessionPlace last = query.after;
  for (int64_t read = 0;; ++read) {
    OB_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    if (read == kSessionsReadMax || page.sessions.size() == query.limit) {
      page.next = last;
      break;
    }
    const std::optional<SessionId> session = SessionId::FromBytes(rows.Blob(0));
    if (!session.has_value()) return absl::DataLossError("sessions: a row's name is damaged");
    last = {WallTime{rows.Int(2)}, *session};
    const std::optional<WallTime> closed_at = OptionalTime(rows, 3);
    if (closed_at.has_value() && *closed_at < query.since) continue;
    page.sessions.push_back(SessionTimes{.session = *session,
                                         .tenant = TenantId{rows.Int(1)},
                                         .opened_at = last.opened_at,
                                         .ended = closed_at.has_value()});
  }
  OB_RETURN_IF_ERROR(AddHeldTimes(query, page.sessions));
  return page;
}

// A lease that a starting gateway ended has that start as its end, however long no gateway ran.
absl::Status SessionRows::AddHeldTimes(const SessionTimesQuery& query,
                                       std::vector<SessionTimes>& sessions) {
  OB_ASSIGN_OR_RETURN(
      Statement held,
      db_->Prepare("SELECT IFNULL(MAX(devices), 0), IFNULL(SUM(CASE WHEN end = ?1 THEN 0 "
                   "ELSE MAX(0, IFNULL(released_ms, ?2) - MAX(granted_ms, ?3)) END), 0), "
                   "IFNULL(MAX(end = ?1 OR IFNULL(released_ms, ?2) IS NULL), 0) "
                   "FROM lease WHERE session = ?4 AND use < 2"));
  for (SessionTimes& session : sessions) {
    held.Reset();
    held.BindText(1, NameOf(LeaseEnd::kGatewayRestarted)).Bind(3, query.since.unix_ms);
    held.BindBlob(4, session.session.Bytes());
    if (query.now.has_value()) held.Bind(2, query.now->unix_ms);
    OB_ASSIGN_OR_RETURN(const bool row, held.Step());
    OB_CHECK(row);  // sums of nothing have one row
    session.devices = static_cast<uint32_t>(held.Int(0));
    session.held_ms = held.Int(1);
    session.end_unknown = held.Int(2) != 0;
  }
  return absl::OkStatus();
}

}  // namespace outboard::gateway
