#include "cli/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace outboard::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIdleMax(10);
constexpr size_t kHeaderBytesMax = 8 << 10;
// The scripts and styles of a page are inline in its one file.
constexpr char kPolicy[] =
    "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'\r\n"
    "X-Content-Type-Options: nosniff\r\n";

// What an answer depends on; points into the request's text.
struct Request {
  absl::string_view method;
  absl::string_view target;
  absl::string_view host;  // empty: none was given
  bool keep_alive = true;
};

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && std::strchr("\"(),/:;<=>?@[\\]{}", c) == nullptr;
  });
}

// Reads a request up to its empty line. None: it is not HTTP/1, or it has a body (RFC 9112).
std::optional<Request> ParseRequest(absl::string_view header) {
  const std::vector<absl::string_view> lines = absl::StrSplit(header, "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !IsToken(words[0]) || words[1].empty()) return std::nullopt;
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return std::nullopt;
  Request request{words[0], words[1], {}, words[2] == "HTTP/1.1"};
  for (const absl::string_view line : absl::MakeSpan(lines).subspan(1)) {
    const size_t colon = line.find(':');
    if (colon == line.npos || !IsToken(line.substr(0, colon))) return std::nullopt;
    const absl::string_view name = line.substr(0, colon);
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (value.find_first_of(absl::string_view("\r\n\0", 3)) != value.npos) return std::nullopt;
    if (absl::EqualsIgnoreCase(name, "host")) {
      if (!request.host.empty()) return std::nullopt;
      request.host = value;
    } else if (absl::EqualsIgnoreCase(name, "connection")) {
      if (absl::EqualsIgnoreCase(value, "close")) request.keep_alive = false;
      if (absl::EqualsIgnoreCase(value, "keep-alive")) request.keep_alive = true;
    } else if (absl::EqualsIgnoreCase(name, "transfer-encoding") ||
               (absl::EqualsIgnoreCase(name, "content-length") && value != "0")) {
      return std::nullopt;
    }
  }
  return request;
}

bool IsThisMachine(absl::string_view host) {
  const absl::string_view before_port = host.substr(0, host.rfind(':'));
  return before_port == "127.0.0.1" || before_port == "localhost";
}

// `headers`: further ones, each with its line end.
std::string Response(const Request& request, absl::string_view status, absl::string_view type,
                     absl::string_view body, absl::string_view headers = "") {
  return absl::StrCat(
      "HTTP/1.1 ", status, "\r\nContent-Type: ", type, "\r\n", headers,
      "Cache-Control: no-store\r\nConnection: ", request.keep_alive ? "keep-alive" : "close",
      "\r\nContent-Length: ", body.size(), "\r\n\r\n", request.method == "HEAD" ? "" : body);
}

std::string Answer(const std::vector<Resource>& resources, const Request& request) {
  constexpr char kText[] = "text/plain; charset=utf-8";
  if (!IsThisMachine(request.host))
    return Response(request, "421 Misdirected Request", kText,
                    "This is not the host you asked for.\n");
  if (request.method != "GET" && request.method != "HEAD")
    return Response(request, "405 Method Not Allowed", kText, "GET only.\n",
                    "Allow: GET, HEAD\r\n");
  const absl::string_view path = request.target.substr(0, request.target.find('?'));
  const auto found =
      std::find_if(resources.begin(), resources.end(),
                   [path](const Resource& resource) { return resource.path == path; });
  if (found == resources.end())
    return Response(request, "404 Not Found", kText, "There is no such page.\n");
  const absl::StatusOr<std::string> content = found->content();
  if (!content.ok())
    return Response(request, "500 Internal Server Error", kText,
                    absl::StrCat(content.status().message(), "\n"));
  return Response(request, "200 OK", found->type, *content, kPolicy);
}

// One browser's connection: reads and answers in turn, and never blocks.
class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  pollfd Awaited() const {
    return {socket_, static_cast<short>(unsent_.empty() ? POLLIN : POLLOUT), 0};
  }
  Clock::time_point deadline() const { return deadline_; }

  // Does what the socket is ready for. False: the connection is to be closed.
  bool Advance(const std::vector<Resource>& resources) {
    if (!(unsent_.empty() ? Read() : Write())) return false;
    // Of requests that came together, the next one is here already.
    while (unsent_.empty()) {
      if (!keep_alive_) return false;
      const size_t end = unread_.find("\r\n\r\n");
      if (std::min(end, unread_.size()) > kHeaderBytesMax) return false;
      if (end == unread_.npos) return true;
      const std::optional<Request> request = ParseRequest({unread_.data(), end});
      if (!request) return false;
      keep_alive_ = request->keep_alive;
      unsent_ = Answer(resources, *request);
      unread_.erase(0, end + 4);
      sent_ = 0;
      if (!Write()) return false;
    }
    return true;
  }

 private:
  bool Read() {
    char part[4096];
    const ssize_t got = recv(socket_, part, sizeof part, 0);
    if (got > 0) unread_.append(part, static_cast<size_t>(got));
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  bool Write() {
    const ssize_t sent =
        send(socket_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(sent);
    if (sent_ == unsent_.size()) unsent_.clear();
    deadline_ = Clock::now() + kIdleMax;
    return true;
  }

  const int socket_;
  Clock::time_point deadline_ = Clock::now() + kIdleMax;  // for the next request or bytes sent
  std::string unread_;
  std::string unsent_;
  size_t sent_ = 0;  // of `unsent_`
  bool keep_alive_ = true;
};

class Server final : public PageServer {
 public:
  explicit Server(std::vector<Resource> resources) : resources_(std::move(resources)) {}
  ~Server() override {
    if (thread_.joinable()) {
      eventfd_write(stop_, 1);
      thread_.join();
    }
    for (const int fd : {listener_, stop_})
      if (fd >= 0) close(fd);
  }

  absl::Status Listen(int port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    stop_ = eventfd(0, EFD_CLOEXEC);
    const int reuse = 1;
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof place;
    auto* address = reinterpret_cast<sockaddr*>(&place);
    if (listener_ < 0 || stop_ < 0 ||
        setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0 ||
        bind(listener_, address, length) != 0 || listen(listener_, SOMAXCONN) != 0 ||
        getsockname(listener_, address, &length) != 0)
      return absl::UnavailableError(
          absl::StrCat("cannot listen at 127.0.0.1:", port, ": ", std::strerror(errno)));
    port_ = ntohs(place.sin_port);
    thread_ = std::thread([this] { Serve(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  void Serve() {
    std::vector<std::unique_ptr<Connection>> connections;
    while (true) {
      std::vector<pollfd> awaited = {{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const auto& connection : connections) awaited.push_back(connection->Awaited());
      // A second is fine enough for connections that are idle for ten.
      poll(awaited.data(), awaited.size(), connections.empty() ? -1 : 1000);
      if (awaited[0].revents != 0) return;
      for (size_t i = 0; i < connections.size(); ++i) {
        const bool open = awaited[i + 2].revents != 0 ? connections[i]->Advance(resources_)
                                                      : Clock::now() < connections[i]->deadline();
        if (!open) connections[i].reset();
      }
      std::erase(connections, nullptr);
      if (awaited[1].revents != 0) Accept(connections);
    }
  }

  void Accept(std::vector<std::unique_ptr<Connection>>& connections) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0 && connections.size() < kConnectionsMax) {
      connections.push_back(std::make_unique<Connection>(socket));
    } else if (socket >= 0) {
      close(socket);
    } else if (errno != EAGAIN && errno != ECONNABORTED) {
      // No descriptor is free; the listener stays ready meanwhile.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  const std::vector<Resource> resources_;
  int listener_ = -1;
  int stop_ = -1;  // an eventfd: the thread is to end
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(int port,
                                                              std::vector<Resource> resources) {
  auto server = std::make_unique<Server>(std::move(resources));
  if (absl::Status status = server->Listen(port); !status.ok()) return status;
  return server;
}

}  // namespace outboard::cli
