#include "gateway/accounts/accounts.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "gateway/accounts/accounts_schema.h"
#include "gateway/ledger/limits.h"

namespace outboard::gateway {

namespace {

using storage::Database;
using storage::Statement;

constexpr std::string_view kKeyPrefix = "ob_live_";
constexpr size_t kIdBytes = 8;
constexpr size_t kSecretBytes = 32;
constexpr size_t kKeyChars = 8 + 2 * kIdBytes + 1 + 2 * kSecretBytes;
constexpr size_t kHashBytes = 32;

// The same message for every reason, so that a guess learns nothing from it.
absl::Status NotValid() { return absl::UnauthenticatedError("the API key is not valid"); }

absl::Status CheckName(std::string_view what, std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a ", std::string(what),
                                                   " has 1 to ", kNameBytesMax,
                                                   " characters, this one ", name.size()));
  }
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of a ", std::string(what), " is printable ASCII"));
  }
  return absl::OkStatus();
}

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

absl::StatusOr<std::string> RandomHex(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return absl::UnavailableError("the system provides no random bytes");
  }
  std::string hex = Hex(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return hex;
}

// Hashes the digits, which are the only spelling of the secret.
Sha256Digest HashOf(std::string_view secret_hex) { return Sha256(secret_hex); }

std::optional<WallTime> OptionalTime(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional<WallTime>(WallTime{row.Int(column)});
}

constexpr char kKeyColumns[] =
    "SELECT id, tenant, name, created_ms, expires_ms, revoked_ms FROM api_key ";

ApiKey ReadKey(const Statement& row) {
  return ApiKey{.id = std::string(row.Text(0)),
                .tenant = TenantId{row.Int(1)},
                .name = std::string(row.Text(2)),
                .created_at = WallTime{row.Int(3)},
                .expires_at = OptionalTime(row, 4),
                .revoked_at = OptionalTime(row, 5)};
}

Tenant ReadTenant(const Statement& row) {
  return Tenant{.id = TenantId{row.Int(0)},
                .name = std::string(row.Text(1)),
                .created_at = WallTime{row.Int(2)}};
}

absl::StatusOr<std::optional<Tenant>> TenantNamed(Database& db, std::string_view name) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT id, name, created_ms FROM tenant WHERE name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, name).Step());
  return found ? std::optional<Tenant>(ReadTenant(query)) : std::nullopt;
}

absl::StatusOr<std::optional<Tenant>> TenantWithId(Database& db, TenantId id) {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db.Prepare("SELECT id, name, created_ms FROM tenant WHERE id = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, id.value).Step());
  return found ? std::optional<Tenant>(ReadTenant(query)) : std::nullopt;
}

absl::StatusOr<Tenant> AddTenant(Database& db, std::string_view name, WallTime now) {
  OB_ASSIGN_OR_RETURN(Statement insert,
                      db.Prepare("INSERT INTO tenant(name, created_ms) VALUES(?, ?) "
                                 "RETURNING id, name, created_ms"));
  OB_ASSIGN_OR_RETURN(const bool row, insert.BindText(1, name).Bind(2, now.unix_ms).Step());
  OB_CHECK(row);
  Tenant tenant = ReadTenant(insert);
  OB_ASSIGN_OR_RETURN(const bool more, insert.Step());
  OB_CHECK(!more);
  return tenant;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Accounts>> Accounts::Open(const std::string& path,
                                                         const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, options));
  if (!options.read_only) OB_RETURN_IF_ERROR(db->Migrate("accounts", kAccountsSchema));
  return std::unique_ptr<Accounts>(new Accounts(std::move(db)));
}

absl::StatusOr<Tenant> Accounts::CreateTenant(std::string_view name, WallTime now) {
  OB_RETURN_IF_ERROR(CheckName("tenant", name));
  absl::MutexLock lock(&mutex_);
  Tenant tenant;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<Tenant> known, TenantNamed(*db_, name));
    if (known.has_value()) return absl::AlreadyExistsError("a tenant of that name exists already");
    OB_ASSIGN_OR_RETURN(tenant, AddTenant(*db_, name, now));
    return absl::OkStatus();
  }));
  return tenant;
}

absl::StatusOr<Tenant> Accounts::EnsureTenant(std::string_view name, WallTime now) {
  OB_RETURN_IF_ERROR(CheckName("tenant", name));
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
  if (!tenant.has_value()) return absl::NotFoundError("there is no tenant of that name");
  return *std::move(tenant);
}

absl::StatusOr<Tenant> Accounts::GetTenant(TenantId id) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(std::optional<Tenant> tenant, TenantWithId(*db_, id));
  if (!tenant.has_value())
    return absl::NotFoundError(absl::StrCat("there is no tenant ", id.value));
  return *std::move(tenant);
}

absl::StatusOr<std::vector<Tenant>> Accounts::ListTenants() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT id, name, created_ms FROM tenant ORDER BY id"));
  std::vector<Tenant> tenants;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return tenants;
    tenants.push_back(ReadTenant(query));
  }
}

absl::StatusOr<NewApiKey> Accounts::CreateKey(TenantId tenant, std::string_view name, WallTime now,
                                              std::optional<WallTime> expires_at) {
  OB_RETURN_IF_ERROR(CheckName("key", name));
  if (expires_at.has_value() && *expires_at <= now) {
    return absl::InvalidArgumentError("a key's expiry must be in the future");
  }
  OB_ASSIGN_OR_RETURN(const std::string id, RandomHex(kIdBytes));
  OB_ASSIGN_OR_RETURN(std::string secret_text, RandomHex(kSecretBytes));
  const Secret secret(std::move(secret_text));

  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<Tenant> owner, TenantWithId(*db_, tenant));
    if (!owner.has_value())
      return absl::NotFoundError(absl::StrCat("there is no tenant ", tenant.value));
    OB_ASSIGN_OR_RETURN(Statement count,
                        db_->Prepare("SELECT COUNT(*) FROM api_key WHERE tenant = ?"));
    OB_ASSIGN_OR_RETURN(const bool counted, count.Bind(1, tenant.value).Step());
    if (counted && count.Int(0) >= static_cast<int64_t>(kKeysPerTenantMax)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a tenant has at most ", kKeysPerTenantMax, " keys"));
    }
    OB_ASSIGN_OR_RETURN(
        Statement insert,
        db_->Prepare("INSERT INTO api_key(id, tenant, name, secret_hash, created_ms, "
                     "expires_ms) VALUES(?, ?, ?, ?, ?, ?)"));
    const auto hash = HashOf(secret.Reveal());
    insert.BindText(1, id)
        .Bind(2, tenant.value)
        .BindText(3, name)
        .BindBlob(4, std::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()))
        .Bind(5, now.unix_ms);
    if (expires_at.has_value()) insert.Bind(6, expires_at->unix_ms);
    return insert.Run();
  }));
  return NewApiKey{
      .key = ApiKey{.id = id,
                    .tenant = tenant,
                    .name = std::string(name),
                    .created_at = now,
                    .expires_at = expires_at},
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
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT tenant, secret_hash, expires_ms, revoked_ms FROM api_key "
                   "WHERE id = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, id).Step());
  const std::string stored(found ? query.Blob(1) : std::string_view());
  // Compares an unknown id too, with zeros, so that it takes as long as a known one.
  const std::string compared = stored.size() == kHashBytes ? stored : std::string(kHashBytes, '\0');
  const bool same = CRYPTO_memcmp(compared.data(), hash.data(), kHashBytes) == 0;
  if (!found || stored.size() != kHashBytes || !same) return NotValid();
  const std::optional<WallTime> expires_at = OptionalTime(query, 2);
  if (OptionalTime(query, 3).has_value() || (expires_at.has_value() && *expires_at <= now))
    return NotValid();
  return Identity{.tenant = TenantId{query.Int(0)}, .key_id = std::string(id)};
}

absl::Status Accounts::CheckKey(std::string_view key_id, WallTime now) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(std::string(kKeyColumns) + "WHERE id = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, key_id).Step());
  if (!found) return NotValid();
  const ApiKey key = ReadKey(query);
  const bool expired = key.expires_at.has_value() && *key.expires_at <= now;
  return key.revoked_at.has_value() || expired ? NotValid() : absl::OkStatus();
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
      db_->Prepare(absl::StrCat(kKeyColumns, tenant.has_value() ? "WHERE tenant = ? " : "",
                                "ORDER BY rowid")));
  if (tenant.has_value()) query.Bind(1, tenant->value);
  std::vector<ApiKey> keys;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return keys;
    keys.push_back(ReadKey(query));
  }
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
