// HTTP/2 itself: floods and half sentences, of which each costs the sender little.
//
// The server of HTTP/2 is gRPC's. What it does not stop is bounded here all the same: the honest
// account works on during a flood, and the gateway's memory and time are near what they were.
// docs/testing.md says what a proxy on the open internet has to do beyond that.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/cloud.pb.h"
#include "tests/hostile/hostile_case.h"

namespace outboard::test {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What one flood may cost while it lasts; as after a case (hostile_world.cc).
constexpr int64_t kFloodBytesMax = int64_t{64} << 20;
constexpr size_t kFramePayload = 16 << 10;  // HTTP/2's least limit, which is gRPC's

absl::Status AnswerWithTimeout(HostileWorld& world, const std::string& timeout) {
  auto raw = world.Raw();
  raw->Greet();
  return world.replies().Note(raw->Await(
      raw->Call(world.Authorized("Store/List", {{"grpc-timeout", timeout}}), GrpcMessage(""))));
}

std::string OpenMessage() {
  proto::ClientFrame frame;
  *frame.add_items()->mutable_open() = GoodOpen();
  return GrpcMessage(frame.SerializeAsString());
}

}  // namespace

absl::Status DeadlineZero(HostileWorld& world) { return AnswerWithTimeout(world, "0S"); }

absl::Status DeadlineNegative(HostileWorld& world) { return AnswerWithTimeout(world, "-1S"); }

absl::Status DeadlineHuge(HostileWorld& world) {
  EXPECT_TRUE(AnswerWithTimeout(world, "99999999H").ok());  // the most that gRPC can say
  return AnswerWithTimeout(world, "1000000000000S");
}

absl::Status RapidReset(HostileWorld& world) {
  constexpr int kStreams = 20'000, kBatch = 100;
  // Of the gateway's processor time: half a millisecond a stream. Over it, a stream costs more than
  // a call that is answered.
  constexpr double kCpuSecondsMax = 10;
  // gRPC 1.51 counts a stream that was reset no more, while its call still waits for a thread: all
  // 20,000 may be there at once, at 20 KB each. Afterwards it is given back (TrimMemory).
  constexpr int64_t kResetBytesMax = int64_t{800} << 20;
  auto raw = world.Raw();
  raw->Greet();
  const std::string calls[] = {HpackLiterals(CallHeaders("Cloud/Session")),
                               HpackLiterals(world.Authorized("Store/List"))};
  const double cpu_before = world.CpuSeconds();
  const int64_t resident_before = world.ResidentBytes();
  int sent = 0;
  while (sent < kStreams && !raw->closed()) {
    std::string frames;
    for (int i = 0; i < kBatch; ++i, ++sent) {
      const uint32_t stream = raw->NextStream();
      frames += Http2Frame(FrameType::kHeaders, kEndHeaders, stream, calls[sent % 2]);
      frames += Http2Frame(FrameType::kReset, 0, stream, BigEndian(8));  // CANCEL
    }
    raw->Send(frames);
    if (sent % 5'000 != 0) continue;
    const absl::Status step = world.honest().Step();
    EXPECT_TRUE(step.ok()) << step;
  }
  const absl::Status fresh = world.honest().FreshStep();
  EXPECT_TRUE(fresh.ok()) << fresh;
  EXPECT_LT(world.ResidentBytes() - resident_before, kResetBytesMax);
  EXPECT_LT(world.CpuSeconds() - cpu_before, kCpuSecondsMax) << sent << " streams";
  ::testing::Test::RecordProperty("cpu_s", std::to_string(world.CpuSeconds() - cpu_before));
  if (raw->closed()) return raw->AwaitClosed(milliseconds(0));
  // It was not cut off: then it is answered as before.
  return raw->Await(raw->Call(world.Authorized("Store/List"), GrpcMessage("")));
}

absl::Status Header64KiB(HostileWorld& world) {
  auto raw = world.Raw();
  raw->Greet();
  const std::string block =
      HpackLiterals(world.Authorized("Store/List", {{"x-large", std::string(64 << 10, 'h')}}));
  const uint32_t stream = raw->NextStream();
  for (size_t at = 0; at < block.size(); at += kFramePayload) {
    const bool last = at + kFramePayload >= block.size();
    raw->Send(Http2Frame(at == 0 ? FrameType::kHeaders : FrameType::kContinuation,
                         (last ? kEndHeaders : 0) | (at == 0 ? kEndStream : 0), stream,
                         block.substr(at, kFramePayload)));
  }
  return world.replies().Note(raw->Await(stream));
}

namespace {

absl::Status FloodWithHeaders(HostileWorld& world, const std::vector<Header>& headers) {
  constexpr size_t kBytes = size_t{128} << 20;
  const int64_t resident_before = world.ResidentBytes();
  absl::Status closed;
  // Small headers that go on and on; those of HPACK's own table, which take one byte to send and
  // 180 to keep; then frames without any.
  constexpr int kHeadersInFrame = 300;
  constexpr char kAcceptCharset = '\x8f';
  std::string small;
  for (int i = 0; i < kHeadersInFrame; ++i)
    small += HpackLiterals({{"x-" + std::to_string(i), "v"}});
  for (const std::string& block : {small, std::string(kFramePayload, kAcceptCharset),
                                   std::string()}) {
    auto raw = world.Raw();
    // gRPC 1.51 holds a peer to its limit of headers, 16 KiB, once the peer has acknowledged its
    // settings; nothing makes the peer do so.
    raw->AcknowledgeSettings(false);
    raw->AnswerPings(false);  // an answer between the frames of a block would end the connection
    raw->Greet();
    raw->Await(raw->Call(headers, GrpcMessage(""))).IgnoreError();
    const uint32_t stream = raw->NextStream();
    raw->Send(Http2Frame(FrameType::kHeaders, 0, stream, HpackLiterals(headers)));
    const std::string more = Http2Frame(FrameType::kContinuation, 0, stream, block);
    std::string frames;
    while (frames.size() < (64 << 10)) frames += more;
    const size_t most = block.empty() ? kBytes / 16 : kBytes;
    size_t sent = 0;
    for (; sent < most && !raw->closed(); sent += frames.size()) raw->Send(frames);
    const absl::Status step = world.honest().Step();
    EXPECT_TRUE(step.ok()) << step;
    const int64_t growth = world.ResidentBytes() - resident_before;
    EXPECT_LT(growth, kFloodBytesMax) << sent;
    const std::string of = block.empty() ? "empty_" : "small_";
    ::testing::Test::RecordProperty(of + "growth", std::to_string(growth));
    ::testing::Test::RecordProperty(of + "sent", std::to_string(sent));
    const absl::Status status = raw->AwaitClosed(seconds(2));
    if (!block.empty()) closed = status;
  }
  return closed;
}

}  // namespace

absl::Status ContinuationFlood(HostileWorld& world) {
  return FloodWithHeaders(world, CallHeaders("Store/List"));
}

absl::Status ContinuationFloodWithKey(HostileWorld& world) {
  return FloodWithHeaders(world, world.Authorized("Store/List"));
}

absl::Status PingFlood(HostileWorld& world) {
  constexpr int kPings = 20'000;
  auto raw = world.Raw();
  raw->Greet();
  std::string frames;
  for (int i = 0; i < 100; ++i) frames += Http2Frame(FrameType::kPing, 0, 0, "12345678");
  for (int i = 0; i < kPings && !raw->closed(); i += 100) raw->Send(frames);
  const absl::Status closed = raw->AwaitClosed(seconds(5));
  return closed;
}

namespace {

// The connection of WindowZero, and who answers the server's pings on it, so that it is no dead
// connection that is cut.
struct SlowReader {
  std::unique_ptr<RawHttp2> raw;
  std::thread thread;
  absl::Status cut;
};
SlowReader slow_reader;

}  // namespace

void WindowZeroBegins(HostileWorld& world) {
  slow_reader.raw = std::make_unique<RawHttp2>(world.target(), "127.0.0.4", /*initial_window=*/0);
  slow_reader.raw->Greet();
  const uint32_t stream = slow_reader.raw->Call(world.Authorized("Cloud/Session"), OpenMessage(),
                                                /*ends=*/false);
  slow_reader.thread =
      std::thread([stream] { slow_reader.cut = slow_reader.raw->Await(stream, seconds(60)); });
}

absl::Status WindowZero(HostileWorld& world) {
  slow_reader.thread.join();  // since before the first case: most of the limit is over
  EXPECT_FALSE(slow_reader.raw->closed());
  for (const auto& [stream, reply] : slow_reader.raw->replies()) EXPECT_EQ(reply.data_bytes, 0u);
  slow_reader.raw.reset();
  return slow_reader.cut;
}

namespace {

struct HalfRequests {
  std::vector<std::unique_ptr<RawHttp2>> connections;
  std::thread thread;
  int open = 0;
};
HalfRequests half_requests;

}  // namespace

void SlowlorisBegins(HostileWorld& world) {
  constexpr int kConnections = 500, kPerAddress = 50;
  // The keepalive's limit of those that do not answer pings, and time for a busy machine.
  constexpr seconds kCutWithin{50};
  const std::string block = HpackLiterals(CallHeaders("Cloud/Session"));
  auto& connections = half_requests.connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(world.Raw("127.0.2." + std::to_string(1 + i / kPerAddress)));
    RawHttp2& raw = *connections.back();
    raw.AnswerPings(false);
    // Half a preface; half a frame of headers; headers that go on.
    raw.Send("PRI * HTTP/2.0\r\n");
    if (i % 3 == 0) continue;
    raw.Send("\r\nSM\r\n\r\n" + Http2Frame(FrameType::kSettings, 0, 0, ""));
    if (i % 3 == 1)
      raw.Send(Http2Frame(FrameType::kHeaders, kEndHeaders, 1, block).substr(0, block.size() / 2));
    if (i % 3 == 2) raw.Send(Http2Frame(FrameType::kHeaders, 0, 1, block));
  }
  world.held_connections = half_requests.open = kConnections;
  half_requests.thread = std::thread([&world, kCutWithin] {
    const auto begin = std::chrono::steady_clock::now();
    while (half_requests.open > 0 && std::chrono::steady_clock::now() - begin < kCutWithin) {
      half_requests.open = 0;
      for (auto& raw : half_requests.connections) {
        raw->Pump([] { return false; }, milliseconds(0));
        half_requests.open += !raw->closed();
      }
      world.held_connections = half_requests.open;
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
}

absl::Status Slowloris(HostileWorld& world) {
  half_requests.thread.join();
  EXPECT_EQ(half_requests.open, 0);
  const absl::Status closed = half_requests.connections.front()->AwaitClosed(milliseconds(0));
  half_requests.connections.clear();
  world.held_connections = 0;
  return closed;
}

absl::Status StreamsOpenMany(HostileWorld& world) {
  constexpr int kStreams = 1'000, kConnections = 4;
  std::vector<std::unique_ptr<RawHttp2>> connections;
  std::vector<Header> headers = world.Authorized("Cloud/Session");
  const std::string block = HpackLiterals(headers);
  for (int c = 0; c < kConnections; ++c) {
    connections.push_back(world.Raw("127.0.0.5"));
    connections.back()->Greet();
  }
  std::vector<uint32_t> last;
  for (auto& raw : connections) {
    uint32_t stream = 0;
    for (int i = 0; i < kStreams / kConnections; ++i) {
      stream = raw->NextStream();
      raw->Send(Http2Frame(FrameType::kHeaders, kEndHeaders, stream, block));
    }
    last.push_back(stream);
  }
  const absl::Status fresh = world.honest().FreshStep();
  EXPECT_TRUE(fresh.ok()) << fresh;
  absl::Status status;
  for (size_t i = 0; i < connections.size(); ++i)
    status = world.replies().Note(connections[i]->Await(last[i], seconds(10)));
  return status;
}

}  // namespace outboard::test
