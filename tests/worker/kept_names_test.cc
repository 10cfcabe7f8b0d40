// Names for arrays in an executor (E10 of session_state.cc): they follow their arrays from Run to
// Run, are part of a snapshot, and are listed for a client that is new to the session.
#include <cstring>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gtest/gtest.h"
#include "tests/support/device.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

using proto::ClientItem;
using proto::ServerItem;

// x + x of an f32[2]
EncodedGraph Twice() {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {2});
  return *EncodeGraph(Sink(g, {Add(g, x, x)}));
}

class KeptNamesTest : public ::testing::Test {
 protected:
  KeptNamesTest() { Open(1, false); }

  std::vector<ServerItem> Send(ClientItem item) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch_);
    *frame.add_items() = std::move(item);
    std::vector<ServerItem> out;
    for (const proto::ServerFrame& answer : core_.On(std::move(frame)))
      out.insert(out.end(), answer.items().begin(), answer.items().end());
    return out;
  }
  std::vector<ServerItem> Open(uint64_t epoch, bool is_new_client, uint64_t received_seq = 0) {
    epoch_ = epoch;
    ClientItem item;
    item.mutable_open()->set_session_id("sixteen bytes id");
    item.mutable_open()->set_snapshot_ms(1000);
    item.mutable_open()->set_is_new_client(is_new_client);
    item.mutable_open()->set_received_seq(received_seq);
    return Send(item);
  }
  std::vector<ServerItem> Put(uint64_t handle) {
    ClientItem item;
    item.set_seq(++seq_);
    item.mutable_put()->set_handle(handle);
    item.mutable_put()->set_dtype(static_cast<uint32_t>(DType::kF32));
    item.mutable_put()->add_dims(2);
    item.mutable_put()->set_total_bytes(8);
    item.mutable_put()->set_data(std::string(8, '\0'));
    return Send(item);
  }
  std::vector<ServerItem> Keep(const std::vector<std::pair<std::string, uint64_t>>& names) {
    ClientItem item;
    item.set_seq(++seq_);
    uint64_t id = 10;
    for (const auto& [name, handle] : names) {
      proto::Keep::Entry& entry = *item.mutable_keep()->add_entries();
      entry.set_id(id++);
      entry.set_name(name);
      entry.set_handle(handle);
    }
    item.mutable_keep();
    return Send(item);
  }
  std::vector<ServerItem> RunTwice(uint64_t input, uint64_t output, uint64_t kept_id,
                                   uint32_t kept_output = 0) {
    ClientItem graph;
    graph.mutable_graph()->set_id(graph_.id.ToBytes());
    graph.mutable_graph()->set_total_bytes(graph_.bytes.size());
    graph.mutable_graph()->set_data(graph_.bytes);
    Send(graph);
    ClientItem item;
    item.set_seq(++seq_);
    proto::Run& run = *item.mutable_run();
    run.set_graph_id(graph_.id.ToBytes());
    run.add_inputs(input);
    run.add_outputs(output);
    run.add_donate(0);
    if (kept_id != 0) {
      proto::Rekept& rekept = *run.add_rekept();
      rekept.set_id(kept_id);
      rekept.set_output(kept_output);
    }
    return Send(item);
  }
  std::vector<ServerItem> Fetch(uint64_t handle) {
    ClientItem item;
    item.set_seq(++seq_);
    item.mutable_fetch()->add_handles(handle);
    return Send(item);
  }
  static int ValuesIn(const std::vector<ServerItem>& items) {
    int count = 0;
    for (const ServerItem& item : items) count += item.done().values_size();
    return count;
  }
  static absl::StatusCode FailureIn(const std::vector<ServerItem>& items) {
    for (const ServerItem& item : items)
      if (item.has_failed()) return static_cast<absl::StatusCode>(item.failed().code());
    return absl::StatusCode::kOk;
  }
  // What a new client is told.
  proto::Kept List() {
    proto::Kept all;
    for (const ServerItem& item : Open(epoch_ + 1, true))
      if (item.has_kept()) all.MergeFrom(item.kept());
    return all;
  }

  const EncodedGraph graph_ = Twice();
  std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 20));
  ExecutorCore core_{engine_.get(), ExecutorOptions{"name", "class"}};
  uint64_t epoch_ = 1, seq_ = 0;
};

TEST_F(KeptNamesTest, ANewClientIsToldNamesShapesAndFreeHandles) {
  Put(3);
  Put(8);
  Keep({{"w", 3}});
  const proto::Kept kept = List();
  ASSERT_EQ(kept.entries_size(), 1);
  EXPECT_EQ(kept.entries(0).name(), "w");
  EXPECT_EQ(kept.entries(0).handle(), 3u);
  EXPECT_EQ(kept.entries(0).dtype(), static_cast<uint32_t>(DType::kF32));
  EXPECT_EQ(kept.entries(0).dims(0), 2u);
  EXPECT_TRUE(kept.is_last());
  EXPECT_EQ(kept.next_handle(), 9u);
  for (const ServerItem& item : Open(epoch_ + 1, false)) EXPECT_FALSE(item.has_kept());
}

TEST_F(KeptNamesTest, E10ANameFollowsItsArray_AlsoIntoAFailure) {
  Put(3);
  Keep({{"w", 3}});
  EXPECT_EQ(FailureIn(RunTwice(3, 4, 10)), absl::StatusCode::kOk);
  EXPECT_EQ(List().entries(0).handle(), 4u);
  EXPECT_EQ(FailureIn(RunTwice(99, 5, 10)), absl::StatusCode::kNotFound);
  const proto::Kept kept = List();
  EXPECT_EQ(kept.entries(0).handle(), 5u);
  EXPECT_EQ(kept.entries(0).dtype(), 0u);
  EXPECT_EQ(kept.entries(0).code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
}

TEST_F(KeptNamesTest, WhatAClientEndsAllTheSameIsListedAsLost) {
  Put(3);
  Keep({{"w", 3}});
  RunTwice(3, 4, 0);
  EXPECT_EQ(List().entries(0).code(), static_cast<uint32_t>(absl::StatusCode::kDataLoss));
}

TEST_F(KeptNamesTest, WhatCannotBeKeptFails_AndTheNamesBeforeStay) {
  Put(3);
  Keep({{"w", 3}});
  EXPECT_EQ(FailureIn(Keep({{"v", 77}})), absl::StatusCode::kNotFound);
  EXPECT_EQ(FailureIn(Keep({{"v", 3}, {"v", 3}})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FailureIn(RunTwice(3, 4, 10, /*kept_output=*/1)), absl::StatusCode::kInvalidArgument);
  Put(6);
  EXPECT_EQ(FailureIn(RunTwice(6, 7, 99)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(List().entries(0).name(), "w");
  EXPECT_EQ(FailureIn(Keep({})), absl::StatusCode::kOk);
  EXPECT_EQ(List().entries_size(), 0);
}

TEST_F(KeptNamesTest, ASnapshotHasThem) {
  Put(3);
  Keep({{"w", 3}});
  RunTwice(3, 4, 10);
  core_.TakeStore(0);
  const std::shared_ptr<const PersistRequest> request = core_.TakeStore(10'000);
  ASSERT_NE(request, nullptr);
  ASSERT_EQ(request->snapshot.names_size(), 1);
  EXPECT_EQ(request->snapshot.names(0).handle(), 4u);
  EXPECT_EQ(request->snapshot.names(0).id(), 10u);
}

TEST_F(KeptNamesTest, ANewClientGetsNoAnswersOfAnothers) {
  Put(3);
  Fetch(3);  // and no Ack
  EXPECT_EQ(ValuesIn(Open(2, false)), 1);
  EXPECT_EQ(ValuesIn(Open(3, true)), 0);
  EXPECT_EQ(ValuesIn(Open(4, false)), 0);
}

// The one before had received more than what the executor begins with: here nothing, or a snapshot.
TEST_F(KeptNamesTest, ANewClientGetsItsOwnAnswers_AlsoWhereTheOneBeforeWasFurther) {
  Open(2, false, /*received_seq=*/74);
  Put(3);
  EXPECT_EQ(ValuesIn(Fetch(3)), 0);
  Open(3, true);
  EXPECT_EQ(ValuesIn(Fetch(3)), 1);
}

}  // namespace
}  // namespace outboard::worker
