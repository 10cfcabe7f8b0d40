// The parts of the doors, each alone: what peers are counted by, connections, wrong keys, what an
// account may have, and the counts of what was refused.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "gateway/admission/graph_bytes.h"
#include "gateway/doors/account_limits.h"
#include "gateway/doors/address_key.h"
#include "gateway/doors/connection_table.h"
#include "gateway/doors/refusals.h"
#include "gateway/doors/step_times.h"
#include "gateway/doors/wrong_keys.h"

namespace outboard::gateway {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

AddressKey Of(const std::string& peer) { return AddressKeyOfPeer(peer); }

TEST(AddressKey, Peer_IsCountedByItsAddressOrItsNetwork) {
  const struct {
    const char *peer, *counted_as;
  } kCases[] = {
      {"ipv4:192.0.2.7:6667", "192.0.2.7"},
      {"ipv4:192.0.2.7:1", "192.0.2.7"},
      {"ipv6:[2001:db8:1:2:3:4:5:6]:6667", "2001:db8:1:2::/64"},
      {"ipv6:%5B2001:db8:1:2::9%5D:80", "2001:db8:1:2::/64"},
      {"ipv6:[::ffff:192.0.2.7]:6667", "192.0.2.7"},
      {"ipv4:127.0.0.1:5", "this machine"},
      {"ipv4:127.1.2.3:5", "this machine"},
      {"ipv6:[::1]:5", "this machine"},
      {"unix:/run/s", "this machine"},
      {"fd:17", "this machine"},
      {"", "this machine"},
  };
  for (const auto& [peer, counted_as] : kCases) EXPECT_EQ(Of(peer).ToString(), counted_as) << peer;
  EXPECT_NE(Of("ipv4:192.0.2.7:1"), Of("ipv4:192.0.2.8:1"));
  EXPECT_NE(Of("ipv6:[2001:db8:1:2::1]:1"), Of("ipv6:[2001:db8:1:3::1]:1"));
  EXPECT_EQ(Of("ipv6:[2001:db8:1:2::1]:1"), Of("ipv6:[2001:db8:1:2:ffff::1]:2"));
}

TEST(AddressKey, Socket_IsCountedAsItsPeerIs) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  inet_pton(AF_INET, "192.0.2.7", &v4.sin_addr);
  EXPECT_EQ(AddressKeyOf(address), Of("ipv4:192.0.2.7:1"));
  address = {};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "2001:db8:1:2::5", &v6.sin6_addr);
  EXPECT_EQ(AddressKeyOf(address), Of("ipv6:[2001:db8:1:2::1]:1"));
}

// Connections whose other ends the test holds.
class ConnectionTableTest : public ::testing::Test {
 protected:
  ~ConnectionTableTest() override {
    for (const int fd : fds_) close(fd);
  }
  // As accept does. -1: it was refused, and is closed.
  int Accept(ConnectionTable& table, const std::string& peer) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fds_.push_back(ends[1]);
    if (table.Add(ends[0], Of(peer), peer, now_)) return ends[0];
    close(ends[0]);
    return -1;
  }
  // True if the server ended the connection.
  static bool HasEnded(int fd) {
    pollfd ready{fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }
  ConnectionLimits Limits() const {
    return {.per_address = 3, .in_total = 100, .descriptors = 1'000'000, .key_within = seconds(5)};
  }

  std::vector<int> fds_;
  Clock::time_point now_ = Clock::now();
  Refusals refusals_{[](RefusalReason, uint64_t, std::string_view) {}};
};

TEST_F(ConnectionTableTest, OneMoreThanAnAddressMayHave_IsRefusedAndCounted) {
  ConnectionTable table(Limits(), &refusals_);
  std::vector<int> open;
  for (int i = 0; i < 3; ++i) open.push_back(Accept(table, "ipv4:192.0.2.7:" + std::to_string(i)));
  EXPECT_EQ(Accept(table, "ipv4:192.0.2.7:9"), -1);
  EXPECT_EQ(refusals_.count(RefusalReason::kConnectionsOfAddress), 1u);
  EXPECT_NE(Accept(table, "ipv4:192.0.2.8:9"), -1);  // another address
  // gRPC closes one without a word, and its number may be given to something else.
  close(open[0]);
  const int other = dup(0);
  EXPECT_NE(Accept(table, "ipv4:192.0.2.7:10"), -1);
  EXPECT_EQ(Accept(table, "ipv4:192.0.2.7:11"), -1);
  close(other);
  EXPECT_EQ(table.open(), 4u);
}

TEST_F(ConnectionTableTest, AWholeNetworkOfIpv6_IsOneAddress) {
  ConnectionTable table(Limits(), &refusals_);
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(Accept(table, "ipv6:[2001:db8::" + std::to_string(i + 1) + "]:1"), -1);
  EXPECT_EQ(Accept(table, "ipv6:[2001:db8::9]:1"), -1);
}

TEST_F(ConnectionTableTest, ThisMachineAndTrustedProxies_HaveNoLimitOfOneAddress) {
  ConnectionLimits limits = Limits();
  limits.proxies = {AddressRange::Parse("10.0.0.0/8").value()};
  ConnectionTable table(limits, &refusals_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(Accept(table, "ipv4:127.0.0.1:" + std::to_string(i)), -1);
    EXPECT_NE(Accept(table, "ipv4:10.1.1.1:" + std::to_string(i)), -1);
  }
}

TEST_F(ConnectionTableTest, WhoShowsNoKeyInTime_IsEnded) {
  ConnectionTable table(Limits(), &refusals_);
  Accept(table, "ipv6:[2001:db8::1]:1");
  Accept(table, "ipv4:192.0.2.7:2");
  table.Proved("ipv6:%5B2001:db8::1%5D:1");  // as gRPC may write it
  table.EndUnproved(now_ + seconds(4));
  EXPECT_FALSE(HasEnded(fds_[0]) || HasEnded(fds_[1]));
  table.EndUnproved(now_ + seconds(6));
  EXPECT_FALSE(HasEnded(fds_[0]));
  EXPECT_TRUE(HasEnded(fds_[1]));
  EXPECT_EQ(refusals_.count(RefusalReason::kNoKeyInTime), 1u);
}

// Both ends of a TCP connection; `fds_` gets that of the peer.
class ConnectionBytesTest : public ConnectionTableTest {
 protected:
  int Connect(ConnectionTable& table, const std::string& peer) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener, generic, size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, generic, &size), 0);
    fds_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fds_.back(), generic, size), 0);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    EXPECT_TRUE(table.Add(fd, Of(peer), peer, now_));
    return fd;
  }
  // The kernel has counted the bytes when they can be read.
  static void Pass(int from, int to, size_t bytes) {
    std::string text(bytes, 'x');
    EXPECT_EQ(send(from, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    EXPECT_EQ(recv(to, text.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  ConnectionLimits ByteLimits() const {
    ConnectionLimits limits = Limits();
    limits.bytes_before_key = 1000;
    limits.bytes_before_key_in_total = 2000;
    return limits;
  }
};

TEST_F(ConnectionBytesTest, WhoSendsTooMuchBeforeAKey_IsEnded) {
  ConnectionTable table(ByteLimits(), &refusals_);
  const int within = Connect(table, "ipv4:192.0.2.7:1");
  const int beyond = Connect(table, "ipv4:192.0.2.7:2");
  const int proved = Connect(table, "ipv4:192.0.2.7:3");
  table.Proved("ipv4:192.0.2.7:3");
  Pass(fds_[0], within, 900);
  Pass(fds_[1], beyond, 600);
  Pass(fds_[2], proved, 5000);
  table.EndGreedy();
  EXPECT_EQ(refusals_.count(RefusalReason::kBytesBeforeKey), 0u);
  Pass(fds_[1], beyond, 401);  // of its sum
  table.EndGreedy();
  EXPECT_FALSE(HasEnded(fds_[0]));
  EXPECT_TRUE(HasEnded(fds_[1]));
  EXPECT_FALSE(HasEnded(fds_[2]));
  table.EndGreedy();
  EXPECT_EQ(refusals_.count(RefusalReason::kBytesBeforeKey), 1u);
  for (const int fd : {within, beyond, proved}) close(fd);
}

TEST_F(ConnectionBytesTest, WhereAllSendTooMuchTogether_WhoSentTheMostIsEnded) {
  ConnectionTable table(ByteLimits(), &refusals_);
  std::vector<int> open;
  for (const size_t bytes : {300, 900, 901}) {
    open.push_back(Connect(table, "ipv4:192.0.2.7:" + std::to_string(bytes)));
    Pass(fds_.back(), open.back(), bytes);
  }
  table.EndGreedy();
  EXPECT_FALSE(HasEnded(fds_[0]));
  EXPECT_FALSE(HasEnded(fds_[1]));
  EXPECT_TRUE(HasEnded(fds_[2]));
  EXPECT_EQ(refusals_.count(RefusalReason::kBytesBeforeKey), 1u);
  for (const int fd : open) close(fd);
}

TEST_F(ConnectionTableTest, WhenAllAreTaken_TheOldestWithoutAKeyMakesRoom) {
  ConnectionLimits limits = Limits();
  limits.in_total = 4;
  limits.per_address = 100;
  ConnectionTable table(limits, &refusals_);
  for (int i = 0; i < 4; ++i) {
    Accept(table, "ipv4:192.0.2.7:" + std::to_string(i));
    now_ += seconds(1);
  }
  table.Proved("ipv4:192.0.2.7:0");
  EXPECT_NE(Accept(table, "ipv4:192.0.2.8:1"), -1);
  EXPECT_FALSE(HasEnded(fds_[0]));
  EXPECT_TRUE(HasEnded(fds_[1]));
  EXPECT_FALSE(HasEnded(fds_[2]));
  for (const char* peer : {"ipv4:192.0.2.7:2", "ipv4:192.0.2.7:3", "ipv4:192.0.2.8:1"})
    table.Proved(peer);
  EXPECT_EQ(Accept(table, "ipv4:192.0.2.9:1"), -1);  // all have keys
  EXPECT_EQ(refusals_.count(RefusalReason::kConnectionsInTotal), 1u);
}

TEST_F(ConnectionTableTest, DescriptorsForTheDisk_StayFree) {
  ConnectionLimits limits = Limits();
  limits.descriptors = dup(0);  // the lowest that is free
  close(limits.descriptors);
  ConnectionTable table(limits, &refusals_);
  EXPECT_EQ(Accept(table, "ipv4:192.0.2.7:1"), -1);
  EXPECT_EQ(refusals_.count(RefusalReason::kConnectionsInTotal), 1u);
}

TEST(WrongKeys, EachOneWaitsTwiceAsLong_AndIsForgotten) {
  WrongKeys wrong;
  const AddressKey address = Of("ipv4:192.0.2.7:1");
  Clock::time_point now = Clock::now();
  std::vector<int64_t> delays_ms;
  const auto next = [&] {
    const auto delay = wrong.Delay(address, now);
    wrong.Answered(address);
    return delay.value_or(milliseconds(-1)).count();
  };
  for (int i = 0; i < 10; ++i) delays_ms.push_back(next());
  EXPECT_EQ(delays_ms,
            (std::vector<int64_t>{50, 100, 200, 400, 800, 1600, 3200, 4000, 4000, 4000}));
  now += milliseconds(kWrongKeyForgetMs) * 20;
  EXPECT_EQ(next(), 50);
}

TEST(WrongKeys, AnAddressWithManyThatWait_IsNotLookedAt) {
  WrongKeys wrong;
  const AddressKey remote = Of("ipv4:192.0.2.7:1"), local = Of("unix:");
  for (int i = 0; i < kWrongKeysWaitingMax; ++i) {
    EXPECT_TRUE(wrong.MayAsk(remote, Clock::now()));
    EXPECT_TRUE(wrong.Delay(remote, Clock::now()).has_value());
    wrong.Delay(local, Clock::now());
  }
  EXPECT_FALSE(wrong.MayAsk(remote, Clock::now()));
  EXPECT_FALSE(wrong.Delay(remote, Clock::now()).has_value());
  EXPECT_TRUE(wrong.MayAsk(Of("ipv4:192.0.2.8:1"), Clock::now()));
  EXPECT_TRUE(wrong.MayAsk(local, Clock::now()));  // a proxy's clients all come from there
  wrong.Answered(remote);
  EXPECT_TRUE(wrong.MayAsk(remote, Clock::now()));
}

TEST(WrongKeys, Addresses_AreBounded) {
  WrongKeys wrong(/*addresses_max=*/100);
  for (uint64_t i = 1; i <= 1000; ++i) {
    const AddressKey address{.bits = i};
    wrong.Delay(address, Clock::now());
    wrong.Answered(address);
  }
  EXPECT_EQ(wrong.addresses(), 100u);
}

TEST(AccountLimits, CallsAndStreams_AreCountedByAccount) {
  Refusals refusals([](RefusalReason, uint64_t, std::string_view) {});
  AccountLimits limits({.calls = 2, .streams = 1}, &refusals);
  auto a = limits.Begin(TenantId{1}, SlotKind::kCall),
       b = limits.Begin(TenantId{1}, SlotKind::kCall);
  auto stream = limits.Begin(TenantId{1}, SlotKind::kStream);
  EXPECT_TRUE(a.ok() && b.ok() && stream.ok());
  EXPECT_TRUE(absl::IsUnavailable(limits.Begin(TenantId{1}, SlotKind::kCall).status()));
  EXPECT_TRUE(absl::IsUnavailable(limits.Begin(TenantId{1}, SlotKind::kStream).status()));
  EXPECT_TRUE(limits.Begin(TenantId{2}, SlotKind::kCall).ok());
  a->reset();
  EXPECT_TRUE(limits.Begin(TenantId{1}, SlotKind::kCall).ok());
  EXPECT_EQ(refusals.count(RefusalReason::kCallsOfAccount), 1u);
  EXPECT_EQ(refusals.count(RefusalReason::kStreamsOfAccount), 1u);
}

TEST(AccountLimits, Openings_ComeBackWithTime) {
  Refusals refusals([](RefusalReason, uint64_t, std::string_view) {});
  AccountLimits limits({.openings_per_minute = 60}, &refusals);
  Clock::time_point now = Clock::now();
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(limits.MayOpen(TenantId{1}, now).ok()) << i;
  const absl::Status refused = limits.MayOpen(TenantId{1}, now);
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_NE(refused.message().find("60 sessions a minute"), std::string::npos) << refused;
  EXPECT_TRUE(limits.MayOpen(TenantId{2}, now).ok());
  now += milliseconds(1500);
  EXPECT_TRUE(limits.MayOpen(TenantId{1}, now).ok());
  EXPECT_FALSE(limits.MayOpen(TenantId{1}, now).ok());
}

TEST(StepTimes, OthersSteps_AreOfAnotherAccountAndRecent) {
  StepTimes steps;
  Clock::time_point now = Clock::now();
  EXPECT_FALSE(steps.OthersStep(TenantId{1}, now));
  steps.Note(TenantId{1}, now);
  EXPECT_FALSE(steps.OthersStep(TenantId{1}, now));
  EXPECT_TRUE(steps.OthersStep(TenantId{2}, now));
  // An account that steps itself does not hide the other.
  steps.Note(TenantId{2}, now);
  EXPECT_TRUE(steps.OthersStep(TenantId{2}, now));
  EXPECT_TRUE(steps.OthersStep(TenantId{1}, now));
  now += milliseconds(kStepsRecentMs + 1);
  steps.Note(TenantId{2}, now);
  EXPECT_FALSE(steps.OthersStep(TenantId{2}, now));
  EXPECT_TRUE(steps.OthersStep(TenantId{1}, now));
}

TEST(GraphBytes, OfAllSessionsOfAnAccount_AreOneSum) {
  GraphBytes graphs(100);
  GraphBytes::Held a, b, other;
  EXPECT_TRUE(graphs.Add(TenantId{1}, 60, a).ok());
  EXPECT_TRUE(graphs.Add(TenantId{1}, 40, b).ok());
  const absl::Status full = graphs.Add(TenantId{1}, 1, a);
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_NE(full.message().find("100 bytes in flight"), std::string::npos) << full;
  EXPECT_TRUE(graphs.Add(TenantId{2}, 100, other).ok());
  GraphBytes::Held moved = std::move(a);
  a.Clear();
  EXPECT_FALSE(graphs.Add(TenantId{1}, 1, b).ok());
  moved = {};
  EXPECT_TRUE(graphs.Add(TenantId{1}, 60, b).ok());
}

TEST(Refusals, Reason_IsLoggedOnceAMinuteWithItsCount) {
  struct Line {
    RefusalReason reason;
    uint64_t count;
    std::string last;
  };
  std::vector<Line> lines;
  Clock::time_point now = Clock::now();
  Refusals refusals(
      [&](RefusalReason reason, uint64_t count, std::string_view last) {
        lines.push_back({reason, count, std::string(last)});
      },
      [&] { return now; });
  for (int i = 0; i < 1000; ++i) refusals.Count(RefusalReason::kWrongKey, "192.0.2.7");
  refusals.Count(RefusalReason::kNoKeyInTime, "192.0.2.8");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].reason, RefusalReason::kWrongKey);
  EXPECT_EQ(lines[0].count, 1u);
  now += minutes(2);
  refusals.Count(RefusalReason::kWrongKey, "192.0.2.9");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].count, 1000u);
  EXPECT_EQ(lines[2].last, "192.0.2.9");
  EXPECT_EQ(refusals.count(RefusalReason::kWrongKey), 1001u);
}

}  // namespace
}  // namespace outboard::gateway
