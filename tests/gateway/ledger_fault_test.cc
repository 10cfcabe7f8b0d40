// The books under crashes, damage and company. L1 to L9 are the invariants of ledger.h.
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct Batch {
  std::vector<Charge> charges;
  WallTime now;
};

// Batches that a ledger takes in this order: leases that come and go, each charged in ranges that
// touch.
std::vector<Batch> RandomBatches(Random& random, int count) {
  struct Open {
    LeasedDevice device;
    int64_t tenant, seconds;
    MicroUsd price;
  };
  std::vector<Open> open;
  std::vector<Batch> batches;
  uint64_t grants = 0;
  WallTime now = kNoon;
  for (int i = 0; i < count; ++i) {
    if (open.empty() || random.OneIn(4)) {
      const int64_t session = random.Int(1, 5);
      open.push_back({DeviceOf(static_cast<uint64_t>(session), ++grants,
                               static_cast<uint32_t>(random.Int(0, 2))),
                      session % 3 + 1, 0, MicroUsd{random.Int(0, 5'000'000)}});
    }
    Batch batch;
    for (Open& lease : open) {
      const int64_t to_s = lease.seconds + random.Int(1, 10);
      batch.charges.push_back(
          ChargeFor(lease.device, lease.seconds, to_s, lease.tenant, lease.price));
      lease.seconds = to_s;
    }
    if (random.OneIn(3)) open.erase(open.begin() + random.Int(0, std::ssize(open) - 1));
    now.unix_ms += random.Int(-500, 2000);
    batch.now = now;
    batches.push_back(std::move(batch));
  }
  return batches;
}

// All that a reader of the books sees.
std::string Dump(Ledger& ledger) {
  std::ostringstream out;
  for (int64_t tenant = 0; tenant <= 4; ++tenant) {
    const LedgerAccount account =
        tenant == 0 ? LedgerAccount::Revenue() : LedgerAccount::Tenant(TenantId{tenant});
    const auto balance = ledger.Balance(account);
    const auto rows = ledger.StatementOf(account, 0, 1000);
    if (!balance.ok() || !rows.ok()) return "unreadable";
    out << account.name << " " << balance->value << "\n";
    for (const StatementRow& row : *rows) {
      out << row.number << " " << row.at.unix_ms << " " << row.key << " " << row.from_ms << " "
          << row.to_ms << " " << row.amount.value << "\n";
    }
  }
  const auto usage = ledger.UsageOfAll();
  if (!usage.ok()) return "unreadable";
  out << usage->device_ms << " ms " << usage->amount.value << "\n";
  return out.str();
}

TEST(LedgerProperty, SumsMatchTheClosedFormAndReplaysChangeNothing) {
  Random random;
  TempDir dir;
  const auto ledger = OpenLedger(dir.File("books.db"));
  const std::vector<Batch> batches = RandomBatches(random, 60);
  std::map<LeasedDevice, Charge> last;
  for (const Batch& batch : batches) {
    ASSERT_TRUE(PostHeld(*ledger, batch.charges, batch.now).ok());
    for (const Charge& charge : batch.charges) last[charge.device] = charge;
    if (random.OneIn(5)) {  // an answer was lost
      const Batch& old = batches[random.Int(0, &batch - batches.data())];
      const auto again = PostHeld(*ledger, old.charges, batch.now);
      ASSERT_TRUE(again.ok());
      EXPECT_TRUE(
          std::all_of(again->begin(), again->end(), [](const Posting& p) { return p.replayed; }));
    }
  }
  int64_t ms = 0, due = 0, balances = ledger->Balance(LedgerAccount::Revenue())->value;
  for (const auto& [device, charge] : last) {
    ms += charge.to_ms;
    due += ChargeAfter(charge.price_per_hour, charge.to_ms).value;
  }
  EXPECT_EQ(ledger->UsageOfAll()->device_ms, ms);
  EXPECT_EQ(ledger->UsageOfAll()->amount.value, due);
  for (int64_t tenant = 1; tenant <= 3; ++tenant)
    balances += ledger->Balance(TenantId{tenant})->value;
  EXPECT_EQ(balances, 0);
  EXPECT_TRUE(ledger->Verify().ok());
}

// L8: the file and any beginning of its log, as a crash at that byte leaves them, are a prefix of
// the batches; posting everything again gives the very books that there were.
TEST(LedgerProperty, ACrashAtAnyByteOfTheLogReplaysToTheSame) {
  Random random;
  TempDir dir;
  const std::string path = dir.File("books.db");
  const std::vector<Batch> batches = RandomBatches(random, 12);
  auto ledger = OpenLedger(path);
  std::vector<int64_t> entries_after = {0};
  for (const Batch& batch : batches) {
    ASSERT_TRUE(PostHeld(*ledger, batch.charges, batch.now).ok());
    entries_after.push_back(entries_after.back() + std::ssize(batch.charges));
  }
  const std::string file = ReadFile(path);
  const std::string log = ReadFile(path + "-wal");
  const std::string head = ledger->Verify()->head_hash;
  const std::string dump = Dump(*ledger);
  ASSERT_FALSE(log.empty());

  for (int i = 0; i < 80; ++i) {
    const std::string copy = dir.File("crash" + std::to_string(i) + ".db");
    const int64_t kept = i == 0 ? std::ssize(log) : random.Int(0, std::ssize(log));
    WriteFile(copy, file);
    WriteFile(copy + "-wal", log.substr(0, kept));
    const auto restarted = OpenLedger(copy);
    const auto report = restarted->Verify();
    ASSERT_TRUE(report.ok()) << report.status() << " with " << kept << " bytes of the log";
    EXPECT_NE(std::find(entries_after.begin(), entries_after.end(), report->entries),
              entries_after.end())
        << "half a batch with " << kept << " bytes of the log";
    if (i == 0) {
      EXPECT_EQ(report->entries, entries_after.back());
    }
    for (const Batch& batch : batches)
      ASSERT_TRUE(PostHeld(*restarted, batch.charges, batch.now).ok());
    EXPECT_EQ(restarted->Verify()->head_hash, head);
    EXPECT_EQ(Dump(*restarted), dump);
  }
}

// L8: what was acknowledged by a process that is killed is there.
TEST(LedgerProperty, AKilledProcessLosesNothingAcknowledged) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(pipe_fds[0]);
    const auto ledger = OpenLedger(path);
    for (int64_t i = 0;; ++i) {
      const Charge charges[] = {ChargeFor(DeviceOf(1), i, i + 1),
                                ChargeFor(DeviceOf(1, 1, 1), i, i + 1)};
      if (!PostHeld(*ledger, charges, kNoon).ok() || write(pipe_fds[1], &i, sizeof i) != sizeof i)
        _exit(1);
    }
  }
  close(pipe_fds[1]);
  int64_t acknowledged = -1;
  for (int64_t i = 0; i < 40; ++i)
    ASSERT_EQ(read(pipe_fds[0], &acknowledged, sizeof acknowledged), 8);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  while (read(pipe_fds[0], &acknowledged, sizeof acknowledged) == 8) {
  }
  close(pipe_fds[0]);
  const auto ledger = OpenLedger(path);
  const auto report = ledger->Verify();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GE(report->entries, 2 * (acknowledged + 1));
  EXPECT_LE(report->entries, 2 * (acknowledged + 2));
  EXPECT_EQ(report->entries % 2, 0);
}

// A flipped bit anywhere in the file is reported, or is in a byte that means nothing.
TEST(LedgerProperty, AFlippedBitIsFoundOrHarmless) {
  Random random;
  TempDir dir;
  const std::string path = dir.File("books.db");
  {
    const auto ledger = OpenLedger(path);
    for (const Batch& batch : RandomBatches(random, 15))
      ASSERT_TRUE(PostHeld(*ledger, batch.charges, batch.now).ok());
  }  // closing folds the log into the file
  const std::string file = ReadFile(path);
  const std::string dump = Dump(*OpenLedger(path));
  ASSERT_NE(dump, "unreadable");
  int found = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = file;
    const int64_t at = random.Int(0, std::ssize(file) - 1);
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.Int(0, 7)));
    const std::string copy = dir.File("flip.db");
    std::filesystem::remove(copy + "-wal");
    std::filesystem::remove(copy + "-shm");
    WriteFile(copy, damaged);
    const auto ledger = Ledger::Open(copy);
    if (!ledger.ok() || !(*ledger)->Verify().ok()) {
      ++found;
      continue;
    }
    ASSERT_EQ(Dump(**ledger), dump) << "byte " << at << " changed the books unnoticed";
  }
  EXPECT_GT(found, 0);
}

// Runs SQL behind the ledger's back, its triggers and foreign keys out of the way. Returns rows
// changed.
int Tamper(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  OB_CHECK(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  const std::string all =
      "PRAGMA foreign_keys=OFF; DROP TRIGGER ledger_entry_fixed; DROP TRIGGER ledger_entry_kept; "
      "DROP TRIGGER ledger_line_fixed; DROP TRIGGER ledger_line_kept; "
      "DROP TRIGGER ledger_use_fixed; DROP TRIGGER ledger_use_kept; " +
      sql;
  const int result = sqlite3_exec(db, all.c_str(), nullptr, nullptr, nullptr);
  OB_CHECK(result == SQLITE_OK);
  const int changes = sqlite3_changes(db);
  sqlite3_close(db);
  return changes;
}

// L1 to L7, L9 and L10: every column of every table counts.
TEST(LedgerVerify, FindsEveryKindOfTampering) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  {
    const auto ledger = OpenLedger(path);
    const Charge charges[] = {ChargeFor(DeviceOf(1), 0, 5), ChargeFor(DeviceOf(1), 5, 9),
                              ChargeFor(DeviceOf(2), 0, 5, 2)};
    ASSERT_TRUE(PostHeld(*ledger, charges, kNoon).ok());
    ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{700}, "payment", kNoon).ok());
    ASSERT_TRUE(ledger->Verify().ok());
  }
  const std::string file = ReadFile(path);
  std::vector<std::string> tampering = {
      "UPDATE ledger_entry SET at_ms = at_ms - 1 WHERE number = 1",  // stamps still ascend
      "UPDATE ledger_head SET number = 3",
      "UPDATE ledger_head SET at_ms = at_ms + 1",
      "UPDATE ledger_head SET hash = zeroblob(32)",
      "DELETE FROM ledger_head",
      "UPDATE ledger_account SET balance = balance + 1 WHERE name = 'tenant:1'",
      "UPDATE ledger_account SET name = 'tenant:9' WHERE name = 'tenant:2'",
      "UPDATE ledger_account SET id = 99 WHERE name = 'tenant:2'",
      "DELETE FROM ledger_line WHERE entry = 2",
      "DELETE FROM ledger_line WHERE entry = 4 AND line = 1",
      "INSERT INTO ledger_line VALUES(77, 0, 1, 0)",
      "UPDATE ledger_line SET amount = amount + 1 WHERE entry = 2 AND line = 0",
      "UPDATE ledger_line SET amount = 2 * amount WHERE entry = 4",
      "UPDATE ledger_line SET account = 3 - account WHERE entry = 1 AND account < 3",
      "UPDATE ledger_line SET line = line + 1 WHERE entry = 4 AND line = 1",
      // The last entry vanishes with its lines, balances mended.
      "UPDATE ledger_account SET balance = balance - 700 WHERE name = 'tenant:1';"
      "UPDATE ledger_account SET balance = 0 WHERE name = 'payments';"
      "DELETE FROM ledger_line WHERE entry = 4; DELETE FROM ledger_entry WHERE number = 4",
      // Two entries change places.
      "UPDATE ledger_entry SET number = -1 WHERE number = 1; UPDATE ledger_entry SET number = 1 "
      "WHERE number = 3;"
      "UPDATE ledger_entry SET number = 3 WHERE number = -1",
      "UPDATE ledger_entry SET unit_ms = 1000 WHERE number = 1",
      "UPDATE ledger_hold SET amount = amount + 1 WHERE device = 1",
      "UPDATE ledger_hold SET funded_ms = funded_ms + 60000",
      "UPDATE ledger_hold SET price_per_hour = 2 * price_per_hour",
      "UPDATE ledger_hold SET tenant = 3",
      "UPDATE ledger_hold SET session = zeroblob(16) WHERE tenant = 2; "
      "INSERT INTO ledger_budget(scope, name, held) VALUES(3, lower(hex(zeroblob(16))), 1)",
      "DELETE FROM ledger_hold WHERE device = 1",
      "UPDATE ledger_budget SET held = held + 1",
      "UPDATE ledger_budget SET held = 0",
  };
  for (const char* column : {"at_ms", "tenant", "grant_number", "device", "price_per_hour",
                             "granted_ms", "from_s", "to_s"}) {
    for (int number = 1; number <= 3; ++number) {
      tampering.push_back("UPDATE ledger_entry SET " + std::string(column) + " = " + column +
                          " + 1 WHERE number = " + std::to_string(number));
    }
  }
  for (const char* change :
       {"key = key || 'x'", "memo = 'x'", "session = zeroblob(16)", "session = zeroblob(3)",
        "session = NULL", "body_hash = zeroblob(32)", "hash = zeroblob(32)", "number = 50"}) {
    tampering.push_back("UPDATE ledger_entry SET " + std::string(change) + " WHERE number = 2");
  }
  for (const char* column : {"tenant", "ms", "amount", "tenant_ms", "tenant_amount", "session_ms",
                             "session_amount"}) {
    for (int entry = 1; entry <= 3; ++entry) {
      tampering.push_back("UPDATE ledger_use SET " + std::string(column) + " = " + column +
                          " - 1 WHERE entry = " + std::to_string(entry));
    }
  }
  for (const char* sql :
       {"UPDATE ledger_use SET session = zeroblob(16) WHERE entry = 3",
        "UPDATE ledger_use SET entry = 4 WHERE entry = 3", "DELETE FROM ledger_use WHERE entry = 3",
        "DELETE FROM ledger_use WHERE entry = 1",
        "INSERT INTO ledger_use SELECT 4, tenant, session, ms, amount, tenant_ms, "
        "tenant_amount, session_ms, session_amount FROM ledger_use WHERE entry = 3"}) {
    tampering.push_back(sql);
  }
  for (const std::string& sql : tampering) {
    WriteFile(path, file);
    std::filesystem::remove(path + "-wal");
    std::filesystem::remove(path + "-shm");
    ASSERT_GT(Tamper(path, sql), 0) << sql;
    const auto ledger = Ledger::Open(path);
    ASSERT_TRUE(ledger.ok());
    EXPECT_TRUE(absl::IsDataLoss((*ledger)->Verify().status())) << sql;
  }
}

// L3 and L7 where the hashes are right: what a faulty or hostile writer would have left.
TEST(LedgerVerify, FindsSecondsChargedTwiceUnderAValidChain) {
  struct Forgery {
    Charge charge;
    WallTime at;
    bool sound;
  };
  const Forgery forgeries[] = {
      {ChargeFor(DeviceOf(1), 5, 8), kNoon, true},   // the forger's hand is right
      {ChargeFor(DeviceOf(1), 3, 8), kNoon, false},  // overlaps
      {ChargeFor(DeviceOf(1), 6, 8), kNoon, false},  // leaves a gap
      {ChargeFor(DeviceOf(2), 1, 8), kNoon, false},  // does not begin at 0
      {ChargeFor(DeviceOf(1), 5, 8, 2), kNoon, false},
      {ChargeFor(DeviceOf(1), 5, 8), WallTime{kNoon.unix_ms - 1}, false},
  };
  for (const Forgery& forgery : forgeries) {
    TempDir dir;
    const std::string path = dir.File("books.db");
    const auto ledger = OpenLedger(path);
    const Charge first[] = {ChargeFor(DeviceOf(1), 0, 5), ChargeFor(DeviceOf(9), 0, 1, 2)};
    ASSERT_TRUE(PostHeld(*ledger, first, kNoon).ok());

    const Charge& charge = forgery.charge;
    const EntryBody body = BodyOf(charge);
    std::string head(kHashBytes, '\0');
    for (const Charge& each : first) {
      head = EntryHash(head, &each - first + 1, kNoon, BodyHash(BodyOf(each)));
    }
    const std::string hash = EntryHash(head, 3, forgery.at, BodyHash(body));
    const auto db = ValueOrDie(storage::Database::Open(path));
    auto entry = ValueOrDie(db->Prepare(
        "INSERT INTO ledger_entry VALUES(3, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0, NULL, "
        "NULL)"));
    entry.BindText(1, body.key).Bind(2, forgery.at.unix_ms).Bind(3, charge.tenant.value);
    entry.BindBlob(4, charge.device.lease.session.Bytes());
    entry.Bind(5, static_cast<int64_t>(charge.device.lease.grant)).Bind(6, charge.device.device);
    entry.Bind(7, charge.price_per_hour.value).Bind(8, charge.granted_at.unix_ms);
    entry.Bind(9, charge.from_ms).Bind(10, charge.to_ms);
    entry.BindBlob(11, BodyHash(body)).BindBlob(12, hash);
    ASSERT_TRUE(entry.Run().ok());
    for (int line = 0; line < 2; ++line) {
      auto add = ValueOrDie(db->Prepare(
          "INSERT INTO ledger_line SELECT 3, ?1, id, ?3 FROM ledger_account WHERE name = ?2"));
      add.Bind(1, line).BindText(2, body.lines[line].account.name);
      ASSERT_TRUE(add.Bind(3, body.lines[line].amount.value).Run().ok());
      auto sum =
          ValueOrDie(db->Prepare("UPDATE ledger_account SET balance = balance + ? WHERE name = ?"));
      sum.Bind(1, body.lines[line].amount.value).BindText(2, body.lines[line].account.name);
      ASSERT_TRUE(sum.Run().ok());
    }
    auto last = ValueOrDie(db->Prepare("UPDATE ledger_head SET number = 3, at_ms = ?, hash = ?"));
    ASSERT_TRUE(last.Bind(1, forgery.at.unix_ms).BindBlob(2, hash).Run().ok());
    EXPECT_EQ(ledger->Verify().ok(), forgery.sound) << ledger->Verify().status();
  }
}

TEST(LedgerVerify, HistoryIsNotRewrittenByMistake) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  const auto ledger = OpenLedger(path);
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{700}, "payment", kNoon).ok());
  const auto db = ValueOrDie(storage::Database::Open(path));
  EXPECT_TRUE(absl::IsFailedPrecondition(db->Execute("UPDATE ledger_line SET amount = 0")));
  EXPECT_TRUE(absl::IsFailedPrecondition(db->Execute("DELETE FROM ledger_entry")));
  const Charge charge = ChargeFor(DeviceOf(1), 0, 5);
  ASSERT_TRUE(PostHeld(*ledger, std::span(&charge, 1), kNoon).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(db->Execute("UPDATE ledger_use SET ms = 0")));
  EXPECT_TRUE(absl::IsFailedPrecondition(db->Execute("DELETE FROM ledger_use")));
}

TEST(LedgerVerify, FilesThatAreNotBooksAreNamed) {
  TempDir dir;
  WriteFile(dir.File("noise"), std::string(10'000, 'x'));
  EXPECT_TRUE(absl::IsDataLoss(Ledger::Open(dir.File("noise")).status()));
  EXPECT_TRUE(absl::IsNotFound(Ledger::Open(dir.File("no/such/folder/books.db")).status()));
  EXPECT_TRUE(absl::IsNotFound(Ledger::Open(dir.File("absent.db"), {.create = false}).status()));
  {
    const auto db = ValueOrDie(storage::Database::Open(dir.File("newer.db")));
    const std::vector<const char*> steps(99, "SELECT 1");
    ASSERT_TRUE(db->Migrate("ledger", steps).ok());
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(Ledger::Open(dir.File("newer.db")).status()));
}

// Two connections, as two processes have, with some charges in common.
TEST(LedgerConcurrency, WritersTakeTurns) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  constexpr int kRounds = 60;
  std::vector<std::thread> threads;
  std::vector<absl::Status> outcomes(3);
  for (uint64_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto ledger = Ledger::Open(path);  // also at once
      if (!ledger.ok()) {
        outcomes[i] = ledger.status();
        return;
      }
      for (int64_t s = 0; s < kRounds && outcomes[i].ok(); ++s) {
        const Charge charges[] = {ChargeFor(DeviceOf(1), s, s + 1),
                                  ChargeFor(DeviceOf(10 + i), s, s + 1)};
        outcomes[i] = PostHeld(**ledger, charges, kNoon).status();
        if (outcomes[i].ok() && s % 20 == 0) outcomes[i] = (*ledger)->Verify().status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
  const auto ledger = OpenLedger(path);
  EXPECT_EQ(ledger->Verify()->entries, 4 * kRounds);
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->device_ms, 4000 * kRounds);
}

TEST(LedgerConcurrency, AWriterThatStaysIsReported) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  const auto ledger = OpenLedger(path, {.busy_timeout_ms = 20});
  const auto other = ValueOrDie(storage::Database::Open(path));
  const absl::Status held = other->Transaction(storage::Database::Mode::kWrite, [&] {
    EXPECT_TRUE(absl::IsUnavailable(ledger->Credit(TenantId{1}, MicroUsd{1}, "k", kNoon).status()));
    EXPECT_EQ(ledger->Balance(TenantId{1})->value, 0);  // readers do not wait
    return absl::OkStatus();
  });
  EXPECT_TRUE(held.ok());
  EXPECT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{1}, "k", kNoon).ok());
}

}  // namespace
}  // namespace outboard::gateway::test
