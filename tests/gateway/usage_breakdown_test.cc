// `usage --by`: sums by key, session, day and state, which add up to what was charged.
#include "gateway/accounts/usage_breakdown.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr int64_t kDayMs = 86'400'000;

class UsageBreakdownTest : public ::testing::Test {
 protected:
  UsageBreakdownTest() {
    tenant_ = ValueOrDie(accounts_->CreateTenant("ada", kNoon)).id;
    other_ = ValueOrDie(accounts_->CreateTenant("bob", kNoon)).id;
  }
  // A lease of a session with this key, charged for so long on this day.
  void Charged(uint64_t session, uint64_t grant, const std::string& key, UseState use,
               int64_t seconds, int64_t day, TenantId tenant) {
    LeaseRow lease;
    lease.lease = {SessionId{0xab, session}, grant};
    lease.tenant = tenant;
    lease.devices = 1;
    lease.use = use;
    lease.key_id = key;
    ASSERT_EQ(ValueOrDie(rows_->GrantLease(lease)), grant);
    Charge charge = ChargeFor(DeviceOf(session, grant), 0, seconds, tenant.value);
    charge.use = use;
    const auto posted =
        PostHeld(*ledger_, {&charge, 1}, WallTime{kNoon.unix_ms + day * kDayMs});
    ASSERT_TRUE(posted.ok()) << posted.status();
  }
  std::vector<std::string> Read(const std::string& by, WallTime since = WallTime{0}) {
    const auto columns = ValueOrDie(ParseUsageBy(by));
    auto breakdown = ValueOrDie(UsageBreakdown::Open(path_));
    std::vector<std::string> lines;
    EXPECT_TRUE(breakdown
                    ->Read(columns, since,
                           [&](const UsagePart& part) {
                             std::string line;
                             for (const std::string& name : part.names) line += name + " ";
                             lines.push_back(line + std::to_string(part.device_ms / 1000) + " " +
                                             std::to_string(part.kept_ms / 1000) + " " +
                                             std::to_string(part.amount.value));
                           })
                    .ok());
    return lines;
  }

  TempDir dir_;
  const std::string path_ = dir_.File("outboard.db");
  std::unique_ptr<Accounts> accounts_ = ValueOrDie(Accounts::Open(path_));
  std::unique_ptr<SessionRows> rows_ = ValueOrDie(SessionRows::Open(path_));
  std::unique_ptr<Ledger> ledger_ = OpenLedger(path_);
  TenantId tenant_, other_;
};

using Lines = std::vector<std::string>;

TEST_F(UsageBreakdownTest, Sums_ByEachColumn) {
  Charged(1, 1, "k1", UseState::kRun, 3600, 0, tenant_);
  Charged(1, 2, "k1", UseState::kParked, 7200, 0, tenant_);
  Charged(1, 3, "k2", UseState::kHeld, 3600, 1, tenant_);
  Charged(2, 1, "k3", UseState::kRun, 3600, 1, other_);
  EXPECT_EQ(Read("account"), (Lines{"ada 7200 7200 2000000", "bob 3600 0 500000"}));
  EXPECT_EQ(Read("key"),
            (Lines{"k1 3600 7200 1500000", "k2 3600 0 500000", "k3 3600 0 500000"}));
  EXPECT_EQ(Read("day"), (Lines{"2023-11-14 3600 7200 1500000", "2023-11-15 7200 0 1000000"}));
  EXPECT_EQ(Read("state"), (Lines{"held 3600 0 500000", "parked 0 7200 1000000",
                                  "run 7200 0 1000000"}));
  const std::string session = SessionId{0xab, 1}.Hex();
  EXPECT_EQ(Read("session").front(), session + " 7200 7200 2000000");
  EXPECT_EQ(Read("key,day").size(), 3u);
  EXPECT_EQ(Read("state", WallTime{kNoon.unix_ms + kDayMs}),
            (Lines{"held 3600 0 500000", "run 3600 0 500000"}))
      << "what was posted since";
}

TEST_F(UsageBreakdownTest, ALeaseWithoutARow_CountsUnderNoKey) {
  const Charge charge = ChargeFor(DeviceOf(9), 0, 3600, tenant_.value);
  ASSERT_TRUE(PostHeld(*ledger_, {&charge, 1}, kNoon).ok());
  EXPECT_EQ(Read("key"), (Lines{" 3600 0 500000"}));
}

TEST(UsageBy, WhatIsNoColumn_IsNamed) {
  for (const char* text : {"", "keys", "key,", "key,key", "key day"}) {
    const auto by = ParseUsageBy(text);
    EXPECT_EQ(by.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParseUsageBy("key,session,day,state,account")->size(), 5u);
}

TEST(UsageBreakdown, NoFile_IsNotFound) {
  TempDir dir;
  EXPECT_EQ(UsageBreakdown::Open(dir.File("nothing.db")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace outboard::gateway::test
