// Who has not shown a key: what it may hold of a gateway, and for how long.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/session/session.h"
#include "proto/cloud.grpc.pb.h"
#include "tests/hostile/raw_http2.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/raw_session.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::FaultProxy;

// Connections that say nothing were held for ever, and 1,000 of them were the end of the gateway.
TEST(Doors, SilentConnectionsAreClosed) {
  constexpr int kSilent = 1'500;
  test::Cluster cluster;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < kSilent + 500) GTEST_SKIP() << "too few descriptors may be opened here";
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  cluster.StartGateway();  // with the limit that a shell gives
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  auto worker = cluster.StartWorker();
  cluster.key();
  const std::string target = cluster.target();
  sockaddr_in address{
      .sin_family = AF_INET,
      .sin_port = htons(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  std::vector<int> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  FaultProxy proxy(target);  // by TCP, as from another machine
  session::SessionOptions options = cluster.Options();
  options.target = proxy.address();
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(test::Step(**session).ok());
  for (const int fd : silent) {  // the server's settings, and the end
    char bytes[256];
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
  }
  EXPECT_TRUE((*session)->Close().ok());
  limit.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Bytes of memory that a process has now.
size_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// 64 streams of one key with 1 MiB of entries each took 3 GB, and it was never given back.
TEST(Doors, LargeFirstMessagesTakeLittleMemory) {
  test::Cluster cluster;
  cluster.StartGateway();
  auto worker = cluster.StartWorker();
  {
    auto session = cluster.Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok());
  }
  const size_t before = ResidentBytes(cluster.gateway().pid());
  for (const bool is_allowed : {true, false}) {
    proto::ClientItem item;
    proto::Open& open = *item.mutable_open();
    for (proto::VersionRange* range : {open.mutable_protocol(), open.mutable_graph_schema()}) {
      range->set_min(1);
      range->set_max(1);
    }
    if (is_allowed) {
      open.set_client_name(std::string(100, 'n'));
      for (int i = 0; i < 1000; ++i) {
        proto::KernelUse& use = *open.add_kernel_uses();
        use.set_kernel(std::string(32, 'k'));
        use.set_opts(std::string(80, 'o'));
      }
    } else {
      for (int i = 0; i < 500'000; ++i) open.add_kernel_uses();
    }
    // A refused one takes this client a second of a busy machine to make; two that were kept would
    // be too much.
    const int streams_opened = is_allowed ? 256 : 32;
    std::vector<std::unique_ptr<test::RawSession>> streams;
    for (int i = 0; i < streams_opened; ++i) {
      streams.push_back(std::make_unique<test::RawSession>(cluster.Options()));
      streams.back()->Send({item});
    }
    if (!is_allowed) {
      for (auto& stream : streams) {
        const absl::Status end = stream->End();
        EXPECT_TRUE(absl::IsResourceExhausted(end)) << end;
      }
    }
    EXPECT_LT(ResidentBytes(cluster.gateway().pid()), before + (size_t{64} << 20)) << is_allowed;
  }
  auto session = cluster.Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok());
}

// Of a request no more is taken before its key is judged than HTTP/2's window lets a peer send:
// nobody widens it by asking for the message (gateway/streams/unary_call.h).
TEST(Doors, RequestsAreNotReadBeforeTheirKeys) {
  constexpr size_t kSent = 17 << 10, kMessage = 1 << 20;
  test::Cluster cluster;
  cluster.StartGateway();
  const std::string message = test::GrpcMessage(std::string(kMessage, '\0'));
  for (const char* method : {"Store/Set", "Store/List", "Account/Usage", "Account/CreateKey",
                             "Blobs/Missing", "Blobs/Commit", "Blobs/Download", "Cloud/Values"}) {
    SCOPED_TRACE(method);
    test::RawHttp2 raw(cluster.target(), "127.0.0.1");
    ASSERT_TRUE(raw.Greet());
    const uint32_t stream = raw.Call(
        test::CallHeaders(method, {{"authorization", "Bearer ob_live_0123456789abcdef_0000"}}),
        std::string_view(message).substr(0, kSent / 2), /*ends=*/false);
    raw.Send(test::Http2Frame(test::FrameType::kData, 0, stream,
                              std::string_view(message).substr(kSent / 2, kSent / 2)));
    const absl::Status answer = raw.Await(stream);
    EXPECT_TRUE(absl::IsUnauthenticated(answer)) << answer;  // though the message is not whole
    EXPECT_EQ(raw.replies().at(stream).window_updates, 0u);
  }
}

TEST(Doors, LargeRequestsWithAWrongKeyTakeLittleMemory) {
  constexpr int kPeers = 16, kCalls = 8;
  test::Cluster cluster;
  cluster.StartGateway();
  proto::MissingRequest request;
  for (int i = 0; i < 30'000; ++i) request.add_chunks(std::string(32, 'c'));  // nearly 1 MiB
  const size_t before = ResidentBytes(cluster.gateway().pid());
  std::vector<std::thread> peers;
  std::atomic<int> refused{0};
  for (int i = 0; i < kPeers; ++i)
    peers.emplace_back([&] {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
      const auto stub = proto::Blobs::NewStub(grpc::CreateCustomChannel(
          cluster.target(), grpc::InsecureChannelCredentials(), arguments));
      for (int call = 0; call < kCalls; ++call) {
        grpc::ClientContext context;
        context.AddMetadata("authorization", "Bearer ob_live_0123456789abcdef_0000");
        proto::MissingReply reply;
        const grpc::Status status = stub->Missing(&context, request, &reply);
        if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
            status.error_code() == grpc::StatusCode::UNAVAILABLE)  // its connection was ended
          ++refused;
      }
    });
  for (std::thread& peer : peers) peer.join();
  EXPECT_EQ(refused, kPeers * kCalls);
  EXPECT_LT(ResidentBytes(cluster.gateway().pid()), before + (size_t{64} << 20));
}

// An address of this machine that is not loopback; "": it has none.
std::string OtherAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* at = all; at != nullptr && found.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    if (std::string_view(text).substr(0, 4) != "127.") found = text;
  }
  freeifaddrs(all);
  return found;
}

TEST(Doors, OneMoreConnectionThanAnAddressMayHave_IsClosedAndCounted) {
  const std::string other = OtherAddress();
  if (other.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  test::TempFolder folder;
  auto started = gateway::Gateway::Start({.listen = "0.0.0.0:0",
                                         .data_folder = folder / "data",
                                         .tls = {.insecure = true}});
  ASSERT_TRUE(started.ok()) << started.status();
  const gateway::Gateway& gateway = **started;
  const std::string port = gateway.address().substr(gateway.address().rfind(':') + 1);
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(std::stoi(port)))};
  inet_pton(AF_INET, other.c_str(), &address.sin_addr);
  std::vector<int> open;
  for (int i = 0; i < 65; ++i) {
    open.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(open.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  char byte;
  EXPECT_EQ(recv(open.back(), &byte, 1, 0), 0);  // the end
  EXPECT_EQ(recv(open[0], &byte, 1, 0), 1);      // the server's settings
  EXPECT_EQ(gateway.refusals().count(gateway::RefusalReason::kConnectionsOfAddress), 1u);
  for (const int fd : open) close(fd);
}

}  // namespace
}  // namespace outboard
