// The executor core's invariants E1 to E6 (worker/executor_core.cc), on the reference engine.
#include "worker/executor_core.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/ir/encoding.h"
#include "proto/limits.h"

namespace outboard::worker {
namespace {

// y = x + 1 on f32[2].
EncodedGraph Increment() {
  Graph g;
  const UOp* const x = BufferNode(g, 1, DType::kF32, {Dim(2)});
  return ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, Full(g, ConstFloat(g, DType::kF32, 1), x->shape))})));
}

class ExecutorCoreTest : public testing::Test {
 protected:
  ExecutorCoreTest() : engine(MakeReferenceEngine(1 << 30)), core(engine.get(), {"test", "test"}), graph(Increment()) {
    Open(1);
  }

  // Sends one item and returns the answers, flattened.
  std::vector<proto::ServerItem> Send(proto::ClientItem item, uint64_t epoch = 1) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = std::move(item);
    std::vector<proto::ServerItem> items;
    for (const proto::ServerFrame& answer : core.On(std::move(frame))) {
      EXPECT_LE(answer.ByteSizeLong(), wire::kFrameBytesMax);
      items.insert(items.end(), answer.items().begin(), answer.items().end());
    }
    return items;
  }

  std::vector<proto::ServerItem> Open(uint64_t epoch, uint64_t received = 0) {
    proto::ClientItem item;
    item.mutable_open()->set_received_seq(received);
    return Send(std::move(item), epoch);
  }

  std::vector<proto::ServerItem> SendGraph(uint64_t epoch = 1) {
    proto::ClientItem item;
    item.mutable_graph()->set_id(graph.id.ToBytes());
    item.mutable_graph()->set_total_bytes(graph.bytes.size());
    item.mutable_graph()->set_data(graph.bytes);
    return Send(std::move(item), epoch);
  }

  static proto::ClientItem PutItem(uint64_t seq, uint64_t handle, std::vector<float> values) {
    proto::ClientItem item;
    item.set_seq(seq);
    proto::Put& put = *item.mutable_put();
    put.set_handle(handle);
    put.set_dtype(static_cast<uint32_t>(DType::kF32));
    put.add_dims(values.size());
    put.set_total_bytes(values.size() * 4);
    put.set_data(values.data(), values.size() * 4);
    return item;
  }

  proto::ClientItem RunItem(uint64_t seq, uint64_t input, uint64_t output, bool fetch = true) {
    proto::ClientItem item;
    item.set_seq(seq);
    proto::Run& run = *item.mutable_run();
    run.set_graph_id(graph.id.ToBytes());
    run.add_inputs(input);
    run.add_outputs(output);
    if (fetch) run.add_fetch(0);
    return item;
  }

  static const proto::Failed* FindFailed(const std::vector<proto::ServerItem>& items) {
    for (const auto& item : items)
      if (item.has_failed()) return &item.failed();
    return nullptr;
  }
  static const proto::Value* FindValue(const std::vector<proto::ServerItem>& items) {
    for (const auto& item : items)
      if (item.has_done() && item.done().values_size() > 0) return &item.done().values(0);
    return nullptr;
  }
  static float First(const proto::Value& value) {
    float f;
    std::memcpy(&f, value.data().data(), 4);
    return f;
  }

  std::unique_ptr<Engine> engine;
  ExecutorCore core;
  EncodedGraph graph;
};

TEST_F(ExecutorCoreTest, RunsAndSendsWhatIsAskedFor) {
  SendGraph();
  Send(PutItem(1, 10, {1, 2}));
  const auto answers = Send(RunItem(2, 10, 11));
  ASSERT_NE(FindValue(answers), nullptr);
  EXPECT_EQ(First(*FindValue(answers)), 2);
  EXPECT_EQ(answers.back().done().through_seq(), 2u);
}

TEST_F(ExecutorCoreTest, E1AppliesOnceAndInOrder) {
  SendGraph();
  Send(PutItem(1, 10, {1, 2}));
  Send(RunItem(2, 10, 11));
  EXPECT_TRUE(Send(RunItem(2, 10, 11)).empty()) << "a duplicate is skipped";
  EXPECT_EQ(core.applied_seq(), 2u);
  const auto answers = Send(RunItem(4, 10, 12));
  ASSERT_NE(FindFailed(answers), nullptr);
  EXPECT_EQ(FindFailed(answers)->seq(), 0u);
  EXPECT_EQ(FindFailed(answers)->code(), static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(core.ended());
}

TEST_F(ExecutorCoreTest, E2PoisonNamesTheFirstCause) {
  SendGraph();
  const auto first = Send(RunItem(1, 99, 11));
  ASSERT_NE(FindFailed(first), nullptr);
  EXPECT_EQ(FindFailed(first)->code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
  const auto second = Send(RunItem(2, 11, 12));
  ASSERT_NE(FindFailed(second), nullptr);
  EXPECT_EQ(FindFailed(second)->cause_seq(), 1u);
  EXPECT_EQ(FindFailed(second)->message(), FindFailed(first)->message());
  EXPECT_FALSE(core.ended());
  Send(PutItem(3, 13, {5, 6}));
  EXPECT_EQ(First(*FindValue(Send(RunItem(4, 13, 14)))), 6) << "the session goes on";
}

TEST_F(ExecutorCoreTest, HandlesEndWithReleaseAndDonation) {
  SendGraph();
  Send(PutItem(1, 10, {1, 2}));
  auto donating = RunItem(2, 10, 11);
  donating.mutable_run()->add_donate(0);
  EXPECT_EQ(FindFailed(Send(std::move(donating))), nullptr);
  EXPECT_NE(FindFailed(Send(RunItem(3, 10, 12))), nullptr);
  proto::ClientItem release;
  release.set_seq(4);
  release.mutable_release()->add_handles(11);
  Send(std::move(release));
  EXPECT_NE(FindFailed(Send(RunItem(5, 11, 13))), nullptr);
}

TEST_F(ExecutorCoreTest, E5WaitsForAGraphThatItLacks) {
  Send(PutItem(1, 10, {1, 2}));
  const auto need = Send(RunItem(2, 10, 11));
  ASSERT_EQ(need.size(), 1u);
  EXPECT_EQ(need[0].need().graph_ids(0), graph.id.ToBytes());
  EXPECT_TRUE(Send(RunItem(3, 11, 12)).empty());
  const auto answers = SendGraph();
  EXPECT_EQ(core.applied_seq(), 3u);
  EXPECT_NE(FindValue(answers), nullptr);
}

TEST_F(ExecutorCoreTest, GraphMustBeThatOfItsId) {
  proto::ClientItem item;
  item.mutable_graph()->set_id(std::string(32, 'x'));
  item.mutable_graph()->set_total_bytes(graph.bytes.size());
  item.mutable_graph()->set_data(graph.bytes);
  Send(std::move(item));
  Send(PutItem(1, 10, {1, 2}));
  auto run = RunItem(2, 10, 11);
  run.mutable_run()->set_graph_id(std::string(32, 'x'));
  const auto answers = Send(std::move(run));
  ASSERT_NE(FindFailed(answers), nullptr);
  EXPECT_EQ(FindFailed(answers)->code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
}

TEST_F(ExecutorCoreTest, PutArrivesInPieces) {
  SendGraph();
  auto first = PutItem(1, 10, {1, 2}), second = first;
  first.mutable_put()->set_data(first.put().data().substr(0, 3));
  second.mutable_put()->set_data(second.put().data().substr(3));
  second.mutable_put()->set_offset(3);
  EXPECT_TRUE(Send(std::move(first)).empty());
  EXPECT_EQ(core.applied_seq(), 0u);
  Send(std::move(second));
  EXPECT_EQ(core.applied_seq(), 1u);
  EXPECT_EQ(First(*FindValue(Send(RunItem(2, 10, 11)))), 2);
}

TEST_F(ExecutorCoreTest, PutOfAWrongSizePoisonsItsHandle) {
  SendGraph();
  auto put = PutItem(1, 10, {1, 2});
  put.mutable_put()->set_dims(0, 3);
  EXPECT_NE(FindFailed(Send(std::move(put))), nullptr);
  EXPECT_EQ(FindFailed(Send(RunItem(2, 10, 11)))->cause_seq(), 1u);
}

TEST_F(ExecutorCoreTest, E4SendsAgainWhatWasNotReceived) {
  SendGraph();
  Send(PutItem(1, 10, {1, 2}));
  Send(RunItem(2, 10, 11));
  Send(RunItem(3, 11, 12));
  const auto resumed = Open(2, /*received=*/2);
  ASSERT_GE(resumed.size(), 2u);
  EXPECT_EQ(resumed[0].opened().applied_seq(), 3u);
  ASSERT_NE(FindValue(resumed), nullptr);
  EXPECT_EQ(FindValue(resumed)->seq(), 3u);
  EXPECT_TRUE(Send(RunItem(4, 12, 13), /*epoch=*/1).empty()) << "E6: an old stream's frame";
  EXPECT_EQ(core.applied_seq(), 3u);
}

TEST_F(ExecutorCoreTest, LargeValuesTravelInPieces) {
  std::vector<float> values(400000, 1.5f);
  for (size_t at = 0; at < values.size() * 4; at += wire::kPieceBytesMax) {
    auto item = PutItem(1, 10, values);
    item.mutable_put()->set_data(item.put().data().substr(at, wire::kPieceBytesMax));
    item.mutable_put()->set_offset(at);
    Send(std::move(item));
  }
  proto::ClientItem fetch;
  fetch.set_seq(2);
  fetch.mutable_fetch()->add_handles(10);
  uint64_t bytes = 0;
  for (const auto& item : Send(std::move(fetch)))
    for (const auto& value : item.done().values()) {
      EXPECT_EQ(value.offset(), bytes);
      bytes += value.data().size();
    }
  EXPECT_EQ(bytes, values.size() * 4);
}

TEST_F(ExecutorCoreTest, MoreThanOneDeviceIsNamed) {
  SendGraph();
  Send(PutItem(1, 10, {1, 2}));
  auto run = RunItem(2, 10, 11);
  run.mutable_run()->add_devices(1);
  EXPECT_EQ(FindFailed(Send(std::move(run)))->code(), static_cast<uint32_t>(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace outboard::worker
