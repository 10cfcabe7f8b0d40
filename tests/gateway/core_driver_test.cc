// CoreDriver on one thread, with a clock and a disk that the test moves by hand. D1 to D6 are the
// invariants in core_driver.cc; tests/sim has it in whole fleets.
#include "gateway/data_path/core_driver.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/ports.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "wire/version.h"

namespace outboard::gateway {
namespace {

using Jobs = std::vector<std::function<void()>>;

void RunAll(Jobs& jobs) {
  for (const auto& job : std::exchange(jobs, {})) job();
}

class Host final : public DriverHost {
 public:
  MonoTime Now() override { return now; }
  WallTime WallNow() override { return {now.ns / 1'000'000}; }
  Token DrawToken() override { return {7, ++drawn_}; }
  void Post(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  MonoTime now{1'000'000'000};
  Jobs jobs;

 private:
  uint64_t drawn_ = 0;
};

class Writes final : public WriteQueue {
 public:
  void Post(std::vector<Charge>) override {}
  void Write(SessionRow row) override { rows.push_back(std::move(row)); }
  void Grant(LeaseRow) override {}
  void EndLease(LeaseId, std::string) override {}
  void Then(std::function<void(absl::Status)> job) override {
    jobs.push_back([job = std::move(job)] { job(absl::OkStatus()); });
  }
  void ThenOrAtOnce(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  absl::Status trouble() const override { return trouble_; }
  std::vector<SessionRow> rows;
  Jobs jobs;
  absl::Status trouble_;
};

class Auth final : public ClientAuth {
 public:
  explicit Auth(Host* host) : host_(host) {}
  void Admit(const Credentials&, std::function<void(absl::StatusOr<Admitted>)> then) override {
    host_->Post([this, then = std::move(then)] {
      if (!admits.ok()) return then(admits);
      then(Admitted{identity});
    });
  }
  absl::Status MayOpen(TenantId) override { return may_open; }
  absl::Status Check(const std::string& key_id) override {
    return key_id == refused ? absl::UnauthenticatedError("revoked") : absl::OkStatus();
  }
  Identity identity{TenantId{1}, ""};
  std::string refused = "none";
  absl::Status admits, may_open;

 private:
  Host* const host_;
};

class Blobs final : public BlobUses {
 public:
  void BeginSession(TenantId, const SessionId&) override {}
  void EndSession(const SessionId&) override { ++ended; }
  absl::StatusOr<uint64_t> SizeOf(TenantId, const wire::Hash&) override {
    return absl::NotFoundError("");
  }
  absl::Status UseBlob(TenantId, const SessionId&, const wire::Hash&, uint64_t, uint64_t) override {
    return absl::NotFoundError("");
  }
  int ended = 0;
};

class ClientEnd final : public ClientEndpoint {
 public:
  void Send(proto::ServerFrame frame) override { sent.push_back(std::move(frame)); }
  void End(absl::Status why) override { ends.push_back(std::move(why)); }
  bool AskDrained() override { return false; }
  void ResumeReading() override {}
  bool Hold() override { return true; }
  void Unhold() override {}
  std::vector<proto::ServerFrame> sent;
  std::vector<absl::Status> ends;
};

class ValuesEnd final : public ValuesEndpoint {
 public:
  void Send(proto::ServerFrame) override {}
  void End(absl::Status why) override { ends.push_back(std::move(why)); }
  bool AskDrained() override { return false; }
  std::vector<absl::Status> ends;
};

class ExecutorEnd final : public ExecutorEndpoint {
 public:
  void Send(proto::ClientFrame frame) override { sent.push_back(std::move(frame)); }
  void End(absl::Status) override { ended = true; }
  bool AskDrained() override { return false; }
  void ResumeReading() override {}
  std::vector<proto::ClientFrame> sent;
  bool ended = false;
};

class Quarantine final : public WorkerQuarantine {
 public:
  absl::Status Add(const SetAsideWorker& worker) override {
    if (!trouble.ok()) return trouble;
    rows.push_back(worker);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SetAsideWorker>> Read() override { return rows; }
  std::vector<SetAsideWorker> rows;
  absl::Status trouble;
};

class Watcher final : public DriverObserver {
 public:
  void OnWorkerOffence(const ObservedSession&, std::string_view, std::string_view kind) override {
    offences.emplace_back(kind);
  }
  void OnWorkerSetAside(std::string_view name, std::string_view, std::string_view) override {
    set_aside.emplace_back(name);
  }
  void OnWorkerLifted(std::string_view, std::string_view) override { ++lifted; }
  std::vector<std::string> offences, set_aside;
  int lifted = 0;
};

class WorkerEnd final : public WorkerEndpoint {
 public:
  void Send(proto::GatewayCommand command) override { sent.push_back(std::move(command)); }
  void End(absl::Status) override {}
  // The last Assign.
  const proto::Assign* assign() const {
    const proto::Assign* last = nullptr;
    for (const proto::GatewayCommand& command : sent)
      if (command.has_assign()) last = &command.assign();
    return last;
  }
  std::vector<proto::GatewayCommand> sent;
};

class CoreDriverTest : public ::testing::Test {
 protected:
  CoreDriverTest() { Join(worker_port_, 'a'); }
  ~CoreDriverTest() override { EXPECT_EQ(driver_.CheckInvariants(), ""); }

  // A worker called "gpu" whose identity is `letter`, 32 times.
  static void Join(WorkerPort& port, char letter) {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("gpu");
    reg.set_identity(std::string(kWorkerIdentityBytes, letter));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    reg.add_devices()->set_hardware_class("small");
    port.OnEvent(event);
  }
  static CoreOptions Options() {
    CoreOptions options;
    options.snapshot_ns = 30 * kSecondNs;
    return options;
  }
  static proto::ClientFrame OpenFrame() {
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
    return frame;
  }
  void Open() { Open(client_port_, OpenFrame()); }
  void Open(ClientPort& port, proto::ClientFrame frame) {
    port.Begin();
    RunAll(host_.jobs);
    port.OnFrame(std::move(frame));
    RunAll(host_.jobs);
  }
  absl::Status Attach(ExecutorPort& port, const proto::Assign& assign) {
    return port.Attach(*SessionId::FromBytes(assign.session_id()),
                       *TokenFromBytes(assign.attach_token()));
  }
  // The worker says that the executor's process has ended.
  void Report(const proto::Assign& assign) {
    proto::WorkerEvent event;
    proto::SessionEnded& ended = *event.mutable_session_ended();
    ended.set_session_id(assign.session_id());
    ended.set_placement(assign.placement());
    ended.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    ended.set_message("the executor ended");
    worker_port_.OnEvent(event);
  }
  void Tick(int64_t ms) {
    host_.now.ns += ms * 1'000'000;
    driver_.OnTick();
  }

  Host host_;
  Writes writes_;
  Blobs blobs_;
  Auth auth_{&host_};
  CoreDriver driver_{Options(), &host_, &writes_, &blobs_, &auth_};
  WorkerEnd worker_;
  WorkerPort worker_port_{&driver_, &worker_};
  ClientEnd client_;
  ClientPort client_port_{&driver_, &host_, &auth_, &client_, {}};
  ExecutorEnd executor_, next_;
  ExecutorPort executor_port_{&driver_, &executor_}, next_port_{&driver_, &next_};
};

TEST_F(CoreDriverTest, AnExecutorsAccountIsNamedAndWhetherItSharesWhatIsMeasured) {
  auth_.identity.shares_tuning = true;
  Open();
  ASSERT_NE(worker_.assign(), nullptr);
  EXPECT_EQ(worker_.assign()->account(), 1u);
  EXPECT_TRUE(worker_.assign()->shares_tuning());
}

TEST_F(CoreDriverTest, AnAccountThatDoesNotShareSaysSo) {
  Open();
  EXPECT_FALSE(worker_.assign()->shares_tuning());
}

TEST_F(CoreDriverTest, D3AnEpochIsToldWhenItsRowIsWritten) {
  Open();
  ASSERT_NE(worker_.assign(), nullptr);
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  ASSERT_EQ(writes_.rows.size(), 1u);
  EXPECT_EQ(writes_.rows[0].epoch, 1u);
  EXPECT_TRUE(executor_.sent.empty());
  RunAll(writes_.jobs);
  ASSERT_EQ(executor_.sent.size(), 1u);
  EXPECT_EQ(executor_.sent[0].epoch(), 1u);
  EXPECT_TRUE(executor_.sent[0].items(0).has_open());
}

// An entry without content takes 2 bytes on the wire and 50 here.
TEST_F(CoreDriverTest, AnOpenIsBounded) {
  const auto ends = [&](const std::function<void(proto::Open&)>& change) {
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_resume_token(std::string(16, 't'));
    change(*frame.mutable_items(0)->mutable_open());
    Open(port, std::move(frame));
    RunAll(writes_.jobs);
    port.OnGone();
    return client.ends.empty() ? absl::OkStatus() : client.ends[0];
  };
  const auto uses = [](int count, size_t bytes) {
    return [=](proto::Open& open) {
      for (int i = 0; i < count; ++i) open.add_kernel_uses()->set_kernel(std::string(bytes, 'k'));
    };
  };
  // What is within the limits is looked for, and not found.
  const auto is_taken = [](const absl::Status& end) { return absl::IsNotFound(end); };
  EXPECT_TRUE(is_taken(ends(uses(1000, 32))));
  const std::string name(100, 'n');
  EXPECT_TRUE(is_taken(ends([&](proto::Open& open) { open.set_client_name(name); })));
  for (const std::function<void(proto::Open&)>& wrong :
       std::vector<std::function<void(proto::Open&)>>{
           uses(1001, 32), uses(500'000, 0), uses(1, 31),
           [](proto::Open& open) { open.add_kernel_uses()->set_opts(std::string(1 << 17, 'o')); },
           [&](proto::Open& open) { open.set_client_name(name + "n"); },
           [](proto::Open& open) { open.set_client_version("1\n2"); }})
    EXPECT_EQ(ends(wrong).code(), absl::StatusCode::kInvalidArgument) << ends(wrong);
}

TEST_F(CoreDriverTest, OfANewSessionsOpenNoKernelUseIsKept) {
  proto::ClientFrame frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->add_kernel_uses()->set_kernel(std::string(32, 'k'));
  Open(client_port_, std::move(frame));
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  ASSERT_EQ(executor_.sent.size(), 1u);
  EXPECT_EQ(executor_.sent[0].items(0).open().kernel_uses_size(), 0);
}

TEST_F(CoreDriverTest, WhoIsNotLetInOpensNothing) {
  for (const bool has_key : {false, true}) {
    (has_key ? auth_.may_open : auth_.admits) = absl::UnavailableError("too many");
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    port.Begin();
    RunAll(host_.jobs);
    if (has_key) port.OnFrame(OpenFrame());
    EXPECT_EQ(worker_.assign(), nullptr);
    ASSERT_EQ(client.ends.size(), 1u);
    EXPECT_TRUE(absl::IsUnavailable(client.ends[0])) << client.ends[0];
    port.OnGone();
    auth_.admits = absl::OkStatus();
  }
}

TEST_F(CoreDriverTest, AStreamWithoutAnOpenEnds) {
  Tick(kFirstMessageMs - 100);
  EXPECT_TRUE(client_.ends.empty());
  Tick(200);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_EQ(client_.ends[0].code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(CoreDriverTest, D3WhoLeavesBeforeTheRowIsWrittenIsNotConnected) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  client_port_.OnGone();
  RunAll(writes_.jobs);
  EXPECT_TRUE(executor_.sent.empty());
}

TEST_F(CoreDriverTest, D4OnlyTheTokenOfTheLastAssignAttaches) {
  Open();
  proto::Assign wrong = *worker_.assign();
  wrong.set_attach_token(std::string(16, 'x'));
  EXPECT_EQ(Attach(executor_port_, wrong).code(), absl::StatusCode::kPermissionDenied);
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  EXPECT_EQ(Attach(next_port_, first).code(), absl::StatusCode::kPermissionDenied);  // once
}

// Its worker has some time to say why; then the session goes on with another executor.
TEST_F(CoreDriverTest, D1AnExecutorWhoseStreamEndsIsReplacedAfterAMoment) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  executor_port_.Leave();
  Tick(kExecutorWordMs / 2);
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Tick(kExecutorWordMs);
  const proto::Assign second = *worker_.assign();
  EXPECT_EQ(second.placement(), first.placement() + 1);
  ASSERT_TRUE(Attach(next_port_, second).ok());
  RunAll(writes_.jobs);
  ASSERT_EQ(next_.sent.size(), 1u);
  EXPECT_EQ(next_.sent[0].epoch(), 2u);
}

// What an executor says last is on its way while its worker reports the end of its process.
TEST_F(CoreDriverTest, WhyAnExecutorFailedIsReadBeforeItsEndIsDecided) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  Report(first);
  EXPECT_EQ(driver_.session_count(), 1u);
  proto::ServerFrame frame;
  frame.set_epoch(1);
  proto::Failed& failed = *frame.add_items()->mutable_failed();
  failed.set_code(static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  failed.set_message("a gap");
  executor_port_.OnFrame(std::move(frame));
  executor_port_.Leave();
  EXPECT_EQ(driver_.session_count(), 0u);
  RunAll(writes_.jobs);
  ASSERT_EQ(client_.ends.size(), 1u);
  const proto::ServerFrame& last = client_.sent.back();
  EXPECT_EQ(last.items(last.items_size() - 1).failed().message(), "a gap");
}

TEST_F(CoreDriverTest, AnExecutorWhoseStreamStaysOpenIsReplacedAfterAMoment) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  Report(first);
  Tick(kExecutorWordMs / 2);
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Tick(kExecutorWordMs);
  EXPECT_EQ(worker_.assign()->placement(), first.placement() + 1);
}

// The stream that ends after it may be a living executor's.
TEST_F(CoreDriverTest, AReportOfAnEarlierPlacementDoesNotStandForThisOne) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  proto::Assign earlier = first;
  earlier.set_placement(first.placement() + 7);
  Report(earlier);
  executor_port_.Leave();
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Report(first);
  EXPECT_EQ(worker_.assign()->placement(), first.placement() + 1);
}

TEST_F(CoreDriverTest, D2NothingIsLeftOfASessionThatIsClosed) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  proto::ClientFrame close;
  close.add_items()->mutable_close();
  client_port_.OnFrame(std::move(close));
  EXPECT_EQ(driver_.session_count(), 0u);
  EXPECT_TRUE(executor_.ended);
  EXPECT_TRUE(client_.ends.empty());  // the bill is not written yet
  RunAll(writes_.jobs);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_TRUE(client_.ends[0].ok());
  RunAll(host_.jobs);
  EXPECT_EQ(blobs_.ended, 1);
}

// The session of a worker that is away waits for it, or for the end of its time: a name that any
// worker can give itself moves nothing.
TEST_F(CoreDriverTest, ANameIsNotAnIdentity) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  EXPECT_TRUE(writes_.rows.back().worker.starts_with("gpu#1@")) << writes_.rows.back().worker;
  worker_port_.OnGone();
  WorkerEnd impostor, same;
  WorkerPort impostor_port(&driver_, &impostor), same_port(&driver_, &same);
  Join(impostor_port, 'b');
  EXPECT_EQ(impostor.assign(), nullptr);
  Join(same_port, 'a');  // started again: its executor is gone
  EXPECT_TRUE(impostor.assign() != nullptr || same.assign() != nullptr);
  RunAll(writes_.jobs);
}

// ---- workers that lie

class LyingWorkerTest : public CoreDriverTest {
 protected:
  LyingWorkerTest() {
    driver_.SetObserver(&watcher_);
    EXPECT_TRUE(driver_.SetQuarantine(&quarantine_).ok());
  }
  void Beat(WorkerPort& port, const std::string& session) {
    proto::WorkerEvent event;
    event.mutable_heartbeat()->set_beat(1);
    event.mutable_heartbeat()->add_sessions(session);
    port.OnEvent(event);
  }
  void OpenLive() {
    Open();
    ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
    RunAll(writes_.jobs);
  }
  // What the executor of this port says, of epoch 1.
  static void Say(ExecutorPort& port, const proto::ServerItem& item, uint64_t epoch = 1) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    port.OnFrame(std::move(frame));
  }
  static proto::ServerItem Opened() {
    proto::ServerItem item;
    item.mutable_opened();
    return item;
  }
  static proto::ServerItem DoneOf(uint64_t seq, uint64_t device_us = 0) {
    proto::ServerItem item;
    item.mutable_done()->set_through_seq(seq);
    item.mutable_done()->set_device_time_us(device_us);
    return item;
  }

  Watcher watcher_;
  Quarantine quarantine_;
  WorkerEnd rogue_;
  WorkerPort rogue_port_{&driver_, &rogue_};
};

TEST_F(LyingWorkerTest, WhoSpeaksForASessionThatItNeverHadIsSetAside) {
  OpenLive();
  Join(rogue_port_, 'r');
  const std::string id = worker_.assign()->session_id();
  Beat(worker_port_, id);
  EXPECT_TRUE(watcher_.offences.empty());
  Beat(rogue_port_, id);
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"other_session"});
  ASSERT_EQ(watcher_.set_aside.size(), 1u);
  EXPECT_TRUE(watcher_.set_aside[0].starts_with("gpu#2"));
  RunAll(host_.jobs);
  ASSERT_EQ(quarantine_.rows.size(), 1u);
  EXPECT_EQ(quarantine_.rows[0].name, "gpu");
  // The end of a session is no other worker's to tell either.
  proto::WorkerEvent event;
  event.mutable_session_ended()->set_session_id(id);
  rogue_port_.OnEvent(event);
  EXPECT_EQ(driver_.session_count(), 1u);
  EXPECT_EQ(quarantine_.rows.size(), 1u);
  // No session comes to it, now or when it joins again.
  WorkerEnd again;
  WorkerPort again_port(&driver_, &again);
  rogue_port_.OnGone();
  Join(again_port, 'r');
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  Open(other_port, OpenFrame());
  EXPECT_EQ(again.assign(), nullptr);
  // Until it is lifted.
  quarantine_.rows.clear();
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  EXPECT_EQ(watcher_.lifted, 1);
  EXPECT_NE(again.assign(), nullptr);
  other_port.OnGone();
}

TEST_F(LyingWorkerTest, D7ItStaysSetAsideAfterARestart_AndAWriteThatFailsIsTriedAgain) {
  OpenLive();
  Join(rogue_port_, 'r');
  quarantine_.trouble = absl::UnavailableError("locked");
  Beat(rogue_port_, worker_.assign()->session_id());
  RunAll(host_.jobs);
  EXPECT_TRUE(quarantine_.rows.empty());
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  EXPECT_EQ(watcher_.lifted, 0);  // what was never written was not lifted
  quarantine_.trouble = absl::OkStatus();
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  ASSERT_EQ(quarantine_.rows.size(), 1u);

  CoreDriver next(Options(), &host_, &writes_, &blobs_, &auth_);
  Watcher watcher;
  next.SetObserver(&watcher);
  ASSERT_TRUE(next.SetQuarantine(&quarantine_).ok());
  WorkerEnd end;
  WorkerPort port(&next, &end);
  Join(port, 'r');
  EXPECT_EQ(watcher.set_aside.size(), 1u);
  EXPECT_EQ(next.devices_total(), 0u);
  port.OnGone();
}

// A session that went elsewhere is still named by the worker that had it.
TEST_F(LyingWorkerTest, WhoHadASessionMaySpeakOfIt) {
  OpenLive();
  const proto::Assign first = *worker_.assign();
  executor_port_.Leave();
  WorkerEnd second;
  WorkerPort second_port(&driver_, &second);
  Join(second_port, 's');
  worker_port_.OnGone();  // and the session goes on at the second
  Tick(60'000);
  ASSERT_NE(second.assign(), nullptr);
  WorkerEnd again;
  WorkerPort again_port(&driver_, &again);
  Join(again_port, 'a');
  Beat(again_port, first.session_id());
  EXPECT_TRUE(watcher_.offences.empty());
  again_port.OnGone();
  second_port.OnGone();
}

TEST_F(LyingWorkerTest, AClaimWithAWrongTokenIsCountedAndGivesNothing) {
  OpenLive();
  proto::WorkerEvent event;
  proto::Register& reg = *event.mutable_register_();
  reg.set_name("gpu");
  reg.set_identity(std::string(kWorkerIdentityBytes, 'r'));
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices();
  proto::HeldSession& held = *reg.add_sessions();
  held.set_session_id(worker_.assign()->session_id());
  held.set_attach_token(std::string(16, 't'));
  rogue_port_.OnEvent(event);
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"claim"});
  EXPECT_TRUE(watcher_.set_aside.empty());
}

// Its tenant may have taken it over: it must not have workers set aside alone.
TEST_F(LyingWorkerTest, WhatAnExecutorSaysIsCappedAndCounted_AndOfTwoAccountsIsProof) {
  OpenLive();
  Say(executor_port_, Opened());
  Say(executor_port_, DoneOf(7, UINT64_MAX));
  const proto::Done& told = client_.sent.back().items(0).done();
  EXPECT_EQ(told.through_seq(), 0u);  // nothing was sent
  EXPECT_LT(told.device_time_us(), 60'000'000u);
  Tick(10);
  ASSERT_EQ(watcher_.offences.size(), 1u);
  Say(executor_port_, DoneOf(0), /*epoch=*/2);
  Tick(10);
  EXPECT_EQ(watcher_.offences.back(), "future_epoch");
  EXPECT_TRUE(watcher_.set_aside.empty());

  auth_.identity.tenant = TenantId{2};
  rogue_port_.OnGone();
  proto::WorkerEvent event;  // the same worker, by a second connection
  proto::Register& reg = *event.mutable_register_();
  reg.set_name("gpu");
  reg.set_identity(std::string(kWorkerIdentityBytes, 'a'));
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices();
  rogue_port_.OnEvent(event);
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  Open(other_port, OpenFrame());
  ASSERT_NE(rogue_.assign(), nullptr);
  ASSERT_TRUE(Attach(next_port_, *rogue_.assign()).ok());
  RunAll(writes_.jobs);
  Say(next_port_, DoneOf(0), /*epoch=*/9);
  Tick(10);
  EXPECT_FALSE(watcher_.set_aside.empty());
  other_port.OnGone();
}

TEST_F(LyingWorkerTest, HonestDeviceTimeIsBelieved) {
  OpenLive();
  Say(executor_port_, Opened());
  host_.now.ns += 100 * kSecondNs;
  Say(executor_port_, DoneOf(0, 99'000'000));
  EXPECT_EQ(client_.sent.back().items(0).done().device_time_us(), 99'000'000u);
  EXPECT_TRUE(watcher_.offences.empty());
}

TEST_F(CoreDriverTest, AKeyThatStandsNoMoreEndsItsStreamsAndKeepsTheSession) {
  auth_.identity.key_id = "a";
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  proto::ServerFrame opened;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened();
  executor_port_.OnFrame(std::move(opened));
  ASSERT_EQ(client_.sent.size(), 1u);
  const proto::Opened& told = client_.sent[0].items(0).opened();
  ValuesEnd values;
  ASSERT_TRUE(driver_
                  .OpenValues(&values, {TenantId{1}, "b"}, *SessionId::FromBytes(told.session_id()),
                              *TokenFromBytes(told.resume_token()))
                  .ok());
  // Within 5 s each: of the values' key, then of the session's.
  const auto pass = [&](const std::string& refused) {
    auth_.refused = refused;
    for (int64_t ms = 0; ms < 5000; ms += kTickMs) {
      proto::WorkerEvent beat;
      beat.mutable_heartbeat()->set_beat(1);
      worker_port_.OnEvent(beat);
      Tick(kTickMs);
      RunAll(host_.jobs);
    }
    RunAll(writes_.jobs);
  };
  pass("none");
  EXPECT_TRUE(values.ends.empty());
  pass("b");
  ASSERT_EQ(values.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnauthenticated(values.ends[0]));
  EXPECT_TRUE(client_.ends.empty());
  pass("a");
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnauthenticated(client_.ends[0]));
  EXPECT_EQ(driver_.session_count(), 1u);
  EXPECT_FALSE(executor_.ended);
}

TEST_F(CoreDriverTest, ASaveNeedsAKeyThatMayStore) {
  for (const bool may : {true, false}) {
    auth_.identity.rights.scopes =
        may ? Scopes{KeyScope::kRun, KeyScope::kStore} : Scopes{KeyScope::kRun};
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    Open(port, OpenFrame());
    proto::ClientFrame save;
    save.add_items()->mutable_save()->set_name("weights");
    port.OnFrame(std::move(save));
    RunAll(writes_.jobs);
    ASSERT_EQ(client.ends.size(), may ? 0u : 1u);
    if (!may) EXPECT_TRUE(absl::IsPermissionDenied(client.ends[0])) << client.ends[0];
    port.OnGone();
  }
}

TEST_F(CoreDriverTest, WhatCannotBeWrittenIsNotOpened) {
  writes_.trouble_ = absl::UnavailableError("the disk is full");
  Open();
  EXPECT_EQ(worker_.assign(), nullptr);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_EQ(client_.ends[0].code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::gateway
