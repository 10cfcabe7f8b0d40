// An executor that does not read: nobody waits for it, and it is found out.
#include "worker/supervisor/command_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "tests/support/processes.h"
#include "worker/process/passed_socket.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::milliseconds kShort{50};

class CommandQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ours_ = pair[0];
    theirs_ = pair[1];
  }
  void TearDown() override {
    queue_.reset();
    close(ours_);
    close(theirs_);
  }
  void Start(size_t commands_max, std::chrono::milliseconds patience) {
    queue_.emplace(CommandQueueOptions{.fd = ours_,
                                       .commands_max = commands_max,
                                       .patience = patience,
                                       .works = [this] { return works_.load(); },
                                       .on_stuck =
                                           [this](const absl::Status& why) {
                                             ++stuck_;
                                             why_ = why;
                                           }});
  }
  static proto::ToExecutor Stored(uint64_t id, size_t bytes = 0) {
    proto::ToExecutor command;
    command.mutable_stored()->set_id(id);
    command.mutable_stored()->set_message(std::string(bytes, 'x'));
    return command;
  }
  static proto::ToExecutor Begin(const std::string& session) {
    proto::ToExecutor command;
    command.mutable_begin()->set_session_id(session);
    return command;
  }
  // More than a socket takes.
  void FillSocket() {
    for (uint64_t id = 1; id <= 4; ++id) queue_->Push(Stored(id, 512 << 10), -1);
  }
  proto::ToExecutor Read(int* passed) {
    proto::ToExecutor command;
    EXPECT_TRUE(ReadMessageWithDescriptor(theirs_, &command, passed).ok());
    return command;
  }

  int ours_ = -1, theirs_ = -1;
  std::atomic<bool> works_{false};
  std::atomic<int> stuck_{0};
  absl::Status why_;
  std::optional<CommandQueue> queue_;
};

TEST_F(CommandQueueTest, Commands_ComeInOrderWithTheirDescriptors) {
  Start(100, std::chrono::seconds(60));
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  for (uint64_t id = 1; id <= 50; ++id)
    queue_->Push(Stored(id, id * 1000), id % 2 == 0 ? dup(pipe_ends[1]) : -1);
  close(pipe_ends[1]);
  for (uint64_t id = 1; id <= 50; ++id) {
    int passed = -1;
    EXPECT_EQ(Read(&passed).stored().id(), id);
    ASSERT_EQ(passed >= 0, id % 2 == 0) << id;
    if (passed < 0) continue;
    char byte = 0;
    EXPECT_EQ(write(passed, "p", 1), 1);
    EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
    close(passed);
  }
  close(pipe_ends[0]);
  EXPECT_EQ(stuck_, 0);
}

TEST_F(CommandQueueTest, NobodyReads_PushReturnsAndTheEndIsToldOnce) {
  Start(20, std::chrono::seconds(60));
  std::future<void> pushes = std::async(std::launch::async, [this] {
    for (uint64_t id = 1; id <= 100; ++id) queue_->Push(Stored(id, 512 << 10), -1);
  });
  ASSERT_EQ(pushes.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(stuck_, 1);
  EXPECT_EQ(why_.code(), absl::StatusCode::kResourceExhausted);
}

// An honest session must not pay for what others have open.
TEST_F(CommandQueueTest, WithNoDescriptorLeft_WhatIsPassedGoesAllTheSame) {
  Start(5, std::chrono::seconds(60));
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const int lent = dup(pipe_ends[1]);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_LT(dup(pipe_ends[0]), 0);
  queue_->Push(Stored(1), pipe_ends[1]);
  queue_->PushLent(Stored(2), lent);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (uint64_t id = 1; id <= 2; ++id) {
    int passed = -1;
    EXPECT_EQ(Read(&passed).stored().id(), id);
    EXPECT_GE(passed, 0);
    EXPECT_EQ(write(passed, "p", 1), 1);
    close(passed);
  }
  EXPECT_EQ(stuck_, 0);
  queue_.reset();
  EXPECT_EQ(close(lent), 0) << "it stays open";
  char bytes[3];
  EXPECT_EQ(read(pipe_ends[0], bytes, 3), 2);
  EXPECT_EQ(read(pipe_ends[0], bytes, 1), 0) << "the other is closed";
  close(pipe_ends[0]);
}

// Else whoever has the other end of a data socket would wait for an executor that never had it.
TEST_F(CommandQueueTest, WhatIsNotSent_IsClosedWhenItIsGivenUp) {
  Start(5, std::chrono::seconds(60));
  FillSocket();
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  for (uint64_t id = 1; id <= 20; ++id) queue_->Push(Stored(id, 512 << 10), dup(pipe_ends[1]));
  close(pipe_ends[1]);
  EXPECT_EQ(stuck_, 1);
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 0);
  close(pipe_ends[0]);
}

TEST_F(CommandQueueTest, WithoutWork_WhoTakesNothingForTooLong_IsEnded) {
  Start(100, kShort);
  FillSocket();
  EXPECT_TRUE(test::Eventually([&] { return stuck_ == 1; }));
  EXPECT_EQ(why_.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(CommandQueueTest, WithWork_ItIsWaitedFor) {
  works_ = true;
  Start(100, kShort);
  FillSocket();
  std::this_thread::sleep_for(kShort * 6);
  EXPECT_EQ(stuck_, 0);
  for (uint64_t id = 1; id <= 4; ++id) {
    int passed = -1;
    EXPECT_EQ(Read(&passed).stored().id(), id);
  }
  works_ = false;
  std::this_thread::sleep_for(kShort * 6);
  EXPECT_EQ(stuck_, 0) << "it has read all";
}

TEST_F(CommandQueueTest, ABegin_ReplacesOneThatIsStillQueued) {
  Start(100, std::chrono::seconds(60));
  FillSocket();
  for (int i = 0; i < 200; ++i) queue_->Push(Begin(std::to_string(i)), dup(ours_));
  EXPECT_EQ(stuck_, 0);
  std::string session;
  int begins = 0;
  while (session != "199") {
    int passed = -1;
    const proto::ToExecutor command = Read(&passed);
    if (!command.has_begin()) continue;
    session = command.begin().session_id();
    EXPECT_GE(passed, 0);
    close(passed);
    ++begins;
  }
  EXPECT_LE(begins, 2);
}

TEST_F(CommandQueueTest, TheOtherSideHasGone_NothingIsTold) {
  Start(100, kShort);
  shutdown(theirs_, SHUT_RDWR);
  FillSocket();
  std::this_thread::sleep_for(kShort * 3);
  EXPECT_EQ(stuck_, 0);
}

}  // namespace
}  // namespace outboard::worker
