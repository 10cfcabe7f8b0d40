#include "cli/node/boot_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "cli/http_answers.h"
#include "telemetry/log.h"

namespace outboard::cli {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;
using Request = HttpRequest;
using Response = HttpResponse;

constexpr std::chrono::seconds kRequestWithin(10), kTakenWithin(30);
constexpr size_t kPartBytes = 256 << 10;
constexpr int kConnectionsPerAddressMax = kBootConnectionsMax / 2;
constexpr std::string_view kDigestFolder = "/sha256/";
constexpr size_t kDigestDigits = 64;

// What is left of a file to send.
struct Sending {
  int fd = -1;
  uint64_t at = 0, end = 0;
};

struct Shared {
  BootServerOptions options;
  std::map<std::string, BootFile> files;  // by digest
  int connections = 0;
  uint16_t plain_port = 0;
  std::map<boost::asio::ip::address, int> by_address;

  void Know(const BootImage& image) {
    for (const BootFile& file : {image.kernel, image.initramfs}) files[file.digest] = file;
  }
  std::optional<BootFile> Find(std::string_view asked) {
    const std::string digest(asked.substr(0, kDigestDigits + 1));
    if (const auto file = files.find(digest); file != files.end()) return file->second;
    return digest.size() == kDigestDigits ? options.find(digest) : std::nullopt;
  }
};

using PlainStream = beast::tcp_stream;
// With the context that it was made of, which a newer one may have replaced.
class TlsStream : public beast::ssl_stream<beast::tcp_stream> {
 public:
  TlsStream(tcp::socket socket, std::shared_ptr<ssl::context> context)
      : beast::ssl_stream<beast::tcp_stream>(std::move(socket), *context),
        context_(std::move(context)) {}

 private:
  const std::shared_ptr<ssl::context> context_;
};

// One machine's connection: reads and answers in turn. Owned by the handlers of its pending
// operations.
template <typename Stream>
class Connection : public std::enable_shared_from_this<Connection<Stream>> {
  static constexpr bool kHasTls = std::is_same_v<Stream, TlsStream>;

 public:
  template <typename... OfStream>
  Connection(const boost::asio::ip::address& from, Shared* shared, OfStream&&... of_stream)
      : stream_(std::forward<OfStream>(of_stream)...), from_(from), shared_(shared) {
    ++shared_->connections;
    ++shared_->by_address[from_];
  }
  ~Connection() {
    EndSending();
    --shared_->connections;
    if (--shared_->by_address[from_] == 0) shared_->by_address.erase(from_);
  }

  void Begin() {
    if constexpr (kHasTls) {
      ExpireAfter(kRequestWithin);
      stream_.async_handshake(ssl::stream_base::server, [self = Self()](Error error) {
        if (!error) self->Read();
      });
    } else {
      Read();
    }
  }

 private:
  auto Self() { return this->shared_from_this(); }
  void ExpireAfter(std::chrono::seconds seconds) {
    beast::get_lowest_layer(stream_).expires_after(seconds);
  }

  void Read() {
    parser_.emplace();
    parser_->body_limit(0);
    ExpireAfter(kRequestWithin);
    http::async_read(stream_, buffer_, *parser_,
                     [self = Self()](Error error, size_t) { self->Answer(error); });
  }

  void Answer(Error error) {
    if (error == http::error::end_of_stream) return Close();
    if (error) return;  // not HTTP, too large, too slow, or closed: no answer
    const Request request = parser_->release();
    response_ = Choose(request);
    response_.keep_alive(request.keep_alive());
    if (sending_.fd < 0) response_.prepare_payload();
    if (request.method() == http::verb::head) {
      response_.body().clear();  // the content length stays
      EndSending();
    }
    ExpireAfter(kTakenWithin);
    if (sending_.fd < 0) {
      http::async_write(stream_, response_,
                        [self = Self()](Error failed, size_t) { self->Sent(failed); });
      return;
    }
    serializer_.emplace(response_);
    http::async_write_header(stream_, *serializer_,
                             [self = Self()](Error failed, size_t) {
                               failed ? self->EndSending() : self->SendPart();
                             });
  }

  Response Choose(const Request& request) {
    if (auto refused = RefuseMethod(request)) return *std::move(refused);
    const std::string_view target(request.target().data(), request.target().size());
    const std::string_view path = target.substr(0, target.find('?'));
    if (path == "/boot.ipxe") return PlainAnswer(http::status::ok, FirstScript());
    if (path == "/node.ipxe")
      return Script(ParseBootQuery(path.size() < target.size() ? target.substr(path.size() + 1)
                                                               : std::string_view()),
                    request);
    if (path == "/boot.efi" && shared_->options.efi.has_value()) return Efi(request);
    if (path.starts_with(kDigestFolder)) {
      if (const auto file = shared_->Find(path.substr(kDigestFolder.size())))
        return File(*file, request);
    }
    return PlainAnswer(http::status::not_found, "There is no such file.\n");
  }

  // Firmware says nothing of the machine, and the file's command line is under its signature: it is
  // the same for everybody, without a claim and never on trial.
  Response Efi(const Request& request) {
    const BootFile& file = *shared_->options.efi;
    if (request.method() == http::verb::get)
      telemetry::LogInfo("node_boots_efi",
                         {{"address", from_.to_string()}, {"file", "sha256:" + file.digest}});
    // Another file has the same name one day.
    Response response = File(file, request);
    response.set(http::field::cache_control, "no-cache");
    return response;
  }

  // HEAD only looks: it spends neither a claim nor a trial.
  Response Script(const BootCaller& caller, const Request& request) {
    const bool boots = request.method() == http::verb::get;
    std::string claim;
    std::optional<BootChoice> choice;
    if (!caller.serial.empty()) choice = shared_->options.choose(caller.serial, boots);
    if (!choice.has_value() && shared_->options.image.has_value())
      choice = BootChoice{.image = *shared_->options.image};
    if (choice.has_value() && boots && !caller.serial.empty())
      claim = shared_->options.claim_for(caller.serial);
    const std::string address = from_.to_string();
    telemetry::LogInfo("node_boots", {{"node", caller.serial},
                                      {"address", address},
                                      {"uuid", caller.uuid},
                                      {"mac", caller.mac},
                                      {"image", choice ? choice->image.digest : "none"},
                                      {"on_trial", choice && choice->joins_within_s > 0},
                                      {"has_claim", !claim.empty()}});
    if (!choice.has_value())
      return PlainAnswer(http::status::not_found, "No image was chosen for this machine.\n");
    shared_->Know(choice->image);
    ScriptOptions script = shared_->options.script;
    const auto host = request[http::field::host];
    script.boot_server = HostOfHeader({host.data(), host.size()});
    // Drivers are fetched without TLS: their digest is all that is believed.
    if (auto place = SplitHostPort(script.boot_server); kHasTls && place.has_value()) {
      place->port = shared_->plain_port;
      script.boot_server = ToString(*place);
    }
    return PlainAnswer(http::status::ok,
                       NodeScript(choice->image, script, claim, choice->joins_within_s));
  }

  Response File(const BootFile& file, const Request& request) {
    const std::string tag = absl::StrCat("\"", file.digest, "\"");
    const auto text = [&](http::field field) {
      const auto value = request[field];
      return std::string_view(value.data(), value.size());
    };
    std::optional<ByteRange> range = ParseRange(text(http::field::range), file.bytes);
    // Of another file the parts are of no use.
    if (const std::string_view known = text(http::field::if_range); !known.empty() && known != tag)
      range.reset();
    if (range.has_value() && range->begin >= range->end) {
      Response response =
          PlainAnswer(http::status::range_not_satisfiable, "It is shorter than that.\n");
      response.set(http::field::content_range, absl::StrCat("bytes */", file.bytes));
      return response;
    }
    const ByteRange part = range.value_or(ByteRange{0, file.bytes});
    sending_ = {open(file.path.c_str(), O_RDONLY | O_CLOEXEC), part.begin, part.end};
    if (sending_.fd < 0) return PlainAnswer(http::status::internal_server_error, "It is gone.\n");
    Response response(range.has_value() ? http::status::partial_content : http::status::ok, 11);
    response.set(http::field::content_type, "application/octet-stream");
    response.set(http::field::accept_ranges, "bytes");
    response.set(http::field::etag, tag);
    response.set(http::field::cache_control, "public, max-age=31536000, immutable");
    if (range.has_value())
      response.set(http::field::content_range,
                   absl::StrCat("bytes ", part.begin, "-", part.end - 1, "/", file.bytes));
    response.content_length(part.end - part.begin);
    return response;
  }

  void SendPart() {
    if (sending_.at == sending_.end) {
      EndSending();
      return Sent({});
    }
    part_.resize(std::min<uint64_t>(kPartBytes, sending_.end - sending_.at));
    const ssize_t count =
        pread(sending_.fd, part_.data(), part_.size(), static_cast<off_t>(sending_.at));
    // The file was changed: what was promised does not come, and the connection's end says so.
    if (count <= 0) return EndSending();
    part_.resize(static_cast<size_t>(count));
    sending_.at += static_cast<uint64_t>(count);
    ExpireAfter(kTakenWithin);
    boost::asio::async_write(stream_, boost::asio::buffer(part_),
                             [self = Self()](Error failed, size_t) {
                               failed ? self->EndSending() : self->SendPart();
                             });
  }

  void Sent(Error failed) {
    if (failed) return;
    response_.keep_alive() ? Read() : Close();
  }

  void EndSending() {
    if (sending_.fd >= 0) close(std::exchange(sending_.fd, -1));
  }

  void Close() {
    if constexpr (kHasTls) {
      ExpireAfter(kRequestWithin);
      stream_.async_shutdown([self = Self()](Error) {});
    } else {
      Error ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
  }

  Stream stream_;
  const boost::asio::ip::address from_;
  Shared* const shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  Sending sending_;
  std::string part_;
};

class Server final : public BootServer {
 public:
  explicit Server(BootServerOptions options) : shared_{.options = std::move(options)} {
    for (const BootFile& file : shared_.options.files) shared_.files[file.digest] = file;
    if (shared_.options.image.has_value()) shared_.Know(*shared_.options.image);
  }
  ~Server() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen() {
    if (!shared_.options.https_listen.empty()) {
      if (absl::Status status = UseIdentity(); !status.ok()) return status;
      if (absl::Status status = ListenOn("--https-listen", shared_.options.https_listen,
                                         https_acceptor_, https_address_);
          !status.ok())
        return status;
    }
    if (absl::Status status = ListenOn("--listen", shared_.options.listen, acceptor_, address_);
        !status.ok())
      return status;
    shared_.plain_port = acceptor_.local_endpoint().port();
    accepts_.Next();
    if (https_acceptor_.is_open()) https_accepts_.Next();
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  std::string https_address() const override { return https_address_; }

 private:
  static absl::Status ListenOn(const char* flag, const std::string& listen,
                               tcp::acceptor& acceptor, std::string& address) {
    std::optional<HostPort> place = SplitHostPort(listen);
    if (place.has_value() && place->host == "localhost") place->host = "127.0.0.1";
    Error error;
    const auto ip = boost::asio::ip::make_address(place ? place->host : "", error);
    if (!place.has_value() || error)
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": ", listen, " is no ADDRESS:PORT, as 0.0.0.0:6669"));
    if (absl::Status status = ListenAt({ip, place->port}, listen, acceptor); !status.ok())
      return status;
    place->port = acceptor.local_endpoint().port();
    address = ToString(*place);
    return absl::OkStatus();
  }

  // What HTTPS presents from now on.
  absl::Status UseIdentity() {
    auto identity = shared_.options.https_identity();
    if (!identity.ok()) return identity.status();
    // Firmware that knows no TLS 1.3 is common.
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    Error error;
    context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                             ssl::context::no_tlsv1_1 | ssl::context::no_compression,
                         error);
    const boost::asio::const_buffer pem(identity->pem.data(), identity->pem.size());
    if (!error) context->use_certificate_chain(pem, error);
    if (!error) context->use_private_key(pem, ssl::context::pem, error);
    if (error)
      return absl::InvalidArgumentError(
          absl::StrCat("HTTPS: no certificate with its key: ", error.message()));
    tls_ = std::move(context);
    renew_at_ = identity->renew_at;
    return absl::OkStatus();
  }

  void Take(tcp::socket socket, bool has_tls) {
    Error error;
    const tcp::endpoint from = socket.remote_endpoint(error);
    if (error || shared_.connections >= kBootConnectionsMax) return;
    const auto known = shared_.by_address.find(from.address());
    if (known != shared_.by_address.end() && known->second >= kConnectionsPerAddressMax) return;
    if (!has_tls)
      return std::make_shared<Connection<PlainStream>>(from.address(), &shared_, std::move(socket))
          ->Begin();
    if (absl::Now() >= renew_at_)
      if (const absl::Status status = UseIdentity(); !status.ok()) {
        telemetry::LogWarning("boot_certificate_not_renewed", {{"message", status.message()}});
        renew_at_ = absl::Now() + absl::Minutes(1);
      }
    std::make_shared<Connection<TlsStream>>(from.address(), &shared_, std::move(socket), tls_)
        ->Begin();
  }

  Shared shared_;  // accessed by the server's thread only, once it runs
  boost::asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  AcceptLoop accepts_{acceptor_, [this](tcp::socket socket) { Take(std::move(socket), false); }};
  tcp::acceptor https_acceptor_{io_};
  AcceptLoop https_accepts_{https_acceptor_,
                            [this](tcp::socket socket) { Take(std::move(socket), true); }};
  std::shared_ptr<ssl::context> tls_;
  absl::Time renew_at_;
  std::string address_, https_address_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BootServer>> BootServer::Start(BootServerOptions options) {
  auto server = std::make_unique<Server>(std::move(options));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace outboard::cli
