// A block of headers ends, or its connection does (gateway/doors/grpc_guard.h). Case 123 of the
// hostile cases measures what floods of them cost.
#include "gateway/doors/grpc_guard.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "gateway/base/limits.h"
#include "gateway/server/grpc_listener.h"
#include "gateway/server/services.h"
#include "tests/hostile/raw_http2.h"

namespace outboard::gateway {
namespace {

using test::FrameType;
using std::chrono::seconds;

class GrpcGuardTest : public ::testing::Test {
 protected:
  GrpcGuardTest() {
    listener_ = GrpcListener::Start("127.0.0.1:0", {&service_}, &table_).value();
  }

  // A peer that has not acknowledged the server's settings, so that gRPC holds it to nothing.
  std::unique_ptr<test::RawHttp2> Connect() {
    auto raw = std::make_unique<test::RawHttp2>(listener_->address());
    raw->AcknowledgeSettings(false);
    raw->AnswerPings(false);
    raw->Greet();
    return raw;
  }
  // Sends the block in `frames` frames, the last of which ends it if `ends`.
  static uint32_t Send(test::RawHttp2& raw, const std::string& block, int frames,
                       bool ends = true) {
    const uint32_t stream = raw.NextStream();
    std::string bytes;
    for (int i = 0; i < frames; ++i) {
      const size_t begin = block.size() * i / frames, end = block.size() * (i + 1) / frames;
      bytes += test::Http2Frame(
          i == 0 ? FrameType::kHeaders : FrameType::kContinuation,
          (i == 0 ? test::kEndStream : 0) | (ends && i == frames - 1 ? test::kEndHeaders : 0),
          stream, block.substr(begin, end - begin));
    }
    raw.Send(bytes);
    return stream;
  }
  static std::string Block(int more = 0) {
    return test::HpackLiterals(test::CallHeaders("Nobody/Knows")) +
           std::string(static_cast<size_t>(more), '\x8f');  // "accept-charset", without a value
  }

  Refusals refusals_;
  ConnectionTable table_{DefaultConnectionLimits(), &refusals_};
  NoFleetService service_;
  std::unique_ptr<GrpcListener> listener_;
};

TEST_F(GrpcGuardTest, ThisGrpc_CallsIt) { EXPECT_TRUE(IsGrpcGuardInPlace()); }

TEST_F(GrpcGuardTest, BlockInAFewFrames_IsRead) {
  auto raw = Connect();
  for (const int frames : {1, 2, kHeaderFramesMax, kHeaderFramesMax + 1})
    EXPECT_TRUE(absl::IsUnimplemented(raw->Await(Send(*raw, Block(), frames)))) << frames;
}

TEST_F(GrpcGuardTest, BlockOfTooManyFrames_EndsTheConnection) {
  auto raw = Connect();
  const uint64_t before = LongHeaderBlocks();
  Send(*raw, Block(), kHeaderFramesMax + 1, /*ends=*/false);
  EXPECT_FALSE(raw->AwaitClosed(seconds(10)).ok());
  EXPECT_EQ(LongHeaderBlocks(), before + 1);
  // Not that of anybody else.
  auto other = Connect();
  EXPECT_TRUE(absl::IsUnimplemented(other->Await(Send(*other, Block(), 2))));
}

TEST_F(GrpcGuardTest, HeaderThatDoesNotEnd_EndsTheConnection) {
  auto raw = Connect();
  // A name of 2 GB, of which 20 KiB come.
  const std::string name = std::string("\0\x7f\xff\xff\xff\xff\x07", 7) + std::string(20'000, 'n');
  Send(*raw, name, 2, /*ends=*/false);
  EXPECT_FALSE(raw->AwaitClosed(seconds(10)).ok());
}

TEST_F(GrpcGuardTest, TooManyHeadersInOneFrame_AreRefused) {
  auto raw = Connect(), other = Connect();
  EXPECT_FALSE(raw->Await(Send(*raw, Block(10'000), 1)).ok());
  EXPECT_TRUE(absl::IsUnimplemented(other->Await(Send(*other, Block(100), 1))));
}

}  // namespace
}  // namespace outboard::gateway
