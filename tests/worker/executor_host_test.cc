// What an executor that may be hostile can make its supervisor hold.
#include "worker/supervisor/executor_host.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "proto/executor.pb.h"
#include "tests/support/temp_folder.h"
#include "wire/framing.h"
#include "worker/executor/executor_main.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/process/message_limits.h"
#include "worker/receipts/lease_counter.h"
#include "worker/supervisor/spare_executor.h"

namespace outboard::worker {
namespace {

class ExecutorHostTest : public ::testing::Test {
 protected:
  // How a session ends whose executor writes these bytes to its control socket, and then waits.
  absl::Status EndAfter(const std::string& bytes) {
    std::ofstream(folder_ / "bytes", std::ios::binary) << bytes;
    ChildProcess executor = ValueOrDie(ChildProcess::Start(
        {"/bin/sh", "-c", "cat " + (folder_ / "bytes") + " >&3; exec sleep 1000"}, {.parts = {}}));
    std::promise<absl::Status> end;
    ExecutorHostOptions options;
    options.on_end = [&](const absl::Status& status) { end.set_value(status); };
    const ExecutorHost host(std::move(options), std::move(executor));
    std::future<absl::Status> ended = end.get_future();
    if (ended.wait_for(std::chrono::seconds(30)) != std::future_status::ready)
      return absl::DeadlineExceededError("the session goes on");
    return ended.get();
  }

  test::TempFolder folder_;
};

// 7 MiB that would be 200 MB in memory.
TEST_F(ExecutorHostTest, EmptyCellsOfCounts_EndTheSessionUnparsed) {
  std::string cells;
  while (cells.size() < kFromExecutorBytesMax - (size_t{1} << 20))
    cells += std::string("\x0a\0", 2);
  std::string event = "\xa2\x01";  // counts, of four bytes of length
  for (size_t left = cells.size(); left > 0; left >>= 7)
    event += static_cast<char>((left & 0x7f) | (left >= 0x80 ? 0x80 : 0));
  event += cells;
  const auto length = static_cast<uint32_t>(event.size());
  ASSERT_LT(length, kFromExecutorBytesMax);
  EXPECT_EQ(
      EndAfter(std::string(reinterpret_cast<const char*>(&length), sizeof length) + event).code(),
      absl::StatusCode::kUnavailable);
}

TEST_F(ExecutorHostTest, ALongEvent_EndsTheSessionUnread) {
  const uint32_t length = kFromExecutorBytesMax + 1;
  EXPECT_EQ(EndAfter(std::string(reinterpret_cast<const char*>(&length), sizeof length)).code(),
            absl::StatusCode::kUnavailable);
}

// Ranks count over the workers of a session, devices of an Assign are this worker's: the second one
// here of a session whose first two ranks are elsewhere.
TEST_F(ExecutorHostTest, ARankOfSeveralWorkers_WorksOnItsDevice) {
  proto::FromExecutor event;
  event.mutable_activity()->set_working(true);
  const std::string bytes = event.SerializeAsString();
  const auto length = static_cast<uint32_t>(bytes.size());
  std::ofstream(folder_ / "bytes", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof length) << bytes;
  LeaseCounter leases(signing::SigningKey::Make());
  proto::GatewayCommand command;
  proto::LeaseChange& begins = *command.mutable_lease_change();
  begins.set_session_id("s");
  for (const uint32_t here : {0, 1}) {
    begins.add_devices(4 + here);
    begins.add_places(2 + here);
  }
  leases.On(command);
  std::promise<absl::Status> end;
  ExecutorHostOptions options;
  options.assign.set_session_id("s");
  options.assign.mutable_group()->set_first_rank(2);
  options.assign.add_devices(4);
  options.assign.add_devices(5);
  options.rank = 3;
  options.leases = &leases;
  options.on_end = [&](const absl::Status& status) { end.set_value(status); };
  const ExecutorHost host(
      std::move(options),
      ValueOrDie(ChildProcess::Start(
          {"/bin/sh", "-c", "cat " + (folder_ / "bytes") + " >&3; exec sleep 0.1"},
          {.parts = {}})));
  end.get_future().wait();
  proto::Heartbeat beat;
  leases.AddTo(beat);
  ASSERT_EQ(beat.receipts_size(), 2);
  for (const proto::Receipt& receipt : beat.receipts())
    EXPECT_EQ(receipt.busy_ms() > 0, receipt.device() == 3) << receipt.device();
}

// What an executor says of its device, and how it ends, by the codes of executor_main.h.
struct DeviceEnd {
  int code;
  proto::DeviceTrouble::Kind kind;
  DeviceFailure failure;
  absl::StatusCode status;
  bool one_more_try;
};

class DeviceEndTest : public ExecutorHostTest,
                      public ::testing::WithParamInterface<DeviceEnd> {
 protected:
  struct Ended {
    absl::Status status;
    std::optional<DeviceFailure> failure;
    std::string words;
  };
  Ended EndOf(ChildProcess executor, bool release = false) {
    std::promise<absl::Status> end;
    Ended ended;
    ExecutorHostOptions options;
    options.on_device_failure = [&](DeviceFailure failure, const std::string& words) {
      ended.failure = failure;
      ended.words = words;
    };
    options.on_end = [&](const absl::Status& status) { end.set_value(status); };
    ExecutorHost host(std::move(options), std::move(executor));
    if (release) host.End();
    std::future<absl::Status> future = end.get_future();
    if (future.wait_for(std::chrono::seconds(30)) == std::future_status::ready)
      ended.status = future.get();
    else
      ended.status = absl::UnknownError("the session goes on");
    return ended;
  }
};

TEST_P(DeviceEndTest, SaysWhatBecomesOfTheSessionAndOfTheDevice) {
  const DeviceEnd& row = GetParam();
  proto::FromExecutor event;
  event.mutable_trouble()->set_kind(row.kind);
  event.mutable_trouble()->set_seq(41);
  event.mutable_trouble()->set_message("kernel k was\nnot done");
  const std::string bytes = event.SerializeAsString();
  const auto length = static_cast<uint32_t>(bytes.size());
  std::ofstream(folder_ / "bytes", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof length) << bytes;
  const Ended ended = EndOf(ValueOrDie(ChildProcess::Start(
      {"/bin/sh", "-c",
       "cat " + (folder_ / "bytes") + " >&3; exit " + std::to_string(row.code)},
      {.parts = {}})));
  EXPECT_EQ(ended.failure, row.failure);
  EXPECT_EQ(ended.words, "kernel k was not done");
  EXPECT_EQ(ended.status.code(), row.status) << ended.status;
  EXPECT_EQ(OneMoreTryOf(ended.status),
            row.one_more_try ? std::optional<uint64_t>(41) : std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(
    Ends, DeviceEndTest,
    ::testing::Values(
        DeviceEnd{kExitDeviceLost, proto::DeviceTrouble::LOST, DeviceFailure::kLost,
                  absl::StatusCode::kInternal, true},
        DeviceEnd{kExitDeviceLost, proto::DeviceTrouble::MEMORY_FAULT, DeviceFailure::kMemoryFault,
                  absl::StatusCode::kUnavailable, false},
        DeviceEnd{kExitLaunchTooLong, proto::DeviceTrouble::LAUNCH_TOO_LONG,
                  DeviceFailure::kLaunchTooLong, absl::StatusCode::kDeadlineExceeded, true},
        DeviceEnd{kExitNoDevice, proto::DeviceTrouble::LOST, DeviceFailure::kNotThere,
                  absl::StatusCode::kUnavailable, false}));

// As one that waits within the kernel for a driver: it is left alone, and nobody waits for it.
TEST_F(DeviceEndTest, AProcessThatDoesNotDie_KeepsItsDeviceAndHoldsNobodyUp) {
  ChildProcess executor = ValueOrDie(
      ChildProcess::Start({"/bin/sh", "-c", "exec sleep 20"},
                          {.kill_patience_ms = 200, .kill_signal = 0, .parts = {}}));
  const pid_t pid = executor.pid();
  const Ended ended = EndOf(std::move(executor), /*release=*/true);
  EXPECT_EQ(ended.failure, DeviceFailure::kNotLetGo);
  EXPECT_TRUE(ended.status.ok()) << ended.status;  // the session was released
  kill(pid, SIGKILL);
}

// ---- an executor without a session that does not begin ------------------------------------------

ChildOptions EndsAtOnce() { return {.kill_patience_ms = 10'000, .parts = {}}; }

// What its end says, once it has ended.
std::optional<SpareExecutor::Failure> FailureOf(SpareExecutor& spare, double seconds_max) {
  std::optional<SpareExecutor::Failure> failure;
  EXPECT_TRUE(test::Eventually([&] {
    failure = spare.EndIfFailed(seconds_max, 0);
    return failure.has_value() || !spare.IsEndingOn(spare.device());
  }));
  return failure.has_value() ? failure : spare.EndIfFailed(seconds_max, 0);
}

TEST(SpareExecutorTest, OneThatHasNotBegun_IsEndedAtItsBound) {
  SpareExecutor spare(EndsAtOnce());
  EXPECT_EQ(spare.EndIfFailed(0, 0), std::nullopt) << "there is none";
  ASSERT_TRUE(spare.Start({"/bin/sh", "-c", "exec sleep 1000"}, 3, {}, {}, false).ok());
  EXPECT_EQ(spare.EndIfFailed(3600), std::nullopt) << "it may begin still";
  ASSERT_TRUE(spare.running());
  const auto failed = FailureOf(spare, 0);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure, DeviceFailure::kNotThere);
  EXPECT_EQ(failed->device, 3u);
  EXPECT_FALSE(spare.running());
  EXPECT_EQ(spare.EndIfFailed(0, 0), std::nullopt) << "told already";
}

TEST(SpareExecutorTest, OneThatHasBegun_IsLeftAlone) {
  SpareExecutor spare(EndsAtOnce());
  ASSERT_TRUE(spare.Start({"/bin/sh", "-c", "cat <&3 > /dev/null"}, 0, {}, {}, false).ok());
  // Once it has read what it was told.
  EXPECT_TRUE(test::Eventually([&] { return spare.HasBegun(); }));
  EXPECT_EQ(spare.EndIfFailed(0, 0), std::nullopt);
  EXPECT_TRUE(spare.running());
}

TEST(SpareExecutorTest, OneThatDoesNotDie_KeepsItsGpu) {
  ChildOptions child = EndsAtOnce();
  child.kill_patience_ms = 200;
  child.kill_signal = 0;
  SpareExecutor spare(child);
  ASSERT_TRUE(spare.Start({"/bin/sh", "-c", "exec sleep 20"}, 0, {}, {}, false).ok());
  const pid_t pid = spare.pid();
  const auto failed = FailureOf(spare, 0);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure, DeviceFailure::kNotLetGo);
  kill(pid, SIGKILL);
}

// Its patience would be an hour.
TEST(SpareExecutorTest, OneThatDoesNotDie_HoldsNobodyUp) {
  ChildOptions child = EndsAtOnce();
  child.kill_patience_ms = 3'600'000;
  child.kill_signal = 0;
  const std::vector<std::string> sleeps = {"/bin/sh", "-c", "exec sleep 4000"};
  SpareExecutor spare(child);
  ASSERT_TRUE(spare.Start(sleeps, 0, {}, {}, false).ok());
  const pid_t first = spare.pid();
  EXPECT_EQ(spare.EndIfFailed(0, 0), std::nullopt) << "not yet";
  EXPECT_TRUE(spare.IsEndingOn(0));
  EXPECT_FALSE(spare.AwaitEnd(0, std::chrono::milliseconds(1)));
  ASSERT_TRUE(spare.Start(sleeps, 1, {}, {}, false).ok()) << "on another GPU";
  const pid_t second = spare.pid();
  EXPECT_FALSE(spare.IsEndingOn(1));
  ASSERT_TRUE(spare.Start(sleeps, 2, {}, {}, false).ok()) << "in the place of the one on 1";
  const pid_t third = spare.pid();
  EXPECT_TRUE(spare.IsEndingOn(0) && spare.IsEndingOn(1));
  for (const pid_t pid : {first, second, third}) kill(pid, SIGKILL);
  std::optional<SpareExecutor::Failure> failed;
  EXPECT_TRUE(test::Eventually([&] { return (failed = spare.EndIfFailed(3600)).has_value(); }));
  EXPECT_EQ(failed->device, 0u);
  EXPECT_EQ(failed->failure, DeviceFailure::kNotThere) << "it had not begun";
}

TEST(SpareExecutorTest, OneThatHasEnded_SaysWhetherItCouldHaveItsGpu) {
  for (const int code : {kExitNoDevice, 1}) {
    SpareExecutor spare(EndsAtOnce());
    // Not before it was told something: a supervisor gives up one that cannot be.
    ASSERT_TRUE(spare.Start({"/bin/sh", "-c", "head -c 1 <&3 > /dev/null; exit " +
                                              std::to_string(code)}, 0, {}, {}, false).ok());
    ASSERT_TRUE(test::Eventually([&] { return !spare.running(); }));
    const auto failed = FailureOf(spare, 3600);
    EXPECT_EQ(failed.has_value(), code == kExitNoDevice);
  }
}

}  // namespace
}  // namespace outboard::worker
