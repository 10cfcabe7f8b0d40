// What an executor that may be hostile can make its supervisor hold.
#include "worker/node/executor_host.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "base/check.h"
#include "proto/executor.pb.h"
#include "tests/support/temp_folder.h"
#include "wire/framing.h"
#include "worker/process/message_limits.h"

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
  while (cells.size() < kNodeEventBytesMax - (size_t{1} << 20)) cells += std::string("\x0a\0", 2);
  std::string event = "\xa2\x01";  // counts, of four bytes of length
  for (size_t left = cells.size(); left > 0; left >>= 7)
    event += static_cast<char>((left & 0x7f) | (left >= 0x80 ? 0x80 : 0));
  event += cells;
  const auto length = static_cast<uint32_t>(event.size());
  ASSERT_LT(length, kNodeEventBytesMax);
  EXPECT_EQ(
      EndAfter(std::string(reinterpret_cast<const char*>(&length), sizeof length) + event).code(),
      absl::StatusCode::kUnavailable);
}

TEST_F(ExecutorHostTest, ALongEvent_EndsTheSessionUnread) {
  const uint32_t length = kNodeEventBytesMax + 1;
  EXPECT_EQ(EndAfter(std::string(reinterpret_cast<const char*>(&length), sizeof length)).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::worker
