// What the ranks of a session get of its client's Runs (gateway/groups/group_runs.h).
#include "gateway/groups/group_runs.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};
using Planned = GroupRuns::Planned;
using Written = std::vector<std::shared_ptr<const WrittenGraph>>;

EncodedGraph Doubled() {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {8, 3});
  return ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
}

class GroupRunsTest : public ::testing::Test {
 protected:
  GroupRunsTest() { OB_CHECK_OK(runs_.AddGraph(graph_.id.ToBytes(), graph_.bytes)); }

  static proto::ClientFrame Put(uint64_t seq, uint64_t handle) {
    proto::ClientFrame frame;
    frame.add_items()->set_seq(seq);
    frame.mutable_items(0)->mutable_put()->set_handle(handle);
    return frame;
  }
  proto::ClientFrame Run(uint64_t seq, uint64_t input, uint64_t output) const {
    proto::ClientFrame frame;
    frame.add_items()->set_seq(seq);
    proto::Run& run = *frame.mutable_items(0)->mutable_run();
    run.set_graph_id(graph_.id.ToBytes());
    run.add_inputs(input);
    run.add_outputs(output);
    return frame;
  }
  // As the relay does.
  Written Pass(proto::ClientFrame& frame) {
    Written written;
    const auto planned = runs_.PlanFrame(/*may_write=*/true, frame);
    EXPECT_TRUE(planned.ok() && *planned == Planned::kAll) << planned.status();
    runs_.Rewrite(frame, written);
    return written;
  }
  static Written Pass(GroupRuns& runs, proto::ClientFrame frame) {
    Written written;
    EXPECT_TRUE(runs.PlanFrame(true, frame).ok());
    runs.Rewrite(frame, written);
    return written;
  }

  const EncodedGraph graph_ = Doubled();
  GraphSharder sharder_;
  GroupRuns runs_{kTenant, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder_};
};

TEST_F(GroupRunsTest, AGraph_IsWrittenOnceAndSentOnceInAnEpoch) {
  proto::ClientFrame put = Put(1, 1), first = Run(2, 1, 2), second = Run(3, 1, 3);
  Pass(put);
  EXPECT_EQ(*runs_.PlanFrame(/*may_write=*/false, first), Planned::kMustWrite)
      << "that takes its time";
  const Written written = Pass(first);
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(first.items(0).run().graph_id(), written[0]->id);
  Graph g;
  EXPECT_TRUE(DecodeGraph(g, written[0]->bytes, Level::kDevice).ok());
  EXPECT_EQ(*runs_.PlanFrame(/*may_write=*/false, second), Planned::kAll) << "the same layouts";
  EXPECT_TRUE(Pass(second).empty());
  EXPECT_EQ(second.items(0).run().graph_id(), written[0]->id);
  runs_.Restart();
  proto::ClientFrame again = Run(3, 1, 3);
  EXPECT_EQ(Pass(again).size(), 1u);
}

TEST_F(GroupRunsTest, AnotherSession_HasWhatWasWrittenBefore) {
  proto::ClientFrame put = Put(1, 1), run = Run(2, 1, 2);
  Pass(put), Pass(run);
  GroupRuns other{kTenant, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder_};
  OB_CHECK_OK(other.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(other, Put(1, 1));
  EXPECT_EQ(*other.PlanFrame(/*may_write=*/false, Run(2, 1, 2)), Planned::kAll);
  GroupRuns stranger{TenantId{2}, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder_};
  OB_CHECK_OK(stranger.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(stranger, Put(1, 1));
  EXPECT_EQ(*stranger.PlanFrame(/*may_write=*/false, Run(2, 1, 2)), Planned::kMustWrite);
}

// What is sent again is what was sent, whatever has become of the handles since.
TEST_F(GroupRunsTest, AnItemThatIsSentAgain_IsWrittenAsBefore) {
  proto::ClientFrame put = Put(1, 1), run = Run(2, 1, 2), release;
  Pass(put), Pass(run);
  release.add_items()->set_seq(3);
  release.mutable_items(0)->mutable_release()->add_handles(1);
  Pass(release);
  runs_.Restart();
  proto::ClientFrame again = Run(2, 1, 2);
  EXPECT_EQ(Pass(again).size(), 1u);
  EXPECT_EQ(again.items(0).run().graph_id(), run.items(0).run().graph_id());
}

// Behind a snapshot, what all ranks have applied is applied again.
TEST_F(GroupRunsTest, AnItemIsKept_UntilNoRankCanNeedIt) {
  proto::ClientFrame put = Put(1, 1), run = Run(2, 1, 2);
  Pass(put), Pass(run);
  runs_.Done(1);
  proto::ClientFrame again = Run(2, 1, 2);
  Pass(again);
  EXPECT_EQ(again.items(0).run().graph_id(), run.items(0).run().graph_id());
  runs_.Done(2);
  proto::ClientFrame late = Run(2, 1, 2);
  Pass(late);
  EXPECT_EQ(late.items(0).run().graph_id(), graph_.id.ToBytes());
}

// The next repetition takes it in parts, as the first one did; the value is whole.
TEST_F(GroupRunsTest, ACarriedResultThatIsFetched_StaysInPartsAndIsMadeWhole) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(runs, Put(1, 1));
  proto::ClientFrame step = Run(2, 1, 2);
  step.mutable_items(0)->mutable_run()->add_donate(0);  // it is state
  Pass(runs, step);
  proto::ClientFrame fetch;
  fetch.add_items()->set_seq(3);
  fetch.mutable_items(0)->mutable_fetch()->add_handles(2);
  Written gathers;
  ASSERT_TRUE(runs.PlanFrame(true, fetch).ok());
  runs.Rewrite(fetch, gathers);
  ASSERT_EQ(fetch.items(0).fetch().whole_size(), 1) << "the first Run's result is cut";
  proto::ClientFrame repeated = Run(4, 2, 3);
  proto::Run& run = *repeated.mutable_items(0)->mutable_run();
  run.set_repeat(3);
  run.add_carry();  // output 0 into input 0
  run.add_fetch(0);
  Written written;
  ASSERT_TRUE(runs.PlanFrame(true, repeated).ok());
  runs.Rewrite(repeated, written);
  ASSERT_EQ(run.whole_size(), 1);
  EXPECT_EQ(run.whole(0).index(), 0u);
  EXPECT_EQ(run.whole(0).graph_id(), fetch.items(0).fetch().whole(0).graph_id());
}

// A gateway that is started again knows of the arrays what its row says.
TEST_F(GroupRunsTest, ArraysOfASnapshot_AreResumedAsTheyLay) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  runs.LimitMemory(1 << 20);
  Pass(runs, Put(1, 1));
  proto::ClientFrame step = Run(2, 1, 2);
  step.mutable_items(0)->mutable_run()->add_donate(0);  // it is state, and left in parts
  Pass(runs, step);
  runs.NoteSnapshot(1);
  EXPECT_FALSE(runs.TakeNoted(1).has_value()) << "a later item was planned";
  runs.NoteSnapshot(2);
  proto::ClientFrame next = Run(3, 2, 3);
  next.mutable_items(0)->mutable_run()->add_donate(0);
  proto::ClientFrame again = next;
  ASSERT_TRUE(runs.PlanFrame(true, next).ok());
  Written written;
  runs.Rewrite(next, written);
  const auto noted = runs.TakeNoted(2);
  ASSERT_TRUE(noted.has_value());
  ASSERT_EQ(noted->arrays_size(), 1);
  EXPECT_GT(noted->arrays(0).cut_size(), 0);
  EXPECT_FALSE(runs.TakeNoted(2).has_value()) << "once";

  proto::GroupState state;
  ASSERT_TRUE(state.ParseFromString(noted->SerializeAsString()));
  GroupRuns later{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  ASSERT_TRUE(later.Resume(state).ok());
  OB_CHECK_OK(later.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  EXPECT_EQ(*later.PlanFrame(/*may_write=*/false, again), Planned::kAll)
      << "the same memory, layouts and all";
  Written same;
  later.Rewrite(again, same);
  EXPECT_EQ(again.items(0).run().graph_id(), next.items(0).run().graph_id());

  state.mutable_arrays(0)->mutable_cut()->Set(0, 7);
  GroupRuns damaged{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  EXPECT_EQ(damaged.Resume(state).code(), absl::StatusCode::kDataLoss);
}

// Of a client that another one replaced, what nobody applied defines nothing.
TEST_F(GroupRunsTest, AnotherClient_GoesOnBehindTheLastItemOrTheSnapshot) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(runs, Put(1, 1));
  proto::ClientFrame step = Run(2, 1, 2);
  step.mutable_items(0)->mutable_run()->add_donate(0);  // it is state, and left in parts
  Pass(runs, step);
  runs.NoteSnapshot(2);
  ASSERT_TRUE(runs.TakeNoted(2).has_value());
  Pass(runs, Put(3, 2));
  ASSERT_EQ(*runs.PlanFrame(true, Run(4, 2, 5)), GroupRuns::Planned::kAll);  // is not sent
  const uint64_t generation = runs.BeginGeneration();
  EXPECT_TRUE(runs.PlanFrame(true, Put(4, 2)).ok()) << "late, and of the client before";
  EXPECT_FALSE(runs.GoOnBehind(1)) << "nobody knows what was there";
  EXPECT_FALSE(runs.GoOnBehind(4)) << "it was not planned";
  proto::Kept kept;
  kept.add_entries()->set_handle(2);
  kept.mutable_entries(0)->set_dtype(static_cast<uint32_t>(DType::kF32));
  for (const uint64_t dim : {4, 3}) kept.mutable_entries(0)->add_dims(dim);
  runs.DescribeWhole(kept);
  EXPECT_EQ(kept.entries(0).dims(0), 4u) << "whole since item 3";
  ASSERT_TRUE(runs.GoOnBehind(3));
  runs.DescribeWhole(kept);
  EXPECT_EQ(kept.entries(0).dims(0), 4u) << "item 3 stays";
  ASSERT_TRUE(runs.GoOnBehind(2));
  runs.DescribeWhole(kept);
  EXPECT_EQ(kept.entries(0).dims(0), 8u) << "in two parts again";
  proto::ClientFrame again = Run(3, 2, 3);
  ASSERT_TRUE(runs.PlanFrame(true, again, generation).ok()) << "another item 3";
  Written written;
  runs.Rewrite(again, written);
  EXPECT_NE(again.items(0).run().graph_id(), graph_.id.ToBytes());
  ASSERT_TRUE(runs.GoOnBehind(0));
  runs.DescribeWhole(kept);
  kept.mutable_entries(0)->set_dims(0, 4);
  runs.DescribeWhole(kept);
  EXPECT_EQ(kept.entries(0).dims(0), 4u) << "there is none";
}

TEST(HandleTableTest, HandlesNearAndFar_AreFoundUntilTheyAreErased) {
  HandleTable<int> table;
  std::map<uint64_t, int> expected;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t near = random() % 100, far = ~uint64_t{0} - 64 * (random() % 50);
    const uint64_t handle = random() % 2 == 0 ? near : far;
    if (random() % 2 == 0) {
      const auto [at, is_new] = table.TryEmplace(handle);
      EXPECT_EQ(is_new, !expected.contains(handle));
      if (is_new) EXPECT_EQ(*at, 0) << "nothing of the one that was there before";
      *at = expected[handle] = i + 1;
    } else {
      table.Erase(handle);
      expected.erase(handle);
    }
    const uint64_t other = random() % 100;
    const int* const found = table.Find(other);
    ASSERT_EQ(found != nullptr, expected.contains(other));
    if (found != nullptr) EXPECT_EQ(*found, expected[other]);
  }
  std::map<uint64_t, int> all;
  table.ForEach([&](uint64_t handle, int value) { all[handle] = value; });
  EXPECT_EQ(all, expected);
  EXPECT_EQ(table.size(), expected.size());
  table.Clear();
  EXPECT_EQ(table.size() + table.places(), 0u);
}

// For a limit: what lies far apart takes more memory.
TEST(HandleTableTest, Places_AreThoseOfBlocks) {
  HandleTable<int> table;
  for (uint64_t handle = 0; handle < 32; ++handle) table.TryEmplace(handle);
  EXPECT_EQ(table.places(), 32u);
  table.TryEmplace(1000), table.TryEmplace(2000);
  EXPECT_EQ(table.places(), 64u);
  table.Erase(1000);
  EXPECT_EQ(table.places(), 48u);
}

TEST_F(GroupRunsTest, ALimitOfTheClientThatEnters_OutlivesTheWayBackToASnapshot) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  runs.LimitMemory(1000);
  Pass(runs, Put(1, 1));
  runs.NoteSnapshot(1);
  ASSERT_TRUE(runs.TakeNoted(1).has_value());
  Pass(runs, Put(2, 2));
  runs.LimitMemory(500);  // its Open
  runs.BeginGeneration();
  ASSERT_TRUE(runs.GoOnBehind(1));
  EXPECT_EQ(runs.Describe().memory_bytes(), 500u);
}

// A snapshot may be asked for, and a client may go, while a frame is planned.
TEST_F(GroupRunsTest, WhatIsNotSent_CountsAsIfItHadNotCome) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(runs, Put(1, 1));
  proto::ClientFrame step = Run(2, 1, 2);
  step.mutable_items(0)->mutable_run()->add_donate(0);
  ASSERT_EQ(*runs.PlanFrame(true, step), GroupRuns::Planned::kAll);
  runs.NoteSnapshot(1);
  const auto noted = runs.TakeNoted(1);
  ASSERT_TRUE(noted.has_value());
  ASSERT_EQ(noted->arrays_size(), 1);
  EXPECT_EQ(noted->arrays(0).handle(), 1u);
  const uint64_t generation = runs.BeginGeneration();
  runs.NoteSnapshot(1);
  EXPECT_EQ(runs.TakeNoted(1)->SerializeAsString(), noted->SerializeAsString());
  ASSERT_TRUE(runs.PlanFrame(true, step, generation).ok()) << "its client sends it again";
  Written written;
  runs.Rewrite(step, written);
  EXPECT_NE(step.items(0).run().graph_id(), graph_.id.ToBytes());
  runs.NoteSnapshot(2);
  ASSERT_EQ(runs.TakeNoted(2)->arrays_size(), 1);
}

// Each step is found by what describes it: other layouts, donations or fetches are another graph.
TEST_F(GroupRunsTest, AKnownRun_IsAnotherIfAnythingThatCountsDiffers) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kFsdp, &sharder_};
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  uint64_t seq = 0, handle = 0;
  const auto name_of = [&](bool is_state, bool fetches, uint64_t input) {
    proto::ClientFrame frame = Run(++seq, input, ++handle);
    if (is_state) frame.mutable_items(0)->mutable_run()->add_donate(0);
    if (fetches) frame.mutable_items(0)->mutable_run()->add_fetch(0);
    Written written;
    EXPECT_TRUE(runs.PlanFrame(true, frame).ok());
    runs.Rewrite(frame, written);
    return frame.items(0).run().graph_id();
  };
  const auto put = [&] {
    proto::ClientFrame frame = Put(++seq, ++handle);
    Pass(runs, frame);
    return handle;
  };
  const std::string state = name_of(true, false, put()), state_again = name_of(true, false, put());
  EXPECT_EQ(state, state_again);
  const uint64_t in_parts = handle;
  EXPECT_NE(name_of(true, true, put()), state) << "its value is whole";
  EXPECT_NE(name_of(true, false, in_parts), state) << "its input is cut";
  EXPECT_EQ(name_of(true, false, put()), state);
  name_of(true, true, put());
  const uint64_t whole = handle;
  const std::string read = name_of(false, false, whole);
  EXPECT_NE(name_of(true, false, whole), read) << "what is only read is not replaced";
}

// What a Run ends, and what it carries where, is known whether the memory of devices is or not.
TEST_F(GroupRunsTest, ARepetition_IsWrittenForWhatItCarriesWhere) {
  proto::ClientFrame put = Put(1, 1), repeated = Run(2, 1, 2);
  Pass(put);
  proto::Run& run = *repeated.mutable_items(0)->mutable_run();
  run.set_repeat(3);
  run.add_carry();  // output 0 into input 0
  run.add_donate(0);
  Pass(repeated);
  GraphUse use{.graph_id = graph_.id.ToBytes(),
               .mesh = shard::Mesh{{2}},
               .inputs = {shard::Layout{}},
               .state = {true},
               .results = {shard::Layout{}},
               .donated = {true},
               .carried_to = {0}};
  EXPECT_NE(sharder_.Find(kTenant, use), nullptr);
  use.carried_to = {};
  EXPECT_EQ(sharder_.Find(kTenant, use), nullptr);
}

TEST_F(GroupRunsTest, AGraphThatWasNotSent_EndsTheSession) {
  proto::ClientFrame run = Run(1, 1, 2);
  run.mutable_items(0)->mutable_run()->set_graph_id(std::string(32, 'x'));
  EXPECT_EQ(runs_.PlanFrame(true, run).status().code(), absl::StatusCode::kInvalidArgument);
}

// Ranks that are new know of no refusal, and a client that enters cannot send what it never had.
TEST_F(GroupRunsTest, ARefusedGraph_IsNamedAsItIsAndToldInEachEpoch) {
  const std::string id(32, 'x');
  OB_CHECK_OK(runs_.AddRefused(id, absl::InvalidArgumentError("it has a loop")));
  proto::ClientFrame run = Run(1, 1, 2);
  run.mutable_items(0)->mutable_run()->set_graph_id(id);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    const Written told = Pass(run);
    ASSERT_EQ(told.size(), 1u) << "in epoch " << epoch;
    EXPECT_EQ(told[0]->id, id);
    EXPECT_EQ(told[0]->status.message(), "it has a loop");
    EXPECT_EQ(run.items(0).run().graph_id(), id);
    runs_.Restart();
  }
}

// Else nobody would send it: neither the graph nor why it was refused.
TEST_F(GroupRunsTest, AGraphThatComesUnderARefusedId_IsWritten) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kAuto, &sharder_};
  OB_CHECK_OK(runs.AddRefused(graph_.id.ToBytes(), absl::InvalidArgumentError("other bytes")));
  OB_CHECK_OK(runs.AddGraph(graph_.id.ToBytes(), graph_.bytes));
  Pass(runs, Put(1, 1));
  const Written written = Pass(runs, Run(2, 1, 2));
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(written[0]->status.ok());
}

// Also where the ranks have been told of the refusal, and the graph keeps its id.
TEST_F(GroupRunsTest, AGraphThatComesUnderAnIdThatWasToldAsRefused_IsSent) {
  GroupRuns runs{kTenant, shard::Mesh{{2}}, shard::Spread::kTensor, &sharder_};
  const std::string id = graph_.id.ToBytes();
  OB_CHECK_OK(runs.AddRefused(id, absl::InvalidArgumentError("other bytes")));
  Pass(runs, Put(1, 1));
  EXPECT_FALSE(Pass(runs, Run(2, 1, 2)).at(0)->status.ok());
  OB_CHECK_OK(runs.AddGraph(id, graph_.bytes));
  const Written written = Pass(runs, Run(3, 1, 3));
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0]->id, id) << "nothing is cut: it is the client's";
  EXPECT_TRUE(written[0]->status.ok());
}

TEST_F(GroupRunsTest, Graphs_AreBounded) {
  absl::Status status;
  for (int i = 0; i < 5 && status.ok(); ++i)
    status =
        runs_.AddGraph(std::string(32, static_cast<char>('a' + i)), std::string(20 << 20, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GroupRunsTest, WhatCannotBeWritten_IsRefusedByAName) {
  const GraphUse use{.graph_id = graph_.id.ToBytes(),
                     .mesh = shard::Mesh{{2}},
                     .inputs = {shard::Layout{{7}}}};  // there is no such dimension
  const auto refused = sharder_.Write(kTenant, use, graph_.bytes);
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused->id.size(), 32u);
  EXPECT_NE(refused->id, use.graph_id);
}

TEST_F(GroupRunsTest, Gather_MakesADeviceGraphOfTheParts) {
  const auto gather = sharder_.Gather(kTenant, shard::Mesh{{2}},
                                      {.dtype = DType::kF32, .dims = {5, 3}, .layout = {{0}}});
  ASSERT_TRUE(gather->status.ok()) << gather->status;
  Graph g;
  const auto sink = DecodeGraph(g, gather->bytes, Level::kDevice);
  ASSERT_TRUE(sink.ok()) << sink.status();
  EXPECT_EQ((*sink)->src[0]->shape[0].value(), 5);
  Graph tensor;
  EXPECT_FALSE(DecodeGraph(tensor, gather->bytes, Level::kTensor).ok());
}

// Of 1 MiB, which is read and ended.
EncodedGraph Halved() {
  Graph g;
  const UOp* const w = Param(g, 0, DType::kF32, {512, 512});
  return ValueOrDie(
      EncodeGraph(Sink(g, {Mul(g, w, Full(g, ConstFloat(g, DType::kF32, 0.5), w->shape))})));
}

class GroupMemoryTest : public GroupRunsTest {
 protected:
  GroupMemoryTest() { OB_CHECK_OK(runs_.AddGraph(step_.id.ToBytes(), step_.bytes)); }
  proto::ClientFrame PutOf(uint64_t seq, uint64_t handle, uint64_t bytes) {
    proto::ClientFrame frame = Put(seq, handle);
    frame.mutable_items(0)->mutable_put()->set_total_bytes(bytes);
    return frame;
  }
  // Returns the graph that the ranks get.
  std::shared_ptr<const WrittenGraph> Step(uint64_t seq, uint64_t input, uint64_t output) {
    proto::ClientFrame frame = Run(seq, input, output);
    frame.mutable_items(0)->mutable_run()->set_graph_id(step_.id.ToBytes());
    frame.mutable_items(0)->mutable_run()->add_donate(0);
    const Written written = Pass(frame);
    return written.empty() ? nullptr : written[0];
  }
  const EncodedGraph step_ = Halved();
};

TEST_F(GroupMemoryTest, StateThatHasNoRoomWhole_IsLeftInParts) {
  runs_.LimitMemory(0);  // not known
  runs_.LimitMemory(3 << 20);
  runs_.LimitMemory(8 << 20);  // of another device
  for (const bool is_full : {false, true}) {
    const uint64_t seq = is_full ? 4 : 1, handle = seq;
    proto::ClientFrame put = PutOf(seq, handle, 1 << 20);
    Pass(put);
    if (is_full) {
      proto::ClientFrame beside = PutOf(seq + 1, 100, (5 << 20) / 4);
      Pass(beside);
    }
    const auto written = Step(seq + 2, handle, handle + 1);
    ASSERT_NE(written, nullptr);
    ASSERT_TRUE(written->status.ok()) << written->status;
    EXPECT_EQ(written->results[0].layout.is_whole(), !is_full);
    EXPECT_EQ(written->results[0].bytes, is_full ? 1 << 19 : 1 << 20);
  }
}

TEST_F(GroupMemoryTest, WhatHasNoRoomEvenWhenCut_IsRefused) {
  runs_.LimitMemory(400 << 10);
  proto::ClientFrame put = PutOf(1, 1, 1 << 20);
  Pass(put);
  const auto written = Step(2, 1, 2);
  ASSERT_NE(written, nullptr);
  EXPECT_EQ(written->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(written->status.message().find("3 devices would do"), std::string::npos)
      << written->status;
}

TEST_F(GroupMemoryTest, WhatIsReleased_TakesNoRoom) {
  runs_.LimitMemory(3 << 20);
  proto::ClientFrame put = PutOf(1, 1, 1 << 20), beside = PutOf(2, 2, (5 << 20) / 2), release;
  Pass(put), Pass(beside);
  release.add_items()->set_seq(3);
  release.mutable_items(0)->mutable_release()->add_handles(2);
  Pass(release);
  const auto written = Step(4, 1, 3);
  ASSERT_NE(written, nullptr);
  EXPECT_TRUE(written->results[0].layout.is_whole());
}

// Data is whole as long as it has room.
TEST_F(GroupMemoryTest, ABlobThatWouldFillADevice_IsCut) {
  runs_.LimitMemory(4 << 20);
  for (const uint64_t handle : {1, 2, 3, 4}) {
    proto::ClientFrame put = PutOf(handle, handle, 1 << 20);
    proto::Put& blob = *put.mutable_items(0)->mutable_put();
    blob.set_dtype(static_cast<uint32_t>(DType::kF32));
    blob.add_dims(512), blob.add_dims(512);
    if (handle != 4) blob.set_blob_root(std::string(32, 'r'));
    proto::ClientFrame again = put;
    Pass(put);
    // Half of the memory is two of them. What comes in the frame itself is small, and whole.
    EXPECT_EQ(put.items(0).put().parts(), handle == 3 ? 2u : 0u) << handle;
    runs_.Restart();
    Pass(again);
    EXPECT_EQ(again.items(0).put().parts(), put.items(0).put().parts()) << "as before";
  }
  proto::ClientFrame fetch;
  fetch.add_items()->set_seq(5);
  fetch.mutable_items(0)->mutable_fetch()->add_handles(3);
  EXPECT_EQ(Pass(fetch).size(), 1u) << "the graph that joins it";
}

TEST_F(GroupMemoryTest, ABlobOfOtherSizesThanItSays_IsNotCut) {
  runs_.LimitMemory(1 << 20);
  uint64_t seq = 0;
  const auto parts = [&](std::vector<uint64_t> dims, uint32_t dtype) {
    ++seq;
    proto::ClientFrame put = PutOf(seq, seq, 1 << 20);
    proto::Put& blob = *put.mutable_items(0)->mutable_put();
    blob.set_dtype(dtype);
    blob.mutable_dims()->Assign(dims.begin(), dims.end());
    blob.set_blob_root(std::string(32, 'r'));
    Pass(put);
    return put.items(0).put().parts();
  };
  const auto f32 = static_cast<uint32_t>(DType::kF32);
  EXPECT_EQ(parts({512, 512}, f32), 2u);
  EXPECT_EQ(parts({1, 512 * 512}, f32), 0u) << "one row";
  EXPECT_EQ(parts({512, 511}, f32), 0u);
  EXPECT_EQ(parts({512, 512}, 9999), 0u);
  EXPECT_EQ(parts({}, f32), 0u);
  EXPECT_EQ(parts({uint64_t{1} << 63, 2}, f32), 0u);
}

// A hint names an axis that the mesh has not: the node is the client's.
TEST_F(GroupRunsTest, ARefusedHint_NamesItsNode) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {8, 3});
  const UOp* const hint = g.MakeChecked(Op::kLayout, DType::kVoid, {Add(g, x, x)}, {2, 0});
  const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, {hint})));
  OB_CHECK_OK(runs_.AddGraph(graph.id.ToBytes(), graph.bytes));
  proto::ClientFrame put = Put(1, 1), run = Run(2, 1, 2);
  run.mutable_items(0)->mutable_run()->set_graph_id(graph.id.ToBytes());
  Pass(put), Pass(run);
  const auto original = runs_.OriginalOf(run.items(0).run().graph_id());
  ASSERT_TRUE(original.has_value());
  EXPECT_EQ(original->graph_id, graph.id.ToBytes());
  ASSERT_TRUE(original->refused.has_value());
  EXPECT_EQ(original->refused->op, "LAYOUT");
  EXPECT_EQ(original->refused->index, 2u);  // x, x + x, the hint
}

// A batch that is cut, and sorted by what needs all of it.
TEST_F(GroupRunsTest, AGatherThatNoHintAskedFor_IsToldOnce) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {8, 3});
  const UOp* const cut = g.MakeChecked(Op::kLayout, DType::kVoid, {x}, {-1, 0});
  const UOp* const doubled = Add(g, cut, cut);
  const UOp* const turned = Flip(g, doubled, std::vector<int64_t>{0});
  const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, {turned})));
  OB_CHECK_OK(runs_.AddGraph(graph.id.ToBytes(), graph.bytes));
  proto::ClientFrame put = Put(1, 1), run = Run(2, 1, 2), again = Run(3, 1, 3);
  for (proto::ClientFrame* frame : {&run, &again})
    frame->mutable_items(0)->mutable_run()->set_graph_id(graph.id.ToBytes());
  Pass(put), Pass(run);
  const std::vector<proto::Notice> told = runs_.TakeNotices();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind(), proto::Notice::GATHERED);
  EXPECT_EQ(told[0].count(), 4u * 3 * 4);  // half of it, to one other
  EXPECT_EQ(told[0].seq(), 2u);
  Pass(again);
  EXPECT_TRUE(runs_.TakeNotices().empty());
}

}  // namespace
}  // namespace outboard::gateway
