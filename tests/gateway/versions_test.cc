// What a gateway says to clients and workers of other versions: those that it understands are told
// which one is spoken, the others are refused by a message that names both sides.
#include <gtest/gtest.h>

#include <string>

#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/documented.h"
#include "tests/support/gateway_test.h"
#include "wire/limits.h"
#include "wire/status.h"
#include "wire/version.h"

namespace outboard {
namespace {

using absl::StatusCode;
using wire::Versions;

class VersionsTest : public test::GatewayTest {
 protected:
  // Opened.protocol, or why there is none.
  absl::StatusOr<uint32_t> Open(const Versions& protocol, const Versions& schema) {
    auto stub = proto::Cloud::NewStub(gateway_->InProcessChannel());
    grpc::ClientContext context;
    auto stream = stub->Session(&context);
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(protocol, *open.mutable_protocol());
    wire::SetRange(schema, *open.mutable_graph_schema());
    stream->Write(frame);
    uint32_t chosen = 0;
    proto::ServerFrame answer;
    while (chosen == 0 && stream->Read(&answer))
      for (const proto::ServerItem& item : answer.items())
        if (item.has_opened()) {
          chosen = item.opened().protocol();
          frame.set_epoch(answer.epoch());
          frame.mutable_items(0)->mutable_close();
          stream->Write(frame);
        }
    while (stream->Read(&answer)) {
    }
    const absl::Status status = wire::FromGrpc(stream->Finish());
    if (chosen == 0) return status;
    return chosen;
  }

  // Welcome.protocol, or why there is none.
  absl::StatusOr<uint32_t> Join(const Versions& protocol) {
    auto stub = proto::Fleet::NewStub(gateway_->InProcessFleetChannel());
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + gateway_->fleet_secret());
    auto stream = stub->Join(&context);
    proto::WorkerEvent event;
    wire::SetRange(protocol, *event.mutable_register_()->mutable_protocol());
    event.mutable_register_()->add_devices()->set_kind("fake");
    stream->Write(event);
    proto::GatewayCommand command;
    if (stream->Read(&command)) {
      context.TryCancel();
      stream->Finish();
      return command.welcome().protocol();
    }
    return wire::FromGrpc(stream->Finish());
  }

  void SetUp() override { StartAll(); }
};

constexpr uint32_t kNewest = wire::kProtocolVersion;

TEST_F(VersionsTest, TheNewestThatBothSpeak) {
  EXPECT_EQ(Open({1, 1}, wire::kGraphSchemas).value(), 1u);
  EXPECT_EQ(Open({1, kNewest}, wire::kGraphSchemas).value(), kNewest);
  EXPECT_EQ(Open({kNewest, kNewest + 7}, wire::kGraphSchemas).value(), kNewest);
  EXPECT_EQ(Join({1, kNewest + 7}).value(), kNewest);
}

// Whatever the message says besides, the numbers of both sides are in it.
void ExpectBothNamed(const absl::Status& status, const std::string& theirs,
                     const std::string& ours) {
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find(theirs), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find(ours), absl::string_view::npos) << status;
}

std::string Range(const Versions& versions) {
  return std::to_string(versions.oldest) + " to " + std::to_string(versions.newest);
}

TEST_F(VersionsTest, AClientThatIsTooOldOrTooNew) {
  const std::string ours = Range(wire::kProtocolOfClients);
  for (const Versions& theirs : {Versions{0, 0}, Versions{kNewest + 1, kNewest + 3}}) {
    const absl::Status status = Open(theirs, wire::kGraphSchemas).status();
    ExpectBothNamed(status, Range(theirs), ours);
    test::ExpectAsDocumented("Client and gateway are of versions too far apart", status);
  }
}

TEST_F(VersionsTest, GraphsThatNobodyReads) {
  const Versions theirs = {wire::kGraphSchemaVersion + 1, wire::kGraphSchemaVersion + 2};
  ExpectBothNamed(Open(wire::kProtocolOfClients, theirs).status(), Range(theirs),
                  Range(wire::kGraphSchemas));
}

TEST_F(VersionsTest, AWorkerThatIsTooOldOrTooNew) {
  const std::string ours = Range(wire::kProtocolOfWorkers);
  for (const Versions& theirs : {Versions{1, 1}, Versions{kNewest + 1, kNewest + 3}})
    ExpectBothNamed(Join(theirs).status(), Range(theirs), ours);
  EXPECT_EQ(gateway_->devices_total(), 1u);
}

}  // namespace
}  // namespace outboard
