#include "gateway/accounts/accounts.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/account_rows.h"
#include "gateway/accounts/accounts_schema.h"
#include "gateway/ledger/limits.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

constexpr char kTenantColumns[] =
    "SELECT id, name, created_ms, suspended_ms, shares_tuning FROM tenant ";

Tenant ReadTenant(const Statement& row) {
  return Tenant{.id = TenantId{row.Int(0)},
                .name = std::string(row.Text(1)),
                .created_at = WallTime{row.Int(2)},
                .suspended_at = OptionalTime(row, 3),
                .shares_tuning = row.Int(4) != 0};
}

absl::StatusOr<std::optional<Tenant>> TenantNamed(Database& db, std::string_view name) {
  OB_ASSIGN_OR_RETURN(Statement query, db.Prepare(absl::StrCat(kTenantColumns, "WHERE name = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, name).Step());
  return found ? std::optional<Tenant>(ReadTenant(query)) : std::nullopt;
}

absl::StatusOr<std::optional<Tenant>> TenantWithId(Database& db, TenantId id) {
  OB_ASSIGN_OR_RETURN(Statement query, db.Prepare(absl::StrCat(kTenantColumns, "WHERE id = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, id.value).Step());
  return found ? std::optional<Tenant>(ReadTenant(query)) : std::nullopt;
}

absl::StatusOr<Tenant> AddTenant(Database& db, std::string_view name, WallTime now) {
  OB_ASSIGN_OR_RETURN(Statement insert,
                      db.Prepare("INSERT INTO tenant(name, created_ms) VALUES(?, ?) "
                                 "RETURNING id, name, created_ms, suspended_ms, shares_tuning"));
  OB_ASSIGN_OR_RETURN(const bool row, insert.BindText(1, name).Bind(2, now.unix_ms).Step());
  OB_CHECK(row);
  Tenant tenant = ReadTenant(insert);
  OB_ASSIGN_OR_RETURN(const bool more, insert.Step());
  OB_CHECK(!more);
  return tenant;
}

}  // namespace

absl::Status CheckAccountName(std::string_view what, std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the name of the ", std::string(what),
                                                   " has 1 to ", kNameBytesMax,
                                                   " characters, this one ", name.size()));
  }
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of the ", std::string(what), " is not printable ASCII"));
  }
  return absl::OkStatus();
}

std::optional<WallTime> OptionalTime(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional<WallTime>(WallTime{row.Int(column)});
}

absl::StatusOr<std::unique_ptr<Accounts>> Accounts::Open(const std::string& path,
                                                         const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("accounts", kAccountsSchema, path, options));
  return std::unique_ptr<Accounts>(new Accounts(std::move(db)));
}

absl::StatusOr<Tenant> Accounts::CreateTenant(std::string_view name, WallTime now) {
  OB_RETURN_IF_ERROR(CheckAccountName("account", name));
  absl::MutexLock lock(&mutex_);
  Tenant tenant;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<Tenant> known, TenantNamed(*db_, name));
    if (known.has_value())
      return absl::AlreadyExistsError("an account of that name exists already");
    OB_ASSIGN_OR_RETURN(tenant, AddTenant(*db_, name, now));
    return absl::OkStatus();
  }));
  return tenant;
}

absl::StatusOr<Tenant> Accounts::EnsureTenant(std::string_view name, WallTime now) {
  OB_RETURN_IF_ERROR(CheckAccountName("account", name));
  absl::MutexLock lock(&mutex_);
  Tenant tenant;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(std::optional<Tenant> known, TenantNamed(*db_, name));
    if (known.has_value()) {
      tenant = *std::move(known);
      return absl::OkStatus();
    }
    OB_ASSIGN_OR_RETURN(tenant, AddTenant(*db_, name, now));
    return absl::OkStatus();
  }));
  return tenant;
}

absl::StatusOr<Tenant> Accounts::FindTenant(std::string_view name) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(std::optional<Tenant> tenant, TenantNamed(*db_, name));
  if (!tenant.has_value()) return absl::NotFoundError("there is no account of that name");
  return *std::move(tenant);
}

absl::StatusOr<Tenant> Accounts::GetTenant(TenantId id) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(std::optional<Tenant> tenant, TenantWithId(*db_, id));
  if (!tenant.has_value())
    return absl::NotFoundError(absl::StrCat("there is no account ", id.value));
  return *std::move(tenant);
}

absl::StatusOr<std::vector<Tenant>> Accounts::ListTenants() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(absl::StrCat(kTenantColumns, "ORDER BY id")));
  std::vector<Tenant> tenants;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return tenants;
    tenants.push_back(ReadTenant(query));
  }
}

absl::Status Accounts::SuspendTenant(std::string_view name, WallTime now) {
  return SetSuspended(name, now);
}

absl::Status Accounts::ResumeTenant(std::string_view name) {
  return SetSuspended(name, std::nullopt);
}

absl::Status Accounts::SetSuspended(std::string_view name, std::optional<WallTime> since) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement update,
      db_->Prepare("UPDATE tenant SET suspended_ms = CASE WHEN ?2 IS NULL THEN NULL "
                   "ELSE coalesce(suspended_ms, ?2) END WHERE name = ?1 RETURNING id"));
  update.BindText(1, name);
  if (since.has_value()) update.Bind(2, since->unix_ms);
  OB_ASSIGN_OR_RETURN(const bool found, update.Step());
  if (!found) return absl::NotFoundError("there is no account of that name");
  OB_ASSIGN_OR_RETURN(const bool more, update.Step());  // ends the statement and so commits
  OB_CHECK(!more);
  return absl::OkStatus();
}

absl::Status Accounts::SetSharesTuning(std::string_view name, bool shares) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement update,
      db_->Prepare("UPDATE tenant SET shares_tuning = ?2 WHERE name = ?1 RETURNING id"));
  OB_ASSIGN_OR_RETURN(const bool found, update.BindText(1, name).Bind(2, shares ? 1 : 0).Step());
  if (!found) return absl::NotFoundError("there is no account of that name");
  OB_ASSIGN_OR_RETURN(const bool more, update.Step());  // ends the statement and so commits
  OB_CHECK(!more);
  return absl::OkStatus();
}

// OPENSSL_cleanse is not optimised away, unlike a memset just before an object's end of life.
void Secret::Wipe() {
  OPENSSL_cleanse(text_.data(), text_.size());
  text_.clear();
}

Secret& Secret::operator=(const Secret& other) {
  if (this != &other) {
    Wipe();
    text_ = other.text_;
  }
  return *this;
}

// Moving a short string copies it, so the source's bytes are wiped too.
Secret::Secret(Secret&& other) noexcept : text_(std::move(other.text_)) { other.Wipe(); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    Wipe();
    text_ = std::move(other.text_);
    other.Wipe();
  }
  return *this;
}

Secret::~Secret() { Wipe(); }

}  // namespace outboard::gateway
