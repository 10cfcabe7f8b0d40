// The Blobs service over a socket: what is sent arrives, is verified and goes back; what is wrong
// is refused and leaves nothing; tenants do not see each other's.
#include "gateway/server/blob_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "client/session/link/grpc_link.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/token.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/gateway_test.h"
#include "tests/support/random_bytes.h"
#include "wire/blobs/download.h"
#include "wire/blobs/upload.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard {
namespace {

using absl::StatusCode;
using wire::kBlobChunkBytes;

using test::RandomBytes;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class BlobServiceTest : public test::GatewayTest {
 protected:
  wire::BlobConnections Connections(const std::string& key = "") {
    wire::BlobConnections connections;
    for (int i = 0; i < 3; ++i)
      connections.channels.push_back(session::MakeChannel(gateway_->address()));
    if (!key.empty()) connections.metadata = {{"authorization", "Bearer " + key}};
    return connections;
  }
  // Of an executor, where workers join.
  wire::BlobConnections Executor(const std::string& session, const std::string& token) {
    return {.channels = {session::MakeChannel(gateway_->fleet_address())},
            .metadata = {{"outboard-session", session}, {"outboard-token", token}}};
  }

  absl::StatusOr<wire::Uploaded> Upload(const wire::BlobConnections& connections,
                                        std::string_view bytes) {
    const wire::BlobSource sources[] = {wire::SourceOf(bytes)};
    return wire::UploadBlobs(connections, sources);
  }

  // Into the file `path`, going on with what it holds.
  static absl::StatusOr<wire::Downloaded> Download(const wire::BlobConnections& connections,
                                                   const wire::Hash& root,
                                                   const std::string& path) {
    const auto blob = wire::ListBlob(connections, root);
    if (!blob.ok()) return blob.status();
    const bool fresh = access(path.c_str(), F_OK) != 0;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    auto downloaded = wire::DownloadBlob(connections, *blob, fd, fresh);
    close(fd);
    return downloaded;
  }

  // One Upload of these pieces by an ordinary stub.
  absl::Status SendPieces(const std::vector<proto::BlobPiece>& pieces, uint32_t* stored = nullptr) {
    auto stub = proto::Blobs::NewStub(session::MakeChannel(gateway_->address()));
    grpc::ClientContext context;
    proto::UploadReply reply;
    auto writer = stub->Upload(&context, &reply);
    for (const proto::BlobPiece& piece : pieces)
      if (!writer->Write(piece)) break;
    writer->WritesDone();
    const absl::Status status = wire::FromGrpc(writer->Finish());
    if (stored != nullptr) *stored = reply.chunks_stored();
    return status;
  }
  static proto::BlobPiece Piece(std::string_view of, size_t size, size_t offset,
                                std::string_view data) {
    proto::BlobPiece piece;
    piece.set_chunk(std::string(wire::AsBytes(wire::HashChunk(of))));
    piece.set_chunk_bytes(static_cast<uint32_t>(size));
    piece.set_offset(static_cast<uint32_t>(offset));
    piece.set_data(std::string(data));
    return piece;
  }
  bool Has(std::string_view chunk) {
    auto stub = proto::Blobs::NewStub(session::MakeChannel(gateway_->address()));
    grpc::ClientContext context;
    proto::MissingRequest request;
    request.add_chunks(std::string(wire::AsBytes(wire::HashChunk(chunk))));
    proto::MissingReply reply;
    EXPECT_TRUE(stub->Missing(&context, request, &reply).ok());
    return reply.chunks().empty();
  }
};

TEST_F(BlobServiceTest, WhatIsUploadedComesBack) {
  StartAll();
  const wire::BlobConnections connections = Connections();
  for (const size_t size : {size_t{0}, size_t{1}, kBlobChunkBytes, 5 * kBlobChunkBytes + 17}) {
    const std::string bytes = RandomBytes(size, static_cast<uint32_t>(size));
    auto uploaded = Upload(connections, bytes);
    ASSERT_TRUE(uploaded.ok()) << uploaded.status();
    EXPECT_EQ(uploaded->names[0].root, wire::NameBlob(bytes).root);
    EXPECT_EQ(uploaded->sent_bytes, size);
    const std::string path = folder_ / "back";
    auto downloaded = Download(connections, uploaded->names[0].root, path);
    ASSERT_TRUE(downloaded.ok()) << downloaded.status();
    EXPECT_EQ(downloaded->received_bytes, size);
    EXPECT_TRUE(ReadFile(path) == bytes);
    unlink(path.c_str());
  }
}

TEST_F(BlobServiceTest, BytesTravelOnce) {
  StartAll();
  const wire::BlobConnections connections = Connections();
  std::string bytes = RandomBytes(4 * kBlobChunkBytes, 1);
  ASSERT_TRUE(Upload(connections, bytes).ok());
  EXPECT_EQ(Upload(connections, bytes)->sent_bytes, 0u);
  bytes[kBlobChunkBytes + 1] ^= 1;
  EXPECT_EQ(Upload(connections, bytes)->sent_bytes, kBlobChunkBytes);
  // Equal chunks are one.
  EXPECT_EQ(Upload(connections, std::string(3 * kBlobChunkBytes, 'e'))->sent_bytes,
            kBlobChunkBytes);
}

TEST_F(BlobServiceTest, WhatIsKnownIsNotRead) {
  StartAll();
  const wire::BlobConnections connections = Connections();
  const std::string bytes = RandomBytes(3 * kBlobChunkBytes + 5, 2);
  size_t read = 0;  // bytes
  wire::BlobSource source{bytes.size(), [&](uint64_t offset, std::span<char> out) {
                            read += out.size();
                            std::memcpy(out.data(), bytes.data() + offset, out.size());
                            return absl::OkStatus();
                          }};
  const wire::BlobConnections one{{connections.channels[0]}};  // reads need no lock
  source.name = wire::NameBlob(bytes);
  ASSERT_TRUE(wire::UploadBlobs(one, {&source, 1}).ok());
  EXPECT_EQ(read, bytes.size());
  ASSERT_TRUE(wire::UploadBlobs(one, {&source, 1}).ok());
  EXPECT_EQ(read, bytes.size());
  // A name of other bytes is found out, and the right ones arrive.
  const std::string other = RandomBytes(bytes.size(), 3);
  source.name = wire::NameBlob(other);
  auto uploaded = wire::UploadBlobs(one, {&source, 1});
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  EXPECT_EQ(uploaded->names[0].root, wire::NameBlob(bytes).root);
  EXPECT_FALSE(Has(std::string_view(other).substr(0, kBlobChunkBytes)));
}

TEST_F(BlobServiceTest, ADownloadGoesOnWhereItBroke) {
  StartAll();
  const wire::BlobConnections connections = Connections();
  const std::string bytes = RandomBytes(6 * kBlobChunkBytes, 4);
  auto uploaded = Upload(connections, bytes);
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  std::string part = bytes;
  part[3 * kBlobChunkBytes] ^= 1;
  const std::string path = folder_ / "back";
  std::ofstream(path, std::ios::binary) << part.substr(0, 5 * kBlobChunkBytes + 3);
  auto downloaded = Download(connections, uploaded->names[0].root, path);
  ASSERT_TRUE(downloaded.ok()) << downloaded.status();
  EXPECT_EQ(downloaded->received_bytes, 2 * kBlobChunkBytes);
  EXPECT_EQ(downloaded->kept_bytes, 4 * kBlobChunkBytes);
  EXPECT_TRUE(ReadFile(path) == bytes);
}

TEST_F(BlobServiceTest, WrongPiecesAreRefusedAndLeaveNothing) {
  StartAll();
  const std::string good = "0123456789";
  const struct {
    const char* what;
    std::vector<proto::BlobPiece> pieces;
    StatusCode code;
  } cases[] = {
      {"other bytes", {Piece(good, 10, 0, "012345678x")}, StatusCode::kInvalidArgument},
      {"too long", {Piece(good, 10, 0, "01234567890")}, StatusCode::kInvalidArgument},
      {"too short", {Piece(good, 10, 0, "01234")}, StatusCode::kAborted},
      {"not from its beginning", {Piece(good, 10, 5, "56789")}, StatusCode::kInvalidArgument},
      {"with a gap",
       {Piece(good, 10, 0, "0123"), Piece(good, 10, 5, "56789")},
       StatusCode::kInvalidArgument},
      {"begun twice",
       {Piece(good, 10, 0, "0123"), Piece(good, 10, 0, good)},
       StatusCode::kInvalidArgument},
      {"another between",
       {Piece(good, 10, 0, "0123"), Piece("other", 10, 4, "456789")},
       StatusCode::kInvalidArgument},
      {"of another length",
       {Piece(good, 10, 0, "0123"), Piece(good, 11, 4, "456789")},
       StatusCode::kInvalidArgument},
      {"of no length", {Piece(good, 0, 0, "")}, StatusCode::kInvalidArgument},
      {"with no bytes", {Piece(good, 10, 0, "")}, StatusCode::kInvalidArgument},
      {"of 5 MiB", {Piece(good, 5 << 20, 0, good)}, StatusCode::kInvalidArgument},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(SendPieces(c.pieces).code(), c.code) << c.what;
    EXPECT_FALSE(Has(good)) << c.what;
  }
  proto::BlobPiece nameless = Piece(good, 10, 0, good);
  nameless.set_chunk("../../../../etc/passwd");
  EXPECT_EQ(SendPieces({nameless}).code(), StatusCode::kInvalidArgument);
  // And after all that an ordinary client's pieces are taken.
  uint32_t stored = 0;
  EXPECT_TRUE(SendPieces({Piece(good, 10, 0, "0123"), Piece(good, 10, 4, "456789")}, &stored).ok());
  EXPECT_EQ(stored, 1u);
  EXPECT_TRUE(Has(good));
}

TEST_F(BlobServiceTest, TwoMayUploadTheSameAtOnce) {
  StartAll();
  const std::string bytes = RandomBytes(4 * kBlobChunkBytes, 5);
  absl::Status first, second;
  std::thread other([&] { second = Upload(Connections(), bytes).status(); });
  first = Upload(Connections(), bytes).status();
  other.join();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(second.ok()) << second;
  const std::string path = folder_ / "back";
  ASSERT_TRUE(Download(Connections(), wire::NameBlob(bytes).root, path).ok());
  EXPECT_TRUE(ReadFile(path) == bytes);
}

TEST_F(BlobServiceTest, TenantsSeeTheirOwnOnly) {
  StartGateway();
  StartWorker();
  const std::string mine = TextOf(MakeKey());
  std::string theirs;
  {
    auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
    auto tenant = accounts->EnsureTenant("u", gateway::WallNow()).value();
    theirs = TextOf(accounts->CreateKey(tenant.id, "k", gateway::WallNow()).value());
  }
  const std::string bytes = RandomBytes(kBlobChunkBytes + 1, 6);
  ASSERT_TRUE(Upload(Connections(mine), bytes).ok());
  const wire::Hash root = wire::NameBlob(bytes).root;
  const wire::BlobConnections other = Connections(theirs);
  EXPECT_EQ(wire::ListBlob(other, root).status().code(), StatusCode::kNotFound);
  const wire::ChunkList index{bytes.size(), wire::NameBlob(bytes).chunks};
  const int fd = open((folder_ / "stolen").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_EQ(wire::DownloadBlob(other, index, fd, true).status().code(), StatusCode::kNotFound);
  close(fd);
  // Nor is anything saved for the other: what it cannot see it has to send.
  EXPECT_EQ(Upload(other, bytes)->sent_bytes, bytes.size());
  EXPECT_EQ(wire::ListBlob(Connections("ob_live_nobody"), root).status().code(),
            StatusCode::kUnauthenticated);
  const wire::BlobConnections worker = Executor(std::string(32, '1'), std::string(32, '0'));
  EXPECT_EQ(wire::ListBlob(worker, root).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(BlobServiceTest, AfterARestartAnExecutorWhoseWorkerHasNotJoinedYetIsToAskAgain) {
  StartGateway();
  const gateway::Token token{3, 4}, another{5, 6};
  gateway::SessionRow row;
  row.session = gateway::SessionId{1, 2};
  row.tenant = MakeKey().key.tenant;
  row.epoch = 1;
  row.worker = "w#1";
  row.opened_at = gateway::WallNow();
  row.resume_hash = gateway::BytesOf(gateway::HashOf(another));
  row.attach_hash = gateway::BytesOf(gateway::HashOf(token));
  gateway_.reset();
  ASSERT_TRUE(gateway::SessionRows::Open(gateway::AccountsPath(data())).value()->Put(row).ok());
  StartGateway();
  const auto stub = proto::Fleet::NewStub(session::MakeChannel(gateway_->fleet_address()));
  const wire::Hash root = wire::NameBlob("bytes").root;
  const auto ask = [&](const gateway::Token& with) {
    const wire::BlobConnections worker =
        Executor(wire::ToHex(row.session.Bytes()), wire::ToHex(gateway::BytesOf(with)));
    grpc::ClientContext context;
    for (const auto& [name, value] : worker.metadata) context.AddMetadata(name, value);
    proto::KeepRequest request;
    request.set_manifest_root(std::string(wire::AsBytes(root)));
    proto::KeepReply reply;
    return std::pair(
        wire::ListBlob(worker, root, {.retry_for = std::chrono::milliseconds(0)}).status().code(),
        wire::FromGrpc(stub->Keep(&context, request, &reply)).code());
  };
  EXPECT_EQ(ask(token), std::pair(StatusCode::kUnavailable, StatusCode::kUnavailable));
  EXPECT_EQ(ask(another), std::pair(StatusCode::kPermissionDenied, StatusCode::kAborted));
}

}  // namespace
}  // namespace outboard
