#include "tests/hostile/hostile_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "wire/merkle.h"
#include "wire/version.h"

namespace outboard::test {

absl::Status Replies::Note(absl::Status status) {
  Note(std::string(status.message()));
  return status;
}

void Replies::Note(std::string text) {
  if (text.empty()) return;
  std::lock_guard lock(mutex_);
  texts_.push_back(std::move(text));
}

std::vector<std::string> Replies::all() const {
  std::lock_guard lock(mutex_);
  return texts_;
}

std::shared_ptr<grpc::Channel> ChannelFrom(const std::string& target, const std::string& from) {
  const size_t colon = target.rfind(':');
  sockaddr_in source{.sin_family = AF_INET}, to{.sin_family = AF_INET};
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(target.substr(colon + 1))));
  inet_pton(AF_INET, from.c_str(), &source.sin_addr);
  inet_pton(AF_INET, target.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(fd, reinterpret_cast<sockaddr*>(&source), sizeof source) != 0 ||
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    ADD_FAILURE() << "no connection to " << target << " from " << from;
    close(fd);
    return nullptr;
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return grpc::CreateInsecureChannelFromFd("hostile", fd);
}

HostileClient::HostileClient(std::shared_ptr<grpc::Channel> channel, std::string key,
                             Replies* replies)
    : channel_(std::move(channel)),
      key_(std::move(key)),
      replies_(replies),
      cloud_(proto::Cloud::NewStub(channel_)),
      blobs_(proto::Blobs::NewStub(channel_)),
      store_(proto::Store::NewStub(channel_)),
      account_(proto::Account::NewStub(channel_)) {}

std::unique_ptr<grpc::ClientContext> HostileClient::Context() const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (!key_.empty()) context->AddMetadata("authorization", "Bearer " + key_);
  context->set_deadline(std::chrono::system_clock::now() + kCallEndsWithin);
  return context;
}

absl::Status HostileClient::Noted(const grpc::Status& status) {
  replies_->Note(status.error_message());  // as it came, not in the words of wire/status.h
  return wire::FromGrpc(status);
}

absl::Status HostileClient::Upload(const std::vector<proto::BlobPiece>& pieces) {
  auto context = Context();
  proto::UploadReply reply;
  auto writer = blobs_->Upload(context.get(), &reply);
  for (const proto::BlobPiece& piece : pieces)
    if (!writer->Write(piece)) break;
  writer->WritesDone();
  return Noted(writer->Finish());
}

std::string HostileClient::Store(const std::string& bytes) {
  const wire::BlobName name = wire::NameBlob(bytes);
  const std::string chunk(wire::AsBytes(name.chunks.at(0)));
  std::vector<proto::BlobPiece> pieces;
  constexpr size_t kPieceBytes = size_t{400} << 10;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes)
    pieces.push_back(Piece(chunk, bytes.size(), at, bytes.substr(at, kPieceBytes)));
  const absl::Status sent = Upload(pieces);
  EXPECT_TRUE(sent.ok()) << sent;
  proto::CommitRequest commit;
  commit.set_root(std::string(wire::AsBytes(name.root)));
  commit.add_chunks(chunk);
  commit.set_size_bytes(bytes.size());
  const absl::Status committed = Ask(&proto::Blobs::Stub::Commit, commit);
  EXPECT_TRUE(committed.ok()) << committed;
  return commit.root();
}

absl::Status HostileClient::Download(const std::vector<std::string>& chunks, std::string* bytes) {
  auto context = Context();
  proto::DownloadRequest request;
  for (const std::string& chunk : chunks) request.add_chunks(chunk);
  auto reader = blobs_->Download(context.get(), request);
  for (proto::BlobPiece piece; reader->Read(&piece);) bytes->append(piece.data());
  return Noted(reader->Finish());
}

absl::Status HostileClient::Open(const proto::Open& open) {
  auto context = Context();
  auto stream = cloud_->Session(context.get());
  proto::ClientFrame frame;
  *frame.add_items()->mutable_open() = open;
  stream->Write(frame);
  bool opened = false;
  for (proto::ServerFrame answer; stream->Read(&answer);) {
    for (const proto::ServerItem& item : answer.items()) {
      if (item.has_failed()) replies_->Note(item.failed().message());
      if (!item.has_opened() || opened) continue;
      opened = true;
      proto::ClientFrame close;
      close.set_epoch(answer.epoch());
      close.add_items()->mutable_close();
      stream->Write(close);
    }
  }
  return Noted(stream->Finish());
}

proto::Open GoodOpen() {
  proto::Open open;
  wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
  wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
  return open;
}

proto::BlobPiece Piece(const std::string& hash, size_t chunk_bytes, size_t offset,
                       const std::string& data) {
  proto::BlobPiece piece;
  piece.set_chunk(hash);
  piece.set_chunk_bytes(static_cast<uint32_t>(chunk_bytes));
  piece.set_offset(static_cast<uint32_t>(offset));
  piece.set_data(data);
  return piece;
}

}  // namespace outboard::test
