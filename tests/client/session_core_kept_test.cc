// The client's core where a session is entered by another client: names for arrays, what lives on
// for them, and state that somebody else made.
#include <gtest/gtest.h>

#include "client/session/core/session_core.h"
#include "tests/client/opened_core.h"

namespace outboard::session {
namespace {

// Of a gateway that keeps names.
proto::ServerFrame KeepingFrame(uint64_t epoch, uint64_t applied = 0) {
  proto::ServerFrame frame = OpenedFrame(epoch, applied);
  frame.mutable_items(0)->mutable_opened()->set_keeps(true);
  return frame;
}

proto::ServerFrame KeptFrame(uint64_t epoch, std::vector<std::pair<std::string, uint64_t>> names,
                             bool is_last = true) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Kept& kept = *frame.add_items()->mutable_kept();
  for (const auto& [name, handle] : names) {
    proto::Kept::Entry& entry = *kept.add_entries();
    entry.set_name(name);
    entry.set_handle(handle);
    entry.set_dtype(static_cast<uint32_t>(DType::kF32));
    entry.add_dims(2);
  }
  kept.set_is_last(is_last);
  kept.set_next_handle(100);
  return frame;
}

struct Core : SessionCore {
  void Get(proto::ServerFrame frame) { OnFrame(frame); }
  std::vector<proto::ClientItem> Items() {
    std::vector<proto::ClientItem> items;
    for (auto& frame : TakeFrames())
      items.insert(items.end(), frame.items().begin(), frame.items().end());
    return items;
  }
  proto::ClientItem Last() {
    const std::vector<proto::ClientItem> items = Items();
    return items.empty() ? proto::ClientItem() : items.back();
  }
};

struct Keeping : Core {
  Keeping() {
    Open(1);
    TakeFrames();
    Get(KeepingFrame(1));
  }
};

struct Entered : Core {
  explicit Entered(uint64_t applied = 7) {
    Attach("run7");
    Open(0);
    opened_with = Last().open();
    Get(KeepingFrame(4, applied));
  }
  proto::Open opened_with;
};

RunRequest RunOf(std::vector<uint64_t> inputs, std::vector<uint64_t> outputs) {
  RunRequest request;
  request.graph = std::make_shared<const std::string>("graph");
  request.inputs = std::move(inputs);
  request.outputs = std::move(outputs);
  return request;
}

TEST(SessionCoreKept, AReleaseOfWhatHasANameIsNotSent_UntilItHasNone) {
  Keeping core;
  const KeepEntry w{"w", 1, 5};
  ASSERT_TRUE(core.Keep({&w, 1}).ok());
  EXPECT_EQ(core.Last().keep().entries(0).name(), "w");
  core.Release(5);
  core.Release(6);
  core.FlushReleases();
  const proto::ClientItem released = core.Last();
  ASSERT_EQ(released.release().handles_size(), 1);
  EXPECT_EQ(released.release().handles(0), 6u);
  ASSERT_TRUE(core.Keep({}).ok());
  core.FlushReleases();
  EXPECT_EQ(core.Last().release().handles(0), 5u);
}

TEST(SessionCoreKept, ARunTakesTheNameOver_AndDonatesWhatHadIt) {
  Keeping core;
  const KeepEntry w{"w", 1, 5};
  ASSERT_TRUE(core.Keep({&w, 1}).ok());
  RunRequest run = RunOf({5}, {6, 7});
  run.donate = {0};
  run.rekept = {{1, 1}};
  ASSERT_TRUE(core.Run(run).ok());
  proto::ClientItem item = core.Last();
  ASSERT_EQ(item.run().rekept_size(), 1);
  EXPECT_EQ(item.run().rekept(0).output(), 1u);
  EXPECT_EQ(item.run().donate_size(), 1);
  core.Release(7);  // has the name now
  core.Release(6);
  core.FlushReleases();
  EXPECT_EQ(core.Last().release().handles_size(), 1);
}

TEST(SessionCoreKept, ARunDoesNotDonateWhatKeepsItsName) {
  Keeping core;
  const KeepEntry w{"w", 1, 5};
  ASSERT_TRUE(core.Keep({&w, 1}).ok());
  RunRequest run = RunOf({4, 5}, {6});
  run.donate = {0, 1};
  run.rekept = {{9, 0}};  // of a Keep before, or of another session
  ASSERT_TRUE(core.Run(run).ok());
  const proto::ClientItem item = core.Last();
  ASSERT_EQ(item.run().donate_size(), 1);
  EXPECT_EQ(item.run().donate(0), 0u);
  EXPECT_EQ(item.run().rekept_size(), 0);
}

TEST(SessionCoreKept, NamesThatCannotBeAreRefusedBeforeAnythingIsSent) {
  Keeping core;
  const std::vector<std::vector<KeepEntry>> wrong = {
      {{"", 1, 5}}, {{std::string(300, 'n'), 1, 5}}, {{"\xff", 1, 5}}, {{"w", 1, 5}, {"w", 2, 6}}};
  for (const std::vector<KeepEntry>& entries : wrong)
    EXPECT_TRUE(absl::IsInvalidArgument(core.Keep(entries).status()));
  EXPECT_TRUE(core.Items().empty());
}

TEST(SessionCoreKept, WhoEntersGoesOnWhereTheStateIs) {
  Entered core(7);
  EXPECT_EQ(core.opened_with.attach(), "run7");
  EXPECT_TRUE(core.opened_with.is_new_client());
  EXPECT_TRUE(core.awaits_kept());
  core.Get(KeptFrame(4, {{"a", 5}}, /*is_last=*/false));
  EXPECT_TRUE(core.awaits_kept());
  core.Get(KeptFrame(4, {{"b", 6}}));
  ASSERT_FALSE(core.awaits_kept());
  EXPECT_EQ(core.first_handle(), 100u);
  const std::vector<KeptArray> kept = core.TakeKept();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1].name, "b");
  EXPECT_EQ(kept[1].handle, 6u);
  EXPECT_EQ(kept[1].dims, std::vector<int64_t>{2});
  ASSERT_TRUE(core.Run(RunOf({5}, {101})).ok());
  EXPECT_EQ(core.Last().seq(), 8u);
  // A client that comes back is not new any more.
  core.OnLinkLost();
  core.Resume();
  const proto::Open again = core.Last().open();
  EXPECT_FALSE(again.is_new_client());
  EXPECT_TRUE(again.attach().empty());
  EXPECT_EQ(again.resume_token(), std::string(16, 't'));
}

TEST(SessionCoreKept, WhatAnotherAskedForIsNotThisOnes) {
  Entered core(7);
  core.Get(KeptFrame(4, {}));
  proto::ServerFrame frame;
  frame.set_epoch(4);
  frame.add_items()->mutable_failed()->set_seq(6);
  frame.mutable_items(0)->mutable_failed()->set_code(3);
  core.Get(frame);
  EXPECT_TRUE(core.TakeFirstFailure().ok());
  EXPECT_EQ(core.state(), SessionCore::State::kOpen);
}

TEST(SessionCoreKept, AnArrayWhoseComputationFailedSaysSo) {
  Entered core(7);
  proto::ServerFrame frame = KeptFrame(4, {{"a", 5}});
  proto::Kept::Entry& entry = *frame.mutable_items(0)->mutable_kept()->mutable_entries(0);
  entry.set_dtype(0);
  entry.set_code(static_cast<uint32_t>(absl::StatusCode::kOutOfRange));
  entry.set_message("index 9 of 3");
  core.Get(frame);
  EXPECT_TRUE(absl::IsOutOfRange(core.TakeKept()[0].status));
}

TEST(SessionCoreKept, AWorkerLostWhileEnteringEndsIt_AndIsNoHang) {
  Entered core(7);
  core.Get(KeepingFrame(5, 3));
  EXPECT_EQ(core.state(), SessionCore::State::kEnded);
  EXPECT_TRUE(absl::IsUnavailable(core.status()));
}

TEST(SessionCoreKept, AWorkerThatKeepsNoNamesCannotBeEntered) {
  Core core;
  core.Attach("run7");
  core.Open(0);
  proto::ServerFrame frame = KeepingFrame(4, 7);
  frame.mutable_items(0)->mutable_opened()->set_keeps(false);
  core.Get(frame);
  EXPECT_TRUE(absl::IsUnimplemented(core.status()));
}

TEST(SessionCoreKept, WhoEntersTakesTheDevicesThatThereAre_UnlessItAsksForOthers) {
  proto::ServerFrame frame = KeepingFrame(4, 7);
  frame.mutable_items(0)->mutable_opened()->set_devices(4);
  Core core;
  core.Attach("run7");
  core.Open(0);
  EXPECT_EQ(core.Last().open().devices(), 0u);
  core.Get(frame);
  EXPECT_TRUE(core.status().ok()) << core.status();
  EXPECT_EQ(core.devices(), 4u);
  core.Resume();
  EXPECT_EQ(core.Last().open().devices(), 4u);
  for (const uint32_t said : {1u, 2u}) {
    Core other;
    other.Attach("run7");
    other.Open(said);
    EXPECT_EQ(other.Last().open().devices(), said);
    other.Get(frame);
    EXPECT_TRUE(absl::IsFailedPrecondition(other.status())) << other.status();
  }
}

// The link may break before the session is open.
TEST(SessionCoreKept, WhatIsNotSaid_IsNotSaidWhenTheLinkIsBack) {
  Core core;
  core.Attach("run7");
  core.Open(0);
  core.OnLinkLost();
  core.Resume();
  EXPECT_EQ(core.Last().open().devices(), 0u);
  Core fresh;
  fresh.Open(0);
  EXPECT_EQ(fresh.Last().open().devices(), 1u);
}

// ---- stopped for want of money ------------------------------------------------------------------

proto::ServerFrame StopFrame(uint64_t epoch, bool is_kept = true) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Failed& failed = *frame.add_items()->mutable_failed();
  failed.set_code(static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  failed.set_message("the cap");
  failed.set_state_is_kept(is_kept);
  return frame;
}

TEST(SessionCoreKept, WhatStoppedGoesOnWithWhatWasNotDone) {
  Keeping core;
  RunRequest run = RunOf({}, {2});
  run.fetch = {0};
  ASSERT_TRUE(core.Run(run).ok());
  core.TakeFrames();
  core.Get(StopFrame(1));
  EXPECT_EQ(core.state(), SessionCore::State::kStopped);
  EXPECT_TRUE(absl::IsResourceExhausted(core.status()));
  EXPECT_FALSE(core.Ready(1, 0)) << "it can be awaited again";
  core.Resume();
  EXPECT_EQ(core.Last().open().resume_token(), std::string(16, 't'));
  core.Get(StopFrame(0));
  EXPECT_EQ(core.state(), SessionCore::State::kStopped) << "still nobody pays";
  core.Resume();
  core.TakeFrames();
  core.Get(KeepingFrame(2, 0));
  EXPECT_EQ(core.state(), SessionCore::State::kOpen);
  EXPECT_EQ(core.Last().seq(), 1u) << "the Run is sent again";
}

TEST(SessionCoreKept, WithoutStateItEnds) {
  Keeping core;
  core.Get(StopFrame(1, /*is_kept=*/false));
  EXPECT_EQ(core.state(), SessionCore::State::kEnded);
}

TEST(SessionCoreKept, LeavingIsNoClose_AlsoAfterTheLinkWasLost) {
  Keeping core;
  core.Leave();
  EXPECT_TRUE(core.Last().has_leave());
  Keeping lost;
  lost.Leave();
  lost.TakeFrames();
  lost.Get(KeepingFrame(2));
  EXPECT_TRUE(lost.Last().has_leave());
}

}  // namespace
}  // namespace outboard::session
