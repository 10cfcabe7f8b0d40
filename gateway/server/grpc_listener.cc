#include "gateway/server/grpc_listener.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gateway/base/limits.h"
#include "telemetry/log.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

constexpr std::chrono::milliseconds kStreamsEndWithin{2000};
constexpr std::string_view kUnix = "unix:";

// Why no server can listen at "HOST:PORT" or "unix:PATH", for people: gRPC does not say.
std::string WhyNotListening(const std::string& address) {
  if (address.starts_with("unix:")) return "is its folder there, and may this user write to it?";
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (colon == std::string::npos ||
      getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0)
    return "there is no such host or port; write HOST:PORT with a name or address of this machine";
  int error = 0;
  for (const addrinfo* at = found; at != nullptr && error == 0; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  switch (error) {
    case EADDRINUSE: return "the port is in use; is another gateway running there?";
    case EADDRNOTAVAIL: return "that is no address of this machine";
    case EACCES: return "only root may use that port";
    default: return error == 0 ? "try again" : std::string(strerror(error));
  }
}

// The only place where the server gets its credentials; TLS would be added here.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(const std::string& address) {
  return grpc::InsecureServerCredentials();
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
  // gRPC would inflate a compression bomb before it checks the size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kFirstMessageMs));
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
  for (const char* local : {"unix:", "localhost:", "127.", "[::1]:"}) {
    if (address.rfind(local, 0) == 0) return true;
  }
  return address.empty();
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(
    const std::string& address, const std::vector<grpc::Service*>& services) {
  auto listener = std::unique_ptr<GrpcListener>(new GrpcListener);
  listener->address_ = address;
  grpc::ServerBuilder builder;
  SetLimits(builder);
  int port = 0;
  const bool is_unix = address.starts_with(kUnix), has_port = !address.empty() && !is_unix;
  if (!address.empty())
    builder.AddListeningPort(address, ServerCredentialsFor(address), has_port ? &port : nullptr);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::optional<PrivateFiles> private_files;
  if (is_unix) private_files.emplace();
  listener->server_ = builder.BuildAndStart();
  private_files.reset();
  if (listener->server_ == nullptr || (has_port && port == 0))
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", address, ": ", WhyNotListening(address)));
  if (!IsLocalAddress(address))
    telemetry::LogWarning("listening_in_the_clear",
                          {{"address", address}, {"advice", "use a tunnel or a TLS proxy"}});
  if (has_port) {
    listener->address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
    listener->ListenLocally();
  }
  return listener;
}

void GrpcListener::ListenLocally() {
  auto local = AbstractListener::Listen("outboard-" + address_, [this](int fd) {
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

void GrpcListener::StopAccepting() { local_.reset(); }

void GrpcListener::Stop() {
  StopAccepting();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kStreamsEndWithin);
  server_->Wait();
  server_.reset();
}

GrpcListener::~GrpcListener() { Stop(); }

}  // namespace outboard::gateway
