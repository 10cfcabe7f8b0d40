// Invariants
//   UP1 plan_ and held_ are accessed under mutex_ only; reading, hashing and sending happen outside
//       it.
//   UP2 A chunk counts as there only when the stream that carried it has ended with OK: a stripe
//       ends its stream before it returns, and blobs are committed after that.
//   UP3 Bytes are hashed when they are sent, so a wrong name from an index is detected before the
//       bytes leave.
#include "wire/blobs/upload.h"

#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/blobs/chunk_memory.h"
#include "wire/blobs/piece.h"
#include "wire/blobs/upload_plan.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::wire {

namespace {

constexpr size_t kHeldMax = 16;     // chunks between hash and sending
constexpr int kCommitsAtOnce = 16;  // each waits a round trip
// Read and hashed at once: half of a core's cache, so that the hash reads what is there still.
constexpr uint32_t kHashedBytes = uint32_t{256} << 10;
constexpr std::string_view kStaleName = "a blob is not what its name said";

using Writer = grpc::ClientWriter<grpc::ByteBuffer>;

// Starts the call as the generated stub does, but with raw buffers.
std::unique_ptr<Writer> StartUpload(const std::shared_ptr<grpc::Channel>& channel,
                                    grpc::ClientContext* context, proto::UploadReply* reply) {
  const grpc::internal::RpcMethod method("/outboard.proto.Blobs/Upload",
                                         grpc::internal::RpcMethod::CLIENT_STREAMING, channel);
  return std::unique_ptr<Writer>(grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(
      channel.get(), method, context, reply));
}

class Upload {
 public:
  Upload(const BlobConnections& connections, std::span<const BlobSource> sources,
         std::span<const BlobUploadPlan::Blob> blobs, const TransferOptions& options)
      : connections_(connections),
        sources_(sources),
        plan_(blobs, kHeldMax),
        stripes_(options, TotalOf(blobs)) {}

  absl::StatusOr<Uploaded> Run() {
    const int count =
        static_cast<int>(std::min<size_t>(connections_.channels.size(), plan_.chunk_count()));
    Uploaded uploaded;
    for (bool asked_again = false;;) {
      absl::Status status = stripes_.RunWithRetries(
          count, [this](int stripe) { return Move(stripe); }, [this] { Again(); });
      if (absl::IsAborted(status) && stale_.has_value()) {
        plan_.Unname(*std::exchange(stale_, std::nullopt));
        Again();
        continue;
      }
      if (!status.ok()) return status;
      uploaded.names.clear();
      for (size_t b = 0; b < sources_.size(); ++b) {
        BlobName name;
        name.chunks = plan_.HashesOf(b);
        name.root = MerkleRoot(name.chunks, sources_[b].size_bytes);
        uploaded.names.push_back(std::move(name));
      }
      status = Commit(uploaded.names);
      if (status.ok()) break;
      // A chunk that was present when asked for may have been evicted since.
      if (!absl::IsNotFound(status) || std::exchange(asked_again, true)) return status;
      Again();
    }
    uploaded.sent_bytes = sent_bytes_;
    uploaded.wire_bytes = wire_bytes_;
    return uploaded;
  }

 private:
  static uint64_t TotalOf(std::span<const BlobUploadPlan::Blob> blobs) {
    uint64_t bytes = 0;
    for (const BlobUploadPlan::Blob& blob : blobs) bytes += blob.size_bytes;
    return bytes;
  }

  void Again() {
    std::lock_guard lock(mutex_);
    plan_.Again();
    held_.clear();
    stripes_.ForgetMoved();
  }

  BlobUploadPlan::Job NextJob() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stripes_.stopping()) return {};
      BlobUploadPlan::Job job = plan_.Next();
      if (job.what != BlobUploadPlan::Do::kWait) return job;
      // A stop is noticed at most 50 ms later.
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  absl::Status Move(int stripe) {
    const std::shared_ptr<grpc::Channel>& channel =
        connections_.channels[static_cast<size_t>(stripe)];
    proto::UploadReply reply;
    std::optional<TransferStripes::Call> call;
    std::unique_ptr<Writer> writer;
    absl::Status status;
    while (status.ok()) {
      const BlobUploadPlan::Job job = NextJob();
      if (job.what == BlobUploadPlan::Do::kNothing) break;
      if (job.what == BlobUploadPlan::Do::kHash) {
        status = Hash(job.chunk);
      } else if (job.what == BlobUploadPlan::Do::kAsk) {
        status = Ask(channel, job.ask);
      } else {
        if (writer == nullptr) {
          call.emplace(&stripes_, connections_);
          writer = StartUpload(channel, call->context(), &reply);
        }
        bool broken = false;
        status = Send(*writer, job.chunk, broken);
        if (broken) break;  // Finish returns the reason
      }
      changed_.notify_all();
    }
    changed_.notify_all();
    if (writer == nullptr) return status;
    if (!status.ok()) call->context()->TryCancel();
    writer->WritesDone();
    const absl::Status ended = FromGrpc(writer->Finish());
    writer.reset();
    return status.ok() ? ended : status;
  }

  // Fills `into` with a chunk, and returns its hash.
  absl::StatusOr<wire::Hash> Read(const BlobUploadPlan::Chunk& chunk, char* into) {
    ChunkHasher hasher;
    for (uint32_t at = 0; at < chunk.bytes; at += kHashedBytes) {
      const std::span<char> part(into + at, std::min(kHashedBytes, chunk.bytes - at));
      absl::Status status = sources_[chunk.blob].read(chunk.offset + at, part);
      if (!status.ok()) return status;
      hasher.Update({part.data(), part.size()});
    }
    return hasher.Finish();
  }

  absl::Status Hash(size_t i) {
    const BlobUploadPlan::Chunk chunk = plan_.chunk(i);
    std::shared_ptr<char> bytes = memory_.Take();
    const absl::StatusOr<wire::Hash> hash = Read(chunk, bytes.get());
    if (!hash.ok()) return hash.status();
    std::lock_guard lock(mutex_);
    plan_.Hashed(i, *hash);
    if (plan_.IsHeld(i)) held_[i] = std::move(bytes);
    stripes_.Worked();
    return absl::OkStatus();
  }

  absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel, std::span<const size_t> ask) {
    proto::MissingRequest request;
    {
      std::lock_guard lock(mutex_);
      for (size_t i : ask) request.add_chunks(std::string(AsBytes(plan_.chunk(i).hash)));
    }
    proto::MissingReply reply;
    TransferStripes::Call call(&stripes_, connections_);
    wire_bytes_ += request.ByteSizeLong();
    grpc::Status status = proto::Blobs::NewStub(channel)->Missing(call.context(), request, &reply);
    if (!status.ok()) return FromGrpc(status);
    std::vector<wire::Hash> missing;
    for (const std::string& bytes : reply.chunks()) {
      const std::optional<wire::Hash> hash = HashFromBytes(bytes);
      if (!hash) return absl::InternalError("the gateway requested a chunk by an invalid hash");
      missing.push_back(*hash);
    }
    std::lock_guard lock(mutex_);
    plan_.Answered(ask, missing);
    std::erase_if(held_, [this](const auto& entry) { return !plan_.IsHeld(entry.first); });
    stripes_.SetSaved(plan_.saved_bytes());
    return absl::OkStatus();
  }

  absl::Status Send(Writer& writer, size_t i, bool& broken) {
    BlobUploadPlan::Chunk chunk;
    std::shared_ptr<char> bytes;
    {
      std::lock_guard lock(mutex_);
      chunk = plan_.chunk(i);
      if (auto held = held_.find(i); held != held_.end()) {
        bytes = std::move(held->second);
        held_.erase(held);
      }
    }
    if (bytes == nullptr) {
      bytes = memory_.Take();
      const absl::StatusOr<wire::Hash> hash = Read(chunk, bytes.get());
      if (!hash.ok()) return hash.status();
      if (*hash != chunk.hash) {
        std::lock_guard lock(mutex_);
        stale_ = chunk.blob;
        return absl::AbortedError(absl::string_view(kStaleName.data(), kStaleName.size()));
      }
    }
    for (uint32_t at = 0; at < chunk.bytes; at += kPieceBytesMax) {
      const uint32_t count = std::min<uint32_t>(kPieceBytesMax, chunk.bytes - at);
      const grpc::ByteBuffer piece =
          EncodeBlobPiece(chunk.hash, chunk.bytes, at, SliceOf(bytes, bytes.get() + at, count));
      if (!writer.Write(piece)) {
        broken = true;
        return absl::OkStatus();
      }
      wire_bytes_ += piece.Length();
      sent_bytes_ += count;
      stripes_.Moved(count);
    }
    std::lock_guard lock(mutex_);
    plan_.Sent(i);
    return absl::OkStatus();
  }

  absl::Status Commit(const std::vector<BlobName>& names) {
    std::atomic<size_t> next{0};
    const int count = static_cast<int>(std::min<size_t>(kCommitsAtOnce, names.size()));
    return stripes_.RunWithRetries(
        count,
        [&](int stripe) -> absl::Status {
          const auto& channel =
              connections_.channels[static_cast<size_t>(stripe) % connections_.channels.size()];
          const std::unique_ptr<proto::Blobs::Stub> blobs = proto::Blobs::NewStub(channel);
          for (size_t b; (b = next++) < names.size() && !stripes_.stopping();) {
            proto::CommitRequest request;
            request.set_root(std::string(AsBytes(names[b].root)));
            request.set_size_bytes(sources_[b].size_bytes);
            for (const wire::Hash& chunk : names[b].chunks)
              request.add_chunks(std::string(AsBytes(chunk)));
            proto::CommitReply reply;
            TransferStripes::Call call(&stripes_, connections_);
            wire_bytes_ += request.ByteSizeLong();
            grpc::Status status = blobs->Commit(call.context(), request, &reply);
            if (!status.ok()) return FromGrpc(status);
            stripes_.Moved(0);
          }
          return absl::OkStatus();
        },
        [&] { next = 0; });
  }

  const BlobConnections& connections_;
  const std::span<const BlobSource> sources_;
  ChunkMemory memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  BlobUploadPlan plan_;
  std::map<size_t, std::shared_ptr<char>> held_;
  std::optional<size_t> stale_;  // the blob whose known name is wrong
  TransferStripes stripes_;
  std::atomic<uint64_t> sent_bytes_{0}, wire_bytes_{0};
};

}  // namespace

absl::StatusOr<Uploaded> UploadBlobs(const BlobConnections& connections,
                                     std::span<const BlobSource> sources,
                                     const TransferOptions& options) {
  std::vector<BlobUploadPlan::Blob> blobs;
  for (const BlobSource& source : sources) {
    const uint64_t chunks = (source.size_bytes + kBlobChunkBytes - 1) / kBlobChunkBytes;
    if (chunks > kBlobChunksMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a blob of ", source.size_bytes, " bytes; limit ", kBlobChunksMax * kBlobChunkBytes));
    }
    // Ignores a name that does not match the blob's size.
    const bool named = source.name.has_value() && source.name->chunks.size() == chunks;
    blobs.push_back({source.size_bytes, named ? &*source.name : nullptr});
  }
  return Upload(connections, sources, blobs, options).Run();
}

}  // namespace outboard::wire
