// Tenants and their API keys, in the same file as the ledger.
//
// A key is `ob_live_<id>_<secret>`: id is 16 hex digits and names the row; secret is 32 random
// bytes as 64 hex digits. The file stores the id and the SHA-256 of the secret's digits (random
// enough to need no slow hash). The key itself is shown once, when it is created, as a Secret.
//
// Threads: any; a mutex inside. Calls read or write the disk. Any number of processes may use the
// file at once, and a revocation by one is seen by the next call of another.
// Errors of every call: those of storage::Database.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/accounts/key_rights.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

inline constexpr std::string_view kKeyPrefix = "ob_live_";

// A string that must not be logged, such as an API key: streams print it as ***, and its bytes are
// wiped when it is destroyed or overwritten.

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret& other);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();

  // Returns the text. This is the only access to it; a reviewer searches for this name.
  std::string_view Reveal() const { return text_; }

  friend std::ostream& operator<<(std::ostream& out, const Secret&) { return out << "***"; }

 private:
  void Wipe();
  std::string text_;
};

struct Tenant {
  TenantId id;
  std::string name;
  WallTime created_at;
  std::optional<WallTime> suspended_at;  // since then none of its keys is accepted
  // What is measured of its kernels without constants may be used by others, and theirs by it.
  bool shares_tuning = true;
};

// The stored part of a key, which may be shown; never the secret.
struct ApiKey {
  std::string id;
  TenantId tenant;
  std::string name;
  WallTime created_at;
  KeyRights rights;
  std::optional<WallTime> used_at;  // to the minute
  std::optional<WallTime> revoked_at;

  // Neither revoked nor expired.
  bool StandsAt(WallTime now) const {
    return !revoked_at.has_value() && (!rights.expires_at.has_value() || *rights.expires_at > now);
  }
};

struct NewApiKey {
  ApiKey key;
  Secret text;  // the whole `ob_live_...`
};

// The tenant that a key authenticates as, and what the key may do. `key_id` may be logged.
struct Identity {
  TenantId tenant;
  std::string key_id;  // empty: no key, of a caller that needs none
  KeyRights rights = {};
  bool shares_tuning = false;  // as Tenant has it
};

class Accounts {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<Accounts>> Open(const std::string& path,
                                                        const storage::OpenOptions& options = {});

  // Names are 1 .. kNameBytesMax bytes of printable ASCII: INVALID_ARGUMENT.
  // ALREADY_EXISTS: the name is taken.
  absl::StatusOr<Tenant> CreateTenant(std::string_view name, WallTime now);
  // Returns the tenant of that name; creates it if there is none.
  absl::StatusOr<Tenant> EnsureTenant(std::string_view name, WallTime now);
  absl::StatusOr<Tenant> FindTenant(std::string_view name);  // NOT_FOUND
  absl::StatusOr<Tenant> GetTenant(TenantId id);             // NOT_FOUND
  absl::StatusOr<std::vector<Tenant>> ListTenants();         // by id

  // A suspended tenant's keys are refused until it is resumed. Idempotent: keeps the time of the
  // first suspension. NOT_FOUND: no tenant of that name.
  absl::Status SuspendTenant(std::string_view name, WallTime now);
  absl::Status ResumeTenant(std::string_view name);
  // For sessions that are opened from now on. NOT_FOUND: no tenant of that name.
  absl::Status SetSharesTuning(std::string_view name, bool shares);

  // NOT_FOUND: no such tenant. INVALID_ARGUMENT: name, no scope, more than kKeyRangesMax ranges, or
  // an expiry that is not in the future. RESOURCE_EXHAUSTED: kKeysPerTenantMax keys stand. Of those
  // that stand no more, only the last kDeadKeysPerTenantMax are remembered.
  absl::StatusOr<NewApiKey> CreateKey(TenantId tenant, std::string_view name, WallTime now,
                                      const KeyRights& rights = {});

  // Errors: UNAUTHENTICATED, with one text for a key that is malformed, unknown or wrong, so that
  // nothing can be guessed, and others for a known key that is revoked or has expired;
  // PERMISSION_DENIED for a known key of a suspended tenant. Secrets are compared in constant time,
  // also for an unknown id. The caller checks the addresses that the key may be used from.
  absl::StatusOr<Identity> Authenticate(std::string_view key, WallTime now);

  // Checks that a key authenticated earlier is still valid; called every few seconds for open
  // calls. Errors: as Authenticate for a right secret.
  absl::Status CheckKey(std::string_view key_id, WallTime now);

  // Remembers that the key was used. A key that is gone is no error.
  absl::Status NoteKeyUse(std::string_view key_id, WallTime now);

  // Idempotent: keeps the time of the first revocation. NOT_FOUND: no such key, or, with `tenant`
  // given, a key of another tenant.
  absl::Status RevokeKey(std::string_view key_id, WallTime now,
                         std::optional<TenantId> tenant = std::nullopt);

  // Returns keys in order of creation; of all tenants if none is given.
  absl::StatusOr<std::vector<ApiKey>> ListKeys(std::optional<TenantId> tenant = std::nullopt);

 private:
  explicit Accounts(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  absl::Status SetSuspended(std::string_view name, std::optional<WallTime> since);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
