// The client's core alone: what leaves for what came. C1 to C5 are the invariants in
// session_core.cc.
#include "client/transport/session_core.h"

#include <gtest/gtest.h>

namespace outboard::transport {
namespace {

constexpr int64_t kTwo[] = {2};

proto::ServerFrame OpenedFrame(uint64_t epoch, uint64_t applied = 0, uint32_t items = 0) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Opened& opened = *frame.add_items()->mutable_opened();
  opened.set_resume_token(std::string(16, 't'));
  opened.set_applied_seq(applied);
  opened.set_protocol(wire::kProtocolVersion);
  if (items > 0) {
    opened.mutable_credit()->set_items_in_flight_max(items);
    opened.mutable_credit()->set_bytes_in_flight_max(100);
  }
  return frame;
}

proto::ServerFrame DoneFrame(uint64_t epoch, uint64_t through) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  frame.add_items()->mutable_done()->set_through_seq(through);
  return frame;
}

proto::ServerFrame ValueFrame(uint64_t epoch, uint64_t seq, uint64_t total, uint64_t offset,
                              std::string data) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Value& value = *frame.add_items()->mutable_done()->add_values();
  value.set_seq(seq);
  value.set_total_bytes(total);
  value.set_offset(offset);
  value.set_data(data);
  return frame;
}

struct Opened : SessionCore {
  explicit Opened(uint32_t items = 0) {
    Open(1);
    TakeFrames();
    Get(OpenedFrame(1, 0, items));
  }
  void Get(proto::ServerFrame frame) { OnFrame(frame); }
  std::vector<proto::ClientItem> Items() {
    std::vector<proto::ClientItem> items;
    for (auto& frame : TakeFrames())
      items.insert(items.end(), frame.items().begin(), frame.items().end());
    return items;
  }
};

RunRequest OfGraph(char name, std::vector<uint32_t> fetch = {}) {
  RunRequest request;
  request.graph_id.fill(static_cast<uint8_t>(name));
  request.graph = std::make_shared<const std::string>("graph");
  request.inputs = {1};
  request.outputs = {2, 3};
  request.fetch = std::move(fetch);
  return request;
}

TEST(SessionCore, C1SequenceNumbersAndReleasesBeforeTheNextItem) {
  Opened core;
  core.Put(1, 0, kTwo, std::make_shared<const std::string>("ab"));
  core.Release(7);
  core.Release(8);
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  auto items = core.Items();
  ASSERT_EQ(items.size(), 4u);  // put, release, graph, run
  EXPECT_EQ(items[0].seq(), 1u);
  EXPECT_EQ(items[1].release().handles_size(), 2);
  EXPECT_EQ(items[1].seq(), 2u);
  EXPECT_TRUE(items[2].has_graph());
  EXPECT_EQ(items[3].seq(), 3u);
}

TEST(SessionCore, C2AGraphOnceAnEpochAndAgainWhenAsked) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  EXPECT_EQ(core.Items().size(), 3u);
  proto::ServerFrame need;
  need.set_epoch(1);
  need.add_items()->mutable_need()->add_graph_ids(std::string(32, 'a'));
  core.Get(need);
  auto items = core.Items();
  ASSERT_EQ(items.size(), 1u);
  EXPECT_TRUE(items[0].has_graph());
}

TEST(SessionCore, ReplaysWhatWasNotAppliedAfterAReconnection) {
  Opened core;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.TakeFrames();
  core.OnLinkLost();
  ASSERT_TRUE(core.Run(OfGraph('b')).ok());  // goes on meanwhile
  EXPECT_TRUE(core.TakeFrames().empty());
  core.Resume();
  auto hello = core.Items();
  ASSERT_EQ(hello.size(), 1u);
  EXPECT_EQ(hello[0].open().resume_token(), std::string(16, 't'));
  core.Get(OpenedFrame(2, /*applied=*/2));
  auto items = core.Items();
  ASSERT_EQ(items.size(), 4u);  // graph a, run 3, graph b, run 4
  EXPECT_EQ(items[1].seq(), 3u);
  EXPECT_EQ(items[3].seq(), 4u);
  core.Get(ValueFrame(1, 1, 1, 0, "x"));  // of the old epoch
  EXPECT_FALSE(core.Ready(1, 0));
  core.Get(ValueFrame(2, 1, 1, 0, "x"));
  EXPECT_TRUE(core.Ready(1, 0));
}

TEST(SessionCore, C3ValuesInPiecesAndTakenOnce) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(ValueFrame(1, 1, 4, 0, "ab"));
  core.Get(ValueFrame(1, 1, 4, 3, "!"));  // a gap: dropped
  EXPECT_FALSE(core.Ready(1, 0));
  core.Get(ValueFrame(1, 1, 4, 2, "cd"));
  ASSERT_TRUE(core.Ready(1, 0));
  EXPECT_EQ(core.Take(1, 0)->bytes, "abcd");
  EXPECT_EQ(core.Take(1, 0).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SessionCore, C4AckStaysBelowWhatIsIncomplete) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(ValueFrame(1, 2, 1, 0, "x"));
  core.Get(DoneFrame(1, 2));
  core.TakeFrames();
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  EXPECT_EQ(core.Items().size(), 1u);  // value 1 is still under way: no Ack
  core.Get(ValueFrame(1, 1, 1, 0, "x"));
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  auto items = core.Items();
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].ack().through_seq(), 2u);
}

TEST(SessionCore, C5EndFailsWhatIsAwaited) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0, 1})).ok());
  core.End(absl::UnavailableError("worker lost"));
  EXPECT_TRUE(core.Ready(1, 1));
  EXPECT_EQ(core.Take(1, 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SessionCore, AFailedRunFailsItsValuesOnly) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  proto::ServerFrame frame;
  frame.set_epoch(1);
  proto::Failed& failed = *frame.add_items()->mutable_failed();
  failed.set_seq(1);
  failed.set_code(3);
  failed.set_message("no");
  core.Get(frame);
  EXPECT_EQ(core.Take(1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(core.Ready(2, 0));
  EXPECT_EQ(core.TakeFirstFailure().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(core.TakeFirstFailure().ok());
}

TEST(SessionCore, SavesAreAnsweredOnceAndEndWithTheSession) {
  Opened core;
  const SaveEntry entries[] = {{"weight", 7}, {"bias", 8}};
  const uint64_t seq = core.Save("model", entries).value();
  ASSERT_EQ(core.Save("model", entries).value(), seq + 1);
  auto items = core.Items();
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].seq(), seq);
  EXPECT_EQ(items[0].save().name(), "model");
  EXPECT_EQ(items[0].save().entries(1).handle(), 8u);
  EXPECT_FALSE(core.SaveReady(seq));
  core.Get(DoneFrame(1, seq + 1));
  EXPECT_FALSE(core.SaveReady(seq));  // applied is not stored
  proto::ServerFrame frame;
  frame.set_epoch(1);
  for (const uint64_t bytes : {12u, 13u}) {  // told again after a reconnection
    frame.add_items()->mutable_saved()->set_seq(seq);
    frame.mutable_items()->rbegin()->mutable_saved()->set_total_bytes(bytes);
  }
  core.Get(frame);
  ASSERT_TRUE(core.SaveReady(seq));
  EXPECT_EQ(core.TakeSaved(seq)->total_bytes, 12u);
  EXPECT_EQ(core.TakeSaved(seq).status().code(), absl::StatusCode::kFailedPrecondition);
  core.End(absl::UnavailableError("worker lost"));
  EXPECT_EQ(core.TakeSaved(seq + 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SessionCore, ARepeatedRunSaysWhatItCarries) {
  Opened core;
  RunRequest request = OfGraph('a');
  request.carry = {{0, 0}};
  EXPECT_EQ(core.Run(request).status().code(), absl::StatusCode::kInvalidArgument);  // once
  request.repeat = 50;
  request.stack = {1};
  request.cursor = Cursor{3, -2};
  ASSERT_TRUE(core.Run(request).ok());
  const proto::Run run = core.Items().back().run();
  EXPECT_EQ(run.repeat(), 50u);
  EXPECT_EQ(run.carry_size(), 1);
  EXPECT_EQ(run.stack(0), 1u);
  EXPECT_EQ(run.cursor().stride(), -2);
  request.carry[0].input = 1;  // of 1
  EXPECT_EQ(core.Run(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SessionCore, CreditBoundsItemsAndBytes) {
  Opened core(/*items=*/3);
  auto bytes = std::make_shared<const std::string>(80, 'x');
  EXPECT_TRUE(core.HasCredit(1000));  // alone, anything may go
  core.Put(1, 0, kTwo, bytes);
  EXPECT_TRUE(core.HasCredit(20));
  EXPECT_FALSE(core.HasCredit(21));
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  EXPECT_FALSE(core.HasCredit(0));
  core.Get(DoneFrame(1, 1));
  EXPECT_TRUE(core.HasCredit(100));
}

TEST(SessionCore, AServerThatLiesHarmsNothing) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(DoneFrame(1, 1'000'000));  // beyond what was sent
  EXPECT_EQ(core.done_seq(), 1u);
  core.Get(ValueFrame(1, 99, 4, 0, "abcd"));                 // never asked for
  core.Get(ValueFrame(1, 1, uint64_t{1} << 60, 0, "abcd"));  // huge: only a claim
  EXPECT_FALSE(core.Ready(1, 0));
}

TEST(SessionCore, FramesStayBelowTheLimit) {
  Opened core;
  core.Put(1, 0, kTwo, std::make_shared<const std::string>(3 << 20, 'x'));
  auto frames = core.TakeFrames();
  EXPECT_GT(frames.size(), 2u);
  size_t bytes = 0;
  for (const auto& frame : frames) {
    EXPECT_LE(frame.ByteSizeLong(), wire::kFrameBytesMax);
    for (const auto& item : frame.items()) {
      EXPECT_EQ(item.put().offset(), bytes);
      bytes += item.put().data().size();
    }
  }
  EXPECT_EQ(bytes, size_t{3} << 20);
}

}  // namespace
}  // namespace outboard::transport
