#include "cli/viz/page_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/http_answers.h"

namespace outboard::cli {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;
using Request = HttpRequest;
using Response = HttpResponse;

constexpr std::chrono::seconds kIdleMax(10);
// The scripts and styles of a page are inline in its one file.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'";

bool IsThisMachine(beast::string_view host) {
  const std::string_view name(host.data(), host.size());
  const std::string_view before_port = name.substr(0, name.rfind(':'));
  return before_port == "127.0.0.1" || before_port == "localhost";
}

Response Answer(const std::vector<Resource>& resources, const Request& request) {
  if (!IsThisMachine(request[http::field::host]))
    return PlainAnswer(http::status::misdirected_request, "This is not the host you asked for.\n");
  if (auto refused = RefuseMethod(request)) return *std::move(refused);
  const std::string_view target(request.target().data(), request.target().size());
  const auto found = std::find_if(resources.begin(), resources.end(),
                                  [path = target.substr(0, target.find('?'))](
                                      const Resource& resource) { return resource.path == path; });
  if (found == resources.end())
    return PlainAnswer(http::status::not_found, "There is no such page.\n");
  absl::StatusOr<std::string> content = found->content();
  if (!content.ok())
    return PlainAnswer(http::status::internal_server_error,
                       absl::StrCat(content.status().message(), "\n"));
  Response response(http::status::ok, 11);
  response.set(http::field::content_type, found->type);
  response.set("Content-Security-Policy", kPolicy);
  response.set("X-Content-Type-Options", "nosniff");
  response.body() = *std::move(content);
  return response;
}

// One browser's connection: reads and answers in turn. Owned by the handlers of its pending
// operations.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const std::vector<Resource>* resources, int* count)
      : stream_(std::move(socket)), resources_(resources), count_(count) {
    ++*count_;
  }
  ~Connection() { --*count_; }

  void Read() {
    parser_.emplace();
    parser_->body_limit(0);
    stream_.expires_after(kIdleMax);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](Error error, size_t) { self->Write(error); });
  }

 private:
  void Write(Error error) {
    if (error == http::error::end_of_stream) return Close();
    // Not HTTP, too large, or closed: no answer.
    if (error) return;
    const Request request = parser_->release();
    response_ = Answer(*resources_, request);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(request.keep_alive());
    response_.prepare_payload();
    if (request.method() == http::verb::head) response_.body().clear();  // the content length stays
    stream_.expires_after(kIdleMax);
    http::async_write(stream_, response_, [self = shared_from_this()](Error failed, size_t) {
      if (failed) return;
      self->response_.keep_alive() ? self->Read() : self->Close();
    });
  }

  void Close() {
    Error ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
  const std::vector<Resource>* const resources_;
  int* const count_;
};

class Server final : public PageServer {
 public:
  explicit Server(std::vector<Resource> resources) : resources_(std::move(resources)) {}
  ~Server() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(int port) {
    const tcp::endpoint place(boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(port));
    if (absl::Status status = ListenAt(place, absl::StrCat("127.0.0.1:", port), acceptor_);
        !status.ok())
      return status;
    accepts_.Next();
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  int port() const override { return acceptor_.local_endpoint().port(); }

 private:
  void Take(tcp::socket socket) {
    if (connections_ < kConnectionsMax)
      std::make_shared<Connection>(std::move(socket), &resources_, &connections_)->Read();
  }

  const std::vector<Resource> resources_;
  int connections_ = 0;  // accessed by the server's thread only
  boost::asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  AcceptLoop accepts_{acceptor_, [this](tcp::socket socket) { Take(std::move(socket)); }};
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
