// What the small HTTP servers of this program share: a page for a browser (cli/viz) and images for
// machines that boot (cli/node).
// Threads: those of the caller's io_context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace outboard::cli {

using HttpRequest = boost::beast::http::request<boost::beast::http::empty_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;

// `text` in UTF-8, not to be kept by anybody.
inline HttpResponse PlainAnswer(boost::beast::http::status status, const std::string& text) {
  using boost::beast::http::field;
  HttpResponse response(status, 11);
  response.set(field::content_type, "text/plain; charset=utf-8");
  response.set(field::cache_control, "no-store");
  response.body() = text;
  return response;
}

// The answer to what is neither GET nor HEAD.
inline std::optional<HttpResponse> RefuseMethod(const HttpRequest& request) {
  using boost::beast::http::verb;
  if (request.method() == verb::get || request.method() == verb::head) return std::nullopt;
  HttpResponse response =
      PlainAnswer(boost::beast::http::status::method_not_allowed, "GET only.\n");
  response.set(boost::beast::http::field::allow, "GET, HEAD");
  return response;
}

// Errors: UNAVAILABLE  `name`, as the message calls the place, is taken or none of this machine's
inline absl::Status ListenAt(const boost::asio::ip::tcp::endpoint& place, const std::string& name,
                             boost::asio::ip::tcp::acceptor& acceptor) {
  using boost::asio::ip::tcp;
  boost::system::error_code error;
  acceptor.open(place.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(place, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot listen at ", name, ": ", error.message()));
}

// Gives every connection to `take`. Where none can be accepted, as without a free descriptor, it
// waits for a moment: whoever connects is still there, and asking at once would use a processor up.
class AcceptLoop {
 public:
  using Take = std::function<void(boost::asio::ip::tcp::socket)>;
  // `acceptor` listens, and outlives this.
  AcceptLoop(boost::asio::ip::tcp::acceptor& acceptor, Take take)
      : acceptor_(acceptor), pause_(acceptor.get_executor()), take_(std::move(take)) {}

  void Next() {
    acceptor_.async_accept([this](boost::system::error_code error,
                                  boost::asio::ip::tcp::socket socket) {
      if (!error) take_(std::move(socket));
      if (!acceptor_.is_open()) return;
      if (!error) return Next();
      ++failures_;
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait([this](boost::system::error_code ended) {
        if (!ended) Next();
      });
    });
  }
  int failures() const { return failures_; }

 private:
  boost::asio::ip::tcp::acceptor& acceptor_;
  boost::asio::steady_timer pause_;
  const Take take_;
  int failures_ = 0;
};

}  // namespace outboard::cli
