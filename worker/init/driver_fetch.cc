#include "worker/init/driver_fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/host_port.h"
#include "base/sha256.h"

namespace outboard::worker {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kHeadBytesMax = 8 << 10, kPartBytes = 256 << 10;

Clock::duration Seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

// Closes what was opened for writing.
class OutFile {
 public:
  explicit OutFile(const std::string& path)
      : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  ~OutFile() {
    if (fd_ >= 0) close(fd_);
  }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  bool is_open() const { return fd_ >= 0; }
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

 private:
  const int fd_;
};

// One file, by one connection after the other.
class Fetcher {
 public:
  Fetcher(const FetchOptions& options, HostPort server, OutFile& out)
      : options_(options),
        server_(std::move(server)),
        out_(out),
        until_(Clock::now() + Seconds(options.within_s)),
        stops_(options.stop, [this] {
          boost::asio::post(io_, [this] {
            resolver_.cancel();
            stream_.cancel();
          });
        }) {}

  absl::Status Run() {
    absl::Status last = absl::UnavailableError("the boot server's connections end too soon");
    for (int tries = 0; at_ < options_.bytes && tries < options_.tries_max && MayGoOn();) {
      const uint64_t before = at_;
      const absl::Status status = ReadPart();
      if (!status.ok()) last = status;
      tries = at_ > before ? 0 : tries + 1;
    }
    if (at_ < options_.bytes)
      return options_.stop.stop_requested() ? absl::UnavailableError("the fetch was ended") : last;
    const Sha256Digest digest = hash_.Finish();
    const std::string found =
        std::string(kSha256Prefix) +
        ToHex({reinterpret_cast<const char*>(digest.data()), digest.size()});
    if (found == options_.digest) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("what the boot server sent is not the driver: expected ", options_.digest,
                     ", found ", found));
  }

 private:
  bool MayGoOn() const { return Clock::now() < until_ && !options_.stop.stop_requested(); }

  // Begins an operation, and waits for its end; what takes too long, or is stopped, fails. The
  // stop's handler waits in io_ until then, and so comes after the operation has begun.
  template <typename Begin>
  Error Do(const Begin& begin) {
    if (!MayGoOn()) return boost::asio::error::operation_aborted;
    stream_.expires_at(std::min(Clock::now() + Seconds(options_.patience_s), until_));
    Error result;
    begin([&result](Error error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  absl::Status Connect() {
    tcp::resolver::results_type found;
    Error error = Do([&](auto done) {
      resolver_.async_resolve(server_.host, std::to_string(server_.port),
                              tcp::resolver::numeric_service,
                              [&found, done](Error failed, tcp::resolver::results_type results) {
                                found = std::move(results);
                                done(failed);
                              });
    });
    if (error) return absl::UnavailableError(absl::StrCat(options_.server, " has no address"));
    error = Do([&](auto done) { stream_.async_connect(found, done); });
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(options_.server, " does not answer: ", error.message()));
  }

  // Appends what a connection brings. OK where it ended, also before the file's end.
  absl::Status ReadPart() {
    OB_RETURN_IF_ERROR(Connect());
    const absl::Status status = AskAndRead();
    stream_.close();
    return status;
  }

  absl::Status AskAndRead() {
    http::request<http::empty_body> request(
        http::verb::get, "/sha256/" + options_.digest.substr(kSha256Prefix.size()), 11);
    request.set(http::field::host, options_.server);
    request.set(http::field::connection, "close");
    request.set(http::field::range, absl::StrCat("bytes=", at_, "-"));
    if (Do([&](auto done) { http::async_write(stream_, request, done); }))
      return absl::OkStatus();  // as one that ended at once
    beast::flat_buffer buffer(kHeadBytesMax + kPartBytes);
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(kHeadBytesMax);
    // What is more than the file is not read.
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    if (const Error error =
            Do([&](auto done) { http::async_read_header(stream_, buffer, parser, done); }))
      return absl::UnavailableError(
          absl::StrCat("the boot server's answer has no header: ", error.message()));
    const auto& answer = parser.get();
    const auto range = answer[http::field::content_range];
    if (answer.result() != http::status::partial_content ||
        !std::string_view(range.data(), range.size())
             .starts_with(absl::StrCat("bytes ", at_, "-")))
      return absl::UnavailableError(absl::StrCat("the boot server has no such file: it answers ",
                                                 answer.result_int()));
    return ReadBody(buffer, parser);
  }

  absl::Status ReadBody(beast::flat_buffer& buffer,
                        http::response_parser<http::buffer_body>& parser) {
    std::string part;
    while (at_ < options_.bytes && !parser.is_done()) {
      part.resize(std::min<uint64_t>(kPartBytes, options_.bytes - at_));
      auto& body = parser.get().body();
      body = {.data = part.data(), .size = part.size(), .more = true};
      const Error error =
          Do([&](auto done) { http::async_read_some(stream_, buffer, parser, done); });
      part.resize(part.size() - body.size);
      if (!out_.Write(part))
        return absl::UnavailableError(
            absl::StrCat("cannot write ", options_.path, ": ", std::strerror(errno)));
      hash_.Update(part);
      at_ += part.size();
      if (error && error != http::error::need_buffer) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  const FetchOptions& options_;
  const HostPort server_;
  OutFile& out_;
  const Clock::time_point until_;
  boost::asio::io_context io_{1};
  tcp::resolver resolver_{io_};
  beast::tcp_stream stream_{io_};
  Sha256Hasher hash_;
  uint64_t at_ = 0;  // that were written
  const std::stop_callback<std::function<void()>> stops_;  // last: it uses the others
};

}  // namespace

absl::Status FetchByDigest(const FetchOptions& options) {
  if (!IsSha256Name(options.digest))
    return absl::InvalidArgumentError("the driver's digest is none: sha256: and 64 hex digits");
  if (options.bytes == 0 || options.bytes > kDriverBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("a driver has 1 to ", kDriverBytesMax,
                                                   " bytes, and not ", options.bytes));
  const std::optional<HostPort> server = SplitHostPort(options.server);
  if (!server.has_value())
    return absl::InvalidArgumentError(
        absl::StrCat("the boot server's address is no HOST:PORT: ", options.server));
  const std::string partly = options.path + ".partly";
  absl::Status status;
  {
    OutFile out(partly);
    if (!out.is_open())
      return absl::UnavailableError(
          absl::StrCat("cannot write ", partly, ": ", std::strerror(errno)));
    status = Fetcher(options, *server, out).Run();
  }
  if (status.ok() && rename(partly.c_str(), options.path.c_str()) != 0)
    status = absl::UnavailableError(
        absl::StrCat("cannot write ", options.path, ": ", std::strerror(errno)));
  if (!status.ok()) unlink(partly.c_str());
  return status;
}

}  // namespace outboard::worker
