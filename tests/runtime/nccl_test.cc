// What goes wrong with NCCL: a library that cannot be used, partners that never join, errors that
// it tells later. What works is in collective_test.cc, as with every transport.
#include "runtime/collective/nccl.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tests/runtime/nccl_ranks.h"
#include "tests/support/paths.h"

namespace outboard::collective {
namespace {

using test::MakeNcclRanks;
using test::TheFakeNccl;

absl::Status Gather(Collective& me) {
  const std::string send(100, 'a');
  std::string receive(100 * static_cast<size_t>(me.member().ranks()), 'x');
  const BlockTransfer transfer{TransferPattern::kAllGather, me.member().ranks(), 1, 0, send,
                               {receive.data(), receive.size()}};
  OB_ASSIGN_OR_RETURN(const TransferId id, me.Start({&transfer, 1}));
  return me.Wait(id);
}

void OnAll(const std::vector<std::unique_ptr<Collective>>& ranks,
           const std::function<void(Collective&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Nccl, ALibraryThatCannotBeUsed_IsSaid) {
  const absl::Status none = LoadNccl("/no/libnccl.so.2").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(none.message(), "libnccl")) << none;
  TheFakeNccl().set_version(21304);
  const absl::Status old = LoadNccl(test::kFakeNccl).status();
  TheFakeNccl().set_version(22003);
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(old.message(), "2.13.4")) << old;
  EXPECT_TRUE(absl::StrContains(old.message(), "2.14.0")) << old;
}

// The clock of a transfer begins with it. All are free, and the communicators are gone.
TEST(Nccl, ATransferThatHangs_IsEndedByTheWatchdog) {
  const int before = TheFakeNccl().communicators();
  const auto ranks = MakeNcclRanks({3}, std::chrono::milliseconds(2000));
  TheFakeNccl().hang(true);
  OnAll(ranks, [](Collective& me) {
    const absl::Status status = Gather(me);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "more than 2000 ms")) << status;
    EXPECT_EQ(me.status(), status);
  });
  TheFakeNccl().hang(false);
  EXPECT_EQ(TheFakeNccl().communicators(), before);
  OnAll(ranks, [](Collective& me) { EXPECT_FALSE(Gather(me).ok()) << "it has ended"; });
}

TEST(Nccl, ARankThatNeverJoinsATransfer_IsWaitedForByTheWatchdogAlone) {
  const auto ranks = MakeNcclRanks({2}, std::chrono::milliseconds(2000));
  EXPECT_EQ(Gather(*ranks[0]).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Gather(*ranks[1]), ranks[0]->status());
}

TEST(Nccl, AnErrorThatItTellsLater_EndsAllWithItsWords) {
  const auto ranks = MakeNcclRanks({3});
  OnAll(ranks, [](Collective& me) { EXPECT_TRUE(Gather(me).ok()); });
  TheFakeNccl().fail(1, 6);
  OnAll(ranks, [](Collective& me) {
    // The others may have had their bytes before rank 1 saw the error.
    absl::Status status = Gather(me);
    if (status.ok()) status = Gather(me);
    EXPECT_EQ(AbortedRank(status), 1) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "remote process exited")) << status;
  });
  TheFakeNccl().fail(1, 0);
}

// The other one may have been connected before: then its group has ended.
TEST(Nccl, ARankThatCannotConnect_IsSaidByAll) {
  const int before = TheFakeNccl().communicators();
  TheFakeNccl().fail(0, 6);
  for (const auto& made : test::TryNcclRanks({2}, std::chrono::seconds(60))) {
    const absl::Status status = made.ok() ? (*made)->status() : made.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "remote process exited")) << status;
  }
  TheFakeNccl().fail(0, 0);
  EXPECT_EQ(TheFakeNccl().communicators(), before);
}

}  // namespace
}  // namespace outboard::collective
