// The writer of the books waits for the disk once for all that came together, and before anybody is
// told of it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/session_rows.h"
#include "gateway/base/token.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/ports.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/head_signer.h"
#include "gateway/server/ledger_writer.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "storage/sqlite.h"
#include "telemetry/log.h"
#include "tests/gateway/core_driver_world.h"
#include "tests/gateway/support.h"
#include "tests/support/temp_folder.h"
#include "wire/proof/signing_key.h"
#include "wire/version.h"

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

TEST_F(LedgerWriterTest, WhatIsCorked_IsTakenInAsOne_ItsWritesFirst) {
  ASSERT_TRUE(AwaitWritten().ok());
  const int before = syncs_;
  std::vector<int> told;  // how many syncs there were
  writer_.Cork();
  const auto tell = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    told.push_back(syncs_ - before);
  };
  writer_.Grant({.lease = DeviceOf(1).lease, .tenant = kAnna, .devices = 1, .worker = "w"});
  writer_.Then(tell);
  writer_.Cork();  // nested
  writer_.Grant({.lease = DeviceOf(2).lease, .tenant = kAnna, .devices = 1, .worker = "w"});
  writer_.Uncork();
  writer_.ThenOrAtOnce([&] { tell(absl::OkStatus()); });
  EXPECT_TRUE(told.empty()) << "it is corked";
  writer_.Uncork();
  EXPECT_TRUE(AwaitWritten().ok());
  EXPECT_EQ(told, (std::vector<int>{1, 1}));
  EXPECT_EQ(syncs_, before + 1);
  for (const uint64_t session : {1, 2})
    EXPECT_EQ(ValueOrDie(rows_->LeasesOf(DeviceOf(session).lease.session)).size(), 1u);
}

// A posting that throws is not left out: without memory it is tried again, as on a full disk.
TEST_F(LedgerWriterTest, AWriteWithoutMemory_IsTriedAgain) {
  std::atomic<int> tries = 0;
  absl::Status trouble;
  Hold([] {});
  ASSERT_TRUE(AwaitWritten().ok());
  ledger_->GuardWrites([&](storage::Database&) -> absl::Status {
    if (tries++ == 0) throw std::bad_alloc();
    if (tries == 2) trouble = writer_.trouble();
    return absl::OkStatus();
  });
  Post(0);
  Post(5);
  EXPECT_TRUE(AwaitWritten().ok());
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(trouble.code(), absl::StatusCode::kResourceExhausted) << trouble;
  EXPECT_TRUE(writer_.trouble().ok()) << writer_.trouble();
  EXPECT_EQ(ValueOrDie(ledger_->UsageOf(kAnna)).device_ms, 10'000);
}

// Nor is it where there is a bug, which would meet it again: the gateway ends, and one that starts
// anew reads what is there.
TEST_F(LedgerWriterTest, AWriteThatMeetsABug_EndsTheGateway) {
  ASSERT_TRUE(AwaitWritten().ok());
  std::atomic<int> given_up = 0;
  writer_.OnGivenUp([&](const absl::Status&) { ++given_up; });
  bool throws = true;
  ledger_->GuardWrites([&](storage::Database&) -> absl::Status {
    if (std::exchange(throws, false)) throw std::out_of_range("no such key");
    return absl::OkStatus();
  });
  Post(0);
  Post(5);
  EXPECT_EQ(AwaitWritten().code(), absl::StatusCode::kInternal) << "it is not written";
  EXPECT_EQ(given_up, 1);
  EXPECT_FALSE(writer_.trouble().ok());
  EXPECT_EQ(ValueOrDie(ledger_->UsageOf(kAnna)).device_ms, 0) << "none behind one left out";
}

// Who waits for the books would wait for ever.
TEST_F(LedgerWriterTest, WhoIsToldAndThrows_EndsTheGateway) {
  enum Kind { kWrite, kThen, kGoodbye };
  std::atomic<int> lines = 0;
  telemetry::StartLogging({.sink = [&](const std::string& line) {
    lines += line.find("event=gateway_gives_up") != std::string::npos;
  }});
  ASSERT_TRUE(AwaitWritten().ok());
  std::atomic<bool> is_full = false;
  ledger_->GuardWrites([&](storage::Database&) {
    return is_full ? absl::ResourceExhaustedError("a full disk") : absl::OkStatus();
  });
  for (const Kind kind : {kWrite, kThen, kGoodbye}) {
    LedgerWriter writer(ledger_.get(), rows_.get());
    std::promise<absl::Status> given_up;
    writer.OnGivenUp([&](const absl::Status& why) { given_up.set_value(why); });
    is_full = kind == kGoodbye;
    if (is_full) {
      writer.EndHold(DeviceOf(1).lease);
      ASSERT_TRUE(outboard::test::Eventually([&] { return !writer.trouble().ok(); }));
    }
    if (kind == kWrite)
      writer.Hold({.lease = DeviceOf(1).lease,
                   .tenant = kAnna,
                   .key_id = "0123456789abcdef",
                   .prices_per_hour = {kDefaultPricePerHour},
                   .to_ms = 60'000},
                  [](const HoldAnswer&) { throw std::bad_alloc(); });
    else if (kind == kThen)
      writer.Then([](const absl::Status&) { throw std::bad_alloc(); });
    else
      writer.ThenOrAtOnce([] { throw std::bad_alloc(); });
    EXPECT_EQ(given_up.get_future().get().code(), absl::StatusCode::kInternal);
    writer.Stop();
  }
  telemetry::StopLogging();
  EXPECT_EQ(lines, 3);
}

// What it protects is given back with it, which waits for a disk, and for whoever calls the writer.
TEST_F(LedgerWriterTest, WhatAJobHolds_GoesWithoutTheLock) {
  struct Held {
    explicit Held(LedgerWriter* writer) : writer(writer) {}
    ~Held() { writer->trouble().IgnoreError(); }
    LedgerWriter* const writer;
  };
  writer_.Then([held = std::make_shared<Held>(&writer_)](const absl::Status&) {});
  EXPECT_TRUE(AwaitWritten().ok());
}

// A gateway's driver on this writer, with a worker of one device and a client.
class GoingLiveTest : public LedgerWriterTest {
 protected:
  GoingLiveTest() {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("gpu");
    reg.set_identity(std::string(kWorkerIdentityBytes, 'a'));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    reg.add_devices()->set_hardware_class("small");
    worker_port_.OnEvent(event);
    EXPECT_TRUE(AwaitWritten().ok());
    syncs_ = 0;
  }
  ~GoingLiveTest() override { writer_.Stop(); }  // it tells the driver

  void Open() {
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
    client_port_.Begin();
    RunAll(host_.jobs);
    client_port_.OnFrame(std::move(frame));
    RunAll(host_.jobs);
  }
  void Attach() {
    const proto::Assign& assign = *worker_.assign();
    ASSERT_TRUE(executor_port_
                    .Attach(*SessionId::FromBytes(assign.session_id()),
                            *TokenFromBytes(assign.attach_token()))
                    .ok());
  }
  // The executor gets the client's Open when the session is live.
  void ExpectLiveAfterOneSync() {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(AwaitWritten().ok());  // what writes lead to, too
    EXPECT_EQ(executor_.sent.size(), 1u);
    EXPECT_EQ(syncs_, 1);
    const SessionId session = *SessionId::FromBytes(worker_.assign()->session_id());
    EXPECT_EQ(ValueOrDie(rows_->LeasesOf(session)).size(), 1u);
    EXPECT_TRUE(rows_->Get(session).ok());
  }

  Host host_;
  Blobs blobs_;
  Auth auth_{&host_};
  CoreDriver driver_{{}, &host_, &writer_, &blobs_, &auth_};
  WorkerEnd worker_;
  WorkerPort worker_port_{&driver_, &worker_};
  ClientEnd client_;
  ClientPort client_port_{&driver_, &host_, &auth_, &client_, {}};
  ExecutorEnd executor_;
  ExecutorPort executor_port_{&driver_, &executor_};
};

TEST_F(GoingLiveTest, ASessionWhoseExecutorComesLast_WaitsForTheDiskOnce) {
  Open();
  EXPECT_TRUE(AwaitWritten().ok());  // its hold is there
  EXPECT_EQ(syncs_, 0);
  Attach();
  ExpectLiveAfterOneSync();
}

TEST_F(GoingLiveTest, ASessionWhoseHoldComesLast_WaitsForTheDiskOnce) {
  std::promise<void> attached;
  writer_.Then([&](const absl::Status&) { attached.get_future().wait(); });
  Open();
  Attach();
  attached.set_value();
  ExpectLiveAfterOneSync();
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
