// The data path of a session on two devices: what each rank gets, and when nobody gets anything.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gateway/data_path/relay.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/groups/group_runs.h"

namespace outboard::gateway {
namespace {

struct Executor final : ExecutorEndpoint {
  void Send(proto::ClientFrame frame) override {
    if (throws) throw std::bad_alloc();
    got.push_back(std::move(frame));
  }
  void End(absl::Status) override { ended = true; }
  bool AskWritable() override { return full; }
  void ResumeReading() override { ++resumed; }
  std::vector<proto::ClientFrame> got;
  proto::Open opened;
  bool ended = false, full = false, throws = false;
  int resumed = 0;
};
struct Client final : ClientEndpoint {
  void Send(proto::ServerFrame frame) override { got.push_back(std::move(frame)); }
  void End(absl::Status) override {}
  void SendLast(proto::ServerFrame frame, absl::Status) override { Send(std::move(frame)); }
  bool AskWritable() override { return false; }
  void ResumeReading() override { ++resumed; }
  bool Hold() override { return true; }
  void Unhold() override {}
  std::vector<proto::ServerFrame> got;
  int resumed = 0;
};

class RelayRanksTest : public ::testing::Test {
 protected:
  RelayRanksTest() {
    for (uint32_t rank = 0; rank < 2; ++rank) relay_.SetExecutor(&ranks_[rank], rank);
    relay_.Connect(&client_, {.epoch = 1, .price_per_hour = MicroUsd{7}}, {});
  }
  bool From(uint32_t rank, const std::function<void(proto::ServerItem&)>& fill) {
    proto::ServerFrame frame;
    frame.set_epoch(1);
    fill(*frame.add_items());
    bool pause = false;
    relay_.FromExecutor(&ranks_[rank], std::move(frame), pause);
    return pause;
  }
  bool Opened(uint32_t rank) {
    return From(rank, [](proto::ServerItem& item) { item.mutable_opened(); });
  }
  void Done(uint32_t rank, uint64_t seq) {
    From(rank, [&](proto::ServerItem& item) { item.mutable_done()->set_through_seq(seq); });
  }
  bool Run(uint64_t seq) {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    proto::ClientItem& item = *frame.add_items();
    item.set_seq(seq);
    item.mutable_run()->add_outputs(seq);
    bool pause = false;
    EXPECT_TRUE(relay_.FromClient(&client_, std::move(frame), pause).ok());
    return pause;
  }
  GraphAdmission gate_;
  Relay relay_{SessionId{1, 2}, TenantId{1}, /*blobs=*/nullptr, &gate_, MonoNow, nullptr, 2};
  Executor ranks_[2];
  Client client_;
};

TEST_F(RelayRanksTest, AnItem_GoesToAllRanks) {
  Opened(0), Opened(1);
  Run(1);
  for (const Executor& rank : ranks_) {
    ASSERT_EQ(rank.got.size(), 2u);
    EXPECT_TRUE(rank.got[0].items(0).has_open());
    EXPECT_EQ(rank.got[1].items(0).seq(), 1u);
  }
  EXPECT_TRUE(relay_.busy());
  Done(0, 1);
  EXPECT_TRUE(relay_.busy());
  Done(1, 1);
  EXPECT_FALSE(relay_.busy());
  EXPECT_EQ(relay_.done_seq(), 1u);
}

TEST_F(RelayRanksTest, Opened_ComesOnceAndSaysAllDevices) {
  EXPECT_TRUE(Opened(0)) << "nothing more of it is read until the other has opened";
  EXPECT_TRUE(client_.got.empty());
  EXPECT_FALSE(Opened(1));
  EXPECT_EQ(ranks_[0].resumed, 1);
  ASSERT_EQ(client_.got.size(), 1u);
  const proto::Opened& opened = client_.got[0].items(0).opened();
  EXPECT_EQ(opened.devices(), 2u);
  EXPECT_EQ(opened.price_per_hour_micro_usd(), 7u);
}

TEST_F(RelayRanksTest, ALostRank_StopsWhatTheOthersGet) {
  Opened(0), Opened(1);
  relay_.DropExecutor(&ranks_[1]);
  EXPECT_TRUE(relay_.has_executor(0));
  EXPECT_FALSE(relay_.has_executor(1));
  Run(1);
  EXPECT_EQ(ranks_[0].got.size(), 1u);
}

TEST_F(RelayRanksTest, AClient_ReadsOnWhenAllRanksAreWritable) {
  Opened(0), Opened(1);
  ranks_[0].full = ranks_[1].full = true;
  EXPECT_TRUE(Run(1));
  relay_.ExecutorWritable(&ranks_[0]);
  EXPECT_EQ(client_.resumed, 0);
  relay_.ExecutorWritable(&ranks_[1]);
  EXPECT_EQ(client_.resumed, 1);
}

// One rank has what the other lacks: whoever is the client by then, nobody gets more.
TEST_F(RelayRanksTest, R9WhatThrowsBetweenTwoRanks_IsTheLastThatPasses) {
  Opened(0), Opened(1);
  ranks_[1].throws = true;
  EXPECT_THROW(Run(1), std::bad_alloc);
  ranks_[1].throws = false;
  EXPECT_EQ(relay_.failure().code(), absl::StatusCode::kInternal);
  Client again;
  relay_.Connect(&again, {.epoch = 2}, {});
  for (const uint64_t epoch : {1, 2}) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    frame.add_items()->set_seq(1);
    frame.mutable_items(0)->mutable_run()->add_outputs(1);
    bool pause = false;
    EXPECT_TRUE(relay_.FromClient(epoch == 1 ? &client_ : &again, frame, pause).ok());
  }
  const size_t told = client_.got.size();
  Done(0, 1), Done(1, 1);
  EXPECT_EQ(client_.got.size(), told);
  EXPECT_EQ(ranks_[0].got.size(), 2u);
  EXPECT_EQ(ranks_[1].got.size(), 1u);
}

// A client sends no graph of the device level, and names none.
TEST_F(RelayRanksTest, WhatOnlyAGatewaySays_IsRefused) {
  Opened(0), Opened(1);
  proto::ClientFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_fetch()->add_whole()->set_graph_id(std::string(32, 'x'));
  bool pause = false;
  EXPECT_EQ(relay_.FromClient(&client_, frame, pause).code(), absl::StatusCode::kInvalidArgument);
  proto::ClientFrame save;
  save.set_epoch(1);
  save.add_items()->mutable_save()->add_whole();
  EXPECT_EQ(relay_.FromClient(&client_, save, pause).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RelayRanksTest, AWrittenGraph_GoesAheadOfItsRunAndNotTheClients) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {8});
  const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
  GraphSharder sharder;
  relay_.SetRuns(std::make_shared<GroupRuns>(TenantId{1}, shard::Mesh{{2}}, shard::Spread::kAuto,
                                             &sharder));
  Opened(0), Opened(1);
  proto::ClientFrame frame;
  frame.set_epoch(1);
  proto::Graph& sent = *frame.add_items()->mutable_graph();
  sent.set_id(graph.id.ToBytes());
  sent.set_total_bytes(graph.bytes.size());
  sent.set_data(graph.bytes);
  sent.set_device_level(true);  // it is none
  proto::ClientItem& put = *frame.add_items();
  put.set_seq(1);
  put.mutable_put()->set_handle(1);
  proto::ClientItem& run = *frame.add_items();
  run.set_seq(2);
  run.mutable_run()->set_graph_id(graph.id.ToBytes());
  run.mutable_run()->add_inputs(1);
  run.mutable_run()->add_outputs(2);
  bool pause = false;
  ASSERT_TRUE(relay_.FromClient(&client_, frame, pause).ok());
  for (const Executor& rank : ranks_) {
    ASSERT_EQ(rank.got.size(), 3u) << "Open, the written graph, the items";
    const proto::Graph& written = rank.got[1].items(0).graph();
    EXPECT_EQ(written.device_level(), written.id() != graph.id.ToBytes());
    ASSERT_EQ(rank.got[2].items_size(), 2);
    EXPECT_EQ(rank.got[2].items(1).run().graph_id(), written.id());
  }
}

class RelaySnapshotTest : public RelayRanksTest {
 protected:
  RelaySnapshotTest() { Begin(1, "", 0); }
  void Begin(uint64_t epoch, const std::string& root, uint64_t seq) {
    relay_.Connect(&client_,
                   {.epoch = epoch,
                    .recoverable = true,
                    .snapshot_ms = 2000,
                    .snapshot_root = root,
                    .snapshot_seq = seq},
                   {});
    for (Executor& rank : ranks_) rank.opened = rank.got.back().items(0).open(), rank.got.clear();
  }
  bool OpenedAt(uint32_t rank, uint64_t seq) {
    return From(rank,
                [&](proto::ServerItem& item) { item.mutable_opened()->set_applied_seq(seq); });
  }
};

TEST_F(RelaySnapshotTest, R7AllRanksAreTold_BetweenTheSameItems) {
  Opened(0), Opened(1);
  Run(1);
  relay_.RequestSnapshot();
  Run(2);
  for (const Executor& rank : ranks_) {
    EXPECT_TRUE(rank.opened.snapshots_when_told());
    EXPECT_EQ(rank.opened.snapshot_ms(), 0u);
    ASSERT_EQ(rank.got.size(), 3u);
    const proto::TakeSnapshot& told = rank.got[1].items(0).take_snapshot();
    EXPECT_EQ(told.seq(), 1u);
    EXPECT_EQ(told.number(), 1u);
  }
}

TEST_F(RelaySnapshotTest, TheClient_HearsOfTheWholeSnapshotAlone) {
  Opened(0), Opened(1);
  Run(1);
  for (uint32_t rank = 0; rank < 2; ++rank)
    From(rank, [](proto::ServerItem& item) {
      item.mutable_done()->set_through_seq(1);
      item.mutable_done()->set_durable_seq(1);
      item.mutable_done()->set_snapshot_missed(3);
    });
  EXPECT_EQ(client_.got.back().items(0).done().durable_seq(), 0u) << "of its part";
  EXPECT_EQ(client_.got.back().items(0).done().snapshot_missed(), 0u);
  relay_.SnapshotDurable(1);
  EXPECT_EQ(client_.got.back().items(0).done().durable_seq(), 1u);
  EXPECT_EQ(client_.got.back().items(0).done().through_seq(), 1u);
}

TEST_F(RelaySnapshotTest, ANewRank_BeginsWithItsPartAndItsKernels) {
  Opened(0), Opened(1);
  Run(6);
  for (uint32_t rank = 0; rank < 2; ++rank)
    From(rank, [&](proto::ServerItem& item) {
      item.mutable_done()->set_through_seq(6);
      proto::KernelUse& use = *item.mutable_done()->add_kernel_uses();
      use.set_seq(6);
      use.set_kernel("kernel of rank " + std::to_string(rank));
    });
  Relay next{SessionId{1, 2}, TenantId{1}, nullptr, &gate_, MonoNow, nullptr, 2};
  next.GiveKernelUses(relay_.TakeKernelUses(), /*replays=*/true);
  for (uint32_t rank = 0; rank < 2; ++rank) next.SetExecutor(&ranks_[rank], rank);
  const std::string parts = std::string(32, 'a') + std::string(32, 'b');
  next.Connect(&client_,
               {.epoch = 2, .recoverable = true, .snapshot_ms = 2000, .snapshot_root = parts}, {});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const proto::Open& open = ranks_[rank].got.back().items(0).open();
    EXPECT_EQ(open.snapshot_root(), std::string(32, rank == 0 ? 'a' : 'b'));
    ASSERT_EQ(open.kernel_uses_size(), 1);
    EXPECT_EQ(open.kernel_uses(0).kernel(), "kernel of rank " + std::to_string(rank));
  }
}

// What rank 1 has said may be less or more than what rank 0 has: both replay with the same kernels.
TEST_F(RelaySnapshotTest, NewRanksThatShareWork_BeginWithTheKernelsOfRank0) {
  Opened(0), Opened(1);
  GraphSharder sharder;
  Relay next{SessionId{1, 2}, TenantId{1}, nullptr, &gate_, MonoNow, nullptr, 2};
  next.SetRuns(std::make_shared<GroupRuns>(TenantId{1}, shard::Mesh{{2}}, shard::Spread::kAuto,
                                           &sharder));
  Relay::KernelUsesOfRanks uses(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    proto::KernelUse& use = uses[rank][{6 + rank, "kernel"}];
    use.set_seq(6 + rank);
    use.set_kernel("kernel");
  }
  next.GiveKernelUses(std::move(uses), /*replays=*/true);
  for (uint32_t rank = 0; rank < 2; ++rank) next.SetExecutor(&ranks_[rank], rank);
  next.Connect(&client_, {.epoch = 2, .recoverable = true, .snapshot_ms = 2000}, {});
  for (const Executor& rank : ranks_) {
    const proto::Open& open = rank.got.back().items(0).open();
    ASSERT_EQ(open.kernel_uses_size(), 1);
    EXPECT_EQ(open.kernel_uses(0).seq(), 6u);
  }
}

TEST_F(RelaySnapshotTest, R7NewRanksThatBeginAtDifferentItems_EndTheSession) {
  relay_.GiveKernelUses({}, /*replays=*/true);
  Begin(1, "", 0);
  OpenedAt(0, 5), OpenedAt(1, 6);
  EXPECT_EQ(relay_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(ranks_[0].ended && ranks_[1].ended);
}

// Layouts are not known behind an item that is sent again: the next snapshot is of the last one.
TEST_F(RelaySnapshotTest, R7AfterALoss_ASnapshotIsOfItemsWhoseLayoutsAreKnown) {
  GraphSharder sharder;
  const auto runs = std::make_shared<GroupRuns>(TenantId{1}, shard::Mesh{{2}},
                                                shard::Spread::kAuto, &sharder);
  const auto put = [&](Relay& relay, uint64_t epoch, uint64_t seq) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    frame.add_items()->set_seq(seq);
    frame.mutable_items(0)->mutable_put()->set_handle(seq);
    bool pause = false;
    EXPECT_TRUE(relay.FromClient(&client_, std::move(frame), pause).ok());
  };
  relay_.SetRuns(runs);
  Opened(0), Opened(1);
  for (uint64_t seq = 1; seq <= 3; ++seq) put(relay_, 1, seq);
  Relay next{SessionId{1, 2}, TenantId{1}, nullptr, &gate_, MonoNow, nullptr, 2};
  next.SetRuns(runs);
  for (uint32_t rank = 0; rank < 2; ++rank) next.SetExecutor(&ranks_[rank], rank);
  next.Connect(&client_, {.epoch = 2, .recoverable = true, .snapshot_ms = 2000}, {});
  for (Executor& rank : ranks_) {
    proto::ServerFrame opened;
    opened.set_epoch(2);
    opened.add_items()->mutable_opened();
    bool pause = false;
    next.FromExecutor(&rank, std::move(opened), pause);
    rank.got.clear();
  }
  put(next, 2, 1);
  next.RequestSnapshot();
  put(next, 2, 2);
  EXPECT_EQ(ranks_[0].got.size(), 2u) << "nobody is told to take one behind item 1 or 2";
  put(next, 2, 3);
  for (const Executor& rank : ranks_) {
    ASSERT_TRUE(rank.got.back().items(0).has_take_snapshot());
    EXPECT_EQ(rank.got.back().items(0).take_snapshot().seq(), 3u);
  }
  const auto noted = runs->TakeNoted(3);
  ASSERT_TRUE(noted.has_value());
  EXPECT_EQ(noted->arrays_size(), 3);
}

class RelayEntryTest : public RelaySnapshotTest {
 protected:
  RelayEntryTest() {
    relay_.SetRuns(runs_);
    Opened(0), Opened(1);
    Run(1);
    for (uint32_t rank = 0; rank < 2; ++rank) Done(rank, 1);
    proto::Open open;
    open.set_is_new_client(true);
    relay_.Connect(&next_, {.epoch = 1, .recoverable = true, .snapshot_ms = 2000}, open);
  }
  bool Run(uint64_t seq) {  // a Put
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->set_seq(seq);
    frame.mutable_items(0)->mutable_put()->set_handle(seq);
    bool pause = false;
    return relay_.FromClient(&client_, std::move(frame), pause).ok();
  }
  GraphSharder sharder_;
  std::shared_ptr<GroupRuns> runs_ = std::make_shared<GroupRuns>(
      TenantId{1}, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder_);
  Client next_;
};

TEST_F(RelayEntryTest, R8AnotherClient_BeginsBehindWhatAllHave) {
  Run(2);  // comes late
  OpenedAt(0, 1);
  From(0, [](proto::ServerItem& item) {
    item.mutable_kept()->add_entries()->set_name("weights");
    item.mutable_kept()->set_is_last(true);
  });
  From(1, [](proto::ServerItem& item) { item.mutable_opened()->set_applied_seq(1); });
  From(1, [](proto::ServerItem& item) { item.mutable_kept()->set_is_last(true); });
  ASSERT_EQ(next_.got.size(), 1u) << "once";
  ASSERT_EQ(next_.got[0].items_size(), 2);
  EXPECT_EQ(next_.got[0].items(0).opened().applied_seq(), 1u);
  EXPECT_EQ(next_.got[0].items(1).kept().entries(0).name(), "weights");
  EXPECT_FALSE(ranks_[0].ended);
}

// As if one were lost: all begin with the last snapshot, of which is known how its arrays lie.
TEST_F(RelayEntryTest, R8RanksThatHaveParted_BeginAgain) {
  OpenedAt(0, 1), OpenedAt(1, 2);
  EXPECT_TRUE(relay_.failure().ok());
  EXPECT_TRUE(ranks_[0].ended && ranks_[1].ended);
  EXPECT_TRUE(next_.got.empty());
}

TEST_F(RelayEntryTest, R8NewRanksBehindAnUnknownItem_EndTheSession) {
  relay_.GiveKernelUses({}, /*replays=*/true);
  proto::Open open;
  open.set_is_new_client(true);
  relay_.Connect(&next_, {.epoch = 1, .recoverable = true, .snapshot_seq = 5}, open);
  OpenedAt(0, 5), OpenedAt(1, 5);
  EXPECT_EQ(relay_.failure().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RelayRanksTest, RanksThatDisagree_EndTheSession) {
  Opened(0), Opened(1);
  Run(1);
  From(1, [](proto::ServerItem& item) {
    item.mutable_failed()->set_seq(1);
    item.mutable_failed()->add_handles(1);
  });
  Done(1, 1);
  Done(0, 1);
  EXPECT_EQ(relay_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(ranks_[0].ended && ranks_[1].ended);
}

}  // namespace
}  // namespace outboard::gateway
