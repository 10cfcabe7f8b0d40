#include "tests/hostile/raw_http2.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace outboard::test {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeadBytes = 9;
constexpr size_t kDataKept = size_t{64} << 10;  // of a stream
constexpr std::chrono::milliseconds kTakesNothingFor{5'000};

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1) << host;
  // Whatever a test writes, nothing leaves this machine.
  EXPECT_EQ(ntohl(address.sin_addr.s_addr) >> 24, 127u) << host;
  return address;
}

uint32_t ReadBigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4 && i < bytes.size(); ++i)
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

std::string Setting(uint16_t id, uint32_t value) {
  return std::string{static_cast<char>(id >> 8), static_cast<char>(id)} + BigEndian(value);
}

// RFC 7541, 5.1, with a prefix of `bits`; flags above it are 0.
std::string HpackInteger(size_t value, int bits) {
  const size_t prefix = (size_t{1} << bits) - 1;
  if (value < prefix) return {static_cast<char>(value)};
  std::string bytes{static_cast<char>(prefix)};
  for (value -= prefix; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

// Reads HPACK from the front of `block`; nullopt: it is cut short or out of range.
std::optional<size_t> TakeInteger(std::string_view& block, int bits) {
  if (block.empty()) return std::nullopt;
  const size_t prefix = (size_t{1} << bits) - 1;
  size_t value = static_cast<uint8_t>(block[0]) & prefix;
  block.remove_prefix(1);
  if (value < prefix) return value;
  for (int shift = 0; shift <= 28 && !block.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(block[0]);
    block.remove_prefix(1);
    value += static_cast<size_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}
std::optional<std::string> TakeString(std::string_view& block) {
  const bool huffman = !block.empty() && (block[0] & 0x80) != 0;
  const std::optional<size_t> size = TakeInteger(block, 7);
  if (!size || *size > block.size()) return std::nullopt;
  std::string text = huffman ? "(Huffman)" : std::string(block.substr(0, *size));
  block.remove_prefix(*size);
  return text;
}

}  // namespace

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Http2Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size())).substr(1);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += BigEndian(stream);
  return frame.append(payload);
}

std::string HpackLiterals(const std::vector<Header>& headers) {
  std::string block;
  for (const auto& [name, value] : headers) {
    block += '\0';  // a literal without indexing, its name spelt out
    for (const std::string* text : {&name, &value})
      block.append(HpackInteger(text->size(), 7)).append(*text);
  }
  return block;
}

std::string GrpcMessage(std::string_view bytes, bool compressed) {
  return std::string(1, compressed ? '\1' : '\0')
      .append(BigEndian(static_cast<uint32_t>(bytes.size())))
      .append(bytes);
}

std::vector<Header> CallHeaders(const std::string& method, std::vector<Header> more) {
  std::vector<Header> headers = {
      {":method", "POST"},         {":scheme", "http"}, {":path", "/outboard.proto." + method},
      {":authority", "localhost"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  headers.insert(headers.end(), more.begin(), more.end());
  return headers;
}

RawHttp2::RawHttp2(const std::string& target, const std::string& from, uint32_t initial_window)
    : initial_window_(initial_window) {
  const size_t colon = target.rfind(':');
  const sockaddr_in to = AddressOf(target.substr(0, colon), std::stoi(target.substr(colon + 1)));
  const sockaddr_in source = AddressOf(from, 0);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  closed_ = fd_ < 0 || bind(fd_, reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0 ||
            connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0;
  if (fd_ >= 0) fcntl(fd_, F_SETFL, O_NONBLOCK);
}

RawHttp2::~RawHttp2() {
  if (fd_ >= 0) close(fd_);
}

bool RawHttp2::Greet() {
  return Send(std::string(kPreface)
                  .append(Http2Frame(
                      FrameType::kSettings, 0, 0,
                      Setting(kHeaderTableSize, 0) + Setting(kInitialWindowSize, initial_window_)))
                  .append(Http2Frame(FrameType::kWindowUpdate, 0, 0, BigEndian(1 << 30))));
}

bool RawHttp2::Send(std::string_view bytes) {
  while (!bytes.empty() && !closed_) {
    if (!Poll(/*write=*/true, kTakesNothingFor)) return false;
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) closed_ = true;
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  if (bytes.empty()) Answer();
  return !closed_;
}

uint32_t RawHttp2::Call(const std::vector<Header>& headers, std::string_view messages, bool ends) {
  const uint32_t stream = NextStream();
  std::string frames = Http2Frame(FrameType::kHeaders, kEndHeaders, stream, HpackLiterals(headers));
  frames += Http2Frame(FrameType::kData, ends ? kEndStream : 0, stream, messages);
  Send(frames);
  return stream;
}

// Reads what there is, and waits until something can be written, or read.
bool RawHttp2::Poll(bool write, Milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!closed_) {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(deadline - steady_clock::now()).count();
    pollfd wait{.fd = fd_,
                .events = static_cast<int16_t>((reads_ ? POLLIN : 0) | (write ? POLLOUT : 0))};
    if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) return false;
    if ((wait.revents & POLLOUT) != 0) {
      if (reads_ && (wait.revents & POLLIN) != 0) Read();
      return !closed_;
    }
    if (!reads_) {  // only an error is left to be told
      closed_ = (wait.revents & (POLLERR | POLLHUP)) != 0;
      return false;
    }
    Read();
    if (!write) return false;
  }
  return false;
}

void RawHttp2::Read() {
  char bytes[64 << 10];
  const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN)) closed_ = true;
  if (got <= 0) return;
  received_bytes_ += static_cast<size_t>(got);
  unread_.append(bytes, static_cast<size_t>(got));
  std::string_view rest = unread_;
  while (rest.size() >= kFrameHeadBytes) {
    const size_t size = ReadBigEndian(std::string(1, '\0') + std::string(rest.substr(0, 3)));
    if (rest.size() < kFrameHeadBytes + size) break;
    Take(static_cast<FrameType>(rest[3]), static_cast<uint8_t>(rest[4]),
         ReadBigEndian(rest.substr(5)) & 0x7fffffff, rest.substr(kFrameHeadBytes, size));
    rest.remove_prefix(kFrameHeadBytes + size);
  }
  unread_.erase(0, unread_.size() - rest.size());
}

// Only between frames.
void RawHttp2::Answer() {
  const std::string answers = std::exchange(answers_, {});
  // Small, and of no use to a peer that takes nothing.
  if (!answers.empty() && send(fd_, answers.data(), answers.size(), MSG_NOSIGNAL) < 0 &&
      errno != EAGAIN)
    closed_ = true;
}

void RawHttp2::Take(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  ++frames_[static_cast<uint8_t>(type)];
  if (type == FrameType::kGoAway) {
    goaway_ = payload.size() < 8 ? 0 : ReadBigEndian(payload.substr(4));
    goaway_text_ = payload.size() < 8 ? "" : std::string(payload.substr(8, 200));
    return;
  }
  if (type == FrameType::kSettings && (flags & kAck) == 0 && acknowledges_)
    answers_ += Http2Frame(FrameType::kSettings, kAck, 0, "");
  if (type == FrameType::kPing && (flags & kAck) == 0 && answers_pings_)
    answers_ += Http2Frame(FrameType::kPing, kAck, 0, payload);
  if (stream == 0 || (replies_.size() >= kRepliesMax && !replies_.contains(stream))) return;
  Reply& reply = replies_[stream];
  if (type == FrameType::kReset) {
    reply.reset = ReadBigEndian(payload);
    reply.ended = true;
  }
  if (type == FrameType::kWindowUpdate) ++reply.window_updates;
  if (type == FrameType::kData) {
    reply.data_bytes += payload.size();
    reply.data.append(payload.substr(0, kDataKept - std::min(kDataKept, reply.data.size())));
  }
  if (type == FrameType::kHeaders) TakeHeaders(reply, payload);
  if ((type == FrameType::kData || type == FrameType::kHeaders) && (flags & kEndStream) != 0)
    reply.ended = true;
}

void RawHttp2::TakeHeaders(Reply& reply, std::string_view block) {
  while (!block.empty()) {
    const auto first = static_cast<uint8_t>(block[0]);
    if ((first & 0x80) != 0) {  // an entry of the static table: none that is looked for
      if (!TakeInteger(block, 7)) return;
      continue;
    }
    if ((first & 0xe0) == 0x20) {  // the size of the table
      if (!TakeInteger(block, 5)) return;
      continue;
    }
    const std::optional<size_t> index = TakeInteger(block, (first & 0x40) != 0 ? 6 : 4);
    if (!index) return;
    const std::optional<std::string> name = *index != 0 ? "(static)" : TakeString(block);
    const std::optional<std::string> value = name ? TakeString(block) : std::nullopt;
    if (!value) return;
    if (*name == "grpc-status")
      reply.grpc_status = static_cast<uint32_t>(std::atoi(value->c_str()));
    if (*name == "grpc-message") reply.grpc_message = *value;
  }
}

bool RawHttp2::Pump(const std::function<bool()>& stop, Milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  for (bool first = true; !stop(); first = false) {
    const auto left = std::max(
        std::chrono::duration_cast<Milliseconds>(deadline - steady_clock::now()), Milliseconds(0));
    if (closed_ || (left.count() == 0 && !first)) return false;
    Poll(/*write=*/false, left);
    Answer();
  }
  return true;
}

absl::Status RawHttp2::Closed() const {
  return absl::UnavailableError(
      goaway_ ? absl::StrCat("the connection was closed: GOAWAY ", *goaway_, " ", goaway_text_)
              : "the connection was closed");
}

absl::Status RawHttp2::Await(uint32_t stream, Milliseconds limit) {
  const auto ended = [&] {
    const auto it = replies_.find(stream);
    return it != replies_.end() && it->second.ended;
  };
  if (!Pump(ended, limit))
    return closed_ ? Closed() : absl::DeadlineExceededError("no answer, the stream is open");
  const Reply& reply = replies_[stream];
  if (reply.grpc_status)
    return absl::Status(wire::CodeFromWire(*reply.grpc_status), reply.grpc_message);
  return absl::UnavailableError(absl::StrCat("the stream was reset: ", reply.reset.value_or(0)));
}

absl::Status RawHttp2::AwaitClosed(Milliseconds limit) {
  Pump([] { return false; }, limit);
  return closed_ ? Closed() : absl::OkStatus();
}

size_t RawHttp2::frames(FrameType type) const {
  const auto it = frames_.find(static_cast<uint8_t>(type));
  return it == frames_.end() ? 0 : it->second;
}

}  // namespace outboard::test
