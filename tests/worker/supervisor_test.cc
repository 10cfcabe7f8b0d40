// A supervisor with executors as processes, before a gateway that the test plays.
#include "worker/supervisor/supervisor.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "proto/executor.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/client_items.h"
#include "tests/support/port_alone.h"
#include "wire/limits.h"
#include "worker/executor/executor_main.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::seconds kPatience{20};

// Hands things from a handler's thread to the test's.
template <typename T>
class Mailbox {
 public:
  void Push(T value) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(value));
    wake_.notify_all();
  }
  // Empty after kPatience.
  std::unique_ptr<T> Pop(std::chrono::milliseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    if (!wake_.wait_for(lock, patience, [&] { return !queue_.empty(); })) return nullptr;
    auto value = std::make_unique<T>(std::move(queue_.front()));
    queue_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<T> queue_;
};

using AttachStream = grpc::ServerReaderWriter<proto::ClientFrame, proto::ServerFrame>;
using JoinStream = grpc::ServerReaderWriter<proto::GatewayCommand, proto::WorkerEvent>;

// One session as the gateway sees it. The handler's thread reads, the test writes.
struct Attached {
  std::string session, token;
  uint64_t epoch = 1;
  Mailbox<proto::ServerFrame> frames;
  Mailbox<bool> ended;
  Mailbox<bool> read_on;  // see FakeGateway::reads_one_frame

  void Send(proto::ClientItem item) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = std::move(item);
    std::lock_guard lock(writing);
    if (stream != nullptr) stream->Write(frame);
  }

  // The stream ends with its handler, which must not return while a write is still inside: the
  // executor may have answered the item, and hung up, before Write has returned.
  std::mutex writing;
  AttachStream* stream = nullptr;
};

class FakeGateway final : public proto::Fleet::Service {
 public:
  grpc::Status Join(grpc::ServerContext* context, JoinStream* stream) override {
    if (refuse) return {grpc::StatusCode::UNAUTHENTICATED, "no such fleet"};
    {
      std::lock_guard lock(mutex_);
      join_ = stream;
      join_context_ = context;
    }
    proto::WorkerEvent event;
    while (stream->Read(&event)) {
      if (event.has_register_() && is_silent) {
        registers.Push(event.register_());
      } else if (event.has_register_()) {
        proto::GatewayCommand command;
        command.mutable_welcome()->set_heartbeat_ms(50);
        command.mutable_welcome()->set_worker_timeout_ms(worker_timeout_ms);
        for (const proto::HeldSession& held : event.register_().sessions()) {
          if (keeps) command.mutable_welcome()->add_sessions(held.session_id());
        }
        Command(command);
        registers.Push(event.register_());
      } else if (event.has_heartbeat()) {
        if (acknowledge) {
          proto::GatewayCommand command;
          command.mutable_heartbeat_ack()->set_beat(event.heartbeat().beat());
          Command(command);
        }
        heartbeats.Push(event.heartbeat());
      } else if (event.has_session_ended()) {
        ends.Push(event.session_ended());
      }
    }
    std::lock_guard lock(mutex_);
    join_ = nullptr;
    join_context_ = nullptr;
    return grpc::Status::OK;
  }

  grpc::Status Attach(grpc::ServerContext* context, AttachStream* stream) override {
    auto attached = std::make_shared<Attached>();
    const auto text = [&](const char* key) {
      const auto it = context->client_metadata().find(key);
      return it == context->client_metadata().end()
                 ? std::string()
                 : std::string(it->second.data(), it->second.size());
    };
    attached->session = text("outboard-session");
    attached->token = text("outboard-token");
    attached->stream = stream;
    attaches.Push(attached);
    proto::ServerFrame frame;
    while (stream->Read(&frame)) {
      attached->frames.Push(frame);
      if (reads_one_frame) attached->read_on.Pop();
    }
    {
      std::lock_guard lock(attached->writing);
      attached->stream = nullptr;
    }
    attached->ended.Push(true);
    return grpc::Status::OK;
  }

  void Command(const proto::GatewayCommand& command) {
    std::lock_guard lock(mutex_);
    if (join_ != nullptr) join_->Write(command);
  }
  void DropJoin() {
    std::lock_guard lock(mutex_);
    if (join_context_ != nullptr) join_context_->TryCancel();
  }

  bool refuse = false;
  uint32_t worker_timeout_ms = 60'000;
  std::atomic<bool> is_silent{false};  // takes the call to join, and answers nothing
  std::atomic<bool> acknowledge{true};
  std::atomic<bool> reads_one_frame{false};  // of an executor, and the next when told to
  std::atomic<bool> keeps{false};            // the sessions that a worker comes back with
  Mailbox<proto::Register> registers;
  Mailbox<proto::Heartbeat> heartbeats;
  Mailbox<proto::SessionEnded> ends;
  Mailbox<std::shared_ptr<Attached>> attaches;

 private:
  std::mutex mutex_;
  JoinStream* join_ = nullptr;
  grpc::ServerContext* join_context_ = nullptr;
};

// Processes whose parent is `parent`.
std::vector<int> Children(int parent) {
  std::vector<int> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    int pid = 0, ppid = 0;
    std::string name, state;
    if (stat >> pid >> name >> state >> ppid && ppid == parent && state != "Z") pids.push_back(pid);
  }
  return pids;
}

class SupervisorTest : public ::testing::Test {
 protected:
  void Start() {
    setenv("REF", "1", 1);  // executors inherit it: these tests need no compiler
    grpc::ServerBuilder builder;
    test::HaveAPortAlone(builder);
    builder.RegisterService(&gateway_);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    SupervisorOptions options;
    options.gateway = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                          grpc::InsecureChannelCredentials());
    options.name = "node-7";
    options.devices = 2;
    options.executor = executor_;
    options.welcome_within = welcome_within_;
    supervisor_ = std::make_unique<Supervisor>(std::move(options));
    runner_ = std::thread([this] { result_ = supervisor_->Run(); });
  }
  void StartAndRegister() {
    Start();
    const auto entry = gateway_.registers.Pop();
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->name(), "node-7");
    ASSERT_EQ(entry->devices_size(), 2);
    EXPECT_EQ(entry->devices(0).kind(), "ref");
    EXPECT_EQ(entry->protocol().max(), wire::kProtocolVersion);
  }
  void TearDown() override {
    if (supervisor_ != nullptr) supervisor_->Stop();
    if (runner_.joinable()) runner_.join();
    if (server_ != nullptr)
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    EXPECT_TRUE(Children(getpid()).empty()) << "an executor outlived its supervisor";
  }

  std::shared_ptr<Attached> Assign(const std::string& session) {
    proto::GatewayCommand command;
    command.mutable_assign()->set_session_id(session);
    command.mutable_assign()->set_attach_token("token of sixteen");
    command.mutable_assign()->add_devices(0);
    command.mutable_assign()->set_placement(5);
    gateway_.Command(command);
    const auto attached = gateway_.attaches.Pop();
    if (attached == nullptr) throw std::runtime_error("no executor attached");
    return *attached;
  }

  // Opens the session and expects Opened.
  static void Open(Attached& session) {
    proto::ClientItem item;
    item.mutable_open()->set_session_id(session.session);
    session.Send(item);
    const auto frame = session.frames.Pop();
    ASSERT_NE(frame, nullptr);
    ASSERT_TRUE(frame->items(0).has_opened());
    EXPECT_EQ(frame->items(0).opened().device().kind(), "ref");
  }

  static void SendPutAndClose(Attached& session) {
    session.Send(test::Item::Put(1, 1, "x"));
    proto::ClientItem close;
    close.mutable_close();
    session.Send(close);
  }

  // The bytes of the first value that comes.
  static std::string NextValue(Attached& session) {
    while (const auto frame = session.frames.Pop())
      for (const proto::ServerItem& item : frame->items())
        if (item.done().values_size() > 0) return item.done().values(0).data();
    return "nothing came";
  }

  std::vector<std::string> executor_;  // empty: as it is by default
  std::chrono::milliseconds welcome_within_ = kPatience;
  FakeGateway gateway_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Supervisor> supervisor_;
  std::thread runner_;
  absl::Status result_;
};

TEST_F(SupervisorTest, SessionsHaveExecutorsOfTheirOwn) {
  StartAndRegister();
  const auto a = Assign("session a......."), b = Assign("session b.......");
  EXPECT_EQ(a->token, "746f6b656e206f66207369787465656e");
  Open(*a);
  Open(*b);
  a->Send(test::Item::Put(1, 1, "of a"));
  b->Send(test::Item::Put(1, 1, "of b"));
  a->Send(test::Item::Fetch(2, 1));
  b->Send(test::Item::Fetch(2, 1));
  EXPECT_EQ(NextValue(*a), "of a");
  EXPECT_EQ(NextValue(*b), "of b");
  while (const auto beat = gateway_.heartbeats.Pop())
    if (beat->sessions_size() == 2) break;
  EXPECT_EQ(Children(getpid()).size(), 3u);  // and the spare
}

TEST_F(SupervisorTest, ACrashedExecutorIsReportedAndCostsOneSession) {
  StartAndRegister();
  const std::vector<int> spare = Children(getpid());
  ASSERT_EQ(spare.size(), 1u);
  const auto a = Assign("session a.......");
  Open(*a);
  const auto b = Assign("session b.......");
  Open(*b);
  kill(spare[0], SIGKILL);
  const auto end = gateway_.ends.Pop();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->session_id(), "session a.......");
  EXPECT_EQ(end->code(), static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(end->message(), "executor ended by signal 9");
  EXPECT_NE(a->ended.Pop(), nullptr);
  b->Send(test::Item::Put(1, 1, "alive"));
  b->Send(test::Item::Fetch(2, 1));
  EXPECT_EQ(NextValue(*b), "alive");
  // The same session again, on another executor.
  const auto again = Assign("session a.......");
  Open(*again);
}

TEST_F(SupervisorTest, ASpareThatDiedIsReplaced) {
  StartAndRegister();
  const int spare = Children(getpid()).at(0);
  kill(spare, SIGKILL);
  // Until the supervisor has reaped it.
  for (int i = 0; i < 600 && kill(spare, 0) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto a = Assign("session a.......");
  Open(*a);
}

TEST_F(SupervisorTest, CloseEndsInOrderWithTheLastDone) {
  StartAndRegister();
  const auto a = Assign("session a.......");
  Open(*a);
  SendPutAndClose(*a);
  uint64_t through = 0;
  while (through == 0) {
    const auto frame = a->frames.Pop();
    ASSERT_NE(frame, nullptr);
    for (const proto::ServerItem& item : frame->items()) through = item.done().through_seq();
  }
  EXPECT_EQ(through, 1u);
  EXPECT_NE(a->ended.Pop(), nullptr);
  const auto end = gateway_.ends.Pop();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->code(), 0u) << end->message();
}

// The executor has long ended when the gateway, whose client is slow, reads its last frames.
TEST_F(SupervisorTest, R2_ASlowGatewayGetsTheLastFrames) {
  gateway_.reads_one_frame = true;
  StartAndRegister();
  const auto a = Assign("session a.......");
  Open(*a);
  SendPutAndClose(*a);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (Children(getpid()).size() > 1 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(Children(getpid()).size(), 1u);  // the spare
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the supervisor to see its end
  gateway_.reads_one_frame = false;
  a->read_on.Push(true);
  uint64_t through = 0;
  while (const auto frame = a->frames.Pop(through == 0 ? kPatience : std::chrono::milliseconds(0)))
    for (const proto::ServerItem& item : frame->items())
      through = std::max(through, item.done().through_seq());
  EXPECT_EQ(through, 1u);
  EXPECT_NE(a->ended.Pop(), nullptr);
}

TEST_F(SupervisorTest, ReleaseEndsTheExecutor) {
  StartAndRegister();
  const auto a = Assign("session a.......");
  Open(*a);
  proto::GatewayCommand command;
  command.mutable_release()->set_session_id("unknown session.");
  gateway_.Command(command);  // no error
  command.mutable_release()->set_session_id("session a.......");
  gateway_.Command(command);
  const auto end = gateway_.ends.Pop();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->code(), 0u) << end->message();
  EXPECT_NE(a->ended.Pop(), nullptr);
}

TEST_F(SupervisorTest, V3_WithoutAcknowledgementsItJoinsAgainAndExecutorsThatAreNotKeptEnd) {
  gateway_.worker_timeout_ms = 300;
  StartAndRegister();
  const auto a = Assign("session a.......");
  Open(*a);
  gateway_.acknowledge = false;
  const auto entry = gateway_.registers.Pop();
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->sessions_size(), 1);
  EXPECT_NE(a->ended.Pop(), nullptr);
}

TEST_F(SupervisorTest, V3_AnExecutorThatIsKeptGoesOnWithItsState) {
  gateway_.keeps = true;
  StartAndRegister();
  const auto a = Assign("session a.......");
  Open(*a);
  a->Send(test::Item::Put(1, 1, "kept"));
  a->Send(test::Item::Fetch(2, 1));
  EXPECT_EQ(NextValue(*a), "kept");
  gateway_.DropJoin();
  const auto entry = gateway_.registers.Pop();
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->sessions_size(), 1);
  EXPECT_EQ(entry->sessions(0).session_id(), "session a.......");
  EXPECT_EQ(entry->sessions(0).attach_token(), "token of sixteen");
  EXPECT_EQ(entry->sessions(0).placement(), 5u);
  ASSERT_EQ(entry->sessions(0).devices_size(), 1);
  const auto attached = gateway_.attaches.Pop();
  ASSERT_NE(attached, nullptr);
  Attached& again = **attached;
  EXPECT_EQ(again.token, a->token);
  again.epoch = 2;
  Open(again);
  again.Send(test::Item::Fetch(3, 1));
  EXPECT_EQ(NextValue(again), "kept");
  // Its end names the executor that it is of.
  proto::GatewayCommand command;
  command.mutable_release()->set_session_id("session a.......");
  gateway_.Command(command);
  const auto end = gateway_.ends.Pop();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->placement(), 5u);
}

// It hangs, say, and its kernel still takes what comes.
TEST_F(SupervisorTest, AGatewayThatTakesTheCallAndSaysNothing_IsCalledAgain) {
  gateway_.is_silent = true;
  welcome_within_ = std::chrono::milliseconds(1000);
  StartAndRegister();
  gateway_.is_silent = false;
  ASSERT_NE(gateway_.registers.Pop(), nullptr);
  // With the Welcome the watch has ended: no other call, and sessions are served.
  std::this_thread::sleep_for(2 * welcome_within_);
  const auto a = Assign("session a.......");
  Open(*a);
  EXPECT_EQ(gateway_.registers.Pop(std::chrono::milliseconds(0)), nullptr);
}

TEST_F(SupervisorTest, JoinsAgainAfterADrainAndALostStream) {
  StartAndRegister();
  proto::GatewayCommand command;
  command.mutable_drain()->set_reason("the gateway stops");
  gateway_.Command(command);
  command.mutable_assign()->set_session_id("session a.......");
  gateway_.Command(command);
  const auto end = gateway_.ends.Pop();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->code(), static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  gateway_.DropJoin();
  ASSERT_NE(gateway_.registers.Pop(), nullptr);
  const auto b = Assign("session b.......");
  Open(*b);
}

// The answers to its requests fill its socket; neither the threads that have them nor the
// supervisor's, which connects it again, wait for it.
TEST_F(SupervisorTest, AnExecutorThatReadsNothingIsEndedAndHoldsNobodyUp) {
  executor_ = {"/proc/self/exe", "deaf"};
  gateway_.keeps = true;
  StartAndRegister();
  Assign("session a.......");
  for (int i = 0; i < 3; ++i) {
    gateway_.DropJoin();
    ASSERT_NE(gateway_.registers.Pop(), nullptr);
  }
  const auto end = gateway_.ends.Pop(2 * kPatience);
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->session_id(), "session a.......");
  EXPECT_EQ(end->code(), static_cast<uint32_t>(absl::StatusCode::kUnavailable));
}

TEST_F(SupervisorTest, ARefusedWorkerSaysSoAndEnds) {
  gateway_.refuse = true;
  Start();
  runner_.join();
  EXPECT_EQ(result_.code(), absl::StatusCode::kUnauthenticated);
}

// An executor that asks for blobs, one after the other, and reads nothing.
int DeafExecutorMain() {
  BeginAsChild();
  proto::FromExecutor event;
  event.mutable_want_blob()->set_root(std::string(32, 'r'));
  while (WriteMessage(kChildSocket, event).ok()) usleep(3000);
  pause();
  return 0;
}

}  // namespace
}  // namespace outboard::worker

// The supervisor starts "this program with executor".
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "deaf") return outboard::worker::DeafExecutorMain();
  if (argc > 1 && std::string(argv[1]) == "executor")
    return outboard::worker::ExecutorMain(outboard::worker::ExecutorOptionsFromEnvironment());
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
