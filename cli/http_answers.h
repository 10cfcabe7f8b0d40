// What the small HTTP servers of this program share: a page for a browser (cli/viz) and images for
// machines that boot (cli/node).
// Pure functions.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <string>

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

}  // namespace outboard::cli
