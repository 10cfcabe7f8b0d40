// What is thrown while a client's graph or frame is handled ends that graph, or that session, and
// never the gateway (gateway/base/thrown.h).
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "gateway/groups/graph_sharder.h"
#include "tests/gateway/core_driver_world.h"
#include "wire/merkle.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};

GraphUse UseOf(const std::string& graph_id) {
  return {.graph_id = graph_id, .mesh = shard::Mesh{{2}}};
}

TEST(Thrown, WhileAGraphIsDivided_EndsThatGraphAlone) {
  GraphSharder sharder([](const GraphUse& use,
                          std::string_view) -> absl::StatusOr<WrittenGraph> {
    if (use.graph_id == "large") throw std::bad_alloc();
    if (use.graph_id == "odd") throw std::out_of_range("no such key");
    return WrittenGraph{.id = "written"};
  });
  const auto status_of = [&](const std::string& id) {
    return sharder.Write(kTenant, UseOf(id), "")->status;
  };
  EXPECT_EQ(status_of("large").code(), absl::StatusCode::kResourceExhausted) << status_of("large");
  EXPECT_EQ(status_of("odd").code(), absl::StatusCode::kInternal) << status_of("odd");
  EXPECT_TRUE(status_of("good").ok()) << status_of("good");
  const auto known = sharder.Find(kTenant, UseOf("large"));
  ASSERT_NE(known, nullptr) << "it is not tried again and again";
  EXPECT_FALSE(known->id.empty());
}

// A store whose index throws.
class ThrowingBlobs final : public Blobs {
 public:
  absl::StatusOr<uint64_t> SizeOf(TenantId, const wire::Hash&) override {
    if (throws_bad_alloc) throw std::bad_alloc();
    throw std::out_of_range("no such key");
  }
  bool throws_bad_alloc = true;
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
  EXPECT_TRUE(other.end.ends.empty());
  EXPECT_FALSE(other.executor.ended);
  EXPECT_EQ(driver.CheckInvariants(), "");
  for (Session* one : {&session, &other}) {
    one->port.OnGone();
    one->executor_port.Leave();
  }
}

INSTANTIATE_TEST_SUITE_P(Exceptions, ThrownTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "NoMemory" : "ABug"; });

}  // namespace
}  // namespace outboard::gateway
