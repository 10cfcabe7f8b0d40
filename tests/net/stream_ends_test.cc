// How streams end on the side that a program of ours holds: a client's link whose peer ends the
// call while threads send, the fake worker that tests stand on, and what an executor has written
// when its gateway reads no more.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/session/link/grpc_link.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/fake_worker.h"
#include "worker/process/message_io.h"
#include "worker/supervisor/grpc_attach.h"

namespace outboard {
namespace {

// A service on loopback.
class Served {
 public:
  explicit Served(grpc::Service* service) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
  }
  ~Served() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::shared_ptr<grpc::Channel> Channel() const {
    return session::MakeChannel("127.0.0.1:" + std::to_string(port_));
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// ---- a client's link ----------------------------------------------------------------------------

// Ends each call after a few frames, while more are under way.
class ShortSessions final : public proto::Cloud::Service {
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<proto::ServerFrame, proto::ClientFrame>* stream) override {
    proto::ClientFrame frame;
    for (int i = calls_++ % 5; i >= 0; --i) stream->Read(&frame);
    return grpc::Status::OK;
  }
  std::atomic<int> calls_{0};
};

class Listener final : public session::LinkListener {
 public:
  void OnFrame(proto::ServerFrame) override {}
  void OnEnd(absl::Status) override {
    std::lock_guard lock(mutex_);
    ++ends_;
    changed_.notify_all();
  }
  int AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ends_ > 0; });
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ends_ = 0;
};

// One thread's write may be done before it has said so, and the next one's have begun: gRPC ends
// the process that starts an operation of a call that is over.
TEST(GrpcLinkEnds, CallsThatEndWhileThreadsSend) {
  ShortSessions service;
  Served served(&service);
  const auto channel = served.Channel();
  for (int round = 0; round < 200; ++round) {
    Listener listener;
    const auto link = session::MakeGrpcLink(channel, "");
    link->Start(&listener);
    std::vector<std::thread> senders;
    for (int sender = 0; sender < 3; ++sender)
      senders.emplace_back([&link] {
        for (int i = 0; i < 8; ++i) link->Send({});
        link->Finish();  // frames that wait are sent as one: the service may wait for more
      });
    if (round % 3 != 0) {
      EXPECT_EQ(listener.AwaitEnd(), 1);
    }
    for (std::thread& sender : senders) sender.join();
  }  // a link that is dropped says nothing more
}

// ---- the fake worker ----------------------------------------------------------------------------

// Assigns one session as often as it is told, whatever the worker does with it.
class SameSession final : public proto::Fleet::Service {
 public:
  explicit SameSession(int times) : times_(times) {}
  void AwaitAttached(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return attached_ >= count; });
  }

 private:
  grpc::Status Join(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<proto::GatewayCommand, proto::WorkerEvent>* stream) override {
    proto::WorkerEvent event;
    stream->Read(&event);
    proto::GatewayCommand command;
    command.mutable_assign()->set_session_id("a session");
    for (int i = 0; i < times_; ++i) stream->Write(command);
    while (stream->Read(&event)) {
    }
    return grpc::Status::OK;
  }
  grpc::Status Attach(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<proto::ClientFrame, proto::ServerFrame>* stream) override {
    {
      std::lock_guard lock(mutex_);
      ++attached_;
    }
    changed_.notify_all();
    proto::ServerFrame frame;
    while (stream->Read(&frame)) {
    }
    return grpc::Status::OK;
  }

  const int times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int attached_ = 0;
};

TEST(FakeWorkerEnds, ASessionThatIsAssignedAgain) {
  SameSession service(3);
  Served served(&service);
  FakeWorker worker(served.Channel(), "secret");
  service.AwaitAttached(1);  // the others may be cancelled before they have begun
  worker.Stop();
}

TEST(FakeWorkerEnds, SessionsThatAreAssignedWhileItStops) {
  SameSession service(100);
  Served served(&service);
  for (int round = 0; round < 20; ++round) {
    FakeWorker worker(served.Channel(), "secret");
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));
    worker.Stop();
  }
}

// ---- an executor's stream -----------------------------------------------------------------------

class ReadsNothing final : public proto::Fleet::Service {
 public:
  std::atomic<bool> was_cancelled = false;

 private:
  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<proto::ClientFrame, proto::ServerFrame>*) override {
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    was_cancelled = true;
    return grpc::Status::OK;
  }
};

// Its last megabytes wait for a gateway that does not take them; its device must not.
TEST(GrpcAttachEnds, MegabytesThatNobodyReadsWaitForAWhileOnly) {
  ReadsNothing service;
  Served served(&service);
  const auto fleet = proto::Fleet::NewStub(served.Channel());
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  std::thread executor;
  {
    worker::GrpcAttach attach(*fleet, proto::Assign(), 0, "secret", fds[0],
                              std::chrono::milliseconds(200));
    executor = std::thread([fd = fds[1]] {
      proto::ServerFrame frame;
      frame.add_items()->mutable_done()->add_values()->set_data(std::string(1 << 20, 'v'));
      int written = 0;
      while (written < 32 && worker::WriteMessage(fd, frame).ok()) ++written;
      EXPECT_LT(written, 32);  // the rest never left
      close(fd);
    });
    attach.Finish();
  }
  executor.join();
  while (!service.was_cancelled) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace outboard
