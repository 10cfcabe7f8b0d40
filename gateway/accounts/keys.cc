// The API keys of Accounts.
#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random_bytes.h"
#include "base/sha256.h"
#include "gateway/accounts/account_rows.h"
#include "gateway/accounts/accounts.h"
#include "gateway/ledger/limits.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

constexpr size_t kIdBytes = 8;
constexpr size_t kSecretBytes = 32;
constexpr size_t kKeyChars = 8 + 2 * kIdBytes + 1 + 2 * kSecretBytes;
constexpr size_t kHashBytes = 32;

// The same message for every reason, so that a guess learns nothing from it.
absl::Status NotValid() {
  return absl::UnauthenticatedError(
      "the API key is not valid: is it a key of this gateway, and is all of it there?");
}

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

absl::StatusOr<std::string> RandomHex(size_t count) {
  OB_ASSIGN_OR_RETURN(std::string bytes, RandomBytes(count));
  std::string hex = Hex(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return hex;
}

// Hashes the digits, which are the only spelling of the secret.
Sha256Digest HashOf(std::string_view secret_hex) { return Sha256(secret_hex); }

constexpr char kKeyColumns[] =
    "SELECT k.id, k.tenant, k.name, k.created_ms, k.scopes, k.expires_ms, k.allowed_from, "
    "k.used_ms, k.revoked_ms, k.secret_hash, t.suspended_ms, t.shares_tuning "
    "FROM api_key k JOIN tenant t ON t.id = k.tenant ";
constexpr int kHashColumn = 9, kSuspendedColumn = 10, kSharesTuningColumn = 11;

// SQL of keys that stand at the time ?2.
constexpr char kStands[] = "(revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?2))";

absl::StatusOr<ApiKey> ReadKey(const Statement& row) {
  auto from = ParseRanges(row.Text(6));
  // Not as if the key could be used anywhere.
  if (!from.ok()) return absl::DataLossError("accounts: a key's addresses are damaged");
  return ApiKey{.id = std::string(row.Text(0)),
                .tenant = TenantId{row.Int(1)},
                .name = std::string(row.Text(2)),
                .created_at = WallTime{row.Int(3)},
                .rights = {.scopes = Scopes::FromBits(row.Int(4)),
                           .expires_at = OptionalTime(row, 5),
                           .from = *std::move(from)},
                .used_at = OptionalTime(row, 7),
                .revoked_at = OptionalTime(row, 8)};
}

// Why a key is refused whose secret the caller has; or OK. `row` is of kKeyColumns.
absl::Status CheckStands(const ApiKey& key, const Statement& row, WallTime now) {
  if (key.revoked_at.has_value()) {
    return absl::UnauthenticatedError(
        "the API key is not valid any more: it was revoked; use another (made by `outboard key "
        "create`)");
  }
  if (!key.StandsAt(now)) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the API key is not valid any more: it expired at ", ToString(*key.rights.expires_at),
        "; use another (made by `outboard key create`)"));
  }
  if (!row.IsNull(kSuspendedColumn)) {
    return absl::PermissionDeniedError(
        "this account is suspended: ask the gateway's operator (`outboard account resume`)");
  }
  return absl::OkStatus();
}

absl::Status CheckRights(const KeyRights& rights, WallTime now) {
  if (rights.scopes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key needs a scope: ", Scopes::All().ToString()));
  }
  if (rights.expires_at.has_value() && *rights.expires_at <= now)
    return absl::InvalidArgumentError("a key's expiry must be in the future");
  if (rights.from.size() > kKeyRangesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a key has at most ", kKeyRangesMax,
                                                   " ranges of addresses, this one ",
                                                   rights.from.size()));
  }
  return absl::OkStatus();
}

// Keys that stand count against the quota. Of the others the oldest go, so that making and revoking
// fills no disk.
absl::Status MakeRoom(Database& db, TenantId tenant, WallTime now) {
  OB_ASSIGN_OR_RETURN(
      Statement count,
      db.Prepare(absl::StrCat("SELECT COUNT(*) FROM api_key WHERE tenant = ?1 AND ", kStands)));
  OB_ASSIGN_OR_RETURN(const bool counted, count.Bind(1, tenant.value).Bind(2, now.unix_ms).Step());
  if (counted && count.Int(0) >= static_cast<int64_t>(kKeysPerTenantMax)) {
    return absl::ResourceExhaustedError(absl::StrCat("an account has at most ", kKeysPerTenantMax,
                                                     " keys that stand; revoke one first"));
  }
  OB_ASSIGN_OR_RETURN(
      Statement forget,
      db.Prepare(absl::StrCat("DELETE FROM api_key WHERE rowid IN (SELECT rowid FROM api_key "
                              "WHERE tenant = ?1 AND NOT ",
                              kStands, " ORDER BY rowid DESC LIMIT -1 OFFSET ?3)")));
  return forget.Bind(1, tenant.value)
      .Bind(2, now.unix_ms)
      .Bind(3, static_cast<int64_t>(kDeadKeysPerTenantMax))
      .Run();
}

}  // namespace

absl::StatusOr<NewApiKey> Accounts::CreateKey(TenantId tenant, std::string_view name, WallTime now,
                                              const KeyRights& rights) {
  OB_RETURN_IF_ERROR(CheckAccountName("key", name));
  OB_RETURN_IF_ERROR(CheckRights(rights, now));
  OB_ASSIGN_OR_RETURN(const std::string id, RandomHex(kIdBytes));
  OB_ASSIGN_OR_RETURN(std::string secret_text, RandomHex(kSecretBytes));
  const Secret secret(std::move(secret_text));

  OB_RETURN_IF_ERROR(GetTenant(tenant).status());
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(MakeRoom(*db_, tenant, now));
    OB_ASSIGN_OR_RETURN(
        Statement insert,
        db_->Prepare("INSERT INTO api_key(id, tenant, name, secret_hash, created_ms, "
                     "scopes, allowed_from, expires_ms) VALUES(?, ?, ?, ?, ?, ?, ?, ?)"));
    const auto hash = HashOf(secret.Reveal());
    insert.BindText(1, id)
        .Bind(2, tenant.value)
        .BindText(3, name)
        .BindBlob(4, std::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()))
        .Bind(5, now.unix_ms)
        .Bind(6, rights.scopes.bits())
        .BindText(7, gateway::ToString(rights.from));
    if (rights.expires_at.has_value()) insert.Bind(8, rights.expires_at->unix_ms);
    return insert.Run();
  }));
  return NewApiKey{
      .key = ApiKey{.id = id,
                    .tenant = tenant,
                    .name = std::string(name),
                    .created_at = now,
                    .rights = rights},
      .text = Secret(absl::StrCat(std::string(kKeyPrefix), id, "_", std::string(secret.Reveal())))};
}

absl::StatusOr<Identity> Accounts::Authenticate(std::string_view key, WallTime now) {
  if (key.size() != kKeyChars || !key.starts_with(kKeyPrefix)) return NotValid();
  const std::string_view id = key.substr(kKeyPrefix.size(), 2 * kIdBytes);
  const std::string_view secret = key.substr(kKeyPrefix.size() + 2 * kIdBytes + 1);
  if (key[kKeyPrefix.size() + 2 * kIdBytes] != '_' || !IsLowerHex(id) || !IsLowerHex(secret))
    return NotValid();
  const auto hash = HashOf(secret);

  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(absl::StrCat(kKeyColumns, "WHERE k.id = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, id).Step());
  const std::string stored(found ? query.Blob(kHashColumn) : std::string_view());
  // Compares an unknown id too, with zeros, so that it takes as long as a known one.
  const std::string compared = stored.size() == kHashBytes ? stored : std::string(kHashBytes, '\0');
  const bool same = CRYPTO_memcmp(compared.data(), hash.data(), kHashBytes) == 0;
  if (!found || stored.size() != kHashBytes || !same) return NotValid();
  OB_ASSIGN_OR_RETURN(ApiKey known, ReadKey(query));
  OB_RETURN_IF_ERROR(CheckStands(known, query, now));
  return Identity{.tenant = known.tenant,
                  .key_id = std::move(known.id),
                  .rights = std::move(known.rights),
                  .shares_tuning = query.Int(kSharesTuningColumn) != 0};
}

absl::Status Accounts::CheckKey(std::string_view key_id, WallTime now) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(absl::StrCat(kKeyColumns, "WHERE k.id = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, key_id).Step());
  if (!found) return NotValid();
  OB_ASSIGN_OR_RETURN(const ApiKey key, ReadKey(query));
  return CheckStands(key, query, now);
}

absl::Status Accounts::NoteKeyUse(std::string_view key_id, WallTime now) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement update,
                      db_->Prepare("UPDATE api_key SET used_ms = max(coalesce(used_ms, 0), ?2) "
                                   "WHERE id = ?1"));
  return update.BindText(1, key_id).Bind(2, now.unix_ms).Run();
}

absl::Status Accounts::RevokeKey(std::string_view key_id, WallTime now,
                                 std::optional<TenantId> tenant) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement update,
                      db_->Prepare("UPDATE api_key SET revoked_ms = coalesce(revoked_ms, ?2) "
                                   "WHERE id = ?1 AND (?3 IS NULL OR tenant = ?3) RETURNING id"));
  update.BindText(1, key_id).Bind(2, now.unix_ms);
  if (tenant.has_value()) update.Bind(3, tenant->value);
  OB_ASSIGN_OR_RETURN(const bool found, update.Step());
  if (!found) return absl::NotFoundError("there is no such key");
  OB_ASSIGN_OR_RETURN(const bool more, update.Step());  // ends the statement and so commits
  OB_CHECK(!more);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ApiKey>> Accounts::ListKeys(std::optional<TenantId> tenant) {
  absl::MutexLock lock(&mutex_);
  // The condition alone lets the index be used: keys of other tenants are not read.
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare(absl::StrCat(kKeyColumns, tenant.has_value() ? "WHERE k.tenant = ? " : "",
                                "ORDER BY k.rowid")));
  if (tenant.has_value()) query.Bind(1, tenant->value);
  std::vector<ApiKey> keys;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return keys;
    OB_ASSIGN_OR_RETURN(ApiKey key, ReadKey(query));
    keys.push_back(std::move(key));
  }
}

}  // namespace outboard::gateway
