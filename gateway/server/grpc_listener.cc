#include "gateway/server/grpc_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gateway/base/limits.h"
#include "gateway/doors/grpc_guard.h"
#include "telemetry/log.h"
#include "wire/limits.h"
#include "wire/tls/handshake.h"

namespace outboard::gateway {
namespace {

constexpr std::chrono::milliseconds kStreamsEndWithin{2000};
constexpr std::string_view kUnix = "unix:";

// The only place where a server gets its credentials.
std::shared_ptr<grpc::ServerCredentials> CredentialsOr(
    const std::shared_ptr<grpc::ServerCredentials>& tls) {
  return tls != nullptr ? tls : grpc::InsecureServerCredentials();
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
  // gRPC would inflate a compression bomb before it checks the size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kFirstMessageMs));
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadAtOnceBytesMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                             0);  // a second gateway on the port must fail, not share it
}

// While it lives, what this process makes is its user's alone: a socket would else be open to
// others until its mode is changed. Of the whole process, so only while it starts.
class PrivateFiles {
 public:
  PrivateFiles() : before_(umask(0077)) {}
  ~PrivateFiles() { umask(before_); }

 private:
  const mode_t before_;
};

}  // namespace

bool IsLocalAddress(const std::string& address) {
  if (address.empty() || address.starts_with(kUnix)) return true;
  const std::string host = tls::HostOf(address);
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  return host == "localhost" || host == "::1";
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(
    const std::string& address, const std::vector<grpc::Service*>& services,
    ConnectionTable* connections, const std::shared_ptr<grpc::ServerCredentials>& tls) {
  auto listener = std::unique_ptr<GrpcListener>(new GrpcListener);
  listener->address_ = address;
  listener->has_tls_ = tls != nullptr;
  grpc::ServerBuilder builder;
  SetLimits(builder);
  const bool is_unix = address.starts_with(kUnix), has_port = !address.empty() && !is_unix;
  const auto cannot_listen = [&](const absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot listen at ", address, ": ", why));
  };
  if (is_unix) builder.AddListeningPort(address, CredentialsOr(tls));
  if (has_port) {
    auto acceptor = Acceptor::Listen(address);
    if (!acceptor.ok()) return cannot_listen(acceptor.status().message());
    listener->acceptor_ = *std::move(acceptor);
    listener->external_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        CredentialsOr(tls));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::optional<PrivateFiles> private_files;
  if (is_unix) private_files.emplace();
  listener->server_ = builder.BuildAndStart();
  private_files.reset();
  if (listener->server_ == nullptr)
    return cannot_listen("is its folder there, and may this user write to it?");
  if (!IsLocalAddress(address) && tls == nullptr)
    telemetry::LogWarning("listening_in_the_clear",
                          {{"address", address},
                           {"advice", "leave --insecure away, or use a tunnel or a TLS proxy"}});
  if (!IsLocalAddress(address) && !IsGrpcGuardInPlace())
    telemetry::LogWarning("grpc_unbounded",
                          {{"address", address},
                           {"advice", "put a proxy that bounds headers before this port"}});
  if (has_port) {
    listener->address_ = listener->acceptor_->address();
    const auto external = listener->external_.get();
    listener->acceptor_->Start(connections, [external](int from, int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = from;
      connection.fd = fd;
      external->HandleNewConnection(&connection);
    });
    listener->ListenLocally(connections);
  }
  return listener;
}

void GrpcListener::ListenLocally(ConnectionTable* connections) {
  auto local = AbstractListener::Listen("outboard-" + address_, [this, connections](int fd) {
    if (!connections->Add(fd, {.is_local = true}, absl::StrCat("fd:", fd),
                          ConnectionTable::Clock::now())) {
      close(fd);
      return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    grpc::AddInsecureChannelFromFd(server_.get(), fd);
  });
  if (local.ok()) {
    local_ = *std::move(local);
  } else {
    const absl::string_view why = local.status().message();
    telemetry::LogWarning("no_local_socket", {{"address", address_}, {"message", why}});
  }
}

std::shared_ptr<grpc::Channel> GrpcListener::InProcessChannel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

void GrpcListener::CloseLocalSocket() { local_.reset(); }

void GrpcListener::Stop() {
  CloseLocalSocket();
  acceptor_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kStreamsEndWithin);
  server_->Wait();
  server_.reset();
}

GrpcListener::~GrpcListener() { Stop(); }

}  // namespace outboard::gateway
