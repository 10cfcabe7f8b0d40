// The data path between two streams that no call is bound to.
#include "gateway/data_path/relay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "gateway/base/limits.h"
#include "tests/support/unbound_stream.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard::gateway {
namespace {

using ClientStream = test::UnboundClient;

EncodedGraph SomeGraph() {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {4});
  return ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
}

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() { relay_.SetExecutor(&executor_); }

  void Connect(ClientStream& client, uint64_t epoch, bool is_new = false) {
    proto::Open open;
    open.set_is_new_client(is_new);
    relay_.Connect(&client, {.epoch = epoch}, open);
  }

  // Bytes [begin, end) of the graph.
  absl::Status Send(ClientStream& client, uint64_t epoch, size_t begin, size_t end) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    proto::Graph& piece = *frame.add_items()->mutable_graph();
    piece.set_id(graph_.id.ToBytes());
    piece.set_total_bytes(graph_.bytes.size());
    piece.set_offset(begin);
    piece.set_data(graph_.bytes.substr(begin, end - begin));
    bool pause = false;
    return relay_.FromClient(&client, std::move(frame), pause);
  }

  const EncodedGraph graph_ = SomeGraph();
  const size_t bytes_ = graph_.bytes.size();
  GraphAdmission gate_;
  Relay relay_{SessionId{1, 2}, TenantId{1}, /*blobs=*/nullptr, &gate_};
  test::UnboundExecutor executor_;
  ClientStream first_, second_;
};

TEST_F(RelayTest, AGraphLeavesWhenItIsWhole) {
  Connect(first_, 1);  // its frame is the one under way
  EXPECT_TRUE(Send(first_, 1, 0, 10).ok());
  EXPECT_EQ(executor_.queued_bytes(), 0u);
  EXPECT_TRUE(Send(first_, 1, 10, bytes_).ok());
  EXPECT_GT(executor_.queued_bytes(), bytes_);
}

TEST_F(RelayTest, TakeSnapshotIsNoClientsToSend) {
  Connect(first_, 1);
  proto::ClientFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_take_snapshot();
  bool pause = false;
  EXPECT_TRUE(absl::IsInvalidArgument(relay_.FromClient(&first_, std::move(frame), pause)));
  EXPECT_EQ(executor_.queued_bytes(), 0u);
}

// Another client has not asked for it, and would wait for the answer in vain.
TEST_F(RelayTest, ASaveOfTheClientBefore_IsNotAwaited) {
  Connect(first_, 1);
  proto::ClientFrame frame;
  frame.set_epoch(1);
  proto::ClientItem& item = *frame.add_items();
  item.set_seq(1);
  item.mutable_save()->set_name("runs/1");
  bool pause = false;
  ASSERT_TRUE(relay_.FromClient(&first_, std::move(frame), pause).ok());
  EXPECT_TRUE(relay_.awaits_saved());
  EXPECT_TRUE(relay_.awaits_saved("runs/1"));
  EXPECT_FALSE(relay_.awaits_saved("runs/2")) << "nobody has asked for that name";
  // It comes back on another stream: what its executor has taken up it does not send again.
  Connect(second_, 2);
  EXPECT_TRUE(relay_.awaits_saved("runs/1"));
  Connect(first_, 3, /*is_new=*/true);
  EXPECT_FALSE(relay_.awaits_saved());
}

// Nobody has connected since the gateway was started again: the executor's epoch is unknown.
TEST_F(RelayTest, WhatAnExecutorHasDoneIsKnownBeforeItsClientIsBack) {
  proto::ServerFrame frame;
  frame.set_epoch(3);
  frame.add_items()->mutable_done()->set_through_seq(12);
  bool pause = false;
  relay_.FromExecutor(&executor_, std::move(frame), pause);
  EXPECT_EQ(relay_.done_seq(), 12u);
  EXPECT_FALSE(relay_.busy());
  EXPECT_EQ(relay_.TakeOffence(), std::nullopt);
}

// The time of an answer must not tell what another account has sent.
TEST_F(RelayTest, AVerdictIsKnownToTheTenantWhoseGraphItWas) {
  Connect(first_, 1);
  EXPECT_TRUE(Send(first_, 1, 0, bytes_).ok());
  EXPECT_TRUE(gate_.Knows(TenantId{1}, graph_.id.ToBytes()));
  EXPECT_FALSE(gate_.Knows(TenantId{2}, graph_.id.ToBytes()));
  EXPECT_TRUE(gate_.Check(TenantId{2}, graph_.id.ToBytes(), graph_.bytes).ok());
  EXPECT_TRUE(gate_.Knows(TenantId{2}, graph_.id.ToBytes()));
  // One that sends very many forgets its own.
  for (size_t i = 0; i < kGraphVerdictsMax + 10; ++i) {
    const std::string bytes = "no graph " + std::to_string(i);
    const auto hash = Sha256(bytes);
    EXPECT_FALSE(gate_.Check(TenantId{2}, std::string(wire::AsBytes(hash)), bytes).ok());
  }
  EXPECT_TRUE(gate_.Knows(TenantId{1}, graph_.id.ToBytes()));
  EXPECT_FALSE(gate_.Knows(TenantId{2}, graph_.id.ToBytes()));
}

TEST_F(RelayTest, BuffersTheGraphsThatTheDecoderAccepts) {
  const auto announce = [&](uint64_t bytes) {
    GraphAdmission gate;
    Relay relay(SessionId{1, 2}, TenantId{1}, /*blobs=*/nullptr, &gate);
    ClientStream client;
    relay.Connect(&client, {.epoch = 1}, {});
    proto::ClientFrame frame;
    frame.set_epoch(1);
    proto::Graph& piece = *frame.add_items()->mutable_graph();
    piece.set_id(graph_.id.ToBytes());
    piece.set_total_bytes(bytes);
    piece.set_data("OBG");
    bool pause = false;
    return relay.FromClient(&client, std::move(frame), pause).code();
  };
  const auto decode = [](uint64_t bytes) {
    Graph g;
    return DecodeGraph(g, std::string(bytes, 'O')).status().code();
  };
  constexpr uint64_t kMost = limits::kGraphBytesMax;
  EXPECT_EQ(announce(kMost), absl::StatusCode::kOk);
  EXPECT_EQ(announce(kMost + 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(kMost), absl::StatusCode::kInvalidArgument);  // read, and no graph
  EXPECT_EQ(decode(kMost + 1), absl::StatusCode::kResourceExhausted);
}

TEST_F(RelayTest, PiecesThatDoNotFollowEachOtherEndTheSession) {
  Connect(first_, 1);
  EXPECT_TRUE(Send(first_, 1, 0, 10).ok());
  EXPECT_EQ(Send(first_, 1, 11, bytes_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RelayTest, APieceOfTheStreamBeforeIsNotJoined) {
  Connect(first_, 1);
  EXPECT_TRUE(Send(first_, 1, 0, 10).ok());
  Connect(second_, 2);
  EXPECT_TRUE(Send(second_, 2, 0, 20).ok());
  EXPECT_TRUE(Send(first_, 1, 10, bytes_).ok());  // late: dropped
  EXPECT_TRUE(Send(second_, 2, 20, bytes_).ok());
  EXPECT_GT(executor_.queued_bytes(), bytes_);
}

TEST_F(RelayTest, LargeValuesGoToTheStreamForThem) {
  constexpr size_t kLarge = 200 << 10;
  test::UnboundClient values;
  Connect(first_, 1);
  relay_.SetValues(&values);
  const auto answer = [&](uint64_t epoch) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    proto::Done& done = *frame.add_items()->mutable_done();
    for (const size_t bytes : {size_t{10}, kLarge, size_t{20}}) {
      proto::Value& value = *done.add_values();
      value.set_total_bytes(bytes);
      value.set_data(std::string(bytes, 'v'));
    }
    bool pause = false;
    relay_.FromExecutor(&executor_, std::move(frame), pause);
  };
  answer(1);  // is under way on both
  answer(1);
  EXPECT_GT(values.queued_bytes(), kLarge);
  EXPECT_LT(values.queued_bytes(), kLarge + 100);
  EXPECT_GT(first_.queued_bytes(), 30u);
  EXPECT_LT(first_.queued_bytes(), 200u);
  answer(2);  // another epoch's
  EXPECT_LT(values.queued_bytes(), kLarge + 100);
  relay_.SetValues(nullptr);
  answer(1);
  EXPECT_GT(first_.queued_bytes(), kLarge);
}

// The client's Open is of long ago when its worker is replaced on its live stream: what the kernels
// were since then is the relay's to know.
TEST_F(RelayTest, AnotherExecutorIsToldThePlanSinceTheSnapshot) {
  relay_.Connect(&first_, {.epoch = 1, .recoverable = true}, {});
  proto::ServerFrame frame;
  frame.set_epoch(1);
  proto::Done& done = *frame.add_items()->mutable_done();
  for (const uint64_t seq : {3, 5, 9}) done.add_kernel_uses()->set_seq(seq);
  done.set_durable_seq(3);
  bool pause = false;
  relay_.FromExecutor(&executor_, frame, pause);
  Relay next{SessionId{1, 2}, TenantId{1}, /*blobs=*/nullptr, &gate_};
  next.GiveKernelUses(relay_.TakeKernelUses(), /*replays=*/true);
  test::UnboundExecutor other;
  next.SetExecutor(&other);
  EpochStart start{};
  start.epoch = 2;
  next.Connect(&second_, start, {});
  test::UnboundExecutor without;
  relay_.SetExecutor(&without);
  relay_.Connect(&first_, start, {});
  EXPECT_EQ(other.sent().items(0).open().kernel_uses_size(), 2);
  EXPECT_EQ(other.sent().items(0).open().kernel_uses(0).seq(), 5u);
  EXPECT_EQ(without.sent().items(0).open().kernel_uses_size(), 0);  // that executor knows it itself
}

TEST_F(RelayTest, APlanThatNobodyWillAskForIsNotKept) {
  Connect(first_, 1);  // not recoverable
  proto::ServerFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_done()->add_kernel_uses()->set_seq(3);
  bool pause = false;
  relay_.FromExecutor(&executor_, frame, pause);
  EXPECT_TRUE(relay_.TakeKernelUses().at(0).empty());

  // And one is kept once, and not for ever.
  relay_.Connect(&first_, {.epoch = 1, .recoverable = true}, {});
  for (int i = 0; i < 2; ++i) relay_.FromExecutor(&executor_, frame, pause);
  EXPECT_EQ(relay_.TakeKernelUses().at(0).size(), 1u);
  proto::KernelUse* entry = frame.mutable_items(0)->mutable_done()->mutable_kernel_uses(0);
  entry->set_kernel(std::string(1000, 'k'));
  for (uint64_t seq = 1; seq < 2000; ++seq) {
    entry->set_seq(seq);
    relay_.FromExecutor(&executor_, frame, pause);
  }
  // It fits into an Open.
  EXPECT_LT(relay_.TakeKernelUses().at(0).size(), wire::kFrameBytesMax / 1000);
}

// A side that has read many frames at once tells them all; its pause ends once.
TEST_F(RelayTest, APauseIsAskedForOnce) {
  Connect(first_, 1);
  proto::ServerFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_done()->add_values()->set_data(std::string(900'000, 'v'));
  int pauses = 0;
  for (int i = 0; i < 20; ++i) {
    bool pause = false;
    relay_.FromExecutor(&executor_, frame, pause);
    pauses += pause;
  }
  EXPECT_EQ(pauses, 1);
  EXPECT_EQ(executor_.resumed(), 0);
  relay_.ClientWritable();
  relay_.ClientWritable();
  EXPECT_EQ(executor_.resumed(), 1);
  bool pause = false;
  relay_.FromExecutor(&executor_, frame, pause);  // still more than should wait
  EXPECT_TRUE(pause);
  // The stream on which it waited is not the client's any more.
  Connect(second_, 2);
  EXPECT_EQ(executor_.resumed(), 2);
}

// A reader may be in the middle of a frame when its client comes back on another stream: the pieces
// are the newer one's. The threads' accesses are what ThreadSanitizer looks at.
TEST_F(RelayTest, ReadersOfTwoStreamsAtOnce) {
  Connect(first_, 1);
  std::atomic<bool> stop = false;
  std::thread late([&] {
    while (!stop) EXPECT_TRUE(Send(first_, 1, 0, bytes_).ok());
  });
  for (uint64_t epoch = 2; epoch < 200; epoch += 2) {
    Connect(second_, epoch);
    EXPECT_TRUE(Send(second_, epoch, 0, 10).ok());
    EXPECT_TRUE(Send(second_, epoch, 10, bytes_).ok());
    Connect(first_, 1);
    std::this_thread::yield();
  }
  stop = true;
  late.join();
}

}  // namespace
}  // namespace outboard::gateway
