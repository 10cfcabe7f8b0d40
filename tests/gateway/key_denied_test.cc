// A key that is revoked or expires, or whose account is suspended, while its calls are open: each
// ends within 5 s and says why, and the session waits for another key of the account.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "client/session/link/grpc_link.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "tests/support/gateway_test.h"
#include "wire/merkle.h"
#include "wire/status.h"
#include "wire/version.h"

namespace outboard {
namespace {

using absl::StatusCode;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kEndsWithin{5};
constexpr std::chrono::seconds kGivesUp{20};

class KeyDeniedTest : public test::GatewayTest {
 protected:
  void SetUp() override {
    StartGateway();
    StartWorker();
    cloud_ = proto::Cloud::NewStub(session::MakeChannel(gateway_->address()));
    blobs_ = proto::Blobs::NewStub(session::MakeChannel(gateway_->address()));
  }

  struct Way {
    const char* name;
    StatusCode code;
    void (KeyDeniedTest::*deny)(const gateway::NewApiKey& key);
  };
  void Revoke(const gateway::NewApiKey& key) { RevokeKey(key); }
  void Suspend(const gateway::NewApiKey&) {
    ASSERT_TRUE(accounts()->SuspendTenant("t", gateway::WallNow()).ok());
  }
  // Its time is over: as if it had been made for so long.
  void Expire(const gateway::NewApiKey& key) {
    auto db = storage::Database::Open(gateway::AccountsPath(data())).value();
    auto update = db->Prepare("UPDATE api_key SET expires_ms = ? WHERE id = ?").value();
    ASSERT_TRUE(update.Bind(1, gateway::WallNow().unix_ms).BindText(2, key.key.id).Run().ok());
  }
  static constexpr Way kWays[] = {
      {"revoked", StatusCode::kUnauthenticated, &KeyDeniedTest::Revoke},
      {"expired", StatusCode::kUnauthenticated, &KeyDeniedTest::Expire},
      {"suspended", StatusCode::kPermissionDenied, &KeyDeniedTest::Suspend},
  };
  void Undo() { ASSERT_TRUE(accounts()->ResumeTenant("t").ok()); }

  std::unique_ptr<gateway::Accounts> accounts() {
    return gateway::Accounts::Open(gateway::AccountsPath(data())).value();
  }
  static void Authorize(grpc::ClientContext& context, const gateway::NewApiKey& key) {
    context.AddMetadata("authorization", "Bearer " + TextOf(key));
    context.set_deadline(std::chrono::system_clock::now() + kGivesUp);
  }

  // A call with its context, which lives as long.
  template <typename Stream>
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
  };
  using SessionCall = Call<grpc::ClientReaderWriter<proto::ClientFrame, proto::ServerFrame>>;

  // Opens or resumes a session.
  proto::Opened Open(SessionCall& call, const gateway::NewApiKey& key,
                     const std::string& resume_token = "") {
    Authorize(call.context, key);
    call.stream = cloud_->Session(&call.context);
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
    open.set_resume_token(resume_token);
    call.stream->Write(frame);
    proto::ServerFrame answer;
    while (call.stream->Read(&answer)) {
      epoch_ = answer.epoch();
      for (const proto::ServerItem& item : answer.items())
        if (item.has_opened()) return item.opened();
    }
    ADD_FAILURE() << call.stream->Finish().error_message();
    return {};
  }
  // Reads the stream to its end.
  template <typename Message, typename Stream>
  static absl::Status End(Stream& stream) {
    for (Message message; stream.Read(&message);) {
    }
    return wire::FromGrpc(stream.Finish());
  }

  std::unique_ptr<proto::Cloud::Stub> cloud_;
  std::unique_ptr<proto::Blobs::Stub> blobs_;
  uint64_t epoch_ = 0;
};

TEST_F(KeyDeniedTest, AnUploadEnds_WhetherItSendsOrWaits) {
  for (const Way& way : kWays) {
    for (const bool sends : {false, true}) {
      SCOPED_TRACE(std::string(way.name) + (sends ? ", sends" : ", waits"));
      const gateway::NewApiKey key = MakeKey();
      Call<grpc::ClientWriter<proto::BlobPiece>> call;
      Authorize(call.context, key);
      proto::UploadReply reply;
      call.stream = blobs_->Upload(&call.context, &reply);
      proto::BlobPiece piece;
      piece.set_chunk(std::string(wire::AsBytes(wire::HashChunk(way.name))));
      piece.set_chunk_bytes(4 << 20);
      piece.set_data("x");
      const int files = test::CountFiles(data() + "/blobs");
      ASSERT_TRUE(call.stream->Write(piece));
      ASSERT_TRUE(test::Eventually([&] { return test::CountFiles(data() + "/blobs") > files; }));
      (this->*way.deny)(key);
      const auto begin = steady_clock::now();
      for (uint32_t at = 1; sends; ++at) {
        piece.set_offset(at);
        if (!call.stream->Write(piece)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a slow client's pace
      }
      const absl::Status status = wire::FromGrpc(call.stream->Finish());
      EXPECT_LT(steady_clock::now() - begin, kEndsWithin);
      EXPECT_EQ(status.code(), way.code) << status;
      EXPECT_TRUE(test::Eventually([&] { return test::CountFiles(data() + "/blobs") == files; }));
      Undo();
    }
  }
}

TEST_F(KeyDeniedTest, ADownloadEnds) {
  const std::string chunk(4 << 20, 'c');
  const std::string hash(wire::AsBytes(wire::HashChunk(chunk)));
  {
    grpc::ClientContext context;
    Authorize(context, MakeKey());
    proto::UploadReply reply;
    auto writer = blobs_->Upload(&context, &reply);
    proto::BlobPiece piece;
    piece.set_chunk(hash);
    piece.set_chunk_bytes(static_cast<uint32_t>(chunk.size()));
    for (size_t at = 0; at < chunk.size(); at += 512 << 10) {
      piece.set_offset(static_cast<uint32_t>(at));
      piece.set_data(chunk.substr(at, 512 << 10));
      ASSERT_TRUE(writer->Write(piece));
    }
    writer->WritesDone();
    ASSERT_TRUE(writer->Finish().ok());
  }
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const gateway::NewApiKey key = MakeKey();
    Call<grpc::ClientReader<proto::BlobPiece>> call;
    Authorize(call.context, key);
    proto::DownloadRequest request;
    for (int i = 0; i < 4000; ++i) request.add_chunks(hash);  // 16 GB
    call.stream = blobs_->Download(&call.context, request);
    proto::BlobPiece piece;
    ASSERT_TRUE(call.stream->Read(&piece));
    (this->*way.deny)(key);
    const auto begin = steady_clock::now();
    const absl::Status status = End<proto::BlobPiece>(*call.stream);
    EXPECT_LT(steady_clock::now() - begin, kEndsWithin);
    EXPECT_EQ(status.code(), way.code) << status;
    Undo();
  }
}

TEST_F(KeyDeniedTest, ValuesEnd_AndTheSessionOfAnotherKeyStays) {
  for (const Way& way : kWays) {
    if (way.code == StatusCode::kPermissionDenied) continue;  // ends the session too
    SCOPED_TRACE(way.name);
    const gateway::NewApiKey key = MakeKey(), of_values = MakeKey();
    SessionCall session;
    const proto::Opened opened = Open(session, key);
    Call<grpc::ClientReader<proto::ServerFrame>> values;
    Authorize(values.context, of_values);
    proto::ValuesRequest request;
    request.set_session_id(opened.session_id());
    request.set_resume_token(opened.resume_token());
    values.stream = cloud_->Values(&values.context, request);
    (this->*way.deny)(of_values);
    const auto begin = steady_clock::now();
    const absl::Status status = End<proto::ServerFrame>(*values.stream);
    EXPECT_LT(steady_clock::now() - begin, kEndsWithin);
    EXPECT_EQ(status.code(), way.code) << status;
    proto::ClientFrame close;
    close.set_epoch(epoch_);
    close.add_items()->mutable_close();
    EXPECT_TRUE(session.stream->Write(close));
    EXPECT_TRUE(End<proto::ServerFrame>(*session.stream).ok());
  }
}

TEST_F(KeyDeniedTest, ASessionEnds_AndItsStateIsKeptForAnotherKey) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const gateway::NewApiKey key = MakeKey();
    SessionCall first;
    const proto::Opened opened = Open(first, key);
    proto::ClientFrame frame;  // the first item of its state
    frame.set_epoch(epoch_);
    frame.add_items()->set_seq(1);
    frame.mutable_items(0)->mutable_release();
    first.stream->Write(frame);
    for (proto::ServerFrame answer; first.stream->Read(&answer);)
      if (answer.items(answer.items_size() - 1).done().through_seq() == 1) break;
    (this->*way.deny)(key);
    const auto begin = steady_clock::now();
    const absl::Status status = End<proto::ServerFrame>(*first.stream);
    EXPECT_LT(steady_clock::now() - begin, kEndsWithin);
    EXPECT_EQ(status.code(), way.code) << status;
    EXPECT_EQ(gateway_->session_count(), 1u);
    Undo();
    // Its device is free again, the only one there is: another session gets it.
    SessionCall other;
    Open(other, MakeKey());
    proto::ClientFrame close;
    close.set_epoch(epoch_);
    close.add_items()->mutable_close();
    other.stream->Write(close);
    EXPECT_TRUE(End<proto::ServerFrame>(*other.stream).ok());
    SessionCall second;
    const proto::Opened again = Open(second, MakeKey(), opened.resume_token());
    EXPECT_EQ(again.session_id(), opened.session_id());
    EXPECT_EQ(again.applied_seq(), 1u);
    close.set_epoch(epoch_);
    second.stream->Write(close);
    EXPECT_TRUE(End<proto::ServerFrame>(*second.stream).ok());
  }
}

TEST_F(KeyDeniedTest, AStoreCallIsRefusedAtOnce) {
  auto store = proto::Store::NewStub(session::MakeChannel(gateway_->address()));
  for (const Way& way : kWays) {
    const gateway::NewApiKey key = MakeKey();
    const auto list = [&] {
      grpc::ClientContext context;
      Authorize(context, key);
      proto::StoreListReply reply;
      return wire::FromGrpc(store->List(&context, {}, &reply)).code();
    };
    EXPECT_EQ(list(), StatusCode::kOk) << way.name;
    (this->*way.deny)(key);
    EXPECT_EQ(list(), way.code) << way.name;
    Undo();
  }
}

}  // namespace
}  // namespace outboard
