// Usage from stored sums (L9 of ledger.h): equal to the sums over the postings, for any range, also
// in books that were written before there were such sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_schema.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr int64_t kTenants = 3;
constexpr uint64_t kSessions = 5;  // each of one tenant

TenantId TenantOf(uint64_t session) {
  return TenantId{static_cast<int64_t>(session) % kTenants + 1};
}

// Posts batches of charges, transfers between them, at times of which some are equal.
void PostAtRandom(Ledger& ledger, Random& random, int batches) {
  std::map<LeasedDevice, int64_t> charged;
  WallTime now = kNoon;
  for (int i = 0; i < batches; ++i) {
    std::vector<Charge> charges;
    for (uint64_t session = 1; session <= kSessions; ++session) {
      if (random.OneIn(3)) continue;
      const LeasedDevice device = DeviceOf(session, static_cast<uint64_t>(random.Int(1, 3)));
      int64_t& seconds = charged[device];
      charges.push_back(
          ChargeFor(device, seconds, seconds + random.Int(1, 9), TenantOf(session).value));
      seconds = charges.back().to_ms / 1000;
    }
    now.unix_ms += random.Int(0, 2) * 1000;
    ASSERT_TRUE(PostHeld(ledger, charges, now).ok());
    if (!random.OneIn(4)) continue;
    ASSERT_TRUE(ledger.Credit(TenantId{1}, MicroUsd{50}, "credit" + std::to_string(i), now).ok());
  }
}

// The sums over the statements' rows.
struct Sums {
  Usage all;
  std::map<TenantId, Usage> of_tenant;
  std::map<SessionId, Usage> of_session;
};
Sums SumsOverRows(Ledger& ledger, const EntryRange& range) {
  Sums sums;
  for (int64_t tenant = 1; tenant <= kTenants; ++tenant) {
    const auto account = LedgerAccount::Tenant(TenantId{tenant});
    for (const StatementRow& row : ValueOrDie(ledger.StatementOf(account, 0, 1000))) {
      if (!row.device.has_value() || row.at < range.since || row.number > range.last) continue;
      for (Usage* sum : {&sums.all, &sums.of_tenant[TenantId{tenant}],
                         &sums.of_session[row.device->lease.session]}) {
        sum->device_ms += row.to_ms - row.from_ms;
        sum->amount.value -= row.amount.value;
      }
    }
  }
  return sums;
}

void ExpectSumsOverRows(Ledger& ledger, const EntryRange& range) {
  Sums sums = SumsOverRows(ledger, range);
  EXPECT_EQ(*ledger.UsageOfAll(range), sums.all);
  for (int64_t tenant = 1; tenant <= kTenants + 1; ++tenant)
    EXPECT_EQ(*ledger.UsageOf(TenantId{tenant}, range), sums.of_tenant[TenantId{tenant}]);
  std::vector<SessionId> sessions;
  for (uint64_t session = 0; session <= kSessions; ++session)
    sessions.push_back(DeviceOf(session).lease.session);
  const std::vector<Usage> usage = ValueOrDie(ledger.UsageOfSessions(sessions, range));
  ASSERT_EQ(usage.size(), sessions.size());
  for (size_t i = 0; i < sessions.size(); ++i) EXPECT_EQ(usage[i], sums.of_session[sessions[i]]);
}

TEST(LedgerUsage, AnyRange_IsTheSumOverItsPostings) {
  Random random;
  TempDir dir;
  const auto ledger = OpenLedger(dir.File("books.db"));
  PostAtRandom(*ledger, random, 100);
  ExpectSumsOverRows(*ledger, {});
  const int64_t last = *ledger->LastEntry();
  for (int i = 0; i < 60; ++i) {
    const WallTime since{kNoon.unix_ms + random.Int(-2, 120) * 1000 + random.Int(-1, 1)};
    ExpectSumsOverRows(*ledger, {.since = since, .last = random.Int(-1, last + 1)});
  }
  const auto verified = ledger->Verify();
  EXPECT_TRUE(verified.ok()) << verified.status();
}

// A file whose tables are of the schema's first step, with the rows of `from`, as a program of that
// time would have written them: in seconds, and with hashes of these.
void CopyToOldBooks(const std::string& from, const std::string& to) {
  const auto db = ValueOrDie(storage::Database::Open(to));
  ASSERT_TRUE(db->Migrate("ledger", std::span(kLedgerSchema).first(1)).ok());
  ASSERT_TRUE(db->Execute(("ATTACH '" + from +
                           "' AS newer; DELETE FROM ledger_head;"
                           "INSERT INTO ledger_account SELECT * FROM newer.ledger_account")
                              .c_str())
                  .ok());
  auto entries = ValueOrDie(db->Prepare(
      "SELECT number, key, at_ms, memo, tenant, session, grant_number, device, price_per_hour, "
      "granted_ms, from_s, to_s, (SELECT amount FROM newer.ledger_line "
      "WHERE entry = number AND line = 1) FROM newer.ledger_entry ORDER BY number"));
  std::string hash(kHashBytes, '\0');
  while (*entries.Step()) {
    const int64_t number = entries.Int(0);
    EntryBody body{.key = std::string(entries.Text(1)), .memo = std::string(entries.Text(3))};
    if (entries.IsNull(5)) {
      body.lines = {{LedgerAccount::Tenant(TenantId{1}), MicroUsd{-entries.Int(12)}},
                    {LedgerAccount::Payments(), MicroUsd{entries.Int(12)}}};
    } else {
      Charge charge{.device = {{*SessionId::FromBytes(entries.Blob(5)),
                                static_cast<uint64_t>(entries.Int(6))},
                               static_cast<uint32_t>(entries.Int(7))},
                    .tenant = TenantId{entries.Int(4)},
                    .price_per_hour = MicroUsd{entries.Int(8)},
                    .granted_at = WallTime{entries.Int(9)},
                    .from_ms = entries.Int(10),
                    .to_ms = entries.Int(11),
                    .amount = MicroUsd{entries.Int(12)}};
      body = BodyOf(charge, 1000);
    }
    const WallTime at{entries.Int(2)};
    hash = EntryHash(hash, number, at, BodyHash(body));
    auto add = ValueOrDie(db->Prepare(
        "INSERT INTO ledger_entry SELECT number, ?2, at_ms, memo, tenant, session, grant_number, "
        "device, price_per_hour, granted_ms, from_s / 1000, to_s / 1000, ?3, ?4 "
        "FROM newer.ledger_entry WHERE number = ?1"));
    add.Bind(1, number).BindText(2, body.key).BindBlob(3, BodyHash(body)).BindBlob(4, hash);
    ASSERT_TRUE(add.Run().ok());
    auto head =
        ValueOrDie(db->Prepare("INSERT INTO ledger_head VALUES(1, ?1, ?2, ?3) "
                               "ON CONFLICT DO UPDATE SET number = ?1, at_ms = ?2, hash = ?3"));
    ASSERT_TRUE(head.Bind(1, number).Bind(2, at.unix_ms).BindBlob(3, hash).Run().ok());
  }
  entries.Reset();
  ASSERT_TRUE(
      db->Execute("INSERT INTO ledger_line SELECT * FROM newer.ledger_line; DETACH newer").ok());
}

TEST(LedgerUsage, BooksWithoutSums_GetThemWhenTheyAreOpened) {
  Random random;
  TempDir dir;
  const std::string path = dir.File("books.db"), old_path = dir.File("old.db");
  const auto ledger = OpenLedger(path);
  PostAtRandom(*ledger, random, 100);
  CopyToOldBooks(path, old_path);
  const auto old = OpenLedger(old_path);
  ExpectSumsOverRows(*old, {});
  ExpectSumsOverRows(*old, {.since = WallTime{kNoon.unix_ms + 40'000}, .last = 150});
  EXPECT_EQ(*old->UsageOfAll(), *ledger->UsageOfAll());
  const auto verified = old->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();

  const Charge more = ChargeFor(DeviceOf(1, 9), 0, 7, TenantOf(1).value);
  ASSERT_TRUE(PostHeld(*old, std::span(&more, 1), kNoon).ok());
  ExpectSumsOverRows(*old, {});
  EXPECT_EQ(old->UsageOfAll()->device_ms, ledger->UsageOfAll()->device_ms + 7000);
  EXPECT_TRUE(old->Verify().ok());
}

// The program that made the books may still run when a newer one opens them.
TEST(LedgerUsage, AWriterFromBeforeTheSums_KeepsThemToo) {
  Random random;
  TempDir dir;
  const std::string path = dir.File("books.db"), old_path = dir.File("old.db");
  const auto ledger = OpenLedger(path);
  PostAtRandom(*ledger, random, 20);
  CopyToOldBooks(path, old_path);
  const auto old = OpenLedger(old_path);
  const int64_t last = *ledger->LastEntry();
  const Charge more = ChargeFor(DeviceOf(1, 9), 0, 7, TenantOf(1).value);
  ASSERT_TRUE(PostHeld(*ledger, std::span(&more, 1), kNoon).ok());
  const auto db = ValueOrDie(storage::Database::Open(old_path));
  const std::string row = " WHERE number = " + std::to_string(last + 1);
  ASSERT_TRUE(
      db->Execute(("ATTACH '" + path + "' AS newer;" +
                   "INSERT INTO ledger_entry SELECT * FROM newer.ledger_entry" + row +
                   ";INSERT INTO ledger_line SELECT * FROM newer.ledger_line WHERE entry = " +
                   std::to_string(last + 1))
                      .c_str())
          .ok());
  EXPECT_EQ(old->UsageOfSession(DeviceOf(1).lease.session)->device_ms,
            ledger->UsageOfSession(DeviceOf(1).lease.session)->device_ms);
}

TEST(LedgerUsage, RecentUse_CountsHalfAfterAHalfLife) {
  TempDir dir;
  const auto ledger = OpenLedger(dir.File("books.db"));
  constexpr double kHalfLifeS = 3600;
  const auto at = [](double hours) {
    return WallTime{kNoon.unix_ms + static_cast<int64_t>(hours * 3'600'000)};
  };
  int64_t seconds = 0;
  for (const double hours : {-9.0, -2.0, -1.0, 0.0}) {  // the first is forgotten
    ASSERT_TRUE(PostHeld(*ledger,
                         std::vector<Charge>{ChargeFor(DeviceOf(1), seconds, seconds + 80),
                                             ChargeFor(DeviceOf(2), seconds / 10,
                                                       seconds / 10 + 8, 2)},
                         at(hours))
                    .ok());
    seconds += 80;
  }
  const auto used = ledger->RecentUse(at(0), kHalfLifeS);
  ASSERT_TRUE(used.ok()) << used.status();
  ASSERT_EQ(used->size(), 2u);
  EXPECT_NEAR(used->at(TenantId{1}), 80 * (1 + 0.5 + 0.25), 1e-6);
  EXPECT_NEAR(used->at(TenantId{2}), 8 * (1 + 0.5 + 0.25), 1e-6);
  EXPECT_TRUE(ledger->RecentUse(at(100), kHalfLifeS)->empty());
}

}  // namespace
}  // namespace outboard::gateway::test
