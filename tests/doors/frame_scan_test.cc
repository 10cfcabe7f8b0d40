// Frames of strangers are looked at before they are parsed.
#include "wire/frame_scan.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/limits.h"

namespace outboard::wire {
namespace {

absl::Status Parse(const std::string& bytes, size_t bytes_max = kMessageBytesMax) {
  // In two slices, as it may come from a socket.
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, bytes.size() / 2)),
                                grpc::Slice(bytes.substr(bytes.size() / 2))};
  grpc::ByteBuffer buffer(slices, 2);
  return ParseFrame(buffer, bytes_max).status();
}

std::string FrameOf(size_t items) {
  proto::ClientFrame frame;
  frame.set_epoch(7);
  for (size_t i = 0; i < items; ++i) frame.add_items()->set_seq(i);
  return frame.SerializeAsString();
}

TEST(ParseFrame, Frame_IsWhatWasSent) {
  const grpc::Slice slice(FrameOf(3));
  grpc::ByteBuffer buffer(&slice, 1);
  const auto frame = ParseFrame(buffer, kMessageBytesMax);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->SerializeAsString(), FrameOf(3));
}

TEST(ParseFrame, TooManyItemsOrBytes_AreRefused) {
  EXPECT_TRUE(Parse(FrameOf(kFrameItemsMax)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Parse(FrameOf(kFrameItemsMax + 1))));
  std::string empty_items;
  for (int i = 0; i < 500'000; ++i) empty_items += std::string("\x12\0", 2);
  EXPECT_TRUE(absl::IsResourceExhausted(Parse(empty_items)));
  EXPECT_TRUE(absl::IsResourceExhausted(Parse(FrameOf(100), 99)));
}

TEST(ParseFrame, WhatIsNoFrame_IsRefused) {
  for (const std::string& bytes :
       {std::string("\x12\x7f", 2), std::string("\x0b"), std::string("\xff\xff\xff\xff\xff\xff"),
        std::string("\x12\xff\xff\xff\xff\x0f"), FrameOf(10).substr(0, 11)})
    EXPECT_TRUE(absl::IsInvalidArgument(Parse(bytes))) << bytes.size();
  EXPECT_TRUE(Parse("").ok());  // a frame without items
}

}  // namespace
}  // namespace outboard::wire
