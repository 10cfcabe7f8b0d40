// The loop of an executor's process over its two sockets: what it does when nothing comes, which a
// session on several devices does otherwise; and how a group that cannot be joined ends it.
#include "worker/executor/session_loop.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "telemetry/counters.h"
#include "tests/support/device.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"
#include "worker/process/passed_socket.h"

namespace outboard::worker {
namespace {

using std::chrono::seconds;

// Counts what it is asked to do in idle time. The loop's thread alone has it while that runs.
class CountingEngine final : public Engine {
 public:
  CountingEngine() : Engine(test::MakeDevice(1 << 20)) {}

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId&, const UOp*,
                                                      std::vector<DeviceArrayPtr>,
                                                      std::span<const Binding>,
                                                      std::span<const int64_t>) override {
    return absl::UnimplementedError("no test runs a graph");
  }
  std::string kind() const override { return "ref"; }
  void TellCosts(const std::function<bool()>&) override { ++costs; }
  void UseBetterKernels(const std::function<bool()>&) override { ++looks; }
  void SearchForBetterKernels(const std::function<bool()>&) override { ++searches; }

  int costs = 0, looks = 0, searches = 0;
};

// Above the two numbers that an executor's sockets have.
std::array<int, 2> SocketPair() {
  std::array<int, 2> pair{};
  OB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  for (int& end : pair) {
    const int high = fcntl(end, F_DUPFD_CLOEXEC, kDataSocket + 1);
    OB_CHECK(high >= 0);
    close(std::exchange(end, high));
  }
  return pair;
}

// A loop on a thread of its own, as the supervisor and the gateway see it.
class RunningLoop {
 public:
  explicit RunningLoop(bool uses_idle_time) {
    const std::array<int, 2> control = SocketPair();
    OB_CHECK(dup3(control[0], kChildSocket, O_CLOEXEC) == kChildSocket);
    close(control[0]);
    control_ = control[1];
    // Before other threads open files: their numbers must not be its.
    sockets_.emplace();
    thread_ = std::thread([this, uses_idle_time] {
      SessionLoop loop(*sockets_, engine_, {"a device", "ref"},
                       {.step_most = seconds(600), .uses_idle_time = uses_idle_time});
      status_ = loop.Serve();
    });
  }
  ~RunningLoop() {
    End().IgnoreError();
    if (data_ >= 0) close(data_);
    close(kChildSocket);
    close(kDataSocket);
  }

  void Begin(int ranks, int rank) {
    proto::ToExecutor command;
    command.mutable_begin()->set_rank(static_cast<uint32_t>(rank));
    if (ranks > 1) command.mutable_begin()->add_mesh(static_cast<uint32_t>(ranks));
    const std::array<int, 2> data = SocketPair();
    OB_CHECK_OK(WriteMessageWithDescriptor(control_, command, data[0]));
    close(data[0]);
    data_ = data[1];
  }
  // The socket to another rank; returns that rank's end.
  int JoinTo(int rank) {
    proto::ToExecutor command;
    command.mutable_group_socket()->set_rank(static_cast<uint32_t>(rank));
    const std::array<int, 2> pair = SocketPair();
    OB_CHECK_OK(WriteMessageWithDescriptor(control_, command, pair[0]));
    close(pair[0]);
    return pair[1];
  }
  void Open() {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->mutable_open();
    OB_CHECK_OK(WriteMessage(data_, frame));
  }
  proto::FromExecutor Heard() {
    proto::FromExecutor event;
    EXPECT_TRUE(ReadMessage(control_, &event, IoLimits::Within(seconds(60))).ok());
    return event;
  }
  bool HeardWorking() {  // the next Activity's
    proto::FromExecutor event = Heard();
    while (event.has_counts()) event = Heard();
    EXPECT_TRUE(event.has_activity());
    return event.activity().working();
  }
  // Lets go, or waits for an end of its own.
  absl::Status End() {
    if (control_ >= 0) shutdown(control_, SHUT_WR);
    if (thread_.joinable()) thread_.join();
    if (control_ >= 0) close(std::exchange(control_, -1));
    return status_;
  }
  const CountingEngine& engine() const { return engine_; }  // after End

 private:
  std::optional<ExecutorSockets> sockets_;
  CountingEngine engine_;
  absl::Status status_;
  int control_ = -1, data_ = -1;
  std::thread thread_;
};

TEST(SessionLoop, WhenNothingComes_IdleTimeIsUsedAsBeginLets) {
  const struct {
    bool uses_idle_time;
    int ranks, rank;
    bool tells, searches;
  } cases[] = {{true, 1, 0, true, true},
               {false, 1, 0, false, false},
               {true, 2, 0, true, false},
               {true, 2, 1, false, false},
               {false, 2, 0, false, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << "idle " << c.uses_idle_time << ", rank " << c.rank << " of "
                                    << c.ranks);
    RunningLoop loop(c.uses_idle_time);
    const int other = c.ranks > 1 ? loop.JoinTo(1 - c.rank) : -1;
    loop.Begin(c.ranks, c.rank);
    loop.Open();
    EXPECT_TRUE(loop.HeardWorking());
    EXPECT_FALSE(loop.HeardWorking());
    EXPECT_TRUE(loop.End().ok());
    if (other >= 0) close(other);
    // When it became quiet, and at the end.
    EXPECT_EQ(loop.engine().costs, c.tells ? 2 : 0);
    EXPECT_EQ(loop.engine().looks, c.searches ? 1 : 0);
    EXPECT_EQ(loop.engine().searches, c.searches ? 1 : 0);
  }
}

TEST(SessionLoop, WithoutWork_NothingIsLookedUp) {
  RunningLoop loop(true);
  loop.Begin(1, 0);
  EXPECT_TRUE(loop.End().ok());
  EXPECT_EQ(loop.engine().costs, 1);
  EXPECT_EQ(loop.engine().looks + loop.engine().searches, 0);
}

// A quiet session has no patience of its own. Its requests have: counts are told in time, and that
// is no idle time.
TEST(SessionLoop, PatienceOfRequests_EndsAWaitThatHasNone) {
  RunningLoop loop(false);
  loop.Begin(1, 0);
  loop.Open();
  EXPECT_TRUE(loop.HeardWorking());
  EXPECT_FALSE(loop.HeardWorking());
  telemetry::Count(telemetry::Metric::kWorkerSteps, 1);
  EXPECT_TRUE(loop.Heard().has_counts());
  EXPECT_TRUE(loop.End().ok());
  EXPECT_EQ(loop.engine().looks + loop.engine().searches, 0);
}

TEST(SessionLoop, WithoutASocketToAnotherRank_EndsWithTheErrorOfJoin) {
  RunningLoop loop(true);
  loop.Begin(2, 0);
  const absl::Status ended = loop.End();
  EXPECT_EQ(ended.code(), absl::StatusCode::kInvalidArgument) << ended;
  EXPECT_EQ(loop.engine().costs, 0);
}

}  // namespace
}  // namespace outboard::worker
