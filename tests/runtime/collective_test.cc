// What runtime/collective/collective.h promises, on every transport.
#include "runtime/collective/collective.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/collective/gloo.h"
#include "runtime/collective/loopback.h"
#include "runtime/collective/sockets.h"
#include "tests/runtime/nccl_ranks.h"

namespace outboard::collective {
namespace {

using Ranks = std::vector<std::unique_ptr<Collective>>;

// As gloo.h asks, for all tests of this program.
[[maybe_unused]] const auto kDefaultPipeHandler = signal(SIGPIPE, SIG_IGN);

// Runs `body` for each rank in a thread of its own.
void OnAll(const Ranks& ranks, const std::function<void(Collective& rank)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

// `count` bytes that tell which rank sent them.
std::string Block(int64_t rank, size_t bytes, int salt = 0) {
  std::string block(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    block[i] = static_cast<char>(rank * 31 + static_cast<int64_t>(i) + salt);
  return block;
}

BlockTransfer Of(TransferPattern pattern, int64_t count, int64_t stride, const std::string& send,
                 std::string& receive, int64_t root = 0) {
  return {pattern, count, stride, root, send, {receive.data(), receive.size()}};
}

absl::Status Do(Collective& rank, const BlockTransfer& transfer) {
  OB_ASSIGN_OR_RETURN(const TransferId id, rank.Start({&transfer, 1}));
  return rank.Wait(id);
}

struct Transport {
  const char* name;
  std::function<Ranks(const std::vector<int64_t>& mesh)> make;
};

class CollectiveTest : public ::testing::TestWithParam<Transport> {
 protected:
  Ranks Make(const std::vector<int64_t>& mesh) { return GetParam().make(mesh); }
};

struct GroupCase {
  std::vector<int64_t> mesh;
  int64_t count, stride;
};
const GroupCase kGroups[] = {{{1}, 1, 1},    {{2}, 2, 1},    {{3}, 3, 1},    {{2, 2}, 2, 1},
                             {{2, 2}, 2, 2}, {{2, 3}, 3, 1}, {{2, 3}, 2, 3}, {{2, 3}, 6, 1}};

TEST_P(CollectiveTest, EveryPattern_BringsTheBlocksOfItsGroup) {
  for (const GroupCase& c : kGroups)
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{300'001}}) {
      const Ranks ranks = Make(c.mesh);
      OnAll(ranks, [&](Collective& me) {
        const int64_t rank = me.member().rank, place = rank / c.stride % c.count;
        const auto member = [&](int64_t p) { return rank + (p - place) * c.stride; };
        const auto count = static_cast<size_t>(c.count);
        std::string all(count * bytes, 'x'), wanted;
        const std::string mine = Block(rank, bytes);
        EXPECT_TRUE(Do(me, Of(TransferPattern::kAllGather, c.count, c.stride, mine, all)).ok());
        for (int64_t p = 0; p < c.count; ++p) wanted += Block(member(p), bytes);
        EXPECT_TRUE(all == wanted);

        std::string parts, received(count * bytes, 'x');
        for (int64_t p = 0; p < c.count; ++p) parts += Block(rank, bytes, static_cast<int>(7 * p));
        EXPECT_TRUE(
            Do(me, Of(TransferPattern::kAllToAll, c.count, c.stride, parts, received)).ok());
        wanted.clear();
        for (int64_t p = 0; p < c.count; ++p)
          wanted += Block(member(p), bytes, static_cast<int>(7 * place));
        EXPECT_TRUE(received == wanted);

        for (int64_t root = 0; root < c.count; ++root) {
          std::string got(bytes, 'x');
          EXPECT_TRUE(
              Do(me, Of(TransferPattern::kBroadcast, c.count, c.stride, mine, got, root)).ok());
          EXPECT_TRUE(got == Block(member(root), bytes));
        }
      });
    }
}

TEST_P(CollectiveTest, Buckets_GoTogether) {
  const Ranks ranks = Make({3});
  OnAll(ranks, [&](Collective& me) {
    const int64_t rank = me.member().rank;
    std::vector<std::string> send, receive;
    for (size_t i = 0; i < 5; ++i) {
      send.push_back(Block(rank, 100 * i, static_cast<int>(i)));
      receive.emplace_back(300 * i, 'x');
    }
    std::vector<BlockTransfer> bucket;
    for (size_t i = 0; i < 5; ++i)
      bucket.push_back(Of(TransferPattern::kAllGather, 3, 1, send[i], receive[i]));
    const auto id = me.Start(bucket);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(me.Wait(*id).ok());
    for (size_t i = 0; i < 5; ++i)
      for (int64_t p = 0; p < 3; ++p)
        EXPECT_EQ(receive[i].substr(static_cast<size_t>(p) * 100 * i, 100 * i),
                  Block(p, 100 * i, static_cast<int>(i)));
  });
}

TEST_P(CollectiveTest, TransfersUnderWay_AreWaitedForInAnotherOrder) {
  const Ranks ranks = Make({2, 2});
  OnAll(ranks, [&](Collective& me) {
    const int64_t rank = me.member().rank;
    constexpr int kTransfers = 8;
    std::vector<std::string> send, receive(kTransfers, std::string(200, 'x'));
    for (int i = 0; i < kTransfers; ++i) send.push_back(Block(rank, 100, i));
    std::vector<TransferId> ids;
    for (int i = 0; i < kTransfers; ++i) {
      const BlockTransfer transfer =
          Of(TransferPattern::kAllGather, 2, i % 2 == 0 ? 1 : 2, send[i], receive[i]);
      ids.push_back(ValueOrDie(me.Start({&transfer, 1})));
    }
    for (int i = kTransfers - 1; i >= 0; --i) EXPECT_TRUE(me.Wait(ids[i]).ok());
    for (int i = 0; i < kTransfers; ++i) {
      const int64_t stride = i % 2 == 0 ? 1 : 2;
      const int64_t first = rank - rank / stride % 2 * stride;
      EXPECT_EQ(receive[i], Block(first, 100, i) + Block(first + stride, 100, i));
    }
  });
}

TEST_P(CollectiveTest, Abort_FreesAllRanksWithOneCause) {
  const Ranks ranks = Make({2, 2});
  std::vector<std::string> messages(4);
  OnAll(ranks, [&](Collective& me) {
    const int64_t rank = me.member().rank;
    if (rank == 2) {
      me.Abort(absl::ResourceExhaustedError("no room for the step"));
      messages[rank] = me.status().ToString();
      return;
    }
    std::string send = Block(rank, 1000), receive(4000, 'x');
    const absl::Status status = Do(me, Of(TransferPattern::kAllGather, 4, 1, send, receive));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    messages[rank] = status.ToString();
    // What comes later fails with the same cause.
    EXPECT_EQ(Do(me, Of(TransferPattern::kAllGather, 4, 1, send, receive)).ToString(),
              messages[rank]);
    EXPECT_EQ(me.status().ToString(), messages[rank]);
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  EXPECT_NE(messages[0].find("rank 2"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("no room for the step"), std::string::npos) << messages[0];
}

TEST_P(CollectiveTest, ARankThatGoes_FreesTheOthers) {
  Ranks ranks = Make({3});
  std::thread leaver([&] { ranks[1].reset(); });
  std::vector<std::thread> others;
  for (const int rank : {0, 2})
    others.emplace_back([&, rank] {
      std::string send = Block(rank, 10), receive(30, 'x');
      EXPECT_EQ(Do(*ranks[rank], Of(TransferPattern::kAllGather, 3, 1, send, receive)).code(),
                absl::StatusCode::kUnavailable);
    });
  leaver.join();
  for (std::thread& other : others) other.join();
}

TEST_P(CollectiveTest, DifferentTransfers_AreOurBugAndSaid) {
  if (std::string(GetParam().name) == "gloo")
    GTEST_SKIP() << "Gloo ends its process where sizes differ (runtime/collective/gloo.h)";
  if (std::string(GetParam().name) == "nccl")
    GTEST_SKIP() << "NCCL does not notice; its watchdog ends them (nccl_test.cc)";
  const Ranks ranks = Make({2});
  OnAll(ranks, [&](Collective& me) {
    const auto bytes = static_cast<size_t>(10 + me.member().rank);
    std::string send(bytes, 'a'), receive(2 * bytes, 'x');
    const absl::Status status = Do(me, Of(TransferPattern::kAllGather, 2, 1, send, receive));
    // The rank that did not see it first has it from the other one.
    EXPECT_TRUE(absl::IsInternal(status) || absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("another transfer"), std::string::npos) << status;
  });
}

TEST_P(CollectiveTest, WhatDoesNotFit_IsRefused) {
  const Ranks ranks = Make({2, 3});
  Collective& me = *ranks[0];
  std::string send(12, 'a'), receive(36, 'x');
  const auto code = [&](const BlockTransfer& transfer) {
    return me.Start({&transfer, 1}).status().code();
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(Of(TransferPattern::kAllGather, 2, 1, send, receive)), kBad);
  EXPECT_EQ(code(Of(TransferPattern::kAllGather, 4, 1, send, receive)), kBad);
  EXPECT_EQ(code(Of(TransferPattern::kAllGather, 0, 1, send, receive)), kBad);
  EXPECT_EQ(code(Of(TransferPattern::kAllGather, 3, 0, send, receive)), kBad);
  EXPECT_EQ(code(Of(TransferPattern::kAllToAll, 3, 1, send, receive)), kBad);
  EXPECT_EQ(code(Of(TransferPattern::kBroadcast, 3, 1, send, receive)), kBad);
  std::string same(12, 'x');
  EXPECT_EQ(code(Of(TransferPattern::kBroadcast, 3, 1, send, same, 3)), kBad);
  EXPECT_EQ(code({TransferPattern::kAllToAll, 3, 1, 0, {same.data(), 12}, {same.data(), 12}}),
            kBad);
}

// Ranks that stop at random places of many transfers all end, and none reads freed memory.
TEST_P(CollectiveTest, AbortsAtAnyTime_EndAllRanks) {
  for (int round = 0; round < 20; ++round) {
    const Ranks ranks = Make({3});
    OnAll(ranks, [&](Collective& me) {
      const int64_t rank = me.member().rank;
      for (int i = 0; i < 50; ++i) {
        if (rank == round % 3 && i == 2 * round)
          return me.Abort(absl::InternalError("a test ends it"));
        std::string send = Block(rank, 2000), receive(6000, 'x');
        if (!Do(me, Of(TransferPattern::kAllGather, 3, 1, send, receive)).ok()) return;
      }
      FAIL() << "rank " << rank << " was never told";
    });
  }
}

// Ranks that Gloo connects over loopback, here in one process. Their rendezvous is never
// destroyed.
Ranks MakeGlooRanks(const std::vector<int64_t>& mesh) {
  static MemoryRendezvous* const rendezvous = new MemoryRendezvous;
  static std::atomic<uint64_t> epoch{0};  // each group of this process is another life
  const uint64_t mine = ++epoch;
  Ranks ranks(static_cast<size_t>(Member{0, mesh, mine}.ranks()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      ranks[rank] = ValueOrDie(MakeGloo({.member = {static_cast<int64_t>(rank), mesh, mine},
                                         .address = "127.0.0.1",
                                         .rendezvous = rendezvous,
                                         .patience = std::chrono::seconds(20)}));
    });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

Ranks MakeSocketRanks(const std::vector<int64_t>& mesh) {
  Ranks ranks;
  const int64_t count = Member{0, mesh, 1}.ranks();
  const auto ends = ValueOrDie(ConnectRanks(count));
  for (int64_t rank = 0; rank < count; ++rank)
    ranks.push_back(ValueOrDie(MakeOverSockets({rank, mesh, 1}, ends[rank])));
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Transports, CollectiveTest,
                         ::testing::Values(Transport{"loopback",
                                                     [](const std::vector<int64_t>& mesh) {
                                                       return MakeLoopback(mesh);
                                                     }},
                                           Transport{"sockets", MakeSocketRanks},
                                           Transport{"gloo", MakeGlooRanks},
                                           Transport{"nccl",
                                                     [](const std::vector<int64_t>& mesh) {
                                                       return test::MakeNcclRanks(mesh);
                                                     }}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Gloo, BadOptions_AreRefused) {
  MemoryRendezvous rendezvous;
  const auto code = [&](Member member, const std::string& address) {
    return MakeGloo({.member = std::move(member),
                     .address = address,
                     .rendezvous = &rendezvous,
                     .patience = std::chrono::milliseconds(50)})
        .status()
        .code();
  };
  EXPECT_EQ(code({2, {2}, 1}, "127.0.0.1"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1, {2}, 1}, "127.0.0.1"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {2}, 1}, "localhost"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {2}, 1}, ""), absl::StatusCode::kInvalidArgument);
  // A partner that never comes.
  EXPECT_EQ(code({0, {2}, 1}, "127.0.0.1"), absl::StatusCode::kDeadlineExceeded);
}

TEST(Gloo, AnEarlierEpoch_IsNotFound) {
  MemoryRendezvous rendezvous;
  const auto make = [&](int64_t rank, uint64_t epoch) {
    return MakeGloo({.member = {rank, {2}, epoch},
                     .address = "127.0.0.1",
                     .rendezvous = &rendezvous,
                     .patience = std::chrono::milliseconds(300)});
  };
  std::thread late(
      [&] { EXPECT_EQ(make(1, 1).status().code(), absl::StatusCode::kDeadlineExceeded); });
  EXPECT_EQ(make(0, 2).status().code(), absl::StatusCode::kDeadlineExceeded);
  late.join();
}

TEST(Sockets, OneForEachOtherRank) {
  const auto code = [](Member member, std::vector<int> sockets) {
    return MakeOverSockets(std::move(member), std::move(sockets)).status().code();
  };
  EXPECT_EQ(code({0, {2}, 1}, {-1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {2}, 1}, {-1, -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({2, {2}, 1}, {-1, -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {1}, 1}, {-1}), absl::StatusCode::kOk);
}

TEST(Sockets, BytesOfAnotherEpoch_EndTheGroup) {
  const auto ends = ValueOrDie(ConnectRanks(2));
  const auto old = ValueOrDie(MakeOverSockets({1, {2}, 1}, ends[1]));
  const auto now = ValueOrDie(MakeOverSockets({0, {2}, 2}, ends[0]));
  std::string block = "late", both(8, 'x'), mine(8, 'y');
  std::thread late(
      [&] { EXPECT_FALSE(Do(*old, Of(TransferPattern::kAllGather, 2, 1, block, both)).ok()); });
  const absl::Status status = Do(*now, Of(TransferPattern::kAllGather, 2, 1, block, mine));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("epoch"), std::string::npos) << status;
  EXPECT_EQ(mine.substr(4), "yyyy");  // none of its bytes were taken
  late.join();
}

// A process that is killed says nothing: its socket ends.
TEST(Sockets, ASocketThatEnds_IsItsRanksProcess) {
  auto ends = ValueOrDie(ConnectRanks(2));
  const auto me = ValueOrDie(MakeOverSockets({0, {2}, 1}, ends[0]));
  std::string block = "1234", both(8, 'x');
  std::thread killed([&] { close(ends[1][0]); });
  const absl::Status status = Do(*me, Of(TransferPattern::kAllGather, 2, 1, block, both));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
  EXPECT_NE(status.message().find("process has ended"), std::string::npos) << status;
  killed.join();
}

// All-gathers until one fails, and returns why.
absl::Status GatherForever(Collective& me, const std::function<void(int round)>& before) {
  std::string block = Block(me.member().rank, 100'000), all(300'000, 'x');
  for (int round = 0;; ++round) {
    before(round);
    if (absl::Status status = Do(me, Of(TransferPattern::kAllGather, 3, 1, block, all));
        !status.ok())
      return status;
  }
}

TEST(Sockets, AKilledProcess_FreesItsPartnersWithItsRank) {
  const auto ends = ValueOrDie(ConnectRanks(3));
  const auto keep_only = [&](int64_t mine) {  // an end that others keep open would never end
    for (int64_t rank = 0; rank < 3; ++rank)
      for (const int end : ends[rank])
        if (rank != mine && end >= 0) close(end);
  };
  pid_t pids[3] = {};
  for (int64_t rank = 1; rank < 3; ++rank) {
    pids[rank] = fork();
    ASSERT_GE(pids[rank], 0);
    if (pids[rank] > 0) continue;
    keep_only(rank);
    const auto me = ValueOrDie(MakeOverSockets({rank, {3}, 1}, ends[rank]));
    const absl::Status why = GatherForever(*me, [](int) {});
    _exit(absl::IsUnavailable(why) && why.message().find("rank 2") != std::string::npos ? 0 : 1);
  }
  keep_only(0);
  const auto me = ValueOrDie(MakeOverSockets({0, {3}, 1}, ends[0]));
  const absl::Status why = GatherForever(*me, [&](int round) {
    if (round == 10) kill(pids[2], SIGKILL);
  });
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find("rank 2"), std::string::npos) << why;
  int how = 0;
  ASSERT_EQ(waitpid(pids[1], &how, 0), pids[1]);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  ASSERT_EQ(waitpid(pids[2], &how, 0), pids[2]);
}

TEST(Sockets, BytesThatAreNoFrame_EndTheGroup) {
  auto ends = ValueOrDie(ConnectRanks(2));
  const auto me = ValueOrDie(MakeOverSockets({0, {2}, 1}, ends[0]));
  const std::string garbage(200, 'g');
  ASSERT_EQ(write(ends[1][0], garbage.data(), garbage.size()), 200);
  std::string block = "1234", both(8, 'x');
  EXPECT_FALSE(Do(*me, Of(TransferPattern::kAllGather, 2, 1, block, both)).ok());
  close(ends[1][0]);
}

// A rank that has all it wanted may leave before the others have.
TEST(Sockets, ARankThatIsDone_LeavesWithoutHarm) {
  const auto ends = ValueOrDie(ConnectRanks(2));
  auto first = ValueOrDie(MakeOverSockets({0, {2}, 1}, ends[0]));
  const auto second = ValueOrDie(MakeOverSockets({1, {2}, 1}, ends[1]));
  std::string block = "1234", got(4, 'x'), late(4, 'x');
  // Only rank 0 sends.
  ASSERT_TRUE(Do(*first, Of(TransferPattern::kBroadcast, 2, 1, block, got, 0)).ok());
  first.reset();
  EXPECT_TRUE(Do(*second, Of(TransferPattern::kBroadcast, 2, 1, block, late, 0)).ok());
  EXPECT_EQ(late, "1234");
  EXPECT_FALSE(Do(*second, Of(TransferPattern::kBroadcast, 2, 1, block, late, 0)).ok());
}

TEST(MemoryRendezvous, TheFirstValueStays) {
  MemoryRendezvous rendezvous;
  const std::chrono::milliseconds now(0);
  EXPECT_EQ(rendezvous.Get("a", now).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(rendezvous.Set("a", "first").ok());
  EXPECT_TRUE(rendezvous.Set("a", "second").ok());
  EXPECT_EQ(*rendezvous.Get("a", now), "first");
  EXPECT_EQ(rendezvous.Set("b", std::string(kRendezvousBytesMax + 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::collective
