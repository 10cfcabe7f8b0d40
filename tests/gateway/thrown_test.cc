// What is thrown while a client's graph or frame is handled ends that graph, or that session, and
// never the gateway (gateway/base/thrown.h).
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gateway/base/thrown.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/groups/group_runs.h"
#include "telemetry/log.h"
#include "tests/gateway/core_driver_world.h"
#include "tests/gateway/support.h"
#include "wire/merkle.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};

GraphUse UseOf(const std::string& graph_id) {
  return {.graph_id = graph_id, .mesh = shard::Mesh{{2}}};
}

TEST(Thrown, WhileAGraphIsDivided_EndsThatGraphAlone) {
  bool has_memory = false;
  GraphSharder sharder(
      [&](const GraphUse& use, std::string_view) -> absl::StatusOr<WrittenGraph> {
        if (use.graph_id == "large" && !has_memory) throw std::bad_alloc();
        if (use.graph_id == "odd") throw std::out_of_range("no such key");
        return WrittenGraph{.id = "written"};
      },
      nullptr);
  const auto status_of = [&](const std::string& id) {
    return sharder.Write(kTenant, UseOf(id), "")->status;
  };
  EXPECT_EQ(status_of("large").code(), absl::StatusCode::kResourceExhausted) << status_of("large");
  EXPECT_EQ(status_of("odd").code(), absl::StatusCode::kInternal) << status_of("odd");
  EXPECT_TRUE(status_of("good").ok()) << status_of("good");
  EXPECT_EQ(status_of("odd").message().find("no such key"), std::string::npos) << "for the log";
  const auto known = sharder.Find(kTenant, UseOf("odd"));
  ASSERT_NE(known, nullptr) << "it is not tried again and again";
  EXPECT_FALSE(known->id.empty());
  // Others may have had the memory.
  EXPECT_EQ(sharder.Find(kTenant, UseOf("large")), nullptr);
  has_memory = true;
  EXPECT_TRUE(status_of("large").ok()) << status_of("large");
}

TEST(Thrown, WhileAnArrayIsGathered_IsTheErrorOfThatGather) {
  bool is_odd = true;
  GraphSharder sharder(nullptr, [&](const shard::Mesh&, const WrittenGraph::Result&)
                                    -> absl::StatusOr<WrittenGraph> {
    if (is_odd) throw std::out_of_range("no such key");
    throw std::bad_alloc();
  });
  WrittenGraph::Result stored{.dtype = DType::kF32, .dims = {8}};
  const auto gather = [&] { return sharder.Gather(kTenant, shard::Mesh{{2}}, stored)->status; };
  EXPECT_EQ(gather().code(), absl::StatusCode::kInternal) << gather();
  is_odd = false;
  EXPECT_EQ(gather().code(), absl::StatusCode::kInternal) << "it is kept";
  stored.dims = {16};
  EXPECT_EQ(gather().code(), absl::StatusCode::kResourceExhausted) << gather();
}

// A Run that found no memory is no Run of a graph that cannot be written.
TEST(Thrown, ARunThatFoundNoMemory_IsTriedAgainByTheNext) {
  bool has_memory = false;
  GraphSharder sharder(
      [&](const GraphUse&, std::string_view) -> absl::StatusOr<WrittenGraph> {
        if (!has_memory) throw std::bad_alloc();
        return WrittenGraph{.id = "written", .results = {{}}};
      },
      nullptr);
  GroupRuns runs(kTenant, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder);
  ASSERT_TRUE(runs.AddGraph("graph", "its bytes").ok());
  for (uint64_t seq = 1; seq <= 2; ++seq) {
    proto::ClientFrame frame;
    frame.add_items()->set_seq(seq);
    frame.mutable_items(0)->mutable_run()->set_graph_id("graph");
    frame.mutable_items(0)->mutable_run()->add_outputs(seq);
    ASSERT_TRUE(runs.PlanFrame(/*may_write=*/true, frame).ok());
    std::vector<std::shared_ptr<const WrittenGraph>> written;
    runs.Rewrite(frame, written);
    ASSERT_EQ(written.size(), 1u);
    EXPECT_EQ(written[0]->status.ok(), has_memory) << written[0]->status;
    has_memory = true;
  }
}

TEST(Thrown, TheLogNamesTheException) {
  std::vector<std::string> lines;
  telemetry::StartLogging({.sink = [&](const std::string& line) { lines.push_back(line); }});
  const absl::Status status = ErrorIfThrown(
      "a test", []() -> absl::Status { throw std::out_of_range("no such key"); }, 7);
  telemetry::StopLogging();
  EXPECT_TRUE(IsThrown(status));
  ASSERT_EQ(lines.size(), 1u);
  for (const char* const part :
       {"level=error", "event=exception_caught", "account=7", "a test", "no such key"})
    EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
}

// A store whose index throws.
class ThrowingBlobs final : public Blobs {
 public:
  absl::StatusOr<uint64_t> SizeOf(TenantId, const wire::Hash&) override {
    if (before) before();
    if (throws_bad_alloc) throw std::bad_alloc();
    throw std::out_of_range("no such key");
  }
  bool throws_bad_alloc = true;
  std::function<void()> before;
};

class ThrownTest : public CoreDriverTest, public ::testing::WithParamInterface<bool> {
 protected:
  // A session that has begun, and its client's port.
  struct Session {
    Session(CoreDriver& driver, Host& host, Auth& auth)
        : port(&driver, &host, &auth, &end, {}), executor_port(&driver, &executor) {}
    ClientEnd end;
    ClientPort port;
    ExecutorEnd executor;
    ExecutorPort executor_port;
  };
  void Begin(Session& session, WorkerEnd& worker) {
    Open(session.port, OpenFrame());
    ASSERT_NE(worker.assign(), nullptr);
    ASSERT_TRUE(Attach(session.executor_port, *worker.assign()).ok());
    RunAll(writes_.jobs);
    RunAll(host_.jobs);
    ASSERT_EQ(session.executor.sent.size(), 1u) << "Open";
  }
  void SendPutByBlob(Session& session) {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->set_seq(1);
    proto::Put& put = *frame.mutable_items(0)->mutable_put();
    put.set_handle(1);
    put.set_blob_root(std::string(wire::kHashBytes, 'b'));
    put.set_total_bytes(4);
    EXPECT_FALSE(session.port.OnFrame(std::move(frame))) << "it is handled on the pool";
    EXPECT_NO_THROW(RunAll(host_.jobs));
    RunAll(writes_.jobs);
  }
};

TEST_P(ThrownTest, OnThePool_EndsThatSessionAlone) {
  ThrowingBlobs blobs;
  blobs.throws_bad_alloc = GetParam();
  CoreDriver driver(Options(), &host_, &writes_, &blobs, &auth_);
  WorkerEnd worker, worker_of_other;
  WorkerPort port(&driver, &worker), port_of_other(&driver, &worker_of_other);
  Session session(driver, host_, auth_), other(driver, host_, auth_);
  Join(port, 'b');
  Begin(session, worker);
  Join(port_of_other, 'c');
  Begin(other, worker_of_other);

  SendPutByBlob(session);
  ASSERT_FALSE(session.end.ends.empty());
  const absl::StatusCode code = session.end.ends[0].code();
  EXPECT_EQ(code, GetParam() ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal);
  EXPECT_EQ(session.end.ends[0].message().find("no such key"), std::string::npos);
  // It is not the client that refuses to pay for time that nobody has confirmed.
  EXPECT_EQ(writes_.rows.back().state, SessionRowState::kLost);
  EXPECT_EQ(writes_.lease_ends, std::vector{LeaseEnd::kGatewayFault});
  EXPECT_TRUE(other.end.ends.empty());
  EXPECT_FALSE(other.executor.ended);
  EXPECT_EQ(driver.CheckInvariants(), "");
  for (Session* one : {&session, &other}) {
    one->port.OnGone();
    one->executor_port.Leave();
  }
}

// The client has come back on another stream when the frame of its first one throws.
TEST_P(ThrownTest, BehindAResume_EndsThatSession) {
  ThrowingBlobs blobs;
  blobs.throws_bad_alloc = GetParam();
  CoreDriver driver(Options(), &host_, &writes_, &blobs, &auth_);
  WorkerEnd worker;
  WorkerPort port(&driver, &worker);
  Session session(driver, host_, auth_);
  Join(port, 'b');
  Begin(session, worker);
  proto::ServerFrame opened;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened();
  session.executor_port.OnFrame(std::move(opened));
  ASSERT_EQ(session.end.sent.size(), 1u);
  ClientEnd end;
  ClientPort again(&driver, &host_, &auth_, &end, {});
  blobs.before = [&] {
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_resume_token(
        session.end.sent[0].items(0).opened().resume_token());
    Open(again, std::move(frame));
    RunAll(writes_.jobs);
    EXPECT_TRUE(end.ends.empty()) << end.ends[0];
  };
  SendPutByBlob(session);
  ASSERT_FALSE(end.ends.empty()) << "the session goes on";
  EXPECT_EQ(driver.session_count(), 0u);
  EXPECT_EQ(driver.CheckInvariants(), "");
  session.port.OnGone();
  again.OnGone();
  session.executor_port.Leave();
}

// Of a tick nobody is the sender, and the core may have half of it: the gateway ends as if it had
// crashed there, and what was queued before is written.
TEST_P(ThrownTest, WithinATick_EndsTheGatewayInOrder) {
  Session session(driver_, host_, auth_);
  Begin(session, worker_);
  proto::ServerFrame opened;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened();
  session.executor_port.OnFrame(std::move(opened));
  const auto tick = [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_NO_THROW(Tick(1000));
      RunAll(writes_.jobs);
    }
  };
  writes_.before_write = [no_memory = GetParam()] {
    if (no_memory) throw std::bad_alloc();
    throw std::out_of_range("no such key");
  };
  tick();  // its worker says nothing
  ASSERT_EQ(host_.given_up.size(), 1u) << "once";
  EXPECT_TRUE(IsThrown(host_.given_up[0]));
  EXPECT_EQ(writes_.corks, 0) << "what was queued is not written";
  // Nothing more is done with what may be half an event.
  writes_.before_write = nullptr;
  const size_t rows = writes_.rows.size(), leases = writes_.leases.size();
  tick();
  Session later(driver_, host_, auth_);
  Open(later.port, OpenFrame());
  EXPECT_EQ(later.end.ends.size(), 1u) << "it is refused, and may come back";
  Session resumes(driver_, host_, auth_), attaches(driver_, host_, auth_);
  proto::ClientFrame frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->set_resume_token(std::string(16, 't'));
  Open(resumes.port, std::move(frame));
  frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->set_attach("name");
  Open(attaches.port, std::move(frame));
  for (const Session* const one : {&resumes, &attaches}) {
    ASSERT_EQ(one->end.ends.size(), 1u);
    EXPECT_EQ(one->end.ends[0].code(), absl::StatusCode::kUnavailable) << one->end.ends[0];
  }
  EXPECT_EQ(driver_.StopSession(kTenant, "any").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(writes_.rows.size(), rows);
  EXPECT_EQ(writes_.leases.size(), leases);
  for (Session* one : {&session, &later, &resumes, &attaches}) {
    one->port.OnGone();
    one->executor_port.Leave();
  }
}

// Else the snapshot before it would be let go of, which the row goes on to name.
class KeepThrownTest : public ThrownTest {
 protected:
  KeepThrownTest() {
    Join(port_, 'b');
    Begin(one_, worker_of_one_);
    Join(port_of_other_, 'c');
    Begin(other_, worker_of_other_);
  }
  ~KeepThrownTest() override {
    for (Session* each : {&one_, &other_}) {
      each->port.OnGone();
      each->executor_port.Leave();
    }
  }
  const proto::Assign& assign() const { return *worker_of_other_.assign(); }
  SessionId id() const { return *SessionId::FromBytes(assign().session_id()); }
  // Of the second session, with one array.
  wire::Hash Snapshot(const std::string& bytes) {
    const auto stored = [this](const std::string& text) {
      const wire::Hash root = ValueOrDie(store_->Write(kTenant, text, BlobOrigin::kSession));
      EXPECT_TRUE(retention_->UploadedBy(kTenant, id(), root).ok());
      return root;
    };
    proto::SessionSnapshot snapshot;
    snapshot.add_held()->set_blob_root(std::string(wire::AsBytes(stored(bytes))));
    return stored(snapshot.SerializeAsString());
  }
  absl::Status Keep(const wire::Hash& manifest, uint64_t seq) {
    std::optional<absl::Status> told;
    retention_->KeepSnapshot(
        kTenant, id(), manifest, seq,
        [&](const BlobRetention::Done& written) {
          driver_of_all_.KeepSnapshot(id(), *TokenFromBytes(assign().attach_token()),
                                      std::string(wire::AsBytes(manifest)), seq, written);
        },
        [&](absl::Status status) { told = std::move(status); });
    while (store_->SyncSome()) continue;
    RunAll(writes_.jobs);
    return told.value_or(absl::UnknownError("it was never told"));
  }
  void ThrowAt(int write) {  // counted from 0
    writes_.before_write = [no_memory = GetParam(), left = write]() mutable {
      if (left-- > 0) return;
      if (no_memory) throw std::bad_alloc();
      throw std::out_of_range("no such key");
    };
  }
  bool IsThere(const wire::Hash& root) { return store_->Find(kTenant, root).ok(); }
  std::string RootOfRow() const {
    std::string root;
    for (const SessionRow& row : writes_.rows)
      if (row.session == id()) root = row.snapshot_root;
    return root;
  }

  test::TempDir temp_;
  std::unique_ptr<BlobStore> store_ =
      ValueOrDie(BlobStore::Open(temp_.File("blobs"), {.sync_thread = false}));
  std::unique_ptr<BlobRetention> retention_ = ValueOrDie(BlobRetention::Open(
      store_.get(), temp_.File("names.db"), [] { return WallTime{1}; }));
  CoreDriver driver_of_all_{Options(), &host_, &writes_, retention_.get(), &auth_};
  WorkerEnd worker_of_one_, worker_of_other_;
  WorkerPort port_{&driver_of_all_, &worker_of_one_},
      port_of_other_{&driver_of_all_, &worker_of_other_};
  Session one_{driver_of_all_, host_, auth_}, other_{driver_of_all_, host_, auth_};
};

TEST_P(KeepThrownTest, ASnapshotBehindAnEventThatThrew_IsNotKept) {
  const wire::Hash first = Snapshot("first");
  ASSERT_TRUE(Keep(first, 1).ok());
  ThrowAt(0);
  driver_of_all_.FailSession(*SessionId::FromBytes(worker_of_one_.assign()->session_id()),
                             absl::InternalError("it ends"));
  ASSERT_EQ(host_.given_up.size(), 1u);
  writes_.before_write = nullptr;
  EXPECT_EQ(Keep(Snapshot("second"), 2).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RootOfRow(), wire::AsBytes(first));
  EXPECT_TRUE(IsThere(first));
  EXPECT_TRUE(IsThere(wire::NameBlob("first").root));
}

TEST_P(KeepThrownTest, ASnapshotWhoseRowThrows_IsNotKept) {
  const wire::Hash first = Snapshot("first");
  ASSERT_TRUE(Keep(first, 1).ok());
  ThrowAt(0);
  EXPECT_EQ(Keep(Snapshot("second"), 2).code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(host_.given_up.size(), 1u);
  EXPECT_EQ(RootOfRow(), wire::AsBytes(first));
  EXPECT_TRUE(IsThere(first));
  EXPECT_TRUE(IsThere(wire::NameBlob("first").root));
}

// Its worker drains: with the row the session moves. The first snapshot has less than what is done:
// else it would have moved before.
TEST_P(KeepThrownTest, ASnapshotBehindWhoseRowSomethingThrows_IsKept) {
  proto::ServerFrame opened, done;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened();
  other_.executor_port.OnFrame(std::move(opened));
  proto::ClientFrame two_items;
  two_items.set_epoch(1);
  for (uint64_t seq = 1; seq <= 2; ++seq) {
    proto::ClientItem& item = *two_items.add_items();
    item.set_seq(seq);
    item.mutable_put()->set_handle(seq);
  }
  other_.port.OnFrame(std::move(two_items));
  done.set_epoch(1);
  done.add_items()->mutable_done()->set_through_seq(2);
  other_.executor_port.OnFrame(std::move(done));
  const wire::Hash first = Snapshot("first"), second = Snapshot("second");
  ASSERT_TRUE(Keep(first, 1).ok());
  proto::WorkerEvent drains;
  drains.mutable_draining();
  port_of_other_.OnEvent(drains);
  RunAll(writes_.jobs);
  ASSERT_EQ(RootOfRow(), wire::AsBytes(first));
  ThrowAt(1);
  const absl::Status kept = Keep(second, 2);
  EXPECT_TRUE(kept.ok()) << kept;
  ASSERT_EQ(host_.given_up.size(), 1u);
  EXPECT_EQ(RootOfRow(), wire::AsBytes(second));
  EXPECT_TRUE(IsThere(second));
  EXPECT_TRUE(IsThere(wire::NameBlob("second").root));
}

INSTANTIATE_TEST_SUITE_P(Exceptions, KeepThrownTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "NoMemory" : "ABug"; });
INSTANTIATE_TEST_SUITE_P(Exceptions, ThrownTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "NoMemory" : "ABug"; });

}  // namespace
}  // namespace outboard::gateway
