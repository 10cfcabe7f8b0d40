#include "worker/init/driver_fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/growing_pause.h"
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

using Addresses = std::vector<std::string>;

Addresses SystemLookUp(const std::string& host) {
  boost::asio::io_context io;
  tcp::resolver resolver(io);
  Error ignored;
  Addresses found;
  for (const auto& entry : resolver.resolve(host, "", ignored))
    found.push_back(entry.endpoint().address().to_string());
  return found;
}

// The addresses of one name. The system's look-up can be neither bounded nor ended, so that it has
// a thread that may outlive this; there is one at a time, and what comes late is for the next call.
class NameLookUp {
 public:
  NameLookUp(std::string host, std::function<Addresses(const std::string&)> look_up)
      : host_(std::move(host)),
        look_up_(look_up ? std::move(look_up) : std::function<Addresses(const std::string&)>(
                                                    SystemLookUp)) {}

  // Empty: there are none, or not within `patience`.
  Addresses Wait(Clock::duration patience, const std::stop_token& stop) {
    Error is_name;
    boost::asio::ip::make_address(host_, is_name);
    if (!is_name) return {host_};
    if (under_way_ == nullptr) {
      under_way_ = std::make_shared<UnderWay>();
      std::thread([host = host_, look_up = look_up_, to = under_way_] {
        Addresses found = look_up(host);
        std::lock_guard lock(to->mutex);
        to->found = std::move(found);
        to->wake.notify_all();
      }).detach();
    }
    std::unique_lock lock(under_way_->mutex);
    if (!under_way_->wake.wait_for(lock, stop, patience,
                                   [this] { return under_way_->found.has_value(); }))
      return {};
    const Addresses found = *under_way_->found;
    lock.unlock();
    under_way_.reset();
    return found;
  }

 private:
  struct UnderWay {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::optional<Addresses> found;
  };
  const std::string host_;
  const std::function<Addresses(const std::string&)> look_up_;
  std::shared_ptr<UnderWay> under_way_;
};

// One file, by one connection after the other.
class Fetcher {
 public:
  Fetcher(const FetchOptions& options, HostPort server, OutFile& out)
      : options_(options),
        port_(server.port),
        out_(out),
        names_(std::move(server.host), options.look_up),
        stops_(options.stop, [this] {
          boost::asio::post(io_, [this] { stream_.cancel(); });
        }) {}

  absl::Status Run() {
    absl::Status last = absl::UnavailableError("the boot server's connections end too soon");
    GrowingPause pause(options_.pause_first_s, options_.pause_most_s, SystemRandom);
    for (int tries = 0; at_ < options_.bytes && !IsStopped();) {
      const uint64_t before = at_;
      if (const absl::Status status = ReadPart(); !status.ok()) last = status;
      if (!absl::IsUnavailable(last)) return last;
      if (at_ > before) {
        tries = 0;
        pause.Reset();
        continue;
      }
      if (IsStopped() || (options_.tries_max > 0 && ++tries >= options_.tries_max)) break;
      options_.on_pause(last);
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      never.wait_for(lock, options_.stop, pause.NextWait(), [] { return false; });
    }
    if (at_ < options_.bytes)
      return IsStopped() ? absl::UnavailableError("the fetch was ended") : last;
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
  bool IsStopped() const { return options_.stop.stop_requested(); }

  // Begins an operation, and waits for its end; what takes too long, or is stopped, fails. The
  // stop's handler waits in io_ until then, and so comes after the operation has begun.
  template <typename Begin>
  Error Do(const Begin& begin) {
    if (IsStopped() || Clock::now() >= until_) return boost::asio::error::operation_aborted;
    stream_.expires_at(std::min(Clock::now() + Seconds(options_.patience_s), until_));
    Error result;
    begin([&result](Error error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  absl::Status Connect() {
    std::vector<tcp::endpoint> found;
    for (const std::string& address : names_.Wait(Seconds(options_.patience_s), options_.stop)) {
      Error error;
      const auto parsed = boost::asio::ip::make_address(address, error);
      if (!error) found.emplace_back(parsed, port_);
    }
    if (found.empty())
      return absl::UnavailableError(absl::StrCat(options_.server, " has no address"));
    until_ = Clock::now() + Seconds(options_.connection_within_s);
    const Error error = Do([&](auto done) { stream_.async_connect(found, done); });
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
    if (const unsigned status = answer.result_int(); status != 206) {
      const std::string why = absl::StrCat("the boot server answers ", status);
      const bool is_later = status >= 500 || status == 408 || status == 425 || status == 429;
      return is_later ? absl::UnavailableError(why)
                      : absl::NotFoundError(absl::StrCat(why, ": it has no such file"));
    }
    const std::string asked = absl::StrCat("bytes ", at_, "-");
    if (!std::string_view(range.data(), range.size()).starts_with(asked))
      return absl::DataLossError("the boot server sends another part than it was asked for");
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
        return absl::ResourceExhaustedError(
            absl::StrCat("cannot write ", options_.path, ": ", std::strerror(errno)));
      hash_.Update(part);
      at_ += part.size();
      if (error && error != http::error::need_buffer) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  const FetchOptions& options_;
  const uint16_t port_;
  OutFile& out_;
  NameLookUp names_;
  Clock::time_point until_;  // of the connection
  boost::asio::io_context io_{1};
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
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write ", partly, ": ", std::strerror(errno)));
    status = Fetcher(options, *server, out).Run();
  }
  if (status.ok() && rename(partly.c_str(), options.path.c_str()) != 0)
    status = absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", options.path, ": ", std::strerror(errno)));
  if (!status.ok()) unlink(partly.c_str());
  return status;
}

}  // namespace outboard::worker
