#include "gateway/nodes/driver_rows.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE node_driver(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL UNIQUE,
  kernel TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  added_ms INTEGER NOT NULL
) STRICT;
)sql",
};

DriverRow RowOf(Statement& at) {
  return {.digest = std::string(at.Text(0)),
          .kernel = std::string(at.Text(1)),
          .bytes = static_cast<uint64_t>(at.Int(2)),
          .added = WallTime{at.Int(3)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DriverRows>> DriverRows::Open(const std::string& path,
                                                             const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("drivers", kSchema, path, options));
  return std::unique_ptr<DriverRows>(new DriverRows(std::move(db)));
}

absl::Status DriverRows::Add(const DriverRow& driver) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement before, db_->Prepare("DELETE FROM node_driver WHERE digest = ?"));
    OB_RETURN_IF_ERROR(before.BindText(1, driver.digest).Run());
    OB_ASSIGN_OR_RETURN(Statement count, db_->Prepare("SELECT count(*) FROM node_driver"));
    OB_RETURN_IF_ERROR(count.Step().status());
    if (count.Int(0) >= kDriversMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", count.Int(0), " drivers; limit ", kDriversMax));
    OB_ASSIGN_OR_RETURN(Statement write,
                        db_->Prepare("INSERT INTO node_driver(digest, kernel, bytes, added_ms) "
                                     "VALUES(?, ?, ?, ?)"));
    return write.BindText(1, driver.digest)
        .BindText(2, driver.kernel)
        .Bind(3, static_cast<int64_t>(driver.bytes))
        .Bind(4, driver.added.unix_ms)
        .Run();
  });
}

absl::StatusOr<std::vector<DriverRow>> DriverRows::List() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement all,
      db_->Prepare("SELECT digest, kernel, bytes, added_ms FROM node_driver ORDER BY id"));
  std::vector<DriverRow> drivers;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, all.Step());
    if (!more) return drivers;
    drivers.push_back(RowOf(all));
  }
}

absl::StatusOr<std::optional<DriverRow>> DriverRows::ForKernel(std::string_view kernel) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement last,
                      db_->Prepare("SELECT digest, kernel, bytes, added_ms FROM node_driver WHERE "
                                   "kernel = ? ORDER BY id DESC LIMIT 1"));
  last.BindText(1, kernel);
  OB_ASSIGN_OR_RETURN(const bool found, last.Step());
  if (!found) return std::nullopt;
  return RowOf(last);
}

}  // namespace outboard::gateway
