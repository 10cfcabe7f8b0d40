#include "wire/blobs/download.h"

#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/blobs/chunk_memory.h"
#include "wire/blobs/piece.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::wire {

namespace {

// Chunks per call: enough to keep the connection busy, few enough that stripes end at about the
// same time.
constexpr size_t kChunksPerCall = 8;

using Reader = grpc::ClientReader<grpc::ByteBuffer>;

absl::Status FileError(const char* what, int error) {
  const std::string message = absl::StrCat("cannot ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(message);
  return absl::UnknownError(message);
}

absl::Status WriteAt(int fd, uint64_t offset, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t wrote = pwrite(fd, data, size, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError("write", errno);
    data += wrote;
    offset += static_cast<uint64_t>(wrote);
    size -= static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

class Download {
 public:
  Download(const BlobConnections& connections, std::span<const FilePart> parts, int fd,
           const TransferOptions& options)
      : connections_(connections), fd_(fd), stripes_(options, BytesOf(parts)) {
    for (const FilePart& part : parts) {
      for (size_t i = 0; i < part.blob.chunks.size(); ++i) {
        const uint64_t within = i * kBlobChunkBytes;
        const size_t size = std::min<uint64_t>(kBlobChunkBytes, part.blob.size_bytes - within);
        wanted_.push_back(places_.size());
        places_.push_back({part.blob.chunks[i], part.offset + within, size});
      }
    }
  }

  // Does not request chunks that the file has already.
  absl::Status LookIntoFile() {
    std::deque<size_t> looked_at;
    looked_at.swap(wanted_);
    std::mutex mutex;
    const int count = static_cast<int>(std::min(connections_.channels.size(), looked_at.size()));
    return stripes_.Run(count, [&](int) -> absl::Status {
      const std::shared_ptr<char> bytes = memory_.Take();
      for (;;) {
        std::unique_lock lock(mutex);
        if (looked_at.empty() || stripes_.stopping()) return absl::OkStatus();
        const size_t i = looked_at.front();
        looked_at.pop_front();
        lock.unlock();
        const auto& [hash, offset, size] = places_[i];
        const ssize_t got = pread(fd_, bytes.get(), size, static_cast<off_t>(offset));
        const bool right =
            got == static_cast<ssize_t>(size) && HashChunk({bytes.get(), size}) == hash;
        lock.lock();
        if (right)
          stripes_.SetSaved(kept_bytes_ += size);
        else
          wanted_.push_back(i);
      }
    });
  }

  absl::StatusOr<Downloaded> Run() {
    std::sort(wanted_.begin(), wanted_.end());
    const int count = static_cast<int>(std::min(connections_.channels.size(), wanted_.size()));
    const absl::Status status = stripes_.RunWithRetries(
        count, [this](int stripe) { return Move(stripe); }, [] {});
    if (!status.ok()) return status;
    return Downloaded{received_bytes_, kept_bytes_};
  }

 private:
  // The position of a chunk in the file.
  struct Place {
    Hash hash;
    uint64_t offset = 0;
    size_t size = 0;
  };

  static uint64_t BytesOf(std::span<const FilePart> parts) {
    uint64_t bytes = 0;
    for (const FilePart& part : parts) bytes += part.blob.size_bytes;
    return bytes;
  }

  absl::Status Move(int stripe) {
    while (!stripes_.stopping()) {
      std::deque<size_t> batch;
      {
        std::lock_guard lock(mutex_);
        while (!wanted_.empty() && batch.size() < kChunksPerCall) {
          batch.push_back(wanted_.front());
          wanted_.pop_front();
        }
      }
      if (batch.empty()) return absl::OkStatus();
      absl::Status status = Fetch(stripe, batch);
      std::lock_guard lock(mutex_);
      wanted_.insert(wanted_.end(), batch.begin(), batch.end());  // those that did not arrive
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Removes from `batch` the chunks that arrived and are on disk.
  absl::Status Fetch(int stripe, std::deque<size_t>& batch) {
    const auto& channel = connections_.channels[static_cast<size_t>(stripe)];
    proto::DownloadRequest request;
    for (size_t i : batch) request.add_chunks(std::string(AsBytes(places_[i].hash)));
    TransferStripes::Call call(&stripes_, connections_);
    const grpc::internal::RpcMethod method("/outboard.proto.Blobs/Download",
                                           grpc::internal::RpcMethod::SERVER_STREAMING, channel);
    const std::unique_ptr<Reader> reader(
        grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(channel.get(), method,
                                                                      call.context(), request));
    absl::Status status;
    std::optional<ChunkHasher> hasher;
    size_t at = 0;  // offset within the first chunk of batch
    grpc::ByteBuffer buffer;
    while (status.ok() && reader->Read(&buffer)) {
      auto piece = DecodeBlobPiece(buffer);
      if (piece.ok())
        status = Take(*piece, hasher, at, batch);
      else
        status = piece.status();
      buffer.Clear();
    }
    if (!status.ok()) call.context()->TryCancel();
    const absl::Status ended = FromGrpc(reader->Finish());
    if (!status.ok()) return status;
    if (ended.ok() && !batch.empty())
      return absl::DataLossError("fewer chunks arrived than were requested");
    return ended;
  }

  absl::Status Take(const BlobPieceView& piece, std::optional<ChunkHasher>& hasher, size_t& at,
                    std::deque<size_t>& batch) {
    if (batch.empty()) return absl::DataLossError("more chunks arrived than were requested");
    const size_t i = batch.front();
    const auto& [hash, offset, size] = places_[i];
    if (piece.chunk != hash || piece.offset != at || piece.data_bytes > size - at ||
        piece.data_bytes == 0)
      return absl::DataLossError("the pieces of a chunk are not consecutive");
    if (at == 0) hasher.emplace();
    for (const grpc::Slice& slice : piece.data) {
      const char* const data = reinterpret_cast<const char*>(slice.begin());
      hasher->Update({data, slice.size()});
      if (absl::Status status = WriteAt(fd_, offset + at, data, slice.size()); !status.ok())
        return status;
      at += slice.size();
    }
    stripes_.Moved(piece.data_bytes);
    received_bytes_ += piece.data_bytes;
    if (at < size) return absl::OkStatus();
    if (hasher->Finish() != hash) {
      return absl::DataLossError(
          absl::StrCat("chunk ", i, " came with other bytes than its hash says"));
    }
    batch.pop_front();
    at = 0;
    return absl::OkStatus();
  }

  const BlobConnections& connections_;
  std::vector<Place> places_;
  const int fd_;
  ChunkMemory memory_;
  TransferStripes stripes_;
  std::mutex mutex_;
  std::deque<size_t> wanted_;  // indices into places_
  std::atomic<uint64_t> received_bytes_{0};
  uint64_t kept_bytes_ = 0;
};

}  // namespace

absl::StatusOr<ChunkList> ListBlob(const BlobConnections& connections, const Hash& root,
                                   const TransferOptions& options) {
  proto::ListChunksRequest request;
  request.set_root(std::string(AsBytes(root)));
  proto::ListChunksReply reply;
  TransferStripes stripes(options, 0);
  const absl::Status status = stripes.RunWithRetries(
      1,
      [&](int) {
        TransferStripes::Call call(&stripes, connections);
        return FromGrpc(
            proto::Blobs::NewStub(connections.channels[0])->List(call.context(), request, &reply));
      },
      [&] { reply.Clear(); });
  if (!status.ok()) return status;
  ChunkList blob;
  blob.size_bytes = reply.size_bytes();
  for (const std::string& bytes : reply.chunks()) {
    const std::optional<Hash> hash = HashFromBytes(bytes);
    if (!hash) return absl::DataLossError("a chunk list lacks hashes");
    blob.chunks.push_back(*hash);
  }
  const uint64_t count =
      blob.size_bytes / kBlobChunkBytes + (blob.size_bytes % kBlobChunkBytes != 0);
  if (blob.chunks.size() != count || MerkleRoot(blob.chunks, blob.size_bytes) != root)
    return absl::DataLossError(absl::StrCat("the list of blob ", ToHex(root), " is not its own"));
  return blob;
}

absl::StatusOr<std::vector<ChunkList>> ListBlobs(const BlobConnections& connections,
                                                 std::span<const Hash> roots,
                                                 const TransferOptions& options) {
  constexpr size_t kQuestionsAtOnce = 16;
  std::vector<ChunkList> blobs(roots.size());
  std::atomic<size_t> next{0};
  TransferStripes stripes(options, 0);
  const absl::Status status = stripes.Run(
      static_cast<int>(std::min(kQuestionsAtOnce, roots.size())), [&](int) -> absl::Status {
        for (size_t i; (i = next++) < roots.size() && !stripes.stopping();) {
          auto blob = ListBlob(connections, roots[i], options);
          if (!blob.ok()) return blob.status();
          blobs[i] = *std::move(blob);
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return blobs;
}

absl::StatusOr<Downloaded> DownloadBlob(const BlobConnections& connections, const ChunkList& blob,
                                        int fd, bool fresh, const TransferOptions& options) {
  const FilePart whole{blob, 0};
  return DownloadParts(connections, std::span(&whole, 1), blob.size_bytes, fd, fresh, options);
}

absl::StatusOr<Downloaded> DownloadParts(const BlobConnections& connections,
                                         std::span<const FilePart> parts, uint64_t file_bytes,
                                         int fd, bool fresh, const TransferOptions& options) {
  if (ftruncate(fd, static_cast<off_t>(file_bytes)) != 0)
    return FileError("set the file's size", errno);
  Download download(connections, parts, fd, options);
  if (!fresh) {
    if (absl::Status status = download.LookIntoFile(); !status.ok()) return status;
  }
  return download.Run();
}

}  // namespace outboard::wire
