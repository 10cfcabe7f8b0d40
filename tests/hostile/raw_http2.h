// An HTTP/2 client without manners: sends whatever frames a test makes, over a TCP socket of its
// own, and notes what comes back. gRPC's client cannot be made to break HTTP/2's rules.
//
// Headers are HPACK literals without indexing and without Huffman codes; the server is asked for
// the same (a table of size 0), so that its answers are read without a table.
//
// Everything is bounded: a call that waits has a limit of time, what is stored of the peer's
// answers a limit of number (kRepliesMax). Comes from an address of loopback that the test chooses,
// so that
// a limit per address that an attacker reaches is the attacker's alone.
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace outboard::test {

using Header = std::pair<std::string, std::string>;

// RFC 9113, section 6 and 7: what the tests use of it.
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1, kEndHeaders = 4, kAck = 1;
inline constexpr uint16_t kHeaderTableSize = 1, kInitialWindowSize = 4;

std::string Http2Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload);
std::string HpackLiterals(const std::vector<Header>& headers);
std::string BigEndian(uint32_t value);
// A gRPC message: its prefix and its bytes.
std::string GrpcMessage(std::string_view bytes, bool compressed = false);
// The headers of a call of `method`, "Store/List", and `more`.
std::vector<Header> CallHeaders(const std::string& method, std::vector<Header> more = {});

class RawHttp2 {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr size_t kRepliesMax = 1 << 15;

  // `target`: "127.0.0.1:6667". `from`: another address of loopback. `initial_window`: what the
  // server may send of each stream before it is asked for more.
  explicit RawHttp2(const std::string& target, const std::string& from = "127.0.0.2",
                    uint32_t initial_window = 1 << 30);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // The connection's beginning, which a test may leave out. The server's settings are acknowledged
  // as they come, unless AcknowledgeSettings(false).
  bool Greet();
  // False: the peer has closed, or takes nothing for 5 s. Reads what comes meanwhile.
  bool Send(std::string_view bytes);
  // HEADERS of a call on a new stream, and `messages` behind them if any; returns the stream.
  uint32_t Call(const std::vector<Header>& headers, std::string_view messages = {},
                bool ends = true);
  uint32_t NextStream() { return std::exchange(next_stream_, next_stream_ + 2); }

  // What came back on a stream.
  struct Reply {
    std::optional<uint32_t> grpc_status;
    std::string grpc_message;       // as sent: bytes that are not printable are %XX
    std::optional<uint32_t> reset;  // the code of RST_STREAM
    std::string data;               // the first bytes of DATA
    size_t data_bytes = 0;
    size_t window_updates = 0;  // of the stream: the server asks for more of it
    bool ended = false;
  };
  // Reads until `stop` or for `limit`, or to the peer's end; true if `stop` holds.
  bool Pump(const std::function<bool()>& stop, Milliseconds limit);
  // The end of a stream as a status: that of gRPC; UNAVAILABLE for one that was reset, and for a
  // connection that was closed; DEADLINE_EXCEEDED for none within `limit`.
  absl::Status Await(uint32_t stream, Milliseconds limit = Milliseconds(10'000));
  // UNAVAILABLE with the reason if the peer closes the connection within `limit`, else OK.
  absl::Status AwaitClosed(Milliseconds limit);
  // Takes no bytes from the socket from now on.
  void StopReading() { reads_ = false; }
  void AcknowledgeSettings(bool acknowledges) { acknowledges_ = acknowledges; }
  void AnswerPings(bool answers) { answers_pings_ = answers; }

  bool closed() const { return closed_; }
  const std::map<uint32_t, Reply>& replies() const { return replies_; }
  std::optional<uint32_t> goaway() const { return goaway_; }  // its error code
  size_t frames(FrameType type) const;                        // received
  size_t received_bytes() const { return received_bytes_; }

 private:
  bool Poll(bool write, Milliseconds limit);  // true: may be written
  void Read();
  void Answer();
  void Take(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload);
  void TakeHeaders(Reply& reply, std::string_view block);
  absl::Status Closed() const;

  int fd_ = -1;
  const uint32_t initial_window_;
  uint32_t next_stream_ = 1;
  bool closed_ = false, reads_ = true, answers_pings_ = true, acknowledges_ = true;
  std::string unread_;   // of the peer: less than a frame
  std::string answers_;  // acknowledgements to be sent
  std::map<uint32_t, Reply> replies_;
  std::map<uint8_t, size_t> frames_;
  std::optional<uint32_t> goaway_;
  std::string goaway_text_;
  size_t received_bytes_ = 0;
};

}  // namespace outboard::test
