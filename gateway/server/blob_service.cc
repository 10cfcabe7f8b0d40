#include "gateway/server/blob_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/base/limits.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/observe/call_record.h"
#include "telemetry/counters.h"
#include "wire/blobs/piece.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::gateway {

namespace {

using telemetry::CallMethod;

// Of a transfer: the one error that has no other place to be counted.
void CountRefusal(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) telemetry::CountRefused(telemetry::Refusal::kQuota);
}

void CountBytes(telemetry::Direction direction, uint64_t bytes) {
  telemetry::CountAs(telemetry::Metric::kBlobBytes, direction, bytes);
}

// Blobs are of use to sessions and to names.
constexpr Scopes kScopes = {KeyScope::kRun, KeyScope::kStore};

absl::StatusOr<wire::Hash> ToHash(const std::string& bytes) {
  const std::optional<wire::Hash> hash = wire::HashFromBytes(bytes);
  if (!hash) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hash of ", bytes.size(), " bytes; expected ", wire::kHashBytes));
  }
  return *hash;
}

absl::StatusOr<std::vector<wire::Hash>> ToHashes(
    const google::protobuf::RepeatedPtrField<std::string>& list) {
  if (list.size() > static_cast<int>(wire::kBlobHashesMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(list.size(), " hashes at once; limit ", wire::kBlobHashesMax));
  }
  std::vector<wire::Hash> hashes;
  for (const std::string& bytes : list) {
    auto hash = ToHash(bytes);
    if (!hash.ok()) return hash.status();
    hashes.push_back(*hash);
  }
  return hashes;
}

template <typename Message>
bool Serialize(const Message& message, grpc::ByteBuffer* buffer) {
  bool own = false;
  return grpc::SerializationTraits<Message>::Serialize(message, buffer, &own).ok();
}

}  // namespace

absl::StatusOr<Identity> BlobService::IdentityOf(const Caller& caller) {
  if (callers_ == BlobCallers::kClients) return authenticator_->Client(caller.credentials, kScopes);
  if (!caller.session.has_value())
    return absl::UnauthenticatedError("only executors of sessions reach their blobs here");
  auto tenant = driver_->TenantOf(*caller.session, caller.token);
  if (!tenant.ok()) return tenant.status();
  return Identity{*tenant, ""};
}

// Authenticates and answers on the pool: both read the disk.
grpc::ServerUnaryReactor* BlobService::Answer(CallMethod method,
                                              grpc::CallbackServerContext* context,
                                              std::function<absl::Status(TenantId)> body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool_->Post([this, reactor, caller = Caller::Of(*context), body = std::move(body),
               record = std::make_shared<CallRecord>(method, *context)] {
    auto identity = IdentityOf(caller);
    if (identity.ok()) record->SetAccount(identity->tenant);
    if (caller.session.has_value()) record->SetSession(*caller.session);
    const absl::Status status = identity.ok() ? body(identity->tenant) : identity.status();
    CountRefusal(status);
    record->End(status);
    reactor->Finish(wire::ToGrpc(status));
  });
  return reactor;
}

// Receives chunks one after the other, each in pieces. Every piece is handled on the pool, and the
// next is read after it. When the key stands no more, the stream ends at once if it waits for its
// client, else after the piece.
class BlobService::UploadStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadStream(BlobService* service, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : service_(service),
        context_(context),
        record_(CallMethod::kUpload, *context),
        caller_(Caller::Of(*context)),
        reply_(reply) {
    StartRead(&buffer_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (transfer_ != nullptr) transfer_->Goes();
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(reads_, false)) return;  // denied, and finished with it
    }
    if (!ok) {
      Serialize(stored_, reply_);
      if (writer_ != nullptr)
        return Close(absl::AbortedError("ended in the middle of a chunk"));
      return Close(absl::OkStatus());
    }
    // Finish is only called from here on, so OnDone cannot come while the job runs.
    service_->pool_->Post([this] {
      if (absl::Status status = Take(); !status.ok()) {
        writer_.reset();
        return Close(status);
      }
      buffer_.Clear();
      transfer_->Waits();
      Read();
    });
  }

  void Read() {
    {
      std::lock_guard lock(mutex_);
      if (denied_.ok()) {
        reads_ = true;
        StartRead(&buffer_);  // under the lock: a Finish by Deny would end this stream's life
        return;
      }
    }
    Close(denied_);
  }

  void Deny(const absl::Status& why) {
    {
      std::lock_guard lock(mutex_);
      if (denied_.ok()) denied_ = why;
      if (!std::exchange(reads_, false)) return;
    }
    Close(denied_);
  }

  absl::Status Take() {
    if (!tenant_.has_value()) {
      auto identity = service_->IdentityOf(caller_);
      if (!identity.ok()) return identity.status();
      auto transfer = service_->uploads_.Begin(identity->tenant, [this] { context_->TryCancel(); });
      if (!transfer.ok()) return transfer.status();
      record_.SetAccount(identity->tenant);
      tenant_ = identity->tenant;
      transfer_ = *std::move(transfer);
      watched_ =
          service_->watch_.Watch(identity->key_id, [this](const absl::Status& why) { Deny(why); });
    }
    auto piece = wire::DecodeBlobPiece(buffer_);
    if (!piece.ok()) return piece.status();
    if (piece->offset == 0 && writer_ == nullptr) {
      if (absl::Status status = Begin(*piece); !status.ok()) return status;
    }
    if (writer_ == nullptr || piece->chunk != chunk_ || piece->chunk_bytes != chunk_bytes_ ||
        piece->offset != writer_->bytes() || piece->data_bytes == 0 ||
        piece->data_bytes > chunk_bytes_ - writer_->bytes()) {
      return absl::InvalidArgumentError("the pieces of a chunk are not consecutive");
    }
    if (absl::Status status = writer_->Append(Joined(*piece)); !status.ok()) return status;
    if (writer_->bytes() < chunk_bytes_) return absl::OkStatus();
    if (absl::Status status = writer_->Finish(); !status.ok()) return status;
    stored_.set_chunks_stored(stored_.chunks_stored() + 1);
    stored_.set_bytes(stored_.bytes() + writer_->bytes());
    CountBytes(telemetry::Direction::kIn, writer_->bytes());
    writer_.reset();
    return absl::OkStatus();
  }

  // A piece comes from the socket in slices of 8 KiB. Written one by one, each would be a system
  // call that begins and ends within a page of the file; so they are joined in memory that stays in
  // the cache until it is hashed and written.
  std::string_view Joined(const wire::BlobPieceView& piece) {
    joined_.clear();
    for (const grpc::Slice& slice : piece.data)
      joined_.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return joined_;
  }

  absl::Status Begin(const wire::BlobPieceView& piece) {
    if (piece.chunk_bytes == 0 || piece.chunk_bytes > wire::kBlobChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a chunk of ", piece.chunk_bytes, " bytes; limit ", wire::kBlobChunkBytes));
    }
    auto writer = service_->store_->Begin(*tenant_, piece.chunk);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
    chunk_ = piece.chunk;
    chunk_bytes_ = piece.chunk_bytes;
    return absl::OkStatus();
  }

  void Close(const absl::Status& status) {
    CountRefusal(status);
    record_.End(status);
    Finish(wire::ToGrpc(status));
  }
  void OnDone() override { delete this; }

  BlobService* const service_;
  grpc::CallbackServerContext* const context_;
  CallRecord record_;
  const Caller caller_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer buffer_;
  std::string joined_;
  proto::UploadReply stored_;
  std::optional<TenantId> tenant_;
  std::unique_ptr<TransferLimiter::Transfer> transfer_;  // set together with tenant_
  std::unique_ptr<BlobStore::Writer> writer_;
  wire::Hash chunk_{};
  uint32_t chunk_bytes_ = 0;

  std::mutex mutex_;
  bool reads_ = true;                           // a read is pending, and the stream is not finished
  absl::Status denied_;                         // set once
  std::unique_ptr<KeyWatch::Watched> watched_;  // last: Deny uses the rest
};

// Sends the requested chunks; each is read whole, verified, and split into pieces that share its
// memory. When the key stands no more, the stream ends after the piece that is being sent; a client
// that does not take that piece is cut off.
class BlobService::DownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  DownloadStream(BlobService* service, grpc::CallbackServerContext* context,
                 grpc::ByteBuffer request)
      : service_(service), context_(context), record_(CallMethod::kDownload, *context) {
    service_->pool_->Post([this, caller = Caller::Of(*context), request = std::move(request)] {
      if (absl::Status status = Begin(caller, request); !status.ok())
        return Close(status);
      Next();
    });
  }

 private:
  absl::Status Begin(const Caller& caller, grpc::ByteBuffer request) {
    auto identity = service_->IdentityOf(caller);
    if (!identity.ok()) return identity.status();
    tenant_ = identity->tenant;
    record_.SetAccount(tenant_);
    auto transfer = service_->downloads_.Begin(tenant_, [this] { context_->TryCancel(); });
    if (!transfer.ok()) return transfer.status();
    transfer_ = *std::move(transfer);
    watched_ =
        service_->watch_.Watch(identity->key_id, [this](const absl::Status& why) { Deny(why); });
    proto::DownloadRequest wanted;
    if (!grpc::SerializationTraits<proto::DownloadRequest>::Deserialize(&request, &wanted).ok())
      return absl::InvalidArgumentError("the message is not a request for chunks");
    auto hashes = ToHashes(wanted.chunks());
    if (!hashes.ok()) return hashes.status();
    chunks_ = *std::move(hashes);
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    transfer_->Goes();
    if (!ok) return Close(absl::CancelledError("nobody reads"));
    if (const absl::Status why = denied(); !why.ok()) return Close(why);
    if (at_ < bytes_->size()) return Write();
    service_->pool_->Post([this] { Next(); });
  }

  void Next() {
    if (next_ == chunks_.size()) return Close(absl::OkStatus());
    auto bytes = service_->store_->ReadChunk(tenant_, chunks_[next_]);
    if (!bytes.ok()) return Close(bytes.status());
    bytes_ = std::make_shared<const std::string>(*std::move(bytes));
    at_ = 0;
    ++next_;
    Write();
  }

  void Write() {
    const size_t count = std::min(bytes_->size() - at_, wire::kPieceBytesMax);
    buffer_ = wire::EncodeBlobPiece(chunks_[next_ - 1], static_cast<uint32_t>(bytes_->size()),
                                    static_cast<uint32_t>(at_),
                                    wire::SliceOf(bytes_, bytes_->data() + at_, count));
    at_ += count;
    CountBytes(telemetry::Direction::kOut, count);
    transfer_->Waits();
    StartWrite(&buffer_);
  }

  void Deny(const absl::Status& why) {
    std::lock_guard lock(mutex_);
    // A first call leaves time for a piece to be written; nothing may be written after Finish.
    if (!denied_.ok()) context_->TryCancel();
    denied_ = why;
  }
  absl::Status denied() {
    std::lock_guard lock(mutex_);
    return denied_;
  }

  void Close(const absl::Status& status) {
    record_.End(status);
    Finish(wire::ToGrpc(status));
  }
  void OnDone() override { delete this; }

  BlobService* const service_;
  grpc::CallbackServerContext* const context_;
  CallRecord record_;
  TenantId tenant_{};
  std::unique_ptr<TransferLimiter::Transfer> transfer_;
  std::vector<wire::Hash> chunks_;
  size_t next_ = 0;  // index into chunks_
  std::shared_ptr<const std::string> bytes_;
  size_t at_ = 0;  // offset in bytes_
  grpc::ByteBuffer buffer_;

  std::mutex mutex_;
  absl::Status denied_;
  std::unique_ptr<KeyWatch::Watched> watched_;  // last: Deny uses the rest
};

grpc::ServerUnaryReactor* BlobService::Missing(grpc::CallbackServerContext* context,
                                               const proto::MissingRequest* request,
                                               proto::MissingReply* reply) {
  return Answer(CallMethod::kMissing, context, [this, request, reply](TenantId tenant) {
    auto hashes = ToHashes(request->chunks());
    if (!hashes.ok()) return hashes.status();
    for (const wire::Hash& hash : store_->Missing(tenant, *hashes))
      reply->add_chunks(std::string(wire::AsBytes(hash)));
    return absl::OkStatus();
  });
}

grpc::ServerReadReactor<grpc::ByteBuffer>* BlobService::Upload(grpc::CallbackServerContext* context,
                                                               grpc::ByteBuffer* reply) {
  return new UploadStream(this, context, reply);
}

grpc::ServerUnaryReactor* BlobService::Commit(grpc::CallbackServerContext* context,
                                              const proto::CommitRequest* request,
                                              proto::CommitReply* reply) {
  // A worker's upload stays until the session names its purpose (Keep), or ends.
  const std::optional<SessionId> session = Caller::Of(*context).session;
  return Answer(CallMethod::kCommit, context, [this, request, session](TenantId tenant) {
    auto hashes = ToHashes(request->chunks());
    if (!hashes.ok()) return hashes.status();
    auto root = ToHash(request->root());
    if (!root.ok()) return root.status();
    absl::Status status =
        store_->Commit(tenant, *root, *hashes, request->size_bytes(),
                       session.has_value() ? BlobOrigin::kSession : BlobOrigin::kClient);
    if (status.ok() && session.has_value())
      status = blob_retention_->UploadedBy(tenant, *session, *root);
    return status;
  });
}

grpc::ServerUnaryReactor* BlobService::List(grpc::CallbackServerContext* context,
                                            const proto::ListChunksRequest* request,
                                            proto::ListChunksReply* reply) {
  return Answer(CallMethod::kListChunks, context, [this, request, reply](TenantId tenant) {
    auto root = ToHash(request->root());
    if (!root.ok()) return root.status();
    auto blob = store_->Find(tenant, *root);
    if (!blob.ok()) return blob.status();
    reply->set_size_bytes(blob->size_bytes);
    for (const wire::Hash& chunk : blob->chunks)
      reply->add_chunks(std::string(wire::AsBytes(chunk)));
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* BlobService::Download(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new DownloadStream(this, context, *request);
}

}  // namespace outboard::gateway
