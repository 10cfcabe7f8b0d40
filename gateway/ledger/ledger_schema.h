// The ledger's tables. Internal to gateway/ledger. Append-only: a change is another migration step
// at the end.
#pragma once

namespace outboard::gateway {

// A use entry has its charge in the columns from tenant to to_s, which are NULL in a transfer; its
// amount is that of line 1. Triggers reject statements that would rewrite history by mistake; the
// chain of hashes reveals deliberate changes.
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
};

}  // namespace outboard::gateway
