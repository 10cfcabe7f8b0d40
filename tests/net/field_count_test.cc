// Messages of processes that may be hostile are looked at before they are parsed.
#include "wire/field_count.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/executor.pb.h"
#include "proto/kernels.pb.h"

namespace outboard::wire {
namespace {

using absl::StatusCode;

StatusCode Check(const google::protobuf::Message& type, const std::string& bytes, size_t most) {
  return CheckFieldCount(bytes, *type.GetDescriptor(), most).code();
}

TEST(FieldCount, Messages_AreCountedAtEveryDepth) {
  proto::KernelRequest request;  // its kind, the purpose, the request, its kernels and their fields
  request.mutable_compile()->set_purpose(proto::CompileKernels::IDLE);
  for (int i = 0; i < 3; ++i)
    request.mutable_compile()->mutable_request()->add_kernels()->set_encoding("kernel");
  EXPECT_EQ(Check(request, request.SerializeAsString(), 9), StatusCode::kOk);
  EXPECT_EQ(Check(request, request.SerializeAsString(), 8), StatusCode::kResourceExhausted);
  EXPECT_EQ(Check(request, "", 0), StatusCode::kOk);
}

TEST(FieldCount, WhatIsRepeated_CountsEachTime) {
  proto::FromExecutor event;
  for (int i = 0; i < 10; ++i) event.mutable_store()->add_pieces();
  EXPECT_EQ(Check(event, event.SerializeAsString(), 11), StatusCode::kOk);
  EXPECT_EQ(Check(event, event.SerializeAsString(), 10), StatusCode::kResourceExhausted);
  // The same part of a message twice is merged by a parser.
  const std::string twice = event.SerializeAsString() + event.SerializeAsString();
  EXPECT_EQ(Check(event, twice, 21), StatusCode::kResourceExhausted);
  proto::CompileResult packed;
  for (int i = 0; i < 10; ++i) packed.add_blocks(1);
  EXPECT_EQ(Check(packed, packed.SerializeAsString(), 11), StatusCode::kOk);
  EXPECT_EQ(Check(packed, packed.SerializeAsString(), 10), StatusCode::kResourceExhausted);
}

TEST(FieldCount, FieldsThatNobodyKnows_CountToo) {
  std::string unknown;
  for (int i = 0; i < 10; ++i) unknown += std::string("\xfa\x01\0", 3);  // number 31, no bytes
  EXPECT_EQ(Check(proto::FromExecutor(), unknown, 10), StatusCode::kOk);
  EXPECT_EQ(Check(proto::FromExecutor(), unknown, 9), StatusCode::kResourceExhausted);
}

TEST(FieldCount, WhatIsNoMessage_IsRefused) {
  for (const std::string& bytes :
       {std::string("\x12\x7f", 2), std::string("\x0b"), std::string("\xff\xff\xff\xff\xff\xff"),
        std::string("\x0a\x01\x0a", 3),
        std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11), std::string("\x0d\0\0", 3),
        std::string("\x09\0\0\0\0", 5)})
    EXPECT_EQ(Check(proto::FromExecutor(), bytes, 1000), StatusCode::kInvalidArgument)
        << bytes.size();
}

}  // namespace
}  // namespace outboard::wire
