// The writer of the books waits for the disk once for all that came together, and before anybody is
// told of it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/head_signer.h"
#include "gateway/server/ledger_writer.h"
#include "storage/sqlite.h"
#include "tests/gateway/support.h"
#include "tests/support/temp_folder.h"
#include "wire/proof/signing_key.h"

namespace outboard::gateway::test {
namespace {

class LedgerWriterTest : public ::testing::Test {
 protected:
  static constexpr TenantId kAnna{1};

  void Hold(std::function<void()> then) {
    writer_.Hold({.lease = DeviceOf(1).lease,
                  .tenant = kAnna,
                  .key_id = "0123456789abcdef",
                  .prices_per_hour = {kDefaultPricePerHour},
                  .to_ms = 60'000},
                 [then = std::move(then)](const HoldAnswer& answer) {
                   EXPECT_TRUE(answer.why.ok()) << answer.why;
                   then();
                 });
  }
  void Post(int64_t from_s) {
    writer_.Post({ChargeFor(DeviceOf(1), from_s, from_s + 5)},
                 [](TenantId, const absl::Status& why) { ADD_FAILURE() << why; });
  }
  absl::Status AwaitWritten() {
    std::promise<absl::Status> written;
    writer_.Then([&](const absl::Status& status) { written.set_value(status); });
    return written.get_future().get();
  }
  // What the gateway opens.
  static constexpr storage::OpenOptions kOptions = {.synced_by_caller = true};

  TempDir dir_;
  const std::string path_ = dir_.File("books.db");
  std::unique_ptr<Ledger> ledger_ = ValueOrDie(Ledger::Open(path_, kOptions));
  std::unique_ptr<SessionRows> rows_ = ValueOrDie(SessionRows::Open(path_, kOptions));
  HeadSigner heads_{ledger_.get(), signing::SigningKey::Make()};
  std::atomic<int> syncs_ = 0;
  std::atomic<bool> disk_fails_ = false, had_head_ = false;
  LedgerWriter writer_{ledger_.get(), rows_.get(), kNoCreditLimit, &heads_, nullptr, [this] {
    ++syncs_;
    had_head_ = had_head_ || heads_.Of(kAnna) != nullptr;
    return disk_fails_ ? absl::UnavailableError("the disk failed") : storage::SyncLog(path_);
  }};
};

TEST_F(LedgerWriterTest, WhatComesTogether_WaitsForTheDiskOnce_AndBeforeAnybodyIsTold) {
  std::promise<void> all_are_there;
  Hold([&] {
    EXPECT_EQ(syncs_, 0) << "a hold ends with its gateway, and need not last";
    all_are_there.get_future().wait();
  });
  for (const int64_t from_s : {0, 5, 10, 15}) Post(from_s);
  writer_.EndHold(DeviceOf(1).lease);
  std::promise<int> told;
  writer_.Then([&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_NE(heads_.Of(kAnna), nullptr);
    told.set_value(syncs_);
  });
  all_are_there.set_value();
  EXPECT_EQ(told.get_future().get(), 1);
  EXPECT_FALSE(had_head_) << "a head of what a power cut may take back";
  EXPECT_TRUE(AwaitWritten().ok());
  EXPECT_EQ(syncs_, 1) << "nothing was written since";
  EXPECT_EQ(ValueOrDie(ledger_->UsageOf(kAnna)).device_ms, 20'000);
}

TEST_F(LedgerWriterTest, WhatNobodyWaitsFor_IsDurableAllTheSame) {
  Hold([] {});
  EXPECT_TRUE(AwaitWritten().ok());
  const int before = syncs_;
  Post(0);
  EXPECT_TRUE(outboard::test::Eventually([&] { return syncs_ > before; }));
}

// Before those are told that wait for it.
TEST_F(LedgerWriterTest, RowThatIsRefusedForGood_IsReported) {
  std::vector<std::pair<SessionId, absl::StatusCode>> reported;
  writer_.OnNotWritten([&](SessionId session, const absl::Status& why) {
    reported.emplace_back(session, why.code());
  });
  LeaseRow lease{.lease = DeviceOf(1).lease, .tenant = kAnna, .devices = 1, .worker = "w"};
  writer_.Grant(lease);
  EXPECT_TRUE(AwaitWritten().ok());
  EXPECT_TRUE(reported.empty());
  lease.lease = DeviceOf(2).lease;
  lease.devices = 0;
  writer_.Grant(lease);
  SessionRow row;  // of nobody
  row.session = DeviceOf(3).lease.session;
  writer_.Write(row);
  EXPECT_TRUE(AwaitWritten().ok());
  const std::vector<std::pair<SessionId, absl::StatusCode>> due = {
      {DeviceOf(2).lease.session, absl::StatusCode::kInvalidArgument},
      {DeviceOf(3).lease.session, absl::StatusCode::kInvalidArgument}};
  EXPECT_EQ(reported, due);
}

// To try it again says nothing: Linux tells of a write that was lost once.
TEST_F(LedgerWriterTest, DiskThatFails_EndsTheWriter) {
  std::promise<absl::Status> given_up;
  writer_.OnGivenUp([&](const absl::Status& why) { given_up.set_value(why); });
  Hold([] {});
  EXPECT_TRUE(AwaitWritten().ok());
  disk_fails_ = true;
  Post(0);
  EXPECT_TRUE(absl::IsUnavailable(AwaitWritten()));
  EXPECT_TRUE(absl::IsUnavailable(given_up.get_future().get()));
  disk_fails_ = false;
  Post(5);
  EXPECT_TRUE(absl::IsUnavailable(AwaitWritten()));
  EXPECT_TRUE(absl::IsUnavailable(writer_.trouble()));
  EXPECT_EQ(ValueOrDie(ledger_->UsageOf(kAnna)).device_ms, 5000);
}

}  // namespace
}  // namespace outboard::gateway::test
