// Every way into a gateway, with every kind of wrong key; and blobs that are not what they say.
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "gateway/accounts/usage_report.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/documented.h"
#include "tests/support/gateway_test.h"
#include "wire/merkle.h"
#include "wire/status.h"

namespace outboard {
namespace {

using absl::StatusCode;

class EntryPointsTest : public test::GatewayTest {
 protected:
  void SetUp() override {
    StartGateway();
    StartWorker();
    channel_ = grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials());
    account_ = proto::Account::NewStub(channel_);
    blobs_ = proto::Blobs::NewStub(channel_);
  }

  // `header` is the whole value of "authorization"; none if empty.
  static void Authorize(grpc::ClientContext& context, const std::string& header) {
    if (!header.empty()) context.AddMetadata("authorization", header);
  }

  template <typename Request, typename Reply, typename Stub>
  static absl::Status Call(Stub* stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Reply*),
                           const std::string& header) {
    grpc::ClientContext context;
    Authorize(context, header);
    Reply reply;
    return wire::FromGrpc((stub->*method)(&context, Request(), &reply));
  }

  absl::Status Upload(const std::string& header, const std::vector<proto::BlobPiece>& pieces) {
    grpc::ClientContext context;
    Authorize(context, header);
    proto::UploadReply reply;
    auto writer = blobs_->Upload(&context, &reply);
    for (const proto::BlobPiece& piece : pieces)
      if (!writer->Write(piece)) break;
    writer->WritesDone();
    const absl::Status status = wire::FromGrpc(writer->Finish());
    stored_ = reply.chunks_stored();
    return status;
  }

  absl::Status OpenSession(const std::string& header) {
    grpc::ClientContext context;
    Authorize(context, header);
    auto stream = proto::Cloud::NewStub(channel_)->Session(&context);
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    for (proto::VersionRange* range : {open.mutable_protocol(), open.mutable_graph_schema()}) {
      range->set_min(1);
      range->set_max(1);
    }
    stream->Write(frame);
    proto::ServerFrame answer;
    while (stream->Read(&answer))
      for (const proto::ServerItem& item : answer.items())
        if (item.has_opened()) {
          context.TryCancel();
          stream->Finish();
          return absl::OkStatus();
        }
    return wire::FromGrpc(stream->Finish());
  }

  static proto::BlobPiece Piece(const std::string& bytes, const std::string& hash,
                                uint32_t chunk_bytes, uint32_t offset = 0) {
    proto::BlobPiece piece;
    piece.set_chunk(hash);
    piece.set_chunk_bytes(chunk_bytes);
    piece.set_offset(offset);
    piece.set_data(bytes);
    return piece;
  }
  static std::string HashOf(const std::string& bytes) {
    return std::string(wire::AsBytes(wire::HashChunk(bytes)));
  }
  int FilesOfBlobs() const { return test::CountFiles(data() + "/blobs"); }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::Account::Stub> account_;
  std::unique_ptr<proto::Blobs::Stub> blobs_;
  std::atomic<uint32_t> stored_ = 0;
};

TEST_F(EntryPointsTest, AskForAKey) {
  using proto::Account;
  using proto::Blobs;
  const auto good = MakeKey(), revoked = MakeKey();
  RevokeKey(revoked);
  const std::string text = TextOf(good);
  std::string other_secret = text;
  other_secret.back() = other_secret.back() == '0' ? '1' : '0';
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"none", ""},
      {"no scheme", text},
      {"another scheme", "Basic " + text},
      {"empty", "Bearer "},
      {"garbled", "Bearer ob_live_xyz"},
      {"cut", "Bearer " + text.substr(0, text.size() - 1)},
      {"longer", "Bearer " + text + "0"},
      {"another secret", "Bearer " + other_secret},
      {"unknown", "Bearer ob_live_0123456789abcdef_" + std::string(64, '0')},
      {"revoked", "Bearer " + TextOf(revoked)},
      {"long", "Bearer " + std::string(4000, 'x')},
  };
  const std::string bytes = "a chunk";
  const std::vector<std::pair<std::string, std::function<absl::Status(const std::string&)>>>
      entries = {
          {"Session", [&](const std::string& header) { return OpenSession(header); }},
          {"Missing",
           [&](const std::string& header) {
             return Call(blobs_.get(), &Blobs::Stub::Missing, header);
           }},
          {"Upload",
           [&](const std::string& header) {
             return Upload(header, {Piece(bytes, HashOf(bytes), 7)});
           }},
          {"Commit",
           [&](const std::string& header) {
             return Call(blobs_.get(), &Blobs::Stub::Commit, header);
           }},
          {"CreateKey",
           [&](const std::string& header) {
             return Call(account_.get(), &Account::Stub::CreateKey, header);
           }},
          {"ListKeys",
           [&](const std::string& header) {
             return Call(account_.get(), &Account::Stub::ListKeys, header);
           }},
          {"RevokeKey",
           [&](const std::string& header) {
             return Call(account_.get(), &Account::Stub::RevokeKey, header);
           }},
          {"Usage",
           [&](const std::string& header) {
             return Call(account_.get(), &Account::Stub::Usage, header);
           }},
      };
  for (const auto& [entry, call] : entries) {
    // Together: the answer to a wrong key is delayed by up to 4 s.
    std::vector<std::future<absl::Status>> answers;
    for (const auto& [kind, header] : wrong)
      answers.push_back(std::async(std::launch::async, call, header));
    for (size_t i = 0; i < wrong.size(); ++i) {
      const auto& [kind, header] = wrong[i];
      const absl::Status status = answers[i].get();
      EXPECT_EQ(status.code(), StatusCode::kUnauthenticated)
          << entry << " with a key that is " << kind << ": " << status;
      const bool none = header.empty() || !header.starts_with("Bearer ") || header == "Bearer ";
      test::ExpectAsDocumented(none ? "No key" : "A wrong, unknown, revoked or expired key",
                               status);
    }
    const absl::Status status = call("Bearer " + text);
    EXPECT_NE(status.code(), StatusCode::kUnauthenticated) << entry << ": " << status;
  }
  EXPECT_EQ(FilesOfBlobs(), 1);  // the good key's
}

TEST_F(EntryPointsTest, UsageIsToldPageByPageToTheTenantAlone) {
  const auto key = MakeKey();
  const std::string path = gateway::AccountsPath(data());
  auto rows = gateway::SessionRows::Open(path).value();
  auto ledger = gateway::Ledger::Open(path).value();
  const int64_t mine = key.key.tenant.value;
  const uint64_t sessions = gateway::kUsageSessionsPerPage + 3;
  for (uint64_t i = 0; i <= sessions; ++i) {  // the last is another tenant's
    const gateway::SessionId session{1, i};
    const gateway::TenantId tenant{i == sessions ? mine + 1 : mine};
    const gateway::WallTime at{1000 * static_cast<int64_t>(i)};
    ASSERT_TRUE(rows->Put({.session = session, .tenant = tenant, .opened_at = at}).ok());
    if (i + 2 < sessions) continue;
    const gateway::MicroUsd price = gateway::kDefaultPricePerHour;
    const gateway::Charge charge{.device = {{session, 1}, 0},
                                 .tenant = tenant,
                                 .price_per_hour = price,
                                 .granted_at = at,
                                 .from_ms = 0,
                                 .to_ms = 2000,
                                 .amount = gateway::ChargeAfter(price, 2000)};
    ASSERT_TRUE(ledger
                    ->Hold({.lease = charge.device.lease,
                            .tenant = tenant,
                            .prices_per_hour = {price},
                            .to_ms = charge.to_ms})
                    .ok());
    ASSERT_TRUE(ledger->Post({&charge, 1}, at).ok());
  }
  const auto ask = [&](const std::string& after, proto::UsageReply& reply) {
    grpc::ClientContext context;
    Authorize(context, "Bearer " + TextOf(key));
    proto::UsageRequest request;
    request.set_after(after);
    return wire::FromGrpc(account_->Usage(&context, request, &reply));
  };
  proto::UsageReply first, last;
  ASSERT_TRUE(ask("", first).ok());
  EXPECT_EQ(first.lines_size(), gateway::kUsageSessionsPerPage);
  EXPECT_EQ(first.seconds_billed(), 4u);
  EXPECT_EQ(first.cost_micro_usd(), 554u);
  ASSERT_NE(first.next(), "");
  ASSERT_TRUE(ask(first.next(), last).ok());
  ASSERT_EQ(last.lines_size(), 3);
  EXPECT_EQ(last.next(), "");
  uint64_t billed = 0;
  for (const auto* reply : {&first, &last})
    for (const proto::UsageLine& line : reply->lines()) billed += line.seconds_billed();
  EXPECT_EQ(billed, 4u);
  EXPECT_EQ(last.lines(2).session_id(), (gateway::SessionId{1, sessions - 1}.Hex()));
  EXPECT_EQ(ask("another", last).code(), StatusCode::kInvalidArgument);
}

// Workers' ways in: a fleet secret that is right is not yet a session's.
TEST(FleetEntryPoints, AskForTokens) {
  test::TempFolder folder;
  gateway::GatewayOptions options;
  options.listen = "unix:" + folder / "s";
  options.fleet_listen = "unix:" + folder / "f";
  options.data_folder = folder / "data";
  options.fleet_secret = "of the fleet";
  auto gateway = gateway::Gateway::Start(options);
  ASSERT_TRUE(gateway.ok()) << gateway.status();
  auto fleet = proto::Fleet::NewStub(
      grpc::CreateChannel(options.fleet_listen, grpc::InsecureChannelCredentials()));
  const auto join_at = [&](proto::Fleet::Stub& fleet, const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    auto stream = fleet.Join(&context);
    stream->WritesDone();
    proto::GatewayCommand command;
    while (stream->Read(&command)) {
    }
    return wire::FromGrpc(stream->Finish());
  };
  for (const char* wrong : {"", "of the fleer", "of the fleet ", "x"})
    EXPECT_EQ(join_at(*fleet, wrong).code(), StatusCode::kUnauthenticated) << wrong;
  EXPECT_EQ(join_at(*fleet, "of the fleet"), absl::OkStatus());
  // Where clients connect no worker joins, whatever it knows.
  auto of_clients = proto::Fleet::NewStub(
      grpc::CreateChannel(options.listen, grpc::InsecureChannelCredentials()));
  for (const char* secret : {"", "x", "of the fleet"})
    EXPECT_EQ(join_at(*of_clients, secret).code(), StatusCode::kUnauthenticated) << secret;
  const auto attach = [&](const std::string& fleet_secret, const std::string& session,
                          const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + fleet_secret);
    if (!session.empty()) context.AddMetadata("outboard-session", session);
    if (!token.empty()) context.AddMetadata("outboard-token", token);
    auto stream = fleet->Attach(&context);
    proto::ClientFrame frame;
    while (stream->Read(&frame)) {
    }
    return wire::FromGrpc(stream->Finish()).code();
  };
  const std::string some(32, 'a');
  EXPECT_EQ(attach("wrong", some, some), StatusCode::kUnauthenticated);
  EXPECT_EQ(attach("of the fleet", some, some), StatusCode::kPermissionDenied);
  EXPECT_EQ(attach("of the fleet", "", some), StatusCode::kInvalidArgument);
  EXPECT_EQ(attach("of the fleet", some, "../../xyz"), StatusCode::kInvalidArgument);
  // Nor do clients find their services where workers join, and an executor's token opens no blob
  // where clients connect.
  grpc::ClientContext open, missing;
  auto cloud = proto::Cloud::NewStub(
      grpc::CreateChannel(options.fleet_listen, grpc::InsecureChannelCredentials()));
  EXPECT_EQ(cloud->Session(&open)->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  auto blobs = proto::Blobs::NewStub(
      grpc::CreateChannel(options.listen, grpc::InsecureChannelCredentials()));
  missing.AddMetadata("outboard-session", some);
  missing.AddMetadata("outboard-token", some);
  proto::MissingReply reply;
  EXPECT_EQ(blobs->Missing(&missing, {}, &reply).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(EntryPointsTest, ATenantCannotRevokeAnothersKey) {
  const auto mine = MakeKey({.scopes = gateway::Scopes::All()});
  auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
  auto other = accounts->EnsureTenant("other", gateway::WallNow()).value();
  auto theirs = accounts->CreateKey(other.id, "k", gateway::WallNow()).value();
  grpc::ClientContext context;
  Authorize(context, "Bearer " + TextOf(mine));
  proto::RevokeKeyRequest request;
  request.set_id(theirs.key.id);
  proto::RevokeKeyReply reply;
  EXPECT_EQ(account_->RevokeKey(&context, request, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(OpenSession("Bearer " + TextOf(theirs)), absl::OkStatus());
}

TEST_F(EntryPointsTest, BlobsThatAreNotWhatTheySay) {
  const std::string header = "Bearer " + TextOf(MakeKey());
  const std::string bytes(1000, 'b');
  const std::string hash = HashOf(bytes);
  struct Case {
    std::string what;
    std::vector<proto::BlobPiece> pieces;
    StatusCode code;
  } cases[] = {
      {"another hash", {Piece(bytes, HashOf("else"), 1000)}, StatusCode::kInvalidArgument},
      {"too short", {Piece(bytes.substr(1), hash, 999)}, StatusCode::kInvalidArgument},
      {"too long", {Piece(bytes + "x", hash, 1001)}, StatusCode::kInvalidArgument},
      {"longer than it said", {Piece(bytes + "x", hash, 1000)}, StatusCode::kInvalidArgument},
      {"cut half-way", {Piece(bytes.substr(0, 500), hash, 1000)}, StatusCode::kAborted},
      {"a gap",
       {Piece(bytes.substr(0, 400), hash, 1000), Piece(bytes.substr(500), hash, 1000, 500)},
       StatusCode::kInvalidArgument},
      {"not from the start",
       {Piece(bytes.substr(500), hash, 1000, 500)},
       StatusCode::kInvalidArgument},
      {"no hash", {Piece(bytes, "", 1000)}, StatusCode::kInvalidArgument},
      {"a path",
       {Piece(bytes, "../../../../../../../etc/passwd!!", 1000)},
       StatusCode::kInvalidArgument},
      {"nothing", {Piece("", hash, 0)}, StatusCode::kInvalidArgument},
      {"over a chunk", {Piece(bytes, hash, (4u << 20) + 1)}, StatusCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Upload(header, c.pieces).code(), c.code) << c.what;
    EXPECT_EQ(stored_, 0u) << c.what;
    EXPECT_TRUE(test::Eventually([&] { return FilesOfBlobs() == 0; })) << c.what;
  }
  test::ExpectAsDocumented("A blob's bytes are not those of its hash",
                           Upload(header, cases[0].pieces));
  // Cut by the connection's end.
  {
    grpc::ClientContext context;
    Authorize(context, header);
    proto::UploadReply reply;
    auto writer = blobs_->Upload(&context, &reply);
    writer->Write(Piece(bytes.substr(0, 500), hash, 1000));
    EXPECT_TRUE(test::Eventually([&] { return FilesOfBlobs() == 1; }));
    context.TryCancel();
    writer->Finish();
  }
  EXPECT_TRUE(test::Eventually([&] { return FilesOfBlobs() == 0; }));
  EXPECT_EQ(Upload(header, {Piece(bytes, hash, 1000)}), absl::OkStatus());
  EXPECT_EQ(stored_, 1u);
}

}  // namespace
}  // namespace outboard
