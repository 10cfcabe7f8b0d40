#include "telemetry/metrics_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"

namespace outboard::telemetry {
namespace {

// One scraper, and one that comes while it is answered; the rest are people with a browser.
constexpr char kThreads[] = "4";
constexpr char kWaitingMax[] = "8";
constexpr char kRequestBytesMax[] = "4096";
// Of a request to arrive, and of an answer to be taken.
constexpr char kTimeoutMs[] = "2000";

// civetweb's thread that accepts looks every two seconds whether it is to stop, and at each
// connection: a server that stops connects to itself, as often as this, until it has.
constexpr std::chrono::milliseconds kKnockEvery{20};

constexpr std::string_view kScheme = "Bearer ";

struct ListenAt {
  std::string ports;  // as civetweb reads it: a numeric host
  std::string host;   // as it was given, without brackets
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  bool is_local = false;
};

// Resolved here: where other machines come from is decided by the number, not by the name.
absl::StatusOr<ListenAt> Resolve(const std::string& listen) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("cannot serve metrics at ", listen, ": ",
                                                   absl::string_view(what.data(), what.size()),
                                                   "; write HOST:PORT"));
  };
  const std::optional<HostPort> place = SplitHostPort(listen);
  if (!place.has_value()) return wrong(WhyNoHostPort(listen));
  const std::string port = std::to_string(place->port);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (getaddrinfo(place->host.c_str(), port.c_str(), &hints, &found) != 0)
    return wrong("there is no such host");
  char text[INET6_ADDRSTRLEN] = "";
  ListenAt at{.host = place->host, .address_bytes = found->ai_addrlen};
  std::memcpy(&at.address, found->ai_addr, found->ai_addrlen);
  if (found->ai_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(*found->ai_addr).sin_addr;
    inet_ntop(AF_INET, &address, text, sizeof text);
    at.is_local = (ntohl(address.s_addr) >> 24) == 127;
    at.ports = absl::StrCat(text, ":", port);
  } else if (found->ai_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(*found->ai_addr).sin6_addr;
    inet_ntop(AF_INET6, &address, text, sizeof text);
    at.is_local = IN6_IS_ADDR_LOOPBACK(&address);
    at.ports = absl::StrCat("[", text, "]:", port);
  }
  freeaddrinfo(found);
  return at;
}

// civetweb counts its users itself, but not from several threads at once.
void StartLibrary() {
  static std::once_flag once;
  std::call_once(once, [] { mg_init_library(MG_FEATURES_IPV6); });
}

int Respond(mg_connection* connection, int code, std::string_view reason, std::string_view type,
            const std::string& body, std::string_view more_headers = "") {
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", code, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nContent-Type: ", absl::string_view(type.data(), type.size()),
      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\nCache-Control: no-store\r\n",
      absl::string_view(more_headers.data(), more_headers.size()), "\r\n");
  mg_write(connection, head.data(), head.size());
  if (std::strcmp(mg_get_request_info(connection)->request_method, "HEAD") != 0)
    mg_write(connection, body.data(), body.size());
  return code;
}

}  // namespace

class MetricsServer::Impl {
 public:
  explicit Impl(MetricsServerOptions options) : options_(std::move(options)) {}
  ~Impl() {
    if (context_ == nullptr) return;
    std::atomic<bool> stopped{false};
    std::thread knocker([&] {
      while (!stopped) {
        Knock();
        std::this_thread::sleep_for(kKnockEvery);
      }
    });
    mg_stop(context_);
    stopped = true;
    knocker.join();
  }

  absl::Status Start(const ListenAt& at) {
    StartLibrary();
    const char* settings[] = {"listening_ports",
                              at.ports.c_str(),
                              "num_threads",
                              kThreads,
                              "connection_queue",
                              kWaitingMax,
                              "listen_backlog",
                              kWaitingMax,
                              "max_request_size",
                              kRequestBytesMax,
                              "request_timeout_ms",
                              kTimeoutMs,
                              "enable_keep_alive",
                              "no",
                              nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = &Impl::Answer;
    // What it would print about its peers.
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
    callbacks.log_access = [](const mg_connection*, const char*) { return 1; };
    context_ = mg_start(&callbacks, this, settings);
    if (context_ == nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "cannot serve metrics at ", options_.listen,
          ": the port is in use, or the address is none of this machine's; --metrics-listen names "
          "another, or off"));
    }
    mg_server_port port{};
    mg_get_server_ports(context_, 1, &port);
    port_ = port.port;
    at_ = at;
    const auto in_order = htons(static_cast<uint16_t>(port_));
    if (at_.address.ss_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(at_.address).sin6_port = in_order;
    else
      reinterpret_cast<sockaddr_in&>(at_.address).sin_port = in_order;
    return absl::OkStatus();
  }

  int port() const { return port_; }
  const MetricsServerOptions& options() const { return options_; }

 private:
  // Connects to this server, which an address of all machines allows too, and says nothing.
  void Knock() const {
    const int fd = socket(at_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    // Where that fails the server stops later, or has already.
    static_cast<void>(
        connect(fd, reinterpret_cast<const sockaddr*>(&at_.address), at_.address_bytes));
    close(fd);
  }

  // Not 0: the request is answered, and civetweb looks for no file of that name.
  static int Answer(mg_connection* connection) {
    const mg_request_info* const request = mg_get_request_info(connection);
    return static_cast<const Impl*>(request->user_data)->Answer(connection, *request);
  }

  int Answer(mg_connection* connection, const mg_request_info& request) const {
    constexpr std::string_view kText = "text/plain; charset=utf-8";
    if (!MayRead(connection)) {
      CountAs(Metric::kScrapes, ScrapeResult::kRefused);
      return Respond(connection, 401, "Unauthorized", kText,
                     "metrics are read with the token of --metrics-token-file\n",
                     "WWW-Authenticate: Bearer\r\n");
    }
    const std::string_view method = request.request_method;
    if (method != "GET" && method != "HEAD")
      return Respond(connection, 405, "Method Not Allowed", kText, "GET /metrics\n",
                     "Allow: GET, HEAD\r\n");
    const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
    if (path != "/metrics") return Respond(connection, 404, "Not Found", kText, "see /metrics\n");
    const std::string text = Exposition(options_.processes, options_.build, options_.by_account);
    CountAs(Metric::kScrapes, ScrapeResult::kOk);
    return Respond(connection, 200, "OK", "text/plain; version=0.0.4; charset=utf-8", text);
  }

  bool MayRead(mg_connection* connection) const {
    if (options_.token.empty()) return true;
    const char* const header = mg_get_header(connection, "Authorization");
    const std::string_view given = header == nullptr ? "" : header;
    if (!given.starts_with(kScheme)) return false;
    const std::string_view token = given.substr(kScheme.size());
    return token.size() == options_.token.size() &&
           CRYPTO_memcmp(token.data(), options_.token.data(), token.size()) == 0;
  }

  const MetricsServerOptions options_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  ListenAt at_;
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(MetricsServerOptions options) {
  absl::StatusOr<ListenAt> at = Resolve(options.listen);
  if (!at.ok()) return at.status();
  if (!at->is_local && options.token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metrics at ", options.listen,
        " can be read from other machines: give --metrics-token-file a file with a secret word, "
        "which Prometheus presents (docs/runbook.md)"));
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Start(*at); !status.ok()) return status;
  auto server = std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
  server->address_ = ToString({at->host, static_cast<uint16_t>(server->impl_->port())});
  if (!at->is_local)
    LogWarning("metrics_in_the_clear",
               {{"address", server->address_},
                {"advice", "let Prometheus come through a tunnel or a proxy that speaks TLS"}});
  return server;
}

}  // namespace outboard::telemetry
