// Links between ranks on two workers: they carry what sockets of one worker would, and nobody
// without the session's token gets one.
#include "worker/groups/group_links.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "runtime/collective/sockets.h"
#include "tests/support/temp_folder.h"
#include "wire/data_address.h"
#include "worker/groups/link_greeting.h"
#include "worker/groups/link_probes.h"
#include "worker/process/program_file.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

const std::string kSession(16, 's'), kToken(16, 't');

std::unique_ptr<GroupLinks> ListenHere() { return ValueOrDie(GroupLinks::Listen("127.0.0.1:0")); }

struct Loss {
  std::atomic<int> count{0};
  std::atomic<uint32_t> rank{99};
  std::string message;  // once count is 1
  std::function<void(uint32_t, const absl::Status&)> Teller() {
    return [this](uint32_t of, const absl::Status& why) {
      rank = of;
      message = std::string(why.message());
      ++count;
    };
  }
};

// A session with ranks 0 and 1 on one worker, 2 (and perhaps 3) on another.
class Nodes {
 public:
  explicit Nodes(uint32_t ranks, std::string token_there = kToken, milliseconds within =
                                                                       milliseconds(20'000))
      : ranks_(ranks), ends_(ranks, std::vector<int>(ranks, -1)) {
    const auto make_pair = [] {
      int pair[2];
      OB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
      return std::pair(pair[0], pair[1]);
    };
    const auto address = ValueOrDie(wire::ParseDataAddress(there_->address()));
    std::vector<GroupLinkOptions> from_here, from_there;
    for (uint32_t a = 0; a < ranks; ++a)
      for (uint32_t b = a + 1; b < ranks; ++b) {
        if ((a < 2) == (b < 2)) {
          std::tie(ends_[a][b], ends_[b][a]) = make_pair();
          continue;
        }
        const LinkName name{kSession, 7, a, b};
        const auto [mine, passed] = make_pair();
        ends_[a][b] = mine;
        from_here.push_back({.name = name,
                             .attach_token = kToken,
                             .partner = b,
                             .address = address,
                             .executor = passed,
                             .connect_within = within,
                             .tell_after = milliseconds(50)});
        const auto [other, passed_there] = make_pair();
        ends_[b][a] = other;
        from_there.push_back({.name = name,
                              .attach_token = token_there,
                              .partner = a,
                              .executor = passed_there,
                              .connect_within = within,
                              .tell_after = milliseconds(50)});
      }
    links_ = from_here.size();
    here_group_ = here_->Add(std::move(from_here), here_lost_.Teller());
    add_there_ = [this, from_there]() mutable {
      there_group_ = there_->Add(std::move(from_there), there_lost_.Teller());
    };
  }
  void AddThere() { add_there_(); }

  std::vector<std::unique_ptr<collective::Collective>> Collectives() {
    std::vector<std::unique_ptr<collective::Collective>> all;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      all.push_back(ValueOrDie(collective::MakeOverSockets({rank, {ranks_}, 7}, ends_[rank])));
    return all;
  }

  const uint32_t ranks_;
  size_t links_ = 0;
  std::vector<std::vector<int>> ends_;
  std::unique_ptr<GroupLinks> here_ = ListenHere(), there_ = ListenHere();
  GroupLinks::Group here_group_{}, there_group_{};
  Loss here_lost_, there_lost_;
  std::function<void()> add_there_;
};

// Connected to the address of `links`.
int ConnectTo(const GroupLinks& links) {
  const auto address = ValueOrDie(wire::ParseDataAddress(links.address()));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  OB_CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&address), wire::LengthOf(address)) == 0);
  return fd;
}
std::string ReceiveAll(int fd, size_t bytes) {
  std::string got(bytes, '\0');
  const ssize_t count = recv(fd, got.data(), bytes, MSG_WAITALL);
  got.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return got;
}

TEST(GroupLinks, WhatIsAdvertised_IsAsGivenOrWhereItListens) {
  const auto here = ListenHere();
  EXPECT_EQ(here->advertised(), here->address());
  for (const char* mapped : {"10.0.0.7:4000", "[fd00::7]:4000"}) {
    const auto links = ValueOrDie(GroupLinks::Listen("127.0.0.1:0", mapped));
    EXPECT_EQ(links->advertised(), mapped);
    EXPECT_NE(links->address(), mapped);
  }
}

// Workers would be told of it, and find nobody there.
TEST(GroupLinks, AnAdvertisedAddressThatIsNone_IsRefused) {
  for (const char* none : {"10.0.0.7:0", "box:4000", "10.0.0.7", "0.0.0.0:4000", "[fd00::7:4000"}) {
    const absl::Status refused = GroupLinks::Listen("127.0.0.1:0", none).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << none;
    EXPECT_TRUE(absl::StartsWith(refused.message(), "--advertise-data-address: ")) << refused;
  }
  const absl::Status refused = GroupLinks::Listen("box:0").status();
  EXPECT_TRUE(absl::StartsWith(refused.message(), "--data-address: ")) << refused;
}

TEST(GroupLinks, RanksOnTwoWorkers_GatherAsOnOne) {
  Nodes nodes(4);
  nodes.AddThere();
  auto ranks = nodes.Collectives();
  constexpr size_t kBlock = 1 << 20;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const std::string mine(kBlock + 3, static_cast<char>('a' + rank));
      for (int round = 0; round < 5; ++round) {
        std::string all(4 * mine.size(), '\0');
        const collective::BlockTransfer transfer{
            collective::TransferPattern::kAllGather, 4, 1, 0, mine, all};
        const auto id = ranks[rank]->Start({&transfer, 1});
        ASSERT_TRUE(id.ok()) << id.status();
        const absl::Status done = ranks[rank]->Wait(*id);
        ASSERT_TRUE(done.ok()) << done;
        for (uint32_t from = 0; from < 4; ++from)
          EXPECT_EQ(all.substr(from * mine.size(), mine.size()),
                    std::string(mine.size(), static_cast<char>('a' + from)));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(nodes.here_->counts().open, nodes.links_);
  EXPECT_EQ(nodes.there_->counts().open, nodes.links_);
}

TEST(GroupLinks, AWorkerThatHearsOfTheSessionLater_IsFoundAgain) {
  Nodes nodes(3);
  EXPECT_TRUE(test::Eventually([&] { return nodes.there_->counts().refused >= 2; }));
  nodes.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return nodes.here_->counts().open == nodes.links_; }));
}

TEST(GroupLinks, AStrangerIsRefused_WhateverItSays) {
  Nodes nodes(3);
  nodes.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return nodes.there_->counts().open == nodes.links_; }));
  const auto tell = [&](const std::function<std::string(const std::string&)>& claim_for) {
    const int fd = ConnectTo(*nodes.there_);
    const std::string challenge = ReceiveAll(fd, kChallengeBytes);
    EXPECT_TRUE(IsChallenge(challenge));
    const std::string claim = claim_for(challenge);
    EXPECT_EQ(send(fd, claim.data(), claim.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(claim.size()));
    const std::string answer = ReceiveAll(fd, kProofBytes);
    close(fd);
    return answer;
  };
  const LinkName taken{kSession, 7, 0, 2}, unknown{kSession, 8, 0, 2};
  const auto right = [&](const LinkName& name, const std::string& token) {
    return [=](const std::string& challenge) {
      return ValueOrDie(MakeClaim(name, challenge, token));
    };
  };
  EXPECT_EQ(tell([](const std::string&) { return std::string(kClaimBytes, 'x'); }), "");
  EXPECT_EQ(tell(right(taken, std::string(16, 'u'))), "") << "another token";
  EXPECT_EQ(tell(right(unknown, kToken)), "") << "of another placement";
  EXPECT_EQ(tell(right(taken, kToken)), "") << "a second connection for one link";
  EXPECT_EQ(tell([&](const std::string& challenge) {
              std::string claim = ValueOrDie(MakeClaim(taken, challenge, kToken));
              claim[20] ^= 1;  // of its placement
              return claim;
            }),
            "");
  EXPECT_EQ(nodes.there_->counts().open, nodes.links_) << "nobody was disturbed";
}

TEST(GroupLinks, AnOverheardClaim_IsRefused) {
  const std::string other = ValueOrDie(MakeChallenge());
  const std::string claim = ValueOrDie(MakeClaim({kSession, 7, 0, 2}, other, kToken));
  const std::string challenge = ValueOrDie(MakeChallenge());
  EXPECT_TRUE(ClaimIsRight(other, claim, kToken));
  EXPECT_FALSE(ClaimIsRight(challenge, claim, kToken)) << "for another challenge";
  const std::string proof = MakeProof(other, claim, kToken);
  EXPECT_TRUE(ProofIsRight(other, claim, proof, kToken));
  EXPECT_FALSE(ProofIsRight(other, claim, claim.substr(kClaimBytes - kProofBytes), kToken))
      << "a claim sent back";
  EXPECT_FALSE(ProofIsRight(other, claim, proof, std::string(16, 'u')));
}

TEST(GroupLinks, AWorkerWithAnotherToken_GetsNoLink) {
  Nodes nodes(3, std::string(16, 'u'), milliseconds(400));
  nodes.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return nodes.here_lost_.count == 1; }));
  EXPECT_EQ(nodes.here_->counts().open, 0u);
  EXPECT_EQ(nodes.there_->counts().open, 0u);
  EXPECT_NE(nodes.here_lost_.message.find("rank 2 at 127.0.0.1:"), std::string::npos)
      << nodes.here_lost_.message;
  auto ranks = nodes.Collectives();
  EXPECT_EQ(nodes.here_lost_.count, 1) << "once for a session";
}

TEST(GroupLinks, SilentCallers_KeepNobodyOut) {
  Nodes nodes(3);
  std::vector<int> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(ConnectTo(*nodes.there_));
  nodes.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return nodes.there_->counts().open == nodes.links_; }));
  EXPECT_LE(nodes.there_->counts().callers, 128u);
  for (const int fd : silent) close(fd);
}

TEST(GroupLinks, AnExecutorThatEnds_FreesItsPartnersElsewhere) {
  Nodes nodes(4);
  nodes.AddThere();
  auto ranks = nodes.Collectives();
  const std::string mine(1 << 16, 'a');
  std::vector<std::thread> threads;
  for (const uint32_t rank : {0u, 1u, 2u})
    threads.emplace_back([&, rank] {
      std::string all(4 * mine.size(), '\0');
      const collective::BlockTransfer own{
          collective::TransferPattern::kAllGather, 4, 1, 0, mine, all};
      const auto id = ranks[rank]->Start({&own, 1});
      ASSERT_TRUE(id.ok()) << id.status();
      const absl::Status why = ranks[rank]->Wait(*id);
      EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
      EXPECT_EQ(collective::AbortedRank(why), 3) << why;
    });
  std::this_thread::sleep_for(milliseconds(50));
  ranks[3].reset();  // as a process that ends: its sockets close
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupLinks, AWorkerThatIsLost_IsToldUnlessTheSessionEndsFirst) {
  Nodes nodes(3);
  nodes.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return nodes.here_->counts().open == nodes.links_; }));
  auto ranks = nodes.Collectives();
  nodes.there_.reset();
  EXPECT_TRUE(test::Eventually([&] { return nodes.here_lost_.count == 1; }));
  EXPECT_NE(nodes.here_lost_.message.find("rank 2"), std::string::npos)
      << nodes.here_lost_.message;

  Nodes removed(3);
  removed.AddThere();
  EXPECT_TRUE(test::Eventually([&] { return removed.here_->counts().open == removed.links_; }));
  removed.here_->Remove(removed.here_group_);
  EXPECT_EQ(removed.here_->counts().links, 0u);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(removed.here_lost_.count, 0);
  EXPECT_EQ(removed.there_lost_.count, 1) << "its partner has left it";
}

// A watch at one end; the other is the test's.
struct WatchedEnd {
  WatchedEnd() {
    int pair[2];
    OB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    far = pair[1];
    const std::string challenge = ValueOrDie(MakeChallenge());
    OB_CHECK(watch.Accept(pair[0], challenge,
                          ValueOrDie(MakeClaim(watch.name(), challenge, kToken))));
    char proof[kProofBytes];
    OB_CHECK(recv(far, proof, sizeof proof, 0) == static_cast<ssize_t>(kProofBytes));
  }
  ~WatchedEnd() { close(far); }
  // Each of them a step later.
  bool IsOpenAfter(int steps) {
    for (int i = 0; i < steps; ++i) watch.Step(now += kBeatEvery);
    return watch.is_open();
  }
  void Hear() { OB_CHECK(send(far, "b", 1, 0) == 1); }

  GroupLink watch{{.name = MakeWatch({kSession, 7, 0, 2}), .attach_token = kToken, .partner = 2}};
  int far = -1;
  LinkClock::time_point now = LinkClock::now();
};

TEST(GroupLinks, APartnerThatStandsStill_IsLostWithinASecond) {
  WatchedEnd end;
  for (int i = 0; i < 40; ++i) {
    end.Hear();
    ASSERT_TRUE(end.IsOpenAfter(1));
  }
  char beats[100];
  EXPECT_EQ(recv(end.far, beats, sizeof beats, 0), 40) << "it beats, too";
  EXPECT_TRUE(end.IsOpenAfter(4)) << "600 ms";
  EXPECT_FALSE(end.IsOpenAfter(1)) << "750 ms";
  EXPECT_EQ(end.watch.lost().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(end.watch.lost().message().find("rank 2 stands still"), std::string::npos)
      << end.watch.lost();
}

// Where beats come late because all do, it is more patient.
TEST(GroupLinks, APartnerOnABusyMachine_IsNotTakenForOneThatStandsStill) {
  WatchedEnd end;
  for (int i = 0; i < 20; ++i) {
    end.Hear();
    ASSERT_TRUE(end.IsOpenAfter(4));
  }
  EXPECT_TRUE(end.IsOpenAfter(8)) << "600 ms, and 1200";
  EXPECT_FALSE(end.IsOpenAfter(1)) << "three times as long as it has been";
}

TEST(GroupLinks, WhoStoodStillItself_KnowsNothingOfOthers) {
  WatchedEnd end;
  for (int i = 0; i < 40; ++i) {
    end.Hear();
    ASSERT_TRUE(end.IsOpenAfter(1));
  }
  end.now += std::chrono::seconds(10);
  EXPECT_TRUE(end.IsOpenAfter(1));
  close(end.far);
  end.far = dup(0);
  EXPECT_FALSE(end.IsOpenAfter(1)) << "the partner has gone";
  EXPECT_TRUE(end.watch.lost().ok()) << "which the other links tell";
}

TEST(GroupLinks, AWatch_IsALinkLikeOthers_AndMissedByNobody) {
  const auto here = ListenHere(), there = ListenHere();
  const GroupLinkOptions watch{.name = MakeWatch({kSession, 7, 0, 2}),
                               .attach_token = kToken,
                               .partner = 0,
                               .connect_within = milliseconds(20'000)};
  GroupLinkOptions connects = watch;
  connects.partner = 2;
  connects.address = ValueOrDie(wire::ParseDataAddress(there->address()));
  Loss here_lost, there_lost;
  here->Add({connects}, here_lost.Teller());
  there->Add({watch}, there_lost.Teller());
  EXPECT_TRUE(test::Eventually([&] { return here->counts().open + there->counts().open == 2; }));
  connects.name.placement = 8;
  connects.connect_within = milliseconds(100);
  here->Add({connects}, here_lost.Teller());  // of a session that the other has no watch for
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(here->counts().open + there->counts().open, 2u);
  EXPECT_EQ(here_lost.count + there_lost.count, 0);
}

// It is tried again after a pause, and not a million times a second.
TEST(GroupLinks, WithoutAFreeDescriptor_CallersWait_AndAreTakenLater) {
  const auto links = ListenHere();
  const auto address = ValueOrDie(wire::ParseDataAddress(links->address()));
  const int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(caller, 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int connected =
      connect(caller, reinterpret_cast<const sockaddr*>(&address), wire::LengthOf(address));
  const bool has_failed = test::Eventually([&] { return links->counts().accepts_failed >= 1; });
  std::this_thread::sleep_for(milliseconds(350));
  const uint64_t failed = links->counts().accepts_failed;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(connected, 0);
  EXPECT_TRUE(has_failed);
  EXPECT_LE(failed, 100u) << "each in a pause of 100 ms";
  EXPECT_TRUE(test::Eventually([&] { return links->counts().callers == 1; }));
  close(caller);
}

TEST(GroupLinks, AnAddressOfAnotherHost_IsRefused) {
  for (const char* address :
       {"127.0.0.1", "localhost:0", "0.0.0.0:0", "10.0.0.7:70000", "[::]:0", "127.0.0.1:-1",
        "255.255.255.255:1", "224.0.0.1:5", "1.2.3:4", "", "203.0.113.9:0"})
    EXPECT_EQ(GroupLinks::Listen(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  for (const auto& [address, why] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1:0", "its port is no number from 1 to 65535"},  // of a partner
           {"10.0.0.7:70000", "its port is no number from 1 to 65535"},
           {"10.0.0.7:0000006667", "its port is no number from 1 to 65535"},
           {"10.0.0.7", "no port"},
           {"fd00::7:4000", "in brackets"}}) {
    const absl::Status refused = wire::ParseDataAddress(address).status();
    EXPECT_NE(refused.message().find(why), absl::string_view::npos) << refused;
  }
  EXPECT_EQ(wire::DataAddressText(ValueOrDie(wire::ParseDataAddress("[fd00::7]:4000"))),
            "[fd00::7]:4000");
}

// Two workers, as the gateway asks them; what the one that connects says. Nothing: not within a
// while.
std::optional<proto::LinkMeasured> Measure(const std::string& token_there) {
  const std::unique_ptr<GroupLinks> here = ListenHere(), there = ListenHere();
  std::promise<proto::LinkMeasured> told;
  std::atomic<int> told_there{0};
  LinkProbes probes(
      here.get(),
      [&](const proto::WorkerEvent& event) { told.set_value(event.link_measured()); },
      milliseconds(token_there == kToken ? 20'000 : 300));
  LinkProbes probes_there(
      there.get(), [&](const proto::WorkerEvent&) { ++told_there; }, milliseconds(20'000));
  proto::MeasureLink command;
  command.set_id(kSession);
  command.set_token(token_there);
  probes_there.Begin(command);
  command.set_token(kToken);
  command.set_data_address(there->address());
  probes.Begin(command);
  std::future<proto::LinkMeasured> answer = told.get_future();
  if (answer.wait_for(std::chrono::seconds(30)) != std::future_status::ready) return std::nullopt;
  EXPECT_EQ(told_there, 0) << "one of them says it";
  return answer.get();
}

TEST(LinkProbes, TwoWorkers_MeasureTheirLink) {
  const auto measured = Measure(kToken);
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->id(), kSession);
  EXPECT_GT(measured->bytes_per_s(), 0u);
  EXPECT_GT(measured->message_ns(), 0u);
}

TEST(LinkProbes, AWorkerWithAnotherToken_IsNotMeasured) {
  const auto measured = Measure(std::string(16, 'x'));
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->bytes_per_s(), 0u);
}

// Its worker passes on what comes, and nobody there takes it. No other measurement has to begin.
TEST(LinkProbes, APartnerThatStandsStill_IsGivenUpAfterItsTime) {
  const std::unique_ptr<GroupLinks> here = ListenHere(), there = ListenHere();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  std::vector<GroupLinkOptions> still;
  still.push_back({.name = {kSession, 0, 0, 1},
                   .attach_token = kToken,
                   .partner = 0,
                   .executor = pair[1],
                   .connect_within = milliseconds(20'000)});
  Loss lost;
  there->Add(std::move(still), lost.Teller());
  std::promise<proto::LinkMeasured> told;
  LinkProbes probes(
      here.get(),
      [&](const proto::WorkerEvent& event) { told.set_value(event.link_measured()); },
      /*connect_within=*/milliseconds(20'000), /*within=*/milliseconds(300));
  proto::MeasureLink command;
  command.set_id(kSession);
  command.set_token(kToken);
  command.set_data_address(there->address());
  probes.Begin(command);
  std::future<proto::LinkMeasured> answer = told.get_future();
  const bool is_told =
      answer.wait_for(std::chrono::seconds(15)) == std::future_status::ready;
  ASSERT_TRUE(is_told);
  EXPECT_EQ(answer.get().bytes_per_s(), 0u);
  close(pair[0]);
}

TEST(BuildId, IsThatOfTheFile) {
  const std::string own = BuildIdOf("/proc/self/exe");
  EXPECT_EQ(own.size(), 32u);
  EXPECT_EQ(own.find_first_not_of("0123456789abcdef"), std::string::npos) << own;
  const std::string other = BuildIdOf("/bin/sh");
  EXPECT_NE(other, own);
  EXPECT_EQ(BuildOfWorker().substr(0, own.size()), own);
  test::TempFolder folder;
  EXPECT_EQ(BuildIdOf(folder / "none"), "");
  for (const std::string& text : {std::string(), std::string("no program"),
                                  std::string("\x7f" "ELF\x02") + std::string(200, '\xff')}) {
    std::ofstream(folder / "file", std::ios::binary) << text;
    EXPECT_EQ(BuildIdOf(folder / "file"), "");
  }
}

TEST(LinkProbes, WhatCannotBegin_IsSaidAtOnce) {
  int told = 0;
  const std::unique_ptr<GroupLinks> links = ListenHere();
  for (GroupLinks* const with : {static_cast<GroupLinks*>(nullptr), links.get()}) {
    LinkProbes probes(with, [&](const proto::WorkerEvent& event) {
      EXPECT_EQ(event.link_measured().bytes_per_s(), 0u);
      ++told;
    });
    proto::MeasureLink command;
    command.set_id(kSession);
    command.set_token(kToken);
    command.set_data_address("no address");
    probes.Begin(command);
  }
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace outboard::worker
