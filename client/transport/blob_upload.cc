#include "client/transport/blob_upload.h"

#include <algorithm>
#include <set>

#include "client/transport/call_key.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/limits.h"
#include "proto/status.h"

namespace outboard::transport {

namespace {
constexpr int kMissingHashesMax = 16'384;  // hashes in one question: half a frame
}  // namespace

absl::Status UploadBlob(const std::shared_ptr<grpc::Channel>& channel, const std::string& key,
                        const wire::BlobName& name, std::string_view bytes,
                        std::atomic<uint64_t>& bytes_up) {
  const std::unique_ptr<proto::Blobs::Stub> blobs = proto::Blobs::NewStub(channel);
  std::set<std::string> missing;
  for (size_t at = 0; at < name.chunks.size(); at += kMissingHashesMax) {
    grpc::ClientContext context;
    AddKey(context, key);
    proto::MissingRequest request;
    for (size_t i = at; i < std::min(name.chunks.size(), at + kMissingHashesMax); ++i) {
      request.add_chunks(std::string(wire::AsBytes(name.chunks[i])));
    }
    proto::MissingReply reply;
    bytes_up += request.ByteSizeLong();
    if (grpc::Status status = blobs->Missing(&context, request, &reply); !status.ok()) {
      return wire::FromGrpc(status);
    }
    missing.insert(reply.chunks().begin(), reply.chunks().end());
  }
  if (!missing.empty()) {
    grpc::ClientContext context;
    AddKey(context, key);
    proto::UploadReply reply;
    auto writer = blobs->Upload(&context, &reply);
    bool good = true;
    for (size_t i = 0; i < name.chunks.size() && good; ++i) {
      std::string hash(wire::AsBytes(name.chunks[i]));
      if (missing.erase(hash) == 0) continue;
      std::string_view chunk = bytes.substr(i * wire::kBlobChunkBytes, wire::kBlobChunkBytes);
      for (size_t at = 0; at < chunk.size() && good; at += wire::kPieceBytesMax) {
        std::string_view data = chunk.substr(at, wire::kPieceBytesMax);
        proto::BlobPiece piece;
        piece.set_chunk(hash);
        piece.set_chunk_bytes(static_cast<uint32_t>(chunk.size()));
        piece.set_offset(static_cast<uint32_t>(at));
        piece.set_data(data.data(), data.size());
        bytes_up += piece.ByteSizeLong();
        good = writer->Write(piece);
      }
    }
    writer->WritesDone();
    if (grpc::Status status = writer->Finish(); !status.ok()) return wire::FromGrpc(status);
  }
  grpc::ClientContext context;
  AddKey(context, key);
  proto::CommitRequest request;
  request.set_root(std::string(wire::AsBytes(name.root)));
  request.set_size_bytes(bytes.size());
  for (const wire::Hash& chunk : name.chunks) request.add_chunks(std::string(wire::AsBytes(chunk)));
  proto::CommitReply reply;
  bytes_up += request.ByteSizeLong();
  return wire::FromGrpc(blobs->Commit(&context, request, &reply));
}

}  // namespace outboard::transport
