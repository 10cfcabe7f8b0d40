// Tables of accounts, keys, sessions and leases. Internal to gateway/accounts. Append-only: a
// change is another migration step at the end.
#pragma once

namespace outboard::gateway {

inline constexpr const char* kAccountsSchema[] = {
    R"sql(
CREATE TABLE tenant(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  created_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE api_key(
  id TEXT PRIMARY KEY,
  tenant INTEGER NOT NULL REFERENCES tenant(id),
  name TEXT NOT NULL,
  secret_hash BLOB NOT NULL CHECK(length(secret_hash) = 32),
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  revoked_ms INTEGER
) STRICT;
CREATE INDEX api_key_by_tenant ON api_key(tenant);
)sql",
    // `scopes` holds the bits of Scope; keys from before this step keep all rights. `allowed_from`
    // is a list of ranges with commas; empty: anywhere.
    R"sql(
ALTER TABLE api_key ADD COLUMN scopes INTEGER NOT NULL DEFAULT 15;
ALTER TABLE api_key ADD COLUMN allowed_from TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN used_ms INTEGER;
ALTER TABLE tenant ADD COLUMN suspended_ms INTEGER;
)sql",
    R"sql(
ALTER TABLE tenant ADD COLUMN shares_tuning INTEGER NOT NULL DEFAULT 1
  CHECK(shares_tuning IN (0, 1));
)sql",
};

// `worker` and `end` are text, for people and for routing; `state` holds the numbers of
// SessionRowState. Rows from before the second step have no token hashes, so those sessions cannot
// be resumed.
inline constexpr const char* kSessionsSchema[] = {
    R"sql(
CREATE TABLE session(
  id BLOB PRIMARY KEY CHECK(length(id) = 16),
  tenant INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  worker TEXT NOT NULL,
  state INTEGER NOT NULL CHECK(state BETWEEN 1 AND 4),
  opened_ms INTEGER NOT NULL,
  closed_ms INTEGER,
  CHECK((closed_ms IS NULL) = (state IN (1, 2)))
) STRICT;
CREATE INDEX session_live ON session(opened_ms) WHERE closed_ms IS NULL;
CREATE TABLE lease(
  session BLOB NOT NULL CHECK(length(session) = 16),
  grant_number INTEGER NOT NULL,
  tenant INTEGER NOT NULL,
  devices INTEGER NOT NULL,
  worker TEXT NOT NULL,
  granted_ms INTEGER NOT NULL,
  released_ms INTEGER,
  end TEXT NOT NULL,
  PRIMARY KEY(session, grant_number)
) STRICT;
CREATE INDEX lease_live ON lease(session) WHERE released_ms IS NULL;
)sql",
    R"sql(
ALTER TABLE session ADD COLUMN resume_hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE session ADD COLUMN attach_hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE session ADD COLUMN devices INTEGER NOT NULL DEFAULT 1;
ALTER TABLE session ADD COLUMN recoverable INTEGER NOT NULL DEFAULT 0 CHECK(recoverable IN (0, 1));
ALTER TABLE session ADD COLUMN snapshot_root BLOB NOT NULL DEFAULT x'';
ALTER TABLE session ADD COLUMN snapshot_seq INTEGER NOT NULL DEFAULT 0;
)sql",
    // The usage report reads sessions by the time at which they began, page by page.
    R"sql(
CREATE INDEX session_by_time ON session(opened_ms, id);
CREATE INDEX session_by_tenant ON session(tenant, opened_ms, id);
)sql",
    // It passes over sessions that ended long ago without reading their rows.
    R"sql(
DROP INDEX session_by_time;
DROP INDEX session_by_tenant;
CREATE INDEX session_by_time ON session(opened_ms, id, closed_ms, tenant);
CREATE INDEX session_by_tenant ON session(tenant, opened_ms, id, closed_ms);
)sql",
    // Of each device, since the session's first lease; a gateway with another price keeps it.
    R"sql(
ALTER TABLE session ADD COLUMN price_per_hour INTEGER;
)sql",
    // That its program gave it; of an account's living sessions no two have the same.
    R"sql(
ALTER TABLE session ADD COLUMN name TEXT NOT NULL DEFAULT '';
)sql",
    // The class that these prices are of, and those of states in which the session does not run; a
    // NULL price_held: as it runs. Of a lease, its state by the numbers of UseState, and whose key
    // and which class it was.
    R"sql(
ALTER TABLE session ADD COLUMN price_class TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN price_held INTEGER;
ALTER TABLE session ADD COLUMN price_parked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN price_stored INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN use INTEGER NOT NULL DEFAULT 0 CHECK(use BETWEEN 0 AND 3);
ALTER TABLE lease ADD COLUMN key_id TEXT NOT NULL DEFAULT '';
ALTER TABLE lease ADD COLUMN price_class TEXT NOT NULL DEFAULT '';
)sql",
    // Of a session on several devices: how its arrays lie, a GroupState (proto/groups.proto).
    R"sql(
ALTER TABLE session ADD COLUMN group_state BLOB NOT NULL DEFAULT x'';
)sql",
};

}  // namespace outboard::gateway
