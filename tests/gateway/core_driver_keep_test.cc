// What an executor wants kept, and the driver has to know of it: whether a client has asked for a
// checkpoint of that name, and that a snapshot could not be stored on the gateway's own disk.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "gateway/accounts/session_rows.h"
#include "gateway/base/token.h"
#include "gateway/data_path/ports.h"
#include "gateway/ledger/usage.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "tests/gateway/core_driver_world.h"

namespace outboard::gateway {
namespace {

class KeepTest : public CoreDriverTest {
 protected:
  KeepTest() { auth_.identity.rights.scopes = Scopes{KeyScope::kRun, KeyScope::kStore}; }
  SessionId id() const { return *SessionId::FromBytes(worker_.assign()->session_id()); }
  // The executor answers an Open: it has applied items up to `applied`.
  void Opened(ExecutorPort& port, uint64_t epoch, uint64_t applied) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    frame.add_items()->mutable_opened()->set_applied_seq(applied);
    port.OnFrame(std::move(frame));
  }
  static void Save(ClientPort& port, uint64_t epoch, uint64_t seq, const std::string& name) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    proto::ClientItem& item = *frame.add_items();
    item.set_seq(seq);
    item.mutable_save()->set_name(name);
    port.OnFrame(std::move(frame));
  }
  void Saved(ExecutorPort& port, uint64_t epoch, uint64_t seq) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    frame.add_items()->mutable_saved()->set_seq(seq);
    port.OnFrame(std::move(frame));
  }
  // A client that comes back with the token of `before`.
  proto::ClientFrame Again(const ClientEnd& before) {
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_resume_token(
        before.sent.at(0).items(0).opened().resume_token());
    return frame;
  }
};

TEST_F(KeepTest, ACheckpoint_IsAskedFor_UntilItsSaveIsAnswered) {
  Open();
  EXPECT_TRUE(absl::IsUnavailable(driver_.CheckAskedFor(id(), "w"))) << "it is opening";
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  EXPECT_TRUE(absl::IsUnavailable(driver_.CheckAskedFor(id(), "w")));
  Opened(executor_port_, 1, 0);
  EXPECT_TRUE(absl::IsNotFound(driver_.CheckAskedFor(id(), "w")));
  Save(client_port_, 1, 1, "w");
  EXPECT_TRUE(driver_.CheckAskedFor(id(), "w").ok());
  EXPECT_TRUE(absl::IsNotFound(driver_.CheckAskedFor(id(), "another")));
  // Its client goes, and comes back: what its executor has taken up it does not send again.
  client_port_.OnGone();
  EXPECT_TRUE(driver_.CheckAskedFor(id(), "w").ok());
  EXPECT_TRUE(absl::IsUnavailable(driver_.CheckAskedFor(id(), "another")));
  ClientEnd back;
  ClientPort back_port(&driver_, &host_, &auth_, &back, {});
  Open(back_port, Again(client_));
  RunAll(writes_.jobs);
  EXPECT_TRUE(absl::IsUnavailable(driver_.CheckAskedFor(id(), "another")));
  Opened(executor_port_, 2, 1);
  EXPECT_TRUE(driver_.CheckAskedFor(id(), "w").ok());
  EXPECT_TRUE(absl::IsNotFound(driver_.CheckAskedFor(id(), "another")));
  Saved(executor_port_, 2, 1);
  EXPECT_TRUE(absl::IsNotFound(driver_.CheckAskedFor(id(), "w")));
  EXPECT_TRUE(absl::IsUnavailable(driver_.CheckAskedFor(SessionId{0, 99}, "w")));
  back_port.OnGone();
}

// The gateway was started again while an executor stored a checkpoint: its client has come back,
// and does not send the Save again. It is told to, and not that it may not store.
TEST_F(KeepTest, ACheckpoint_OfAnEarlierGateway_HasToBeAskedForAgain) {
  Open();
  const proto::Assign assign = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, assign).ok());
  RunAll(writes_.jobs);
  Opened(executor_port_, 1, 0);
  Save(client_port_, 1, 1, "w");

  Host host;
  Writes writes;
  Blobs blobs;
  Auth auth(&host);
  auth.identity = auth_.identity;
  CoreDriver next(Options(), &host, &writes, &blobs, &auth);
  SessionRow row = writes_.rows.back();
  next.Restore({row, 1, ""}, Usage{});
  WorkerEnd worker;
  WorkerPort worker_port(&next, &worker);
  proto::WorkerEvent joins;
  proto::Register& reg = *joins.mutable_register_();
  reg.set_name("gpu");
  reg.set_identity(std::string(kWorkerIdentityBytes, 'a'));
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices()->set_hardware_class("small");
  proto::HeldSession& held = *reg.add_sessions();
  held.set_session_id(assign.session_id());
  held.set_attach_token(assign.attach_token());
  held.add_devices(0);
  held.set_placement(assign.placement());
  worker_port.OnEvent(joins);
  ExecutorEnd executor;
  ExecutorPort executor_port(&next, &executor);
  ASSERT_TRUE(executor_port
                  .Attach(*SessionId::FromBytes(assign.session_id()),
                          *TokenFromBytes(assign.attach_token()))
                  .ok());
  RunAll(writes.jobs);
  EXPECT_TRUE(absl::IsUnavailable(next.CheckAskedFor(id(), "w"))) << "its client is not there";
  ClientEnd back;
  ClientPort back_port(&next, &host, &auth, &back, {});
  back_port.Begin();
  RunAll(host.jobs);
  back_port.OnFrame(Again(client_));
  RunAll(host.jobs);
  RunAll(writes.jobs);
  const uint64_t epoch = executor.sent.at(0).epoch();
  Opened(executor_port, epoch, 1);
  EXPECT_TRUE(absl::IsAborted(next.CheckAskedFor(id(), "w")));
  Save(back_port, epoch, 2, "w");
  EXPECT_TRUE(next.CheckAskedFor(id(), "w").ok());
  EXPECT_EQ(next.CheckInvariants(), "");
  back_port.OnGone();
}

}  // namespace
}  // namespace outboard::gateway
