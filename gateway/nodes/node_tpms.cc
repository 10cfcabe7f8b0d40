#include "gateway/nodes/node_tpms.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    // Of a serial number there is one key at most; several keys may have none yet.
    R"sql(
CREATE TABLE node_tpm(
  endorsement_key TEXT PRIMARY KEY,
  serial TEXT NOT NULL,
  since_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX node_tpm_by_serial ON node_tpm(serial) WHERE serial <> '';
)sql",
};

NodeTpmRow RowOf(const Statement& at) {
  return {.endorsement_key = std::string(at.Text(0)),
          .serial = std::string(at.Text(1)),
          .since = WallTime{at.Int(2)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeTpms>> NodeTpms::Open(const std::string& path,
                                                         const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("node_tpms", kSchema, path, options));
  return std::unique_ptr<NodeTpms>(new NodeTpms(std::move(db)));
}

absl::Status NodeTpms::Bind(std::string_view endorsement_key, std::string_view serial,
                            WallTime now) {
  if (!serial.empty()) OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const auto of_key, FindLocked("endorsement_key", endorsement_key));
    if (of_key.has_value()) {
      if (serial.empty() || of_key->serial == serial) return absl::OkStatus();
      if (!of_key->serial.empty())
        return absl::FailedPreconditionError(
            absl::StrCat("this TPM is node ", of_key->serial,
                         "'s; if it was moved, `outboard node rm ", of_key->serial, "` first"));
    }
    if (!serial.empty()) {
      OB_ASSIGN_OR_RETURN(const auto of_serial, FindLocked("serial", serial));
      if (of_serial.has_value())
        return absl::FailedPreconditionError(absl::StrCat(
            "node ", of_serial->serial, " has the TPM ", of_serial->endorsement_key,
            "; if it was replaced, `outboard node rm ", of_serial->serial, "` first"));
    }
    OB_ASSIGN_OR_RETURN(Statement count, db_->Prepare("SELECT count(*) FROM node_tpm"));
    OB_RETURN_IF_ERROR(count.Step().status());
    if (!of_key.has_value() && count.Int(0) >= kNodeTpmsMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", count.Int(0), " TPMs; limit ", kNodeTpmsMax));
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO node_tpm(endorsement_key, serial, since_ms) VALUES(?, ?, ?) ON "
                     "CONFLICT(endorsement_key) DO UPDATE SET serial = excluded.serial"));
    return write.BindText(1, endorsement_key).BindText(2, serial).Bind(3, now.unix_ms).Run();
  });
}

absl::StatusOr<std::optional<NodeTpmRow>> NodeTpms::FindLocked(std::string_view column,
                                                               std::string_view value) {
  const std::string sql = "SELECT endorsement_key, serial, since_ms FROM node_tpm WHERE " +
                          std::string(column) + " = ?";
  OB_ASSIGN_OR_RETURN(Statement find, db_->Prepare(sql));
  find.BindText(1, value);
  OB_ASSIGN_OR_RETURN(const bool found, find.Step());
  if (!found) return std::nullopt;
  return RowOf(find);
}

absl::StatusOr<std::optional<NodeTpmRow>> NodeTpms::Find(std::string_view endorsement_key) {
  absl::MutexLock lock(&mutex_);
  return FindLocked("endorsement_key", endorsement_key);
}

absl::StatusOr<std::optional<NodeTpmRow>> NodeTpms::OfSerial(std::string_view serial) {
  absl::MutexLock lock(&mutex_);
  return FindLocked("serial", serial);
}

absl::StatusOr<std::vector<NodeTpmRow>> NodeTpms::List() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement all,
                      db_->Prepare("SELECT endorsement_key, serial, since_ms FROM node_tpm ORDER "
                                   "BY endorsement_key"));
  std::vector<NodeTpmRow> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, all.Step());
    if (!more) return rows;
    rows.push_back(RowOf(all));
  }
}

absl::Status NodeTpms::Remove(std::string_view serial_or_key) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement remove,
                      db_->Prepare("DELETE FROM node_tpm WHERE (serial = ? AND serial <> '') OR "
                                   "endorsement_key = ? RETURNING 1"));
  remove.BindText(1, serial_or_key).BindText(2, serial_or_key);
  bool found = false;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool one, remove.Step());
    if (!one) break;
    found = true;
  }
  if (found) return absl::OkStatus();
  return absl::NotFoundError("no TPM of that node; `outboard node ls` lists them");
}

}  // namespace outboard::gateway
