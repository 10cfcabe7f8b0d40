// The socket by which executors of the gateway's own machine come: one that is played here.
#include "gateway/streams/local_attach.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/session/session.h"
#include "gateway/base/limits.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/gateway_test.h"
#include "wire/framing.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

// One end of a connection to the abstract socket `name`.
class Peer {
 public:
  explicit Peer(const std::string& name) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address),
                      offsetof(sockaddr_un, sun_path) + 1 + name.size()),
              0);
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Peer() { close(fd_); }

  void Send(std::string_view bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Send(const google::protobuf::MessageLite& message) { Send(wire::Framed(message)); }
  // False when the gateway has closed the connection.
  bool Receive(proto::ClientFrame& frame) {
    for (;;) {
      if (reader_.Take(frame).value()) return true;
      char byte;  // waits
      if (recv(fd_, &byte, 1, MSG_PEEK) <= 0 || !reader_.Fill(fd_).ok()) return false;
    }
  }
  bool IsClosed() {
    char byte;
    return recv(fd_, &byte, 1, 0) == 0;
  }

 private:
  const int fd_;
  wire::MessageReader reader_{wire::kMessageBytesMax};
};

class LocalAttachTest : public test::GatewayTest {
 protected:
  void SetUp() override {
    GatewayOptions options;
    options.no_auth = true;
    StartGateway(options);
    stub_ = proto::Fleet::NewStub(gateway_->InProcessFleetChannel());
    context_.AddMetadata("authorization", "Bearer " + gateway_->fleet_secret());
    join_ = stub_->Join(&context_);
    proto::WorkerEvent event;
    event.mutable_register_()->mutable_protocol()->set_min(wire::kProtocolVersion);
    event.mutable_register_()->mutable_protocol()->set_max(wire::kProtocolVersion);
    event.mutable_register_()->add_devices()->set_kind("played");
    ASSERT_TRUE(join_->Write(event));
    proto::GatewayCommand command;
    ASSERT_TRUE(join_->Read(&command));
    name_ = command.welcome().local_socket();
    ASSERT_FALSE(name_.empty());
  }
  void TearDown() override {
    context_.TryCancel();
    GatewayTest::TearDown();
  }

  // A client that connects, and the hello of the executor that its session awaits.
  proto::LocalAttach ClientComes() {
    client_ = std::async(std::launch::async, [this] { return Session::Connect(Options()); });
    proto::GatewayCommand command;
    while (join_->Read(&command))
      if (command.has_assign()) break;
    proto::LocalAttach hello;
    hello.set_session_id(command.assign().session_id());
    hello.set_attach_token(command.assign().attach_token());
    hello.set_fleet_secret(gateway_->fleet_secret());
    return hello;
  }

  std::unique_ptr<proto::Fleet::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::WorkerEvent, proto::GatewayCommand>> join_;
  std::string name_;
  std::future<absl::StatusOr<std::unique_ptr<Session>>> client_;
};

TEST_F(LocalAttachTest, FramesPassBothWaysInPiecesOfAnySize) {
  Peer executor(name_);
  const std::string hello = wire::Framed(ClientComes());
  executor.Send(hello.substr(0, 3));
  executor.Send(hello.substr(3));
  proto::ClientFrame frame;
  ASSERT_TRUE(executor.Receive(frame));
  ASSERT_TRUE(frame.items(0).has_open());
  proto::ServerFrame answer;
  answer.set_epoch(frame.epoch());
  answer.add_items()->mutable_opened()->set_devices(1);
  const std::string bytes = wire::Framed(answer);
  for (const char byte : bytes) executor.Send(std::string_view(&byte, 1));
  auto session = client_.get();
  ASSERT_TRUE(session.ok()) << session.status();

  // More than a socket takes at once, in order.
  const std::string data(900'000, 'x');
  const std::vector<int64_t> dims = {static_cast<int64_t>(data.size())};
  for (uint64_t handle = 1; handle <= 5; ++handle)
    ASSERT_TRUE((*session)->Put(handle, DType::kBool, dims, data).ok());
  uint64_t got = 0, last_seq = 0;
  while (got < 5 * data.size()) {
    ASSERT_TRUE(executor.Receive(frame));
    for (const proto::ClientItem& item : frame.items()) {
      EXPECT_GE(item.seq(), last_seq);
      last_seq = item.seq();
      got += item.put().data().size();
    }
  }
  EXPECT_EQ(last_seq, 5u);
  answer.mutable_items(0)->mutable_done()->set_through_seq(5);
  executor.Send(answer);
  EXPECT_TRUE((*session)->Sync().ok());
}

TEST_F(LocalAttachTest, WhoHasNoTokenIsSentAway) {
  proto::LocalAttach hello = ClientComes();
  const std::string token = hello.attach_token();
  hello.set_attach_token(std::string(16, 'x'));
  Peer wrong(name_);
  wrong.Send(hello);
  EXPECT_TRUE(wrong.IsClosed());
  hello.set_attach_token("short");
  Peer shorter(name_);
  shorter.Send(hello);
  EXPECT_TRUE(shorter.IsClosed());
  Peer nonsense(name_);
  nonsense.Send(std::string("\x05\0\0\0hello", 9));
  EXPECT_TRUE(nonsense.IsClosed());
  Peer endless(name_);
  endless.Send(std::string(4, '\xff'));
  EXPECT_TRUE(endless.IsClosed());
  // And whoever has it is let in, still.
  hello.set_attach_token(token);
  Peer executor(name_);
  executor.Send(hello);
  proto::ClientFrame frame;
  EXPECT_TRUE(executor.Receive(frame));
  gateway_->Stop(std::chrono::milliseconds(0));
  EXPECT_FALSE(client_.get().ok());
}

TEST_F(LocalAttachTest, StrangersAreBounded) {
  std::vector<std::unique_ptr<Peer>> strangers;
  for (int i = 0; i < kLocalStrangersMax; ++i) strangers.push_back(std::make_unique<Peer>(name_));
  EXPECT_TRUE(Peer(name_).IsClosed());
  // As soon as they have gone there is room for one who says who it is.
  for (auto& stranger : strangers) {
    stranger->Send(std::string(4, '\xff'));
    EXPECT_TRUE(stranger->IsClosed());
  }
  const proto::LocalAttach hello = ClientComes();
  proto::ClientFrame frame;
  Peer executor(name_);
  executor.Send(hello);
  EXPECT_TRUE(executor.Receive(frame));
  gateway_->Stop(std::chrono::milliseconds(0));
  EXPECT_FALSE(client_.get().ok());
}

// They outrun the client, and reading pauses; afterwards it goes on.
TEST_F(LocalAttachTest, ManyFramesInOneWrite) {
  Peer executor(name_);
  executor.Send(ClientComes());
  proto::ClientFrame frame;
  ASSERT_TRUE(executor.Receive(frame));
  proto::ServerFrame answer;
  answer.set_epoch(frame.epoch());
  answer.add_items()->mutable_opened()->set_devices(1);
  executor.Send(answer);
  auto session = client_.get();
  ASSERT_TRUE(session.ok()) << session.status();
  proto::ServerFrame filler;
  filler.set_epoch(frame.epoch());
  filler.add_items()->mutable_notice()->set_text(std::string(60'000, 'n'));
  std::string many;
  for (int i = 0; i < 10; ++i) many += wire::Framed(filler);
  for (int i = 0; i < 25; ++i) executor.Send(many);  // 15 MB, past what may wait
  answer.mutable_items(0)->mutable_done()->set_through_seq(1);
  const std::vector<int64_t> dims = {4};
  ASSERT_TRUE((*session)->Put(1, DType::kBool, dims, "data").ok());
  // An executor says that an item is done once it has it.
  std::thread executes([&] {
    const auto has_put = [&] {
      return std::any_of(frame.items().begin(), frame.items().end(),
                         [](const proto::ClientItem& item) { return item.has_put(); });
    };
    while (executor.Receive(frame) && !has_put()) {
    }
    executor.Send(answer);
  });
  EXPECT_TRUE((*session)->Sync().ok());
  executes.join();
}

TEST_F(LocalAttachTest, NonsenseFromAnExecutorEndsItsWayAlone) {
  Peer executor(name_);
  executor.Send(ClientComes());
  proto::ClientFrame frame;
  ASSERT_TRUE(executor.Receive(frame));
  executor.Send(std::string("\x03\0\0\0\xff\xff\xff", 7));
  EXPECT_TRUE(executor.IsClosed());
  EXPECT_EQ(gateway_->devices_total(), 1u);
  gateway_->Stop(std::chrono::milliseconds(0));
  EXPECT_FALSE(client_.get().ok());
}

}  // namespace
}  // namespace outboard::gateway
