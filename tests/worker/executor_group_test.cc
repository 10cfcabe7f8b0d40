// An executor that is one of several: what each rank answers, and what follows when one leaves
// (worker/executor/executor_core.h, SetRank).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "runtime/collective/loopback.h"
#include "tests/sim/fake_engine.h"
#include "wire/version.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

struct Rank {
  explicit Rank(uint32_t rank) {
    core.SetRank(rank);
    proto::ClientFrame frame;
    frame.set_epoch(1);
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfWorkers, *open.mutable_protocol());
    core.On(std::move(frame));
  }
  std::vector<proto::ServerItem> On(const proto::ClientItem& item) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    std::vector<proto::ServerItem> answers;
    for (const proto::ServerFrame& answer : core.On(std::move(frame)))
      answers.insert(answers.end(), answer.items().begin(), answer.items().end());
    return answers;
  }
  // The blob of a PutOfBlob is here; returns the answers.
  std::vector<proto::ServerItem> BlobCame(const BlobWant& want) {
    runtime::DeviceBuffer bytes = ValueOrDie(engine.NewBuffer(8));
    OB_CHECK_OK(engine.device().Upload(bytes.address(), "12345678"));
    std::vector<proto::ServerItem> answers;
    core.OnBlob(want.root, std::move(bytes), [&](const proto::ServerFrame& frame) {
      answers.insert(answers.end(), frame.items().begin(), frame.items().end());
    });
    return answers;
  }
  uint64_t epoch = 1;
  sim::FakeEngine engine;
  ExecutorCore core{&engine, {}};
};

proto::ClientItem Put(uint64_t seq) {
  proto::ClientItem item;
  item.set_seq(seq);
  proto::Put& put = *item.mutable_put();
  put.set_handle(seq);
  put.set_dtype(static_cast<uint32_t>(DType::kF32));
  put.add_dims(2);
  put.set_total_bytes(8);
  put.set_data(std::string(8, 'x'));
  return item;
}
// A Put whose 8 bytes come as a blob.
proto::ClientItem PutOfBlob(uint64_t seq) {
  proto::ClientItem item = Put(seq);
  item.mutable_put()->clear_data();
  item.mutable_put()->set_blob_root(std::string(32, 'r'));
  return item;
}
proto::ClientItem Fetch(uint64_t seq, uint64_t handle) {
  proto::ClientItem item;
  item.set_seq(seq);
  item.mutable_fetch()->add_handles(handle);
  return item;
}
bool HasValue(const std::vector<proto::ServerItem>& answers) {
  for (const proto::ServerItem& item : answers)
    if (item.done().values_size() > 0) return true;
  return false;
}

TEST(ExecutorGroup, AValue_IsRankZerosToSend) {
  Rank zero(0), one(1);
  for (Rank* rank : {&zero, &one}) rank->On(Put(1));
  EXPECT_TRUE(HasValue(zero.On(Fetch(2, 1))));
  const std::vector<proto::ServerItem> answers = one.On(Fetch(2, 1));
  EXPECT_FALSE(HasValue(answers));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.back().done().through_seq(), 2u) << "it is applied";
}

// A repeated Run keeps a carried result in parts, and its value is made of them.
TEST(ExecutorGroup, AValueOfARun_IsMadeWholeByTheGraphThatItNames) {
  Graph g;
  const UOp *const x = Param(g, 0, DType::kF32, {2}), *const y = Param(g, 1, DType::kF32, {2});
  const EncodedGraph product = ValueOrDie(EncodeGraph(Sink(g, {Mul(g, x, y)})));
  const EncodedGraph whole = ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
  Rank zero(0);
  for (const EncodedGraph* graph : {&product, &whole}) {
    proto::ClientItem item;
    item.mutable_graph()->set_id(graph->id.ToBytes());
    item.mutable_graph()->set_total_bytes(graph->bytes.size());
    item.mutable_graph()->set_data(graph->bytes);
    zero.On(item);
  }
  zero.On(Put(1));
  proto::ClientItem item;
  item.set_seq(2);
  proto::Run& run = *item.mutable_run();
  run.set_graph_id(product.id.ToBytes());
  run.add_inputs(1);
  run.add_inputs(1);
  run.add_outputs(7);
  run.add_fetch(0);
  run.add_whole()->set_graph_id(whole.id.ToBytes());
  const auto value_of = [](const GraphId& graph, const std::vector<std::string>& inputs) {
    std::vector<uint64_t> hashes;
    for (const std::string& input : inputs) hashes.push_back(sim::HashOf(input));
    return sim::ValueOf(graph.ToBytes(), 0, hashes);
  };
  const std::string sent(8, 'x'), part = value_of(product.id, {sent, sent});
  std::string value;
  for (const proto::ServerItem& answer : zero.On(item))
    if (answer.done().values_size() > 0) value = answer.done().values(0).data();
  EXPECT_EQ(value, value_of(whole.id, {part}));
  for (const proto::ServerItem& answer : zero.On(Fetch(3, 7)))
    if (answer.done().values_size() > 0) value = answer.done().values(0).data();
  EXPECT_EQ(value, part) << "what is held stays a part";
}

TEST(ExecutorGroup, AFailure_IsToldByEachRank) {
  Rank one(1);
  const std::vector<proto::ServerItem> answers = one.On(Fetch(1, 7));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers[0].failed().code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
}

TEST(ExecutorGroup, ACheckpoint_IsRankZerosToStore) {
  Rank zero(0), one(1);
  proto::ClientItem save;
  save.set_seq(2);
  save.mutable_save()->set_name("weights");
  save.mutable_save()->add_entries()->set_handle(1);
  for (Rank* rank : {&zero, &one}) {
    rank->On(Put(1));
    rank->On(save);
  }
  EXPECT_NE(zero.core.TakeStore(0), nullptr);
  EXPECT_EQ(one.core.TakeStore(0), nullptr);
}

TEST(ExecutorGroup, TheRankThatFailed_EndsTheSession) {
  auto group = collective::MakeLoopback({2});
  Rank one(1);
  one.engine.JoinGroup(std::move(group[1]));
  EXPECT_FALSE(one.On(Put(1)).empty());
  one.engine.group()->Abort(absl::InternalError("no kernel"));
  const std::vector<proto::ServerItem> answers = one.On(Put(2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].failed().seq(), 0u);
  EXPECT_NE(answers[0].failed().message().find("rank 1"), std::string::npos);
  EXPECT_NE(answers[0].failed().message().find("no kernel"), std::string::npos);
  EXPECT_TRUE(one.core.ended());
}

proto::ClientItem Take(uint64_t seq, uint64_t number) {
  proto::ClientItem item;
  item.mutable_take_snapshot()->set_seq(seq);
  item.mutable_take_snapshot()->set_number(number);
  return item;
}
uint64_t MissedIn(const std::vector<proto::ServerItem>& answers) {
  uint64_t missed = 0;
  for (const proto::ServerItem& item : answers)
    missed = std::max<uint64_t>(missed, item.done().snapshot_missed());
  return missed;
}
struct SavedRank : Rank {
  SavedRank() : Rank(1) { Reopen(2); }
  std::vector<proto::ServerFrame> Reopen(uint64_t epoch) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfWorkers, *open.mutable_protocol());
    open.set_snapshots_when_told(true);
    this->epoch = epoch;
    return core.On(std::move(frame));
  }
};

// E8: between the item that is named and the next, though both came in one frame.
TEST(ExecutorGroup, ASnapshot_IsOfTheItemThatIsNamed) {
  SavedRank rank;
  rank.On(Put(1));
  EXPECT_EQ(rank.core.TakeStore(1'000'000), nullptr) << "none by itself";
  proto::ClientFrame frame;
  frame.set_epoch(rank.epoch);
  *frame.add_items() = Put(2);
  *frame.add_items() = Take(2, 1);
  *frame.add_items() = Put(3);
  rank.core.On(std::move(frame));
  const auto request = rank.core.TakeStore(0);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(request->seq, 2u);
  EXPECT_EQ(request->snapshot.seq(), 2u);
  EXPECT_EQ(request->snapshot.held_size(), 2);
  EXPECT_EQ(rank.core.applied_seq(), 3u);
}

TEST(ExecutorGroup, ASnapshotThatCannotBe_IsMissedAndToldOnce) {
  SavedRank rank;
  rank.On(Put(1)), rank.On(Put(2));
  EXPECT_EQ(MissedIn(rank.On(Take(1, 1))), 1u) << "that item has passed";
  EXPECT_TRUE(rank.On(Take(2, 1)).empty()) << "a frame that came twice";
  EXPECT_TRUE(rank.On(Take(2, 2)).empty());
  auto request = rank.core.TakeStore(0);
  ASSERT_NE(request, nullptr);
  rank.On(Put(3));
  EXPECT_EQ(MissedIn(rank.On(Take(3, 3))), 3u) << "the one before is being stored";
  proto::Stored stored;
  stored.set_id(request->id);
  stored.set_code(14);
  request.reset();
  std::vector<proto::ServerItem> told;
  rank.core.OnStored(stored, 0, [&](const proto::ServerFrame& answer) {
    told.insert(told.end(), answer.items().begin(), answer.items().end());
  });
  EXPECT_EQ(MissedIn(told), 3u);
  EXPECT_TRUE(rank.On(Take(3, 4)).empty());
  EXPECT_NE(rank.core.TakeStore(0), nullptr);
}

TEST(ExecutorGroup, ASnapshotOfAnEarlierEpoch_IsNotTaken) {
  SavedRank rank;
  rank.On(Put(1));
  rank.On(Take(2, 1));
  rank.Reopen(3);
  rank.epoch = 2;
  rank.On(Take(2, 2));
  rank.epoch = 3;
  rank.On(Put(2));
  EXPECT_EQ(rank.core.TakeStore(0), nullptr);
}

// Another rank may be in the middle of the Run behind it, and hears of no Open before it is
// through.
TEST(ExecutorGroup, WhatWaitsForABlob_StaysWhenTheClientComesBack) {
  auto group = collective::MakeLoopback({2});
  SavedRank rank;
  rank.engine.JoinGroup(std::move(group[1]));
  const proto::ClientItem blob = PutOfBlob(1);
  rank.On(blob), rank.On(Put(2));
  proto::ClientItem half = Put(3);
  half.mutable_put()->set_data("xxxx");
  rank.On(half);
  const std::vector<BlobWant> wants = rank.core.TakeBlobWants();
  ASSERT_EQ(wants.size(), 1u);
  rank.Reopen(3);
  for (const proto::ClientItem& again : {blob, Put(2), half}) rank.On(again);
  proto::ClientItem rest = half;
  rest.mutable_put()->set_offset(4);
  rank.On(rest);
  EXPECT_TRUE(rank.core.TakeBlobWants().empty()) << "it is asked for";
  EXPECT_EQ(rank.core.applied_seq(), 0u);
  rank.BlobCame(wants[0]);
  EXPECT_EQ(rank.core.applied_seq(), 3u);
  EXPECT_FALSE(rank.core.ended());
}

TEST(ExecutorGroup, WhatWaitsForABlob_IsAppliedBeforeItIsSentAgain) {
  auto group = collective::MakeLoopback({2});
  SavedRank rank;
  rank.engine.JoinGroup(std::move(group[1]));
  const proto::ClientItem blob = PutOfBlob(1);
  rank.On(blob), rank.On(Put(2));
  const std::vector<BlobWant> wants = rank.core.TakeBlobWants();
  rank.Reopen(3);
  rank.BlobCame(wants.at(0));
  EXPECT_EQ(rank.core.applied_seq(), 2u);
}

// Its numbers begin behind all that the ranks have of the client before.
TEST(ExecutorGroup, AnotherClient_IsAnsweredWhenNothingWaits) {
  auto group = collective::MakeLoopback({2});
  Rank rank(0);
  rank.engine.JoinGroup(std::move(group[0]));
  const proto::ClientItem blob = PutOfBlob(1);
  rank.On(blob), rank.On(Put(2));
  const std::vector<BlobWant> wants = rank.core.TakeBlobWants();
  proto::ClientItem open;
  wire::SetRange(wire::kProtocolOfWorkers, *open.mutable_open()->mutable_protocol());
  open.mutable_open()->set_is_new_client(true);
  rank.epoch = 2;
  for (const proto::ServerItem& item : rank.On(open)) EXPECT_FALSE(item.has_opened());
  const std::vector<proto::ServerItem> answers = rank.BlobCame(wants.at(0));
  const auto opened = std::ranges::find_if(
      answers, [](const proto::ServerItem& item) { return item.has_opened(); });
  ASSERT_NE(opened, answers.end());
  EXPECT_EQ(opened->opened().applied_seq(), 2u);
  EXPECT_TRUE(std::ranges::any_of(
      answers, [](const proto::ServerItem& item) { return item.kept().is_last(); }));
}

// Only the client before could send the graph: the Run is no rank's, as if it had not come.
TEST(ExecutorGroup, AnotherClient_DoesNotWaitForAGraphOfTheOneBefore) {
  auto group = collective::MakeLoopback({2});
  Rank rank(0);
  rank.engine.JoinGroup(std::move(group[0]));
  rank.On(Put(1));
  proto::ClientItem run;
  run.set_seq(2);
  run.mutable_run()->set_graph_id(std::string(32, 'g'));
  run.mutable_run()->add_outputs(2);
  const std::vector<proto::ServerItem> needs = rank.On(run);
  EXPECT_TRUE(std::ranges::any_of(needs, &proto::ServerItem::has_need));
  rank.On(Put(3));
  proto::ClientItem open;
  wire::SetRange(wire::kProtocolOfWorkers, *open.mutable_open()->mutable_protocol());
  open.mutable_open()->set_is_new_client(true);
  rank.epoch = 2;
  const std::vector<proto::ServerItem> answers = rank.On(open);
  const auto opened = std::ranges::find_if(
      answers, [](const proto::ServerItem& item) { return item.has_opened(); });
  ASSERT_NE(opened, answers.end());
  EXPECT_EQ(opened->opened().applied_seq(), 1u);
  rank.On(Put(2));
  EXPECT_EQ(rank.core.applied_seq(), 2u) << "another item 2";
}

// Its supervisor and the gateway say what became of the partner.
TEST(ExecutorGroup, ARankWhosePartnerLeft_SaysNothingMore) {
  auto group = collective::MakeLoopback({2});
  Rank one(1);
  one.engine.JoinGroup(std::move(group[1]));
  group[0]->Abort(absl::UnavailableError("its process has ended"));
  EXPECT_TRUE(one.On(Put(1)).empty());
  EXPECT_TRUE(one.On(Put(2)).empty());
  EXPECT_FALSE(one.core.ended());
  EXPECT_EQ(one.core.applied_seq(), 0u);
}

}  // namespace
}  // namespace outboard::worker
