#include "gateway/blobs/names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/blobs/limits.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE stored_name(
  tenant INTEGER NOT NULL,
  name TEXT NOT NULL,
  manifest BLOB NOT NULL CHECK(length(manifest) = 32),
  size_bytes INTEGER NOT NULL,
  entries INTEGER NOT NULL,
  written_ms INTEGER NOT NULL,
  pinned INTEGER NOT NULL CHECK(pinned IN (0, 1)),
  PRIMARY KEY(tenant, name)
) STRICT, WITHOUT ROWID;
)sql",
    // A row is replaced by ON CONFLICT DO UPDATE, never by REPLACE, which would not call the
    // trigger of the row that goes.
    R"sql(
CREATE TABLE stored_name_count(tenant INTEGER PRIMARY KEY, names INTEGER NOT NULL) STRICT;
INSERT INTO stored_name_count SELECT tenant, COUNT(*) FROM stored_name GROUP BY tenant;
CREATE TRIGGER stored_name_added AFTER INSERT ON stored_name
  BEGIN INSERT INTO stored_name_count VALUES(NEW.tenant, 1)
    ON CONFLICT(tenant) DO UPDATE SET names = names + 1; END;
CREATE TRIGGER stored_name_removed AFTER DELETE ON stored_name
  BEGIN UPDATE stored_name_count SET names = names - 1 WHERE tenant = OLD.tenant; END;
)sql",
};

constexpr char kColumns[] =
    "SELECT tenant, name, manifest, size_bytes, entries, written_ms, pinned FROM stored_name ";

absl::StatusOr<NameRow> ReadRow(const Statement& row) {
  NameRow read{.name = std::string(row.Text(1)),
               .size_bytes = static_cast<uint64_t>(row.Int(3)),
               .entries = static_cast<uint32_t>(row.Int(4)),
               .written_at = WallTime{row.Int(5)},
               .pinned = row.Int(6) != 0};
  const std::string_view manifest = row.Blob(2);
  if (manifest.size() != read.manifest.size())
    return absl::DataLossError("names: a row's manifest is damaged");
  std::copy(manifest.begin(), manifest.end(), read.manifest.begin());
  return read;
}

absl::StatusOr<NameRow> FindRow(Database& db, TenantId tenant, std::string_view name) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare(std::string(kColumns) + "WHERE tenant = ? AND name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, tenant.value).BindText(2, name).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("nothing is stored as ", std::string(name)));
  return ReadRow(query);
}

absl::Status Pinned(std::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(name), " is pinned; `outboard store unpin ", std::string(name), "` lets it go"));
}

absl::StatusOr<uint64_t> CountRows(Database& db, TenantId tenant) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT names FROM stored_name_count WHERE tenant = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, tenant.value).Step());
  return static_cast<uint64_t>(found ? query.Int(0) : 0);
}

}  // namespace

absl::Status CheckName(std::string_view name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' ||
           c == '/';
  });
  if (!name.empty() && name.size() <= kStoreNameBytesMax && letters &&
      name.find("..") == std::string_view::npos && name.front() != '/' && name.back() != '/') {
    return absl::OkStatus();
  }
  // Does not repeat the input, which may be anything.
  return absl::InvalidArgumentError(
      absl::StrCat("a name has 1 to ", kStoreNameBytesMax,
                   " letters, digits and \"._-/\", no \"..\" and no \"/\" at either end"));
}

absl::StatusOr<std::unique_ptr<Names>> Names::Open(const std::string& path,
                                                   const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, options));
  OB_RETURN_IF_ERROR(db->Migrate("names", kSchema));
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> reads, Database::Open(path, options));
  return std::unique_ptr<Names>(new Names(std::move(db), std::move(reads)));
}

absl::StatusOr<NameRow> Names::Find(TenantId tenant, std::string_view name) {
  OB_RETURN_IF_ERROR(CheckName(name));
  absl::MutexLock lock(&reads_mutex_);
  return FindRow(*reads_, tenant, name);
}

absl::StatusOr<std::vector<NameRow>> Names::List(TenantId tenant, std::string_view prefix,
                                                 std::string_view after, size_t limit) {
  absl::MutexLock lock(&reads_mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      reads_->Prepare(std::string(kColumns) +
                                      "WHERE tenant = ? AND name >= ? AND name < ? AND name <> ? "
                                      "ORDER BY name LIMIT ?"));
  // Every character of a name is smaller than the last of ASCII. With one lower bound, a late page
  // does not read those ahead of it.
  query.Bind(1, tenant.value)
      .BindText(2, std::max(prefix, after))
      .BindText(3, absl::StrCat(std::string(prefix), "\x7f"));
  query.BindText(4, after).Bind(5, static_cast<int64_t>(limit));
  std::vector<NameRow> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return rows;
    OB_ASSIGN_OR_RETURN(NameRow row, ReadRow(query));
    rows.push_back(std::move(row));
  }
}

absl::StatusOr<std::vector<std::pair<TenantId, NameRow>>> Names::All() {
  absl::MutexLock lock(&reads_mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, reads_->Prepare(std::string(kColumns)));
  std::vector<std::pair<TenantId, NameRow>> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return rows;
    OB_ASSIGN_OR_RETURN(NameRow row, ReadRow(query));
    rows.emplace_back(TenantId{query.Int(0)}, std::move(row));
  }
}

absl::StatusOr<uint64_t> Names::Count(TenantId tenant) {
  absl::MutexLock lock(&reads_mutex_);
  return CountRows(*reads_, tenant);
}

absl::Status Names::Set(TenantId tenant, const NameRow& row) {
  OB_RETURN_IF_ERROR(CheckName(row.name));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    const absl::StatusOr<NameRow> old = FindRow(*db_, tenant, row.name);
    if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
    if (old.ok() && old->pinned) return Pinned(row.name);
    if (!old.ok()) {
      OB_ASSIGN_OR_RETURN(const uint64_t count, CountRows(*db_, tenant));
      if (count >= kStoreNamesMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat(count, " names are stored; limit ", kStoreNamesMax));
      }
    }
    OB_ASSIGN_OR_RETURN(
        Statement put,
        db_->Prepare("INSERT INTO stored_name VALUES(?, ?, ?, ?, ?, ?, ?) "
                     "ON CONFLICT(tenant, name) DO UPDATE SET manifest = excluded.manifest, "
                     "size_bytes = excluded.size_bytes, entries = excluded.entries, "
                     "written_ms = excluded.written_ms, pinned = excluded.pinned"));
    put.Bind(1, tenant.value).BindText(2, row.name).BindBlob(3, wire::AsBytes(row.manifest));
    put.Bind(4, static_cast<int64_t>(row.size_bytes)).Bind(5, int64_t{row.entries});
    put.Bind(6, row.written_at.unix_ms).Bind(7, int64_t{row.pinned});
    return put.Run();
  });
}

absl::Status Names::Remove(TenantId tenant, std::string_view name) {
  OB_RETURN_IF_ERROR(CheckName(name));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const NameRow row, FindRow(*db_, tenant, name));
    if (row.pinned) return Pinned(name);
    OB_ASSIGN_OR_RETURN(Statement gone,
                        db_->Prepare("DELETE FROM stored_name WHERE tenant = ? AND name = ?"));
    return gone.Bind(1, tenant.value).BindText(2, name).Run();
  });
}

absl::Status Names::Pin(TenantId tenant, std::string_view name, bool pinned) {
  OB_RETURN_IF_ERROR(CheckName(name));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(FindRow(*db_, tenant, name).status());
    OB_ASSIGN_OR_RETURN(
        Statement pin,
        db_->Prepare("UPDATE stored_name SET pinned = ? WHERE tenant = ? AND name = ?"));
    return pin.Bind(1, int64_t{pinned}).Bind(2, tenant.value).BindText(3, name).Run();
  });
}

}  // namespace outboard::gateway
