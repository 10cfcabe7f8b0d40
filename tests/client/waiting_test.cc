// Waits that are cut short, and the hooks around them, over a link that answers when the test says
// so.
#include "client/session/waiting.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "client/session/link/link.h"
#include "client/session/session.h"
#include "wire/limits.h"

namespace outboard::session {
namespace {

std::atomic<bool> stop{false};
std::atomic<int> asleep{0}, begun{0}, checks{0};
thread_local int depth = 0;

absl::Status CheckStop() {
  ++checks;
  return stop ? absl::CancelledError("the test says stop") : absl::OkStatus();
}

WaitHooks Hooks() {
  return {.begin = []() -> void* {
            if (depth++ == 0) ++asleep, ++begun;
            return &depth;
          },
          .end =
              [](void* mine) {
                EXPECT_EQ(mine, &depth);
                if (--depth == 0) --asleep;
              },
          .check = CheckStop};
}

// Opens at once where `opens`; everything else waits for the test.
class QuietLink : public Link {
 public:
  QuietLink(bool opens, LinkListener*& listener) : opens_(opens), listener_(listener) {}
  void Start(LinkListener* listener) override { listener_ = listener; }
  void Send(proto::ClientFrame frame) override {
    for (const proto::ClientItem& item : frame.items()) {
      if (item.has_open() && opens_)
        Answer([](proto::ServerFrame& frame) {
          proto::Opened& opened = *frame.add_items()->mutable_opened();
          opened.set_protocol(wire::kProtocolVersion);
          opened.mutable_window()->set_items_in_flight_max(2);
          opened.mutable_window()->set_bytes_in_flight_max(1000);
        });
      if (item.has_close()) threads_.emplace_back([this] { listener_->OnEnd(absl::OkStatus()); });
    }
  }
  void Finish() override {}
  uint64_t bytes_up() const override { return 0; }
  uint64_t bytes_down() const override { return 0; }
  ~QuietLink() override {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  template <typename Fill>
  void Answer(Fill fill) {
    threads_.emplace_back([this, fill] {  // never from within Send
      proto::ServerFrame frame;
      frame.set_epoch(1);
      fill(frame);
      listener_->OnFrame(std::move(frame));
    });
  }

  const bool opens_;
  LinkListener*& listener_;
  std::vector<std::thread> threads_;
};

class WaitingTest : public testing::Test {
 protected:
  void SetUp() override {
    stop = false;
    SetWaitHooks(Hooks());
    session_ = *Session::ConnectLink(std::make_unique<QuietLink>(true, listener_), {});
  }
  void TearDown() override {
    stop = false;
    session_ = nullptr;
    SetWaitHooks({});
    EXPECT_EQ(asleep, 0);
  }

  absl::StatusOr<uint64_t> Run() {
    RunRequest request;
    request.graph_id.fill('a');
    request.graph = std::make_shared<const std::string>("graph");
    request.outputs = {session_->NewHandle()};
    request.fetch = {0};
    return session_->Run(request);
  }
  void Done(uint64_t seq) {
    proto::ServerFrame frame;
    frame.set_epoch(1);
    proto::Done& done = *frame.add_items()->mutable_done();
    done.set_through_seq(seq);
    proto::Value& value = *done.add_values();
    value.set_seq(seq);
    value.set_total_bytes(1);
    value.set_data("x");
    listener_->OnFrame(std::move(frame));
  }

  LinkListener* listener_ = nullptr;
  std::unique_ptr<Session> session_;
};

TEST_F(WaitingTest, AValueThatIsNotWaitedForToTheEndCanBeAwaitedAgain) {
  const uint64_t seq = *Run();
  stop = true;
  EXPECT_EQ(session_->Await(seq, 0).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(session_->Ready(seq, 0));
  stop = false;
  Done(seq);
  const absl::StatusOr<HostTensor> value = session_->Await(seq, 0);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, "x");
  EXPECT_TRUE(session_->Sync().ok());
}

TEST_F(WaitingTest, WhatIsThereRunsNoHook) {
  const uint64_t seq = *Run();
  Done(seq);
  stop = true;
  const int before = begun;
  EXPECT_TRUE(session_->Await(seq, 0).ok());
  EXPECT_EQ(begun, before);
}

// A hook may take a lock that another thread holds while it calls the session: an interpreter's.
TEST_F(WaitingTest, HooksRunWithoutTheSessionsLock) {
  static Session* session = nullptr;
  session = session_.get();
  SetWaitHooks({.begin = []() -> void* {
                  session->stats();
                  return nullptr;
                },
                .end = [](void*) { session->stats(); },
                .check =
                    [] {
                      session->stats();
                      return CheckStop();
                    }});
  const uint64_t seq = *Run();
  stop = true;
  EXPECT_EQ(session_->Await(seq, 0).status().code(), absl::StatusCode::kCancelled);
  SetWaitHooks(Hooks());
}

TEST_F(WaitingTest, CreditIsAwaitedInterruptiblyAndARunIsNot) {
  uint64_t first = 0;
  for (int i = 0; i < 2; ++i) {
    const uint64_t seq = *Run();
    if (i == 0) first = seq;
  }
  stop = true;
  EXPECT_EQ(session_->AwaitWindow().code(), absl::StatusCode::kCancelled);
  const int64_t dims[] = {2};
  EXPECT_EQ(session_->Put(9, DType::kBool, dims, "ab").code(), absl::StatusCode::kCancelled);
  const int before = begun;
  std::thread answers([&] {
    while (begun == before) std::this_thread::yield();
    Done(first);
  });
  EXPECT_TRUE(Run().ok());
  answers.join();
  EXPECT_EQ(session_->stats().runs, 3u);
}

TEST_F(WaitingTest, AConnectionThatGetsNoDeviceIsGivenUp) {
  stop = true;
  LinkListener* listener = nullptr;
  const auto session = Session::ConnectLink(std::make_unique<QuietLink>(false, listener), {});
  EXPECT_EQ(session.status().code(), absl::StatusCode::kCancelled);
}

// The child has the session's memory and none of its threads.
TEST_F(WaitingTest, AForksChildIsToldAndWaitsForNothing) {
  const uint64_t seq = *Run();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    bool ok = session_->Await(seq, 0).status().code() == absl::StatusCode::kFailedPrecondition;
    ok = ok && Run().status().code() == absl::StatusCode::kFailedPrecondition;
    ok = ok && session_->Close().ok();
    session_->Release(1);
    session_ = nullptr;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Done(seq);
  EXPECT_TRUE(session_->Await(seq, 0).ok());
}

}  // namespace
}  // namespace outboard::session
