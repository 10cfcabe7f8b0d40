// CoreDriver on one thread, with a clock and a disk that the test moves by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/ports.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "wire/version.h"

namespace outboard::gateway {

using Jobs = std::vector<std::function<void()>>;

// Also those that the jobs add.
inline void RunAll(Jobs& jobs) {
  while (!jobs.empty())
    for (const auto& job : std::exchange(jobs, {})) job();
}

class Host final : public DriverHost {
 public:
  MonoTime Now() override { return now; }
  WallTime WallNow() override {
    now.ns += wall_takes_ns;
    return {now.ns / 1'000'000};
  }
  int64_t wall_takes_ns = 0;  // until somebody has the time, on a busy machine
  Token DrawToken() override { return {7, ++drawn_}; }
  void Post(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  void GiveUp(const absl::Status& why) override { given_up.push_back(why); }
  std::vector<absl::Status> given_up;
  MonoTime now{1'000'000'000};
  Jobs jobs;

 private:
  uint64_t drawn_ = 0;
};

class Writes final : public WriteQueue {
 public:
  void Cork() override { ++corks; }
  void Uncork() override { --corks; }
  void Post(std::vector<Charge> more, Refused) override {
    if (before_write) before_write();
    charges.insert(charges.end(), more.begin(), more.end());
  }
  void Hold(HoldRequest request, std::function<void(HoldAnswer)> then) override {
    jobs.push_back([request, then] { then({request.to_ms, absl::OkStatus()}); });
  }
  void EndHold(LeaseId) override {}
  void Write(SessionRow row) override {
    if (before_write) before_write();
    rows.push_back(std::move(row));
  }
  void Grant(LeaseRow row) override {
    if (!refuses_lease.ok())
      jobs.push_back([this, session = row.lease.session] { not_written_(session, refuses_lease); });
    leases.push_back(std::move(row));
  }
  void OnNotWritten(NotWritten then) override { not_written_ = std::move(then); }
  void KeepReceipts(std::vector<proto::Receipt> more, ReceiptRefused refused) override {
    for (const proto::Receipt& receipt : more) {
      receipts.push_back(receipt);
      if (!receipts_refused.ok())
        jobs.push_back([receipt, refused, why = receipts_refused] { refused(receipt, why); });
    }
  }
  void EndLease(LeaseId, LeaseEnd why) override { lease_ends.push_back(why); }
  void Then(std::function<void(absl::Status)> job) override {
    jobs.push_back([job = std::move(job)] { job(absl::OkStatus()); });
  }
  void ThenOrAtOnce(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  absl::Status trouble() const override { return trouble_; }
  std::vector<SessionRow> rows;
  std::vector<LeaseRow> leases;
  std::vector<LeaseEnd> lease_ends;
  std::vector<Charge> charges;
  std::function<void()> before_write;
  int corks = 0;
  std::vector<proto::Receipt> receipts;
  absl::Status receipts_refused;  // what becomes of each
  absl::Status refuses_lease;     // for good
  Jobs jobs;
  absl::Status trouble_;

 private:
  NotWritten not_written_;
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

class Blobs : public BlobUses {
 public:
  void BeginSession(TenantId, const SessionId&) override {}
  void EndSession(const SessionId&) override { ++ended; }
  absl::Status RestoreSnapshot(TenantId, const SessionId&, std::span<const wire::Hash>) override {
    return share;
  }
  absl::Status share;
  absl::StatusOr<uint64_t> SizeOf(TenantId, const wire::Hash&) override {
    return absl::NotFoundError("");
  }
  absl::Status UseBlob(TenantId, const SessionId&, const wire::Hash&, uint64_t, uint64_t) override {
    return absl::NotFoundError("");
  }
  void PartsKept(const SessionId&, uint64_t seq,
                 const std::vector<wire::Hash>& manifests) override {
    kept_seq = seq;
    kept = manifests;
  }
  void ForgetParts(const SessionId&, uint64_t) override {}
  int ended = 0;
  uint64_t kept_seq = 0;
  std::vector<wire::Hash> kept;
};

class ClientEnd final : public ClientEndpoint {
 public:
  void Send(proto::ServerFrame frame) override { sent.push_back(std::move(frame)); }
  void End(absl::Status why) override { ends.push_back(std::move(why)); }
  void SendLast(proto::ServerFrame frame, absl::Status why) override {
    Send(std::move(frame));
    End(std::move(why));
  }
  bool AskWritable() override { return false; }
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
  bool AskWritable() override { return false; }
  std::vector<absl::Status> ends;
};

class ExecutorEnd final : public ExecutorEndpoint {
 public:
  void Send(proto::ClientFrame frame) override { sent.push_back(std::move(frame)); }
  void End(absl::Status) override { ended = true; }
  bool AskWritable() override { return false; }
  void ResumeReading() override {}
  std::vector<proto::ClientFrame> sent;
  bool ended = false;
};

class WorkerEnd final : public WorkerEndpoint {
 public:
  void Send(proto::GatewayCommand command) override { sent.push_back(std::move(command)); }
  void End(absl::Status why) override { ends.push_back(std::move(why)); }
  // The last Assign.
  const proto::Assign* assign() const {
    const proto::Assign* last = nullptr;
    for (const proto::GatewayCommand& command : sent)
      if (command.has_assign()) last = &command.assign();
    return last;
  }
  std::string address() const override { return host; }
  std::vector<proto::GatewayCommand> sent;
  std::vector<absl::Status> ends;
  std::string host = "192.0.2.1";
};

class CoreDriverTest : public ::testing::Test {
 protected:
  CoreDriverTest() { Join(worker_port_, 'a'); }
  ~CoreDriverTest() override { EXPECT_EQ(driver_.CheckInvariants(), ""); }

  // A worker called "gpu" whose identity is `letter`, 32 times.
  static void Join(WorkerPort& port, char letter, const std::string& receipt_key = "") {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("gpu");
    reg.set_identity(std::string(kWorkerIdentityBytes, letter));
    reg.set_receipt_key(receipt_key);
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

}  // namespace outboard::gateway
