// The ledger's tables. Internal to gateway/ledger. Append-only: a change is another migration step
// at the end.
//
// A use entry has its charge in the columns from tenant to to_s, which are NULL in a transfer; its
// amount is that of line 1. Triggers reject statements that would rewrite history by mistake; the
// chain of hashes reveals deliberate changes.
#pragma once

#include <optional>

#include "gateway/ledger/meter.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

// The columns of a charge, from `first`: tenant, session, grant_number, device, price_per_hour,
// granted_ms, from_s, to_s, unit_ms, use. Its amount is in the lines. Nothing: it is none.
std::optional<Charge> ChargeFrom(const storage::Statement& row, int first);

inline constexpr const char* kLedgerSchema[] = {
    R"sql(
CREATE TABLE ledger_account(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  balance INTEGER NOT NULL
) STRICT;
CREATE TABLE ledger_entry(
  number INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  at_ms INTEGER NOT NULL,
  memo TEXT NOT NULL,
  tenant INTEGER,
  session BLOB,
  grant_number INTEGER,
  device INTEGER,
  price_per_hour INTEGER,
  granted_ms INTEGER,
  from_s INTEGER,
  to_s INTEGER,
  body_hash BLOB NOT NULL,
  hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX ledger_entry_by_device ON ledger_entry(session, grant_number, device, from_s)
  WHERE session IS NOT NULL;
CREATE INDEX ledger_entry_by_tenant ON ledger_entry(tenant, session) WHERE tenant IS NOT NULL;
CREATE TABLE ledger_line(
  entry INTEGER NOT NULL REFERENCES ledger_entry(number),
  line INTEGER NOT NULL,
  account INTEGER NOT NULL REFERENCES ledger_account(id),
  amount INTEGER NOT NULL,
  PRIMARY KEY(entry, line)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_line_by_account ON ledger_line(account, entry);
CREATE TABLE ledger_head(
  id INTEGER PRIMARY KEY CHECK(id = 1),
  number INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  hash BLOB NOT NULL
) STRICT;
INSERT INTO ledger_head VALUES(1, 0, 0, zeroblob(32));
CREATE TRIGGER ledger_entry_fixed BEFORE UPDATE ON ledger_entry
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_entry_kept BEFORE DELETE ON ledger_entry
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_line_fixed BEFORE UPDATE ON ledger_line
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_line_kept BEFORE DELETE ON ledger_line
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
)sql",
    // The use up to each use entry, so that any sum over a range of entries is the difference of
    // two rows: of all (seconds, amount), of its tenant, and of its session. A trigger adds the row
    // with line 1 of the entry, the revenue's, so that no program posts without it.
    R"sql(
CREATE TABLE ledger_use(
  entry INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  session BLOB NOT NULL,
  seconds INTEGER NOT NULL,
  amount INTEGER NOT NULL,
  tenant_seconds INTEGER NOT NULL,
  tenant_amount INTEGER NOT NULL,
  session_seconds INTEGER NOT NULL,
  session_amount INTEGER NOT NULL
) STRICT;
INSERT INTO ledger_use
  SELECT e.number, e.tenant, e.session,
    SUM(e.to_s - e.from_s) OVER all_of, SUM(l.amount) OVER all_of,
    SUM(e.to_s - e.from_s) OVER of_tenant, SUM(l.amount) OVER of_tenant,
    SUM(e.to_s - e.from_s) OVER of_session, SUM(l.amount) OVER of_session
  FROM ledger_entry e JOIN ledger_line l ON l.entry = e.number AND l.line = 1
  WHERE e.session IS NOT NULL
  WINDOW all_of AS (ORDER BY e.number ROWS UNBOUNDED PRECEDING),
    of_tenant AS (PARTITION BY e.tenant ORDER BY e.number ROWS UNBOUNDED PRECEDING),
    of_session AS (PARTITION BY e.session ORDER BY e.number ROWS UNBOUNDED PRECEDING)
  ORDER BY e.number;
CREATE INDEX ledger_use_by_tenant ON ledger_use(tenant, entry);
CREATE INDEX ledger_use_by_session ON ledger_use(session, entry);
DROP INDEX ledger_entry_by_tenant;
CREATE TRIGGER ledger_use_added AFTER INSERT ON ledger_line WHEN NEW.line = 1
BEGIN
  INSERT INTO ledger_use
    SELECT e.number, e.tenant, e.session,
      IFNULL(a.seconds, 0) + e.to_s - e.from_s,
      IFNULL(a.amount, 0) + NEW.amount,
      IFNULL(t.tenant_seconds, 0) + e.to_s - e.from_s,
      IFNULL(t.tenant_amount, 0) + NEW.amount,
      IFNULL(s.session_seconds, 0) + e.to_s - e.from_s,
      IFNULL(s.session_amount, 0) + NEW.amount
    FROM ledger_entry e
    LEFT JOIN ledger_use a ON a.entry = (SELECT MAX(entry) FROM ledger_use)
    LEFT JOIN ledger_use t
      ON t.entry = (SELECT MAX(entry) FROM ledger_use WHERE tenant = e.tenant)
    LEFT JOIN ledger_use s
      ON s.entry = (SELECT MAX(entry) FROM ledger_use WHERE session = e.session)
    WHERE e.number = NEW.entry AND e.session IS NOT NULL;
END;
CREATE TRIGGER ledger_use_fixed BEFORE UPDATE ON ledger_use
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_use_kept BEFORE DELETE ON ledger_use
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
)sql",
    // Ranges of use in milliseconds. Entries from before this step keep theirs in seconds, which is
    // what their hashes cover; sums are in milliseconds throughout. The columns of a range keep
    // their names, and the unit its default, for a gateway of an older version that still posts.
    R"sql(
DROP TRIGGER ledger_use_added;
DROP TRIGGER ledger_use_fixed;
ALTER TABLE ledger_entry ADD COLUMN unit_ms INTEGER NOT NULL DEFAULT 1000
  CHECK(unit_ms IN (1, 1000));
ALTER TABLE ledger_use RENAME COLUMN seconds TO ms;
ALTER TABLE ledger_use RENAME COLUMN tenant_seconds TO tenant_ms;
ALTER TABLE ledger_use RENAME COLUMN session_seconds TO session_ms;
UPDATE ledger_use SET ms = 1000 * ms, tenant_ms = 1000 * tenant_ms, session_ms = 1000 * session_ms;
CREATE TRIGGER ledger_use_added AFTER INSERT ON ledger_line WHEN NEW.line = 1
BEGIN
  INSERT INTO ledger_use
    SELECT e.number, e.tenant, e.session,
      IFNULL(a.ms, 0) + e.unit_ms * (e.to_s - e.from_s),
      IFNULL(a.amount, 0) + NEW.amount,
      IFNULL(t.tenant_ms, 0) + e.unit_ms * (e.to_s - e.from_s),
      IFNULL(t.tenant_amount, 0) + NEW.amount,
      IFNULL(s.session_ms, 0) + e.unit_ms * (e.to_s - e.from_s),
      IFNULL(s.session_amount, 0) + NEW.amount
    FROM ledger_entry e
    LEFT JOIN ledger_use a ON a.entry = (SELECT MAX(entry) FROM ledger_use)
    LEFT JOIN ledger_use t
      ON t.entry = (SELECT MAX(entry) FROM ledger_use WHERE tenant = e.tenant)
    LEFT JOIN ledger_use s
      ON s.entry = (SELECT MAX(entry) FROM ledger_use WHERE session = e.session)
    WHERE e.number = NEW.entry AND e.session IS NOT NULL;
END;
CREATE TRIGGER ledger_use_fixed BEFORE UPDATE ON ledger_use
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
)sql",
    // Holds and budgets (holds.h). They change with each posting and are no part of the chain of
    // hashes: what was used stands in the entries, and these tables only say what may still be.
    // `scope` has the numbers of BudgetScope; `name` is a tenant's number, a key's id, a session's
    // digits. A NULL cap: none; a NULL credit_limit: the gateway's.
    R"sql(
CREATE TABLE ledger_hold(
  session BLOB NOT NULL,
  grant_number INTEGER NOT NULL,
  device INTEGER NOT NULL,
  tenant INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  price_per_hour INTEGER NOT NULL,
  posted_ms INTEGER NOT NULL,
  funded_ms INTEGER NOT NULL CHECK(funded_ms >= posted_ms),
  amount INTEGER NOT NULL CHECK(amount >= 0),
  PRIMARY KEY(session, grant_number, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_hold_by_tenant ON ledger_hold(tenant);
CREATE TABLE ledger_budget(
  scope INTEGER NOT NULL CHECK(scope IN (1, 2, 3)),
  name TEXT NOT NULL,
  cap INTEGER CHECK(cap > 0),
  credit_limit INTEGER CHECK(credit_limit >= 0),
  spent INTEGER NOT NULL DEFAULT 0,
  held INTEGER NOT NULL DEFAULT 0 CHECK(held >= 0),
  PRIMARY KEY(scope, name)
) STRICT, WITHOUT ROWID;
)sql",
    // The state that an entry charges, by the numbers of UseState. Its time is a device's in the
    // first two.
    R"sql(
DROP TRIGGER ledger_use_added;
ALTER TABLE ledger_entry ADD COLUMN use INTEGER NOT NULL DEFAULT 0 CHECK(use BETWEEN 0 AND 3);
CREATE TRIGGER ledger_use_added AFTER INSERT ON ledger_line WHEN NEW.line = 1
BEGIN
  INSERT INTO ledger_use
    SELECT e.number, e.tenant, e.session,
      IFNULL(a.ms, 0) + (e.use < 2) * e.unit_ms * (e.to_s - e.from_s),
      IFNULL(a.amount, 0) + NEW.amount,
      IFNULL(t.tenant_ms, 0) + (e.use < 2) * e.unit_ms * (e.to_s - e.from_s),
      IFNULL(t.tenant_amount, 0) + NEW.amount,
      IFNULL(s.session_ms, 0) + (e.use < 2) * e.unit_ms * (e.to_s - e.from_s),
      IFNULL(s.session_amount, 0) + NEW.amount
    FROM ledger_entry e
    LEFT JOIN ledger_use a ON a.entry = (SELECT MAX(entry) FROM ledger_use)
    LEFT JOIN ledger_use t
      ON t.entry = (SELECT MAX(entry) FROM ledger_use WHERE tenant = e.tenant)
    LEFT JOIN ledger_use s
      ON s.entry = (SELECT MAX(entry) FROM ledger_use WHERE session = e.session)
    WHERE e.number = NEW.entry AND e.session IS NOT NULL;
END;
)sql",
    // Entries of closed months (ledger_archive.h) keep number, stamp and hashes, tenant, lease
    // number and range; their month's file has the rest. Their keys are "use/#<number>", which
    // nobody posts.
    R"sql(
ALTER TABLE ledger_entry ADD COLUMN archived TEXT;
ALTER TABLE ledger_entry ADD COLUMN archived_amount INTEGER;
CREATE INDEX ledger_entry_archived ON ledger_entry(number) WHERE archived IS NOT NULL;
CREATE TABLE ledger_archived_sum(
  month TEXT NOT NULL,
  account INTEGER NOT NULL REFERENCES ledger_account(id),
  amount INTEGER NOT NULL,
  PRIMARY KEY(month, account)
) STRICT, WITHOUT ROWID;
DROP TRIGGER ledger_entry_fixed;
CREATE TRIGGER ledger_entry_fixed BEFORE UPDATE ON ledger_entry
  WHEN OLD.archived IS NOT NULL OR NEW.archived IS NULL OR NEW.number <> OLD.number
    OR NEW.at_ms <> OLD.at_ms OR NEW.body_hash <> OLD.body_hash OR NEW.hash <> OLD.hash
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
DROP TRIGGER ledger_line_kept;
CREATE TRIGGER ledger_line_kept BEFORE DELETE ON ledger_line
  WHEN NOT EXISTS(SELECT 1 FROM ledger_entry WHERE number = OLD.entry AND archived IS NOT NULL)
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
)sql",
};

}  // namespace outboard::gateway
