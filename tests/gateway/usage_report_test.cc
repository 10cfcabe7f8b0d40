// What `outboard usage` shows: every session, however short, page by page, with the ledger's
// totals.
#include "gateway/accounts/usage_report.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

WallTime After(int64_t ms) { return WallTime{kNoon.unix_ms + ms}; }

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  OB_CHECK(value.ok());
  return *std::move(value);
}

class UsageReportTest : public ::testing::Test {
 protected:
  static SessionId Id(uint64_t session) { return DeviceOf(session).lease.session; }

  void Open(uint64_t session, WallTime at, int64_t tenant = 1) {
    ASSERT_TRUE(
        rows->Put({.session = Id(session), .tenant = TenantId{tenant}, .opened_at = at}).ok());
  }
  void Grant(uint64_t session, WallTime at, uint32_t devices = 1) {
    ASSERT_TRUE(rows->GrantLease({.lease = {Id(session)},
                                  .tenant = TenantId{1},
                                  .devices = devices,
                                  .granted_at = at})
                    .ok());
  }
  void Release(uint64_t session, WallTime at, uint64_t grant = 1) {
    ASSERT_TRUE(rows->EndLease({Id(session), grant}, LeaseEnd::kClosed, at).ok());
  }
  void Close(uint64_t session, WallTime at, int64_t tenant = 1) {
    ASSERT_TRUE(rows->Put({.session = Id(session),
                           .tenant = TenantId{tenant},
                           .state = SessionRowState::kClosed,
                           .opened_at = at,
                           .closed_at = at})
                    .ok());
  }
  // A session from `began` on, for `ms` and on one device.
  void Whole(uint64_t session, WallTime began, int64_t ms, int64_t tenant = 1) {
    Open(session, began, tenant);
    Grant(session, began);
    Release(session, WallTime{began.unix_ms + ms});
    Close(session, WallTime{began.unix_ms + ms}, tenant);
  }
  void Post(const Charge& charge, WallTime at = kNoon) {
    ASSERT_TRUE(PostHeld(*ledger, std::span(&charge, 1), at).ok());
  }
  UsagePage Read(const UsageQuery& query) { return ValueOrDie(report->Read(query)); }

  TempDir dir;
  std::unique_ptr<Ledger> ledger = ValueOrDie(Ledger::Open(dir.File("books.db")));
  std::unique_ptr<SessionRows> rows = ValueOrDie(SessionRows::Open(dir.File("books.db")));
  std::unique_ptr<UsageReport> report = ValueOrDie(UsageReport::Open(dir.File("books.db")));
};

TEST_F(UsageReportTest, ASessionUnderASecondIsListed) {
  Whole(7, After(0), 412);
  const UsagePage page = Read({.tenant = TenantId{1}});
  ASSERT_EQ(page.sessions.size(), 1u);
  EXPECT_EQ(page.sessions[0].began_at, After(0));
  EXPECT_EQ(page.sessions[0].used_ms, 412);
  EXPECT_FALSE(page.sessions[0].used_at_least);
  EXPECT_FALSE(page.sessions[0].open);
  EXPECT_EQ(page.sessions[0].devices, 1);
  EXPECT_EQ(page.sessions[0].charged, Usage{});
  EXPECT_EQ(page.total, Usage{});
  EXPECT_EQ(page.next, "");
}

TEST_F(UsageReportTest, SessionsAreByTheTimeOfTheirStart) {
  Whole(9, After(0), 100);
  Whole(3, After(2000), 100);
  Whole(5, After(1000), 2500);
  Whole(4, After(1000), 100);
  Open(6, After(3000));  // waited, and got no device
  Close(6, After(4000));
  Whole(8, After(500), 100, /*tenant=*/2);
  Post(ChargeFor(DeviceOf(5), 0, 2));
  std::vector<SessionId> order;
  for (const SessionUsage& row : Read({.tenant = TenantId{1}}).sessions)
    order.push_back(row.session);
  EXPECT_EQ(order, (std::vector{Id(9), Id(4), Id(5), Id(3), Id(6)}));
  EXPECT_EQ(Read({.tenant = TenantId{2}}).sessions.size(), 1u);
  EXPECT_EQ(Read({}).sessions.size(), 6u);
  EXPECT_EQ(Read({.tenant = TenantId{1}}).sessions[2].charged, (Usage{2000, {277}}));
  EXPECT_EQ(Read({.tenant = TenantId{1}}).total, (Usage{2000, {277}}));
  EXPECT_EQ(Read({.tenant = TenantId{2}}).total, Usage{});
  EXPECT_EQ(Read({.tenant = TenantId{1}}).sessions[4].devices, 0);
  EXPECT_EQ(Read({.tenant = TenantId{1}}).sessions[4].used_ms, 0);
  EXPECT_FALSE(Read({.tenant = TenantId{1}}).sessions[4].used_at_least);
}

TEST_F(UsageReportTest, UseIsTheSumOfTheLeases) {
  Open(7, After(0));
  Grant(7, After(100));
  Release(7, After(400));
  Grant(7, After(5000), 2);  // after an idle time
  Release(7, After(5250), 2);
  Close(7, After(9000));
  const UsagePage page = Read({});
  EXPECT_EQ(page.sessions[0].used_ms, 550);
  EXPECT_EQ(page.sessions[0].devices, 2);
}

TEST_F(UsageReportTest, AnOpenSessionRunsUntilNowIfThatIsKnown) {
  Open(7, After(0));
  Grant(7, After(0), 2);
  Post(ChargeFor(DeviceOf(7, 1, 0), 0, 5));
  Post(ChargeFor(DeviceOf(7, 1, 1), 0, 5));
  const SessionUsage with = Read({.now = After(6789)}).sessions[0];
  EXPECT_TRUE(with.open);
  EXPECT_EQ(with.used_ms, 6789);
  EXPECT_FALSE(with.used_at_least);
  const SessionUsage without = Read({}).sessions[0];
  EXPECT_EQ(without.used_ms, 5000);  // what two devices were charged for
  EXPECT_TRUE(without.used_at_least);
}

// The next gateway began a day later, but nobody used a device for a day.
TEST_F(UsageReportTest, AKilledGatewaysLeaseHasNoEnd) {
  Open(7, After(0));
  Grant(7, After(0));
  Post(ChargeFor(DeviceOf(7), 0, 5));
  ASSERT_TRUE(rows->LoseAllLive(After(86'400'000)).ok());
  const SessionUsage row = Read({.now = After(90'000'000)}).sessions[0];
  EXPECT_FALSE(row.open);
  EXPECT_EQ(row.used_ms, 5000);
  EXPECT_TRUE(row.used_at_least);
}

TEST_F(UsageReportTest, AClockSetBackShortensNothing) {
  Open(7, After(10'000));
  Grant(7, After(10'000));
  Release(7, After(2'000));
  Close(7, After(2'000));
  Post(ChargeFor(DeviceOf(7), 0, 3));
  const SessionUsage row = Read({}).sessions[0];
  EXPECT_EQ(row.used_ms, 3000);
  EXPECT_TRUE(row.used_at_least);
}

TEST_F(UsageReportTest, SinceCountsWhatIsAfterIt) {
  Whole(7, After(0), 500);
  Whole(8, After(0), 3000);
  Post(ChargeFor(DeviceOf(8), 0, 1), After(1000));
  Post(ChargeFor(DeviceOf(8), 1, 3), After(3000));
  const UsagePage page = Read({.since = After(2000)});
  ASSERT_EQ(page.sessions.size(), 1u);
  EXPECT_EQ(page.sessions[0].session, Id(8));
  EXPECT_EQ(page.sessions[0].used_ms, 1000);
  EXPECT_EQ(page.sessions[0].charged.device_ms, 2000);
  EXPECT_EQ(page.total->device_ms, 2000);
}

// Three pages; between the first and the second a session is charged, another ends, one begins.
TEST_F(UsageReportTest, PagesAddUpToTheTotalOfTheFirst) {
  const uint64_t sessions = 2 * kUsageSessionsPerPage + 1;
  for (uint64_t i = 0; i < sessions; ++i) Open(i, After(static_cast<int64_t>(i) / 3));
  for (uint64_t i = 0; i < sessions; i += 100) Post(ChargeFor(DeviceOf(i), 0, 2));
  std::set<SessionId> seen;
  Usage sum;
  UsageQuery query{.tenant = TenantId{1}, .since = {}, .now = After(9000), .after = ""};
  std::optional<Usage> total;
  int pages = 0;
  do {
    const UsagePage page = Read(query);
    EXPECT_EQ(page.total.has_value(), pages == 0);
    if (page.total.has_value()) total = page.total;
    EXPECT_LE(page.sessions.size(), static_cast<size_t>(kUsageSessionsPerPage));
    for (const SessionUsage& row : page.sessions) {
      EXPECT_TRUE(seen.insert(row.session).second);
      sum.device_ms += row.charged.device_ms;
      sum.amount.value += row.charged.amount.value;
    }
    query.after = page.next;
    if (pages++ > 0) continue;
    Post(ChargeFor(DeviceOf(sessions - 1), 2, 9));
    Close(sessions - 1, After(9000));
    Open(sessions, After(8999));
  } while (!query.after.empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(seen.size(), sessions + 1);
  EXPECT_EQ(sum, total);
  EXPECT_EQ(sum.device_ms, 42'000);
  EXPECT_EQ(Read({.tenant = TenantId{1}}).total->device_ms, 49'000);
}

// A page reads a bounded number of sessions, even if it passes over all of them.
TEST_F(UsageReportTest, ManySessionsThatEndedLongAgo_AreManyEmptyPages) {
  const auto db = ValueOrDie(storage::Database::Open(dir.File("books.db")));
  auto add = ValueOrDie(
      db->Prepare("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "
                  "INSERT INTO session(id, tenant, epoch, worker, state, opened_ms, closed_ms) "
                  "SELECT CAST(printf('%016d', i) AS BLOB), 1, 0, '', 3, ?2 + i, ?2 + i FROM n"));
  ASSERT_TRUE(add.Bind(1, 2 * kSessionsReadMax + 5).Bind(2, kNoon.unix_ms).Run().ok());
  Open(7, After(1));  // and stays open
  Whole(8, After(50'000), 2000);
  Post(ChargeFor(DeviceOf(7), 0, 1), After(1000));
  Post(ChargeFor(DeviceOf(7), 1, 4), After(50'000));
  UsageQuery query{.tenant = TenantId{1}, .since = After(40'000), .now = {}, .after = ""};
  std::vector<std::vector<SessionUsage>> pages;
  do {
    const UsagePage page = Read(query);
    pages.push_back(page.sessions);
    query.after = page.next;
  } while (!query.after.empty());
  ASSERT_EQ(pages.size(), 3u);
  ASSERT_EQ(pages[0].size(), 1u);
  EXPECT_EQ(pages[0][0].session, Id(7));
  EXPECT_EQ(pages[0][0].charged.device_ms, 3000);
  EXPECT_TRUE(pages[1].empty());
  ASSERT_EQ(pages[2].size(), 1u);
  EXPECT_EQ(pages[2][0].session, Id(8));
}

TEST_F(UsageReportTest, WrongPlacesAndNoFile) {
  for (const char* after : {"x", "1,2", "1,2,zz", "1,2,00000000000000ab0000000000000007,4",
                            "99999999999999999999,2,00000000000000ab0000000000000007"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(report->Read({.after = after}).status())) << after;
  }
  EXPECT_TRUE(absl::IsNotFound(UsageReport::Open(dir.File("none.db")).status()));
}

TEST_F(UsageReportTest, TextAddsUp) {
  Whole(7, After(0), 412);
  Whole(8, After(1000), 2034);
  Open(9, After(4000));
  Grant(9, After(4000));
  Post(ChargeFor(DeviceOf(8), 0, 2));
  Post(ChargeFor(DeviceOf(10), 0, 1));  // without a row
  const auto text = [&](bool json) {
    UsageText out(json);
    std::string text = out.Add(Read({}));
    return text += out.End();
  };
  EXPECT_EQ(text(false),
            "session                           began                     used s  devices  "
            " charged s       amount\n"
            "00000000000000ab0000000000000007  2023-11-14T22:13:20Z       0.412        1  "
            "     0.000    $0.000000\n"
            "00000000000000ab0000000000000008  2023-11-14T22:13:21Z       2.034        1  "
            "     2.000    $0.000277\n"
            "00000000000000ab0000000000000009  2023-11-14T22:13:24Z     >=0.000        1  "
            "     0.000    $0.000000  open\n"
            "(others)                                                                     "
            "     1.000    $0.000138\n"
            "total                                                                        "
            "     3.000    $0.000415\n");
  EXPECT_EQ(text(true),
            "{\"sessions\": ["
            "{\"session\": \"00000000000000ab0000000000000007\", \"began_at\": "
            "\"2023-11-14T22:13:20Z\", \"open\": false, \"devices\": 1, \"used_seconds\": 0.412, "
            "\"used_at_least\": false, \"device_seconds\": 0.000, \"amount_micro_usd\": 0, "
            "\"amount_usd\": \"0.000000\"}, "
            "{\"session\": \"00000000000000ab0000000000000008\", \"began_at\": "
            "\"2023-11-14T22:13:21Z\", \"open\": false, \"devices\": 1, \"used_seconds\": 2.034, "
            "\"used_at_least\": false, \"device_seconds\": 2.000, \"amount_micro_usd\": 277, "
            "\"amount_usd\": \"0.000277\"}, "
            "{\"session\": \"00000000000000ab0000000000000009\", \"began_at\": "
            "\"2023-11-14T22:13:24Z\", \"open\": true, \"devices\": 1, \"used_seconds\": 0.000, "
            "\"used_at_least\": true, \"device_seconds\": 0.000, \"amount_micro_usd\": 0, "
            "\"amount_usd\": \"0.000000\"}], "
            "\"other_device_seconds\": 1.000, \"other_amount_micro_usd\": 138, "
            "\"device_seconds\": 3.000, \"amount_micro_usd\": 415, "
            "\"amount_usd\": \"0.000415\"}\n");
  UsageText nothing(true);
  std::string empty = nothing.Add({.sessions = {}, .total = Usage{}, .next = ""});
  EXPECT_EQ(empty += nothing.End(),
            "{\"sessions\": [], \"device_seconds\": 0.000, \"amount_micro_usd\": 0, "
            "\"amount_usd\": \"0.000000\"}\n");
}

}  // namespace
}  // namespace outboard::gateway::test
