// The client's core alone: what leaves for what came. C1 to C5 are the invariants in
// session_core.cc.
#include "client/session/core/session_core.h"

#include <gtest/gtest.h>

#include "client/session/core/failure.h"
#include "compiler/ir/limits.h"
#include "tests/client/opened_core.h"
#include "tests/support/documented.h"

namespace outboard::session {
namespace {

constexpr int64_t kTwo[] = {2};

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

// The old link hands over what it has while it is being destroyed.
TEST(SessionCore, C7WithoutALinkThereIsNothingToSend) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.TakeFrames();
  core.OnLinkLost();
  proto::ServerFrame need;
  need.set_epoch(1);
  need.add_items()->mutable_need()->add_graph_ids(std::string(32, 'a'));
  core.Get(need);
  core.Get(ValueFrame(1, 1, 1, 0, "x"));
  core.Get(OpenedFrame(2));  // would send the Run again
  EXPECT_EQ(core.state(), SessionCore::State::kLost);
  EXPECT_TRUE(core.TakeFrames().empty());
  EXPECT_FALSE(core.Ready(1, 0));
  core.Resume();
  EXPECT_EQ(core.Items().size(), 1u);
  core.Get(OpenedFrame(2));
  core.OnLinkLost();
  proto::ServerFrame failed;
  failed.set_epoch(2);
  failed.add_items()->mutable_failed()->set_code(
      static_cast<uint32_t>(absl::StatusCode::kUnauthenticated));
  core.Get(failed);
  EXPECT_EQ(core.state(), SessionCore::State::kEnded);
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

// ---- recovery ----

proto::ServerFrame Recoverable(uint64_t epoch, uint64_t applied) {
  proto::ServerFrame frame = OpenedFrame(epoch, applied);
  frame.mutable_items(0)->mutable_opened()->set_recoverable(true);
  return frame;
}

proto::ServerFrame DurableFrame(uint64_t epoch, uint64_t through, uint64_t durable) {
  proto::ServerFrame frame = DoneFrame(epoch, through);
  frame.mutable_items(0)->mutable_done()->set_durable_seq(durable);
  return frame;
}

std::vector<uint64_t> Seqs(const std::vector<proto::ClientItem>& items) {
  std::vector<uint64_t> seqs;
  for (const auto& item : items)
    if (item.seq() > 0) seqs.push_back(item.seq());
  return seqs;
}

TEST(SessionCore, C6AWorkerThatBeginsWithASnapshotGetsWhatCameAfterIt) {
  Opened core;
  core.Get(Recoverable(2, 0));
  core.Put(1, 0, kTwo, std::make_shared<const std::string>("ab"));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());  // 2 to 5
  core.TakeFrames();
  for (uint64_t seq = 2; seq <= 5; ++seq)
    if (seq != 4) core.Get(ValueFrame(2, seq, 1, 0, "x"));
  core.Get(DurableFrame(2, 5, 2));
  EXPECT_TRUE(core.Take(3, 0).ok());
  EXPECT_EQ(core.done_seq(), 5u);
  // On the live stream: the worker is another, and the snapshot holds items 1 and 2.
  core.Get(Recoverable(3, 2));
  EXPECT_EQ(core.done_seq(), 2u);
  auto items = core.Items();
  EXPECT_EQ(Seqs(items), (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_TRUE(items[0].has_graph());  // the new worker has none
  // Only what has not come is asked for, and what was taken is not given twice.
  EXPECT_EQ(items[1].run().fetch_size(), 0);
  EXPECT_EQ(items[2].run().fetch_size(), 1);
  EXPECT_EQ(items[3].run().fetch_size(), 0);
  core.Get(ValueFrame(3, 4, 1, 0, "y"));
  core.Get(DurableFrame(3, 5, 5));
  EXPECT_EQ(core.Take(4, 0)->bytes, "y");
  EXPECT_EQ(core.Take(5, 0)->bytes, "x");
  // Everything is durable: nothing is left to send.
  core.Get(Recoverable(4, 5));
  EXPECT_TRUE(core.Items().empty());
}

TEST(SessionCore, C6WithoutTheItemsThatAreMissingThereTheSessionEnds) {
  Opened core;  // not recoverable: what is done is forgotten
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  core.Get(DoneFrame(1, 2));
  core.Get(OpenedFrame(2, 1));
  EXPECT_EQ(core.state(), SessionCore::State::kEnded);
  EXPECT_EQ(core.status().code(), absl::StatusCode::kUnavailable);
}

TEST(SessionCore, C3AFailureIsToldOnceThoughItsItemIsSentAgain) {
  Opened core;
  core.Get(Recoverable(2, 0));
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  proto::ServerFrame failed;
  failed.set_epoch(2);
  failed.add_items()->mutable_failed()->set_seq(1);
  failed.mutable_items(0)->mutable_failed()->set_code(3);
  core.Get(failed);
  core.Get(DoneFrame(2, 1));
  EXPECT_FALSE(core.TakeFirstFailure().ok());
  EXPECT_FALSE(core.Take(1, 0).ok());
  core.Get(Recoverable(3, 0));
  failed.set_epoch(3);
  core.Get(failed);
  EXPECT_TRUE(core.TakeFirstFailure().ok());
}

TEST(SessionCore, ARecoverableSessionIsOpenedAgainWithItsPlan) {
  Opened core;
  core.Get(Recoverable(2, 0));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  proto::ServerFrame frame = DurableFrame(2, 4, 2);
  for (const uint64_t seq : {1u, 3u, 3u}) {
    proto::KernelUse& entry = *frame.mutable_items(0)->mutable_done()->add_kernel_uses();
    entry.set_seq(seq);
    entry.set_kernel("k");
  }
  core.Get(frame);
  core.TakeFrames();
  core.OnLinkLost();
  core.Resume();
  const auto items = core.Items();
  ASSERT_EQ(items.size(), 1u);
  ASSERT_EQ(items[0].open().kernel_uses_size(), 1);  // the snapshot has that of item 1
  EXPECT_EQ(items[0].open().kernel_uses(0).seq(), 3u);
}

TEST(SessionCore, APlanThatLacksAnEntryServesNoOtherWorkerUntilASnapshotHasIt) {
  for (const uint64_t durable : {1u, 3u}) {
    Opened core;
    core.Get(Recoverable(2, 0));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(core.Run(OfGraph('a')).ok());
    for (const uint64_t seq : {1u, 2u, 3u}) {  // those of 1 and 2 fit, nearly
      proto::ServerFrame frame = DoneFrame(2, 4);
      proto::KernelUse& entry = *frame.mutable_items(0)->mutable_done()->add_kernel_uses();
      entry.set_seq(seq);
      entry.set_kernel(std::string(wire::kOpenBytesMax * 2 / 5, 'k'));
      core.Get(frame);
    }
    core.Get(DurableFrame(2, 4, durable));
    core.TakeFrames();
    core.OnLinkLost();
    core.Resume();
    auto frames = core.TakeFrames();
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_LE(frames[0].items(0).open().ByteSizeLong(), wire::kOpenBytesMax);
    core.Get(Recoverable(3, durable));  // another worker, from the snapshot
    EXPECT_EQ(core.state(), durable == 1 ? SessionCore::State::kEnded : SessionCore::State::kOpen);
  }
}

TEST(SessionCore, TheRingIsBoundedAndASnapshotMakesRoom) {
  Opened core;
  core.Get(Recoverable(2, 0));
  const uint64_t most = 2 * wire::kNotDurableItemsMax;
  for (uint64_t seq = 1; seq <= most; ++seq) {
    ASSERT_TRUE(core.HasWindow(0)) << seq;
    ASSERT_TRUE(core.Run(OfGraph('a')).ok());
    core.TakeFrames();
    core.Get(DoneFrame(2, seq));
  }
  EXPECT_FALSE(core.HasWindow(0));
  EXPECT_TRUE(core.AwaitsSnapshot(0));
  core.Get(DurableFrame(2, most, 1));
  EXPECT_TRUE(core.HasWindow(0));
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  EXPECT_TRUE(core.AwaitsSnapshot(0));
  core.GiveUpRecovery();
  EXPECT_TRUE(core.HasWindow(0));
  core.Get(Recoverable(3, 5));
  EXPECT_EQ(core.state(), SessionCore::State::kEnded);
  test::ExpectAsDocumented(
      "A worker is lost, and the program has let go of what came after the last snapshot",
      core.status());
}

TEST(SessionCore, PiecesOfAValueMayComeInAnyOrder) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(ValueFrame(1, 1, 6, 4, "ef"));
  core.Get(ValueFrame(1, 1, 6, 2, "cd"));
  core.Get(ValueFrame(1, 1, 6, 2, "cd"));
  EXPECT_FALSE(core.Ready(1, 0));
  core.Get(ValueFrame(1, 1, 6, 0, "ab"));
  EXPECT_EQ(core.Take(1, 0)->bytes, "abcdef");
}

TEST(SessionCore, AWorkerThatIsReplacedWhileTheSessionClosesIsToldToClose) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  core.Close();
  core.TakeFrames();
  core.Get(OpenedFrame(2, 0));
  const auto items = core.Items();
  ASSERT_EQ(items.size(), 3u);  // graph, run, close
  EXPECT_TRUE(items[2].has_close());
  EXPECT_EQ(core.state(), SessionCore::State::kClosing);
}

TEST(SessionCore, EachGraphThatIsNeededGoesOnce) {
  Opened core;
  for (const char name : {'a', 'b', 'a', 'b', 'a'}) ASSERT_TRUE(core.Run(OfGraph(name)).ok());
  core.TakeFrames();
  proto::ServerFrame need;
  need.set_epoch(1);
  for (const char name : {'b', 'a', 'b', 'z'})
    need.mutable_items()->Add()->mutable_need()->add_graph_ids(std::string(32, name));
  core.Get(need);
  EXPECT_EQ(core.Items().size(), 3u);  // two questions name b
  need.clear_items();
  for (const char name : {'b', 'a', 'b', 'z'})
    (need.items_size() == 0 ? need.add_items() : need.mutable_items(0))
        ->mutable_need()
        ->add_graph_ids(std::string(32, name));
  core.Get(need);
  EXPECT_EQ(core.Items().size(), 2u);
}

TEST(SessionCore, AFailureSaysWhereItWasAndWhetherTryingAgainHelps) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  proto::ServerFrame frame;
  frame.set_epoch(1);
  proto::Failed& failed = *frame.add_items()->mutable_failed();
  failed.set_seq(2);
  failed.set_cause_seq(1);
  failed.set_code(8);
  failed.set_message("no memory");
  failed.set_node(3);
  failed.set_op("ADD");
  failed.set_retryable(true);
  failed.set_worker("box\x1b-1");
  core.Get(frame);
  const absl::Status status = core.Take(2, 0).status();
  EXPECT_EQ(status.message(),
            "no memory (node 3, ADD; item 1; worker box?-1; a retry may succeed once memory is "
            "free)");
  EXPECT_EQ(FailureOf(status), (Failure{1, 3, "ADD", "box?-1", true}));
}

class Script : public RunOrigin {
 public:
  std::string SentAt() const override { return "script:7"; }
  std::string WrittenAt(uint32_t node) const override { return node == 3 ? "script:5" : ""; }
};

TEST(SessionCore, AFailureNamesTheLinesOfItsRun) {
  for (const bool known_node : {true, false}) {
    Opened core;
    RunRequest request = OfGraph('a', {0});
    ASSERT_TRUE(core.Run(request).ok());  // of no script, and a step all the same
    request.origin = std::make_shared<Script>();
    ASSERT_TRUE(core.Run(request).ok());
    proto::ServerFrame frame;
    frame.set_epoch(1);
    proto::Failed& failed = *frame.add_items()->mutable_failed();
    failed.set_seq(2);
    failed.set_code(8);
    failed.set_message("no memory");
    failed.set_node(known_node ? 3 : 99);
    failed.set_op("ADD");
    core.Get(frame);
    const std::string wanted =
        known_node ? "no memory (node 3, ADD; item 2); in step 2, sent at script:7, by what is "
                     "written at script:5"
                   : "no memory (node 99, ADD; item 2); in step 2, sent at script:7";
    EXPECT_EQ(core.Take(2, 0).status().message(), wanted);
    EXPECT_EQ(core.TakeFirstFailure().message(), wanted);
  }
}

TEST(SessionCore, AGatherIsToldWithItsLine) {
  Opened core;
  RunRequest request = OfGraph('a', {0});
  request.origin = std::make_shared<Script>();
  ASSERT_TRUE(core.Run(request).ok());
  for (const auto& [seq, node, wanted] :
       {std::tuple{1, 3, "script:5: a gather"}, std::tuple{1, 99, "script:7: a gather"},
        std::tuple{7, 3, "a gather"}}) {
    proto::ServerFrame frame;
    frame.set_epoch(1);
    proto::Notice& notice = *frame.add_items()->mutable_notice();
    notice.set_kind(proto::Notice::GATHERED);
    notice.set_text("a gather");
    notice.set_seq(static_cast<uint64_t>(seq));
    notice.set_node(static_cast<uint32_t>(node));
    core.Get(frame);
    EXPECT_EQ(core.TakeNotices(), std::vector<std::string>{wanted});
  }
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
  EXPECT_FALSE(core.SavedReady(seq));
  core.Get(DoneFrame(1, seq + 1));
  EXPECT_FALSE(core.SavedReady(seq));  // applied is not stored
  proto::ServerFrame frame;
  frame.set_epoch(1);
  for (const uint64_t bytes : {12u, 13u}) {  // told again after a reconnection
    frame.add_items()->mutable_saved()->set_seq(seq);
    frame.mutable_items()->rbegin()->mutable_saved()->set_total_bytes(bytes);
  }
  core.Get(frame);
  ASSERT_TRUE(core.SavedReady(seq));
  EXPECT_EQ(core.TakeSaved(seq)->total_bytes, 12u);
  EXPECT_EQ(core.TakeSaved(seq).status().code(), absl::StatusCode::kFailedPrecondition);
  core.End(absl::UnavailableError("worker lost"));
  EXPECT_EQ(core.TakeSaved(seq + 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SessionCore, ASaveNeedsAnOpenSession) {
  SessionCore core;
  core.Open(1);
  const SaveEntry entries[] = {{"weight", 7}};
  EXPECT_EQ(core.Save("model", entries).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SessionCore, NamesThatCannotTravelAreRefusedAtTheCall) {
  Opened core;
  for (const char* const good : {"weight", "gewicht\u00e4", "\u20ac", "\U0001F600"}) {
    const SaveEntry entries[] = {{good, 7}};
    EXPECT_TRUE(core.Save(good, entries).ok()) << good;
  }
  const SaveEntry plain[] = {{"weight", 7}};
  for (const char* const bad :
       {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\x80", "\xf4\x90\x80\x80"}) {
    const SaveEntry entries[] = {{bad, 7}};
    EXPECT_EQ(core.Save("model", entries).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(core.Save(bad, plain).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SessionCore, AFailuresTextIsShortAndHarmless) {
  proto::Failed failed;
  failed.set_code(static_cast<uint32_t>(absl::StatusCode::kInternal));
  failed.set_message("line\n\x1b[2J" + std::string(1 << 20, 'x'));
  const std::string text(StatusOf(failed).message());
  EXPECT_EQ(text.substr(0, 10), "line\n?[2Jx");
  EXPECT_LT(text.size(), 5000u);
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

TEST(SessionCore, ARunThatNoGatewayAcceptsIsRefused) {
  Opened core;
  RunRequest request = OfGraph('a');
  request.bindings = {{limits::kVarSlotMax - 1, 5}};
  EXPECT_TRUE(core.Run(request).ok());
  EXPECT_EQ(core.Items().back().run().bindings(0).slot(), limits::kVarSlotMax - 1);
  for (const int64_t slot : {int64_t{-1}, limits::kVarSlotMax, int64_t{1} << 32}) {
    request.bindings = {{slot, 5}};
    EXPECT_EQ(core.Run(request).status().code(), absl::StatusCode::kInvalidArgument) << slot;
  }
  request.bindings.clear();
  request.graph = std::make_shared<const std::string>(limits::kGraphBytesMax + 1, 'g');
  EXPECT_EQ(core.Run(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SessionCore, WindowBoundsItemsAndBytes) {
  Opened core(/*items=*/3);
  auto bytes = std::make_shared<const std::string>(80, 'x');
  EXPECT_TRUE(core.HasWindow(1000));  // alone, anything may go
  core.Put(1, 0, kTwo, bytes);
  EXPECT_TRUE(core.HasWindow(20));
  EXPECT_FALSE(core.HasWindow(21));
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  ASSERT_TRUE(core.Run(OfGraph('a')).ok());
  EXPECT_FALSE(core.HasWindow(0));
  core.Get(DoneFrame(1, 1));
  EXPECT_TRUE(core.HasWindow(100));
}

TEST(SessionCore, AServerThatLiesHarmsNothing) {
  Opened core;
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(DoneFrame(1, 1'000'000));  // beyond what was sent
  EXPECT_EQ(core.done_seq(), 1u);
  core.Get(ValueFrame(1, 99, 4, 0, "abcd"));                 // never asked for
  core.Get(ValueFrame(1, 1, uint64_t{1} << 60, 0, "abcd"));  // huge: only a claim
  EXPECT_FALSE(core.Ready(1, 0));
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  core.Get(ValueFrame(1, 2, 4, 2, "cde"));  // beyond its end
  ASSERT_TRUE(core.Ready(2, 0));
  EXPECT_EQ(core.Take(2, 0).status().code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(core.Run(OfGraph('a', {0})).ok());
  proto::ServerFrame unknown = ValueFrame(1, 3, 4, 0, "abcd");
  unknown.mutable_items(0)->mutable_done()->mutable_values(0)->set_dtype(256 + 14);  // f32 mod 256
  core.Get(unknown);
  ASSERT_TRUE(core.Ready(3, 0));
  EXPECT_EQ(core.Take(3, 0).status().code(), absl::StatusCode::kInternal);
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
}  // namespace outboard::session
