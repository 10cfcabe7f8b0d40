// What users read of a call that ended: our words as they are, never gRPC's.
#include "wire/status.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/printable.h"
#include "proto/store.grpc.pb.h"
#include "wire/retryable.h"

namespace outboard::wire {
namespace {

class Answering final : public proto::Store::Service {
 public:
  grpc::Status Pin(grpc::ServerContext*, const proto::StorePinRequest*,
                   proto::StorePinReply*) override {
    return answer;
  }
  grpc::Status answer;
};

class StatusTest : public ::testing::Test {
 protected:
  StatusTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel({});
  }
  ~StatusTest() override { server_->Shutdown(); }

  absl::Status Call(const grpc::Status& answer) {
    service_.answer = answer;
    grpc::ClientContext context;
    proto::StorePinReply reply;
    return FromGrpc(proto::Store::NewStub(channel_)->Pin(&context, {}, &reply));
  }

  Answering service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(StatusTest, OursArriveAsTheyAre) {
  EXPECT_TRUE(Call(ToGrpc(absl::OkStatus())).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status ours(static_cast<absl::StatusCode>(code), "Socket closed, says node 7");
    EXPECT_EQ(Call(ToGrpc(ours)), ours);
  }
  EXPECT_EQ(Call(ToGrpc(absl::InternalError(std::string(5000, 'x')))).message().size(),
            kStatusMessageBytesMax);
}

TEST_F(StatusTest, NothingThatATerminalObeysArrives) {
  const std::string told = "line one\nline two";
  EXPECT_EQ(Call(ToGrpc(absl::NotFoundError(told))).message(), told);
  EXPECT_EQ(Call(ToGrpc(absl::NotFoundError("\x1b]0;a title\a\r\x9b" "2J\u00e9"))).message(),
            "?]0;a title???2J??");
}

TEST(Printable, ByCase) {
  EXPECT_EQ(Printable("a\tb\n\x7f~ ", 6), "a?b??~");
  EXPECT_EQ(PrintableLines("a\tb\n\x7f~"), "a?b\n?~");
  EXPECT_EQ(Escaped("a\tb\n\x1b\xff"), "a\tb\\x0a\\x1b\\xff");
  EXPECT_EQ(Printable(""), "");
}

TEST_F(StatusTest, ThoseOfGrpcAreSaidInOurWords) {
  for (const auto code :
       {grpc::StatusCode::CANCELLED, grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL,
        grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::PERMISSION_DENIED,
        grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNIMPLEMENTED,
        grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::UNAUTHENTICATED}) {
    for (const char* raw : {"Received http2 header with status: 404", "Socket closed", ""}) {
      const absl::Status told = Call({code, raw});
      EXPECT_EQ(static_cast<int>(told.code()), static_cast<int>(code));
      EXPECT_NE(told.message(), raw);
      EXPECT_NE(std::string(told.message()).find("gateway"), std::string::npos) << told;
    }
  }
}

TEST(RetryableTest, EachKindOfFailure_HasItsCodes) {
  using Code = absl::StatusCode;
  const std::map<FailureOf, std::set<Code>> expected = {
      {FailureOf::kItem, {Code::kResourceExhausted}},
      {FailureOf::kCheckpoint, {Code::kResourceExhausted, Code::kUnavailable, Code::kAborted}},
      {FailureOf::kSession, {Code::kUnavailable}},
  };
  for (const auto& [what, codes] : expected)
    for (int number = 0; number <= 16; ++number) {
      const Code code = static_cast<Code>(number);
      EXPECT_EQ(IsRetryable(what, code), codes.contains(code)) << static_cast<int>(what) << code;
    }
}

}  // namespace
}  // namespace outboard::wire
