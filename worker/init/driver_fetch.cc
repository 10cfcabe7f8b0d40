#include "worker/init/driver_fetch.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/sha256.h"

namespace outboard::worker {
namespace {

constexpr size_t kHeadBytesMax = 8 << 10, kPartBytes = 256 << 10;

using Clock = std::chrono::steady_clock;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<Fd> Connect(const FetchOptions& options) {
  const size_t colon = options.server.rfind(':');
  std::string host = options.server.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const std::string port = options.server.substr(colon + 1);
  const addrinfo hints{.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr)
    return absl::UnavailableError(absl::StrCat(options.server, " has no address"));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  timeval patience{};
  patience.tv_sec = static_cast<time_t>(options.patience_s);
  patience.tv_usec = static_cast<suseconds_t>(
      (options.patience_s - static_cast<double>(patience.tv_sec)) * 1e6);
  int why = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Fd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (fd.get() >= 0 && connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    why = errno;
  }
  return absl::UnavailableError(
      absl::StrCat(options.server, " does not answer: ", std::strerror(why)));
}

// Reads to the end of the header. `text` has it, and `rest` what came behind it.
absl::Status ReadHead(int fd, Clock::time_point until, std::string& text, std::string& rest) {
  char bytes[4096];
  for (size_t end; (end = text.find("\r\n\r\n")) == std::string::npos;) {
    const ssize_t count = recv(fd, bytes, sizeof bytes, 0);
    if (count <= 0 || Clock::now() > until ||
        text.size() + static_cast<size_t>(count) > kHeadBytesMax)
      return absl::UnavailableError("the boot server's answer has no header");
    text.append(bytes, static_cast<size_t>(count));
  }
  const size_t end = text.find("\r\n\r\n");
  rest = text.substr(end + 4);
  text.resize(end);
  return absl::OkStatus();
}

// Appends what a connection brings from `at` on. OK where it ended, also before the file's end.
absl::Status ReadPart(const FetchOptions& options, Clock::time_point until, int out, uint64_t& at,
                      Sha256Hasher& hash) {
  OB_ASSIGN_OR_RETURN(const Fd fd, Connect(options));
  const std::string request = absl::StrCat(
      "GET /sha256/", options.digest.substr(kSha256Prefix.size()), " HTTP/1.1\r\nHost: ",
      options.server, "\r\nConnection: close\r\nRange: bytes=", at, "-\r\n\r\n");
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return absl::OkStatus();  // as one that ended at once
  std::string head, part;
  OB_RETURN_IF_ERROR(ReadHead(fd.get(), until, head, part));
  const std::string begins = absl::StrCat("\r\ncontent-range: bytes ", at, "-");
  if (!head.starts_with("HTTP/1.1 206 ") || !absl::StrContains(absl::AsciiStrToLower(head), begins))
    return absl::UnavailableError(absl::StrCat("the boot server has no such file: ",
                                               head.substr(0, std::min(head.find('\r'),
                                                                       size_t{80}))));
  for (;;) {
    part.resize(std::min<uint64_t>(part.size(), options.bytes - at));
    if (write(out, part.data(), part.size()) != static_cast<ssize_t>(part.size()))
      return absl::UnavailableError(
          absl::StrCat("cannot write ", options.path, ": ", std::strerror(errno)));
    hash.Update(part);
    at += part.size();
    if (at == options.bytes || Clock::now() > until) return absl::OkStatus();
    part.resize(kPartBytes);
    const ssize_t count = recv(fd.get(), part.data(), part.size(), 0);
    if (count <= 0) return absl::OkStatus();
    part.resize(static_cast<size_t>(count));
  }
}

absl::Status Fetch(const FetchOptions& options, int out) {
  Sha256Hasher hash;
  absl::Status last = absl::UnavailableError("the boot server's connections end too soon");
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options.within_s));
  uint64_t at = 0;
  for (int tries = 0; at < options.bytes && tries < options.tries_max && Clock::now() <= until;) {
    const uint64_t before = at;
    const absl::Status status = ReadPart(options, until, out, at, hash);
    if (!status.ok()) last = status;
    tries = at > before ? 0 : tries + 1;
  }
  if (at < options.bytes) return last;
  const Sha256Digest digest = hash.Finish();
  const std::string found =
      std::string(kSha256Prefix) +
      ToHex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  if (found == options.digest) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("what the boot server sent is not the driver: expected ",
                                          options.digest, ", found ", found));
}

}  // namespace

absl::Status FetchByDigest(const FetchOptions& options) {
  if (!IsSha256Name(options.digest))
    return absl::InvalidArgumentError("the driver's digest is none: sha256: and 64 hex digits");
  if (options.bytes == 0 || options.bytes > kDriverBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("a driver has 1 to ", kDriverBytesMax,
                                                   " bytes, and not ", options.bytes));
  if (options.server.rfind(':') == std::string::npos)
    return absl::InvalidArgumentError(
        absl::StrCat("the boot server's address is no HOST:PORT: ", options.server));
  const std::string partly = options.path + ".partly";
  absl::Status status;
  {
    const Fd out(open(partly.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (out.get() < 0)
      return absl::UnavailableError(
          absl::StrCat("cannot write ", partly, ": ", std::strerror(errno)));
    status = Fetch(options, out.get());
  }
  if (status.ok() && rename(partly.c_str(), options.path.c_str()) != 0)
    status = absl::UnavailableError(
        absl::StrCat("cannot write ", options.path, ": ", std::strerror(errno)));
  if (!status.ok()) unlink(partly.c_str());
  return status;
}

}  // namespace outboard::worker
