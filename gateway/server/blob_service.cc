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
#include "gateway/base/thrown.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/observe/call_record.h"
#include "gateway/streams/owed_answer.h"
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

void BlobService::Admit(const Caller& caller, SlotKind slot, KeyDoor::Then then) {
  if (callers_ == BlobCallers::kClients)
    return door_->Admit(caller.credentials, kScopes, slot, std::move(then));
  if (!caller.session.has_value())
    return then(absl::UnauthenticatedError("only executors of sessions reach their blobs here"));
  auto tenant = driver_->TenantOf(*caller.session, caller.token);
  if (!tenant.ok()) return then(tenant.status());
  then(Admitted{Identity{*tenant, ""}});
}

template <typename Stream>
void BlobService::AdmitStream(const Caller& caller, Stream* stream) noexcept {
  std::shared_ptr<OwedAnswer<Stream>> owed;
  const absl::Status status = ErrorIfThrown("a transfer", [&] {
    owed = std::make_shared<OwedAnswer<Stream>>(stream);
    Admit(caller, SlotKind::kStream, [owed](absl::StatusOr<Admitted> admitted) {
      Stream* const mine = owed->Take();
      if (mine == nullptr) return;
      OwedAnswer<Stream>::RunStep(mine, [&] { return mine->Begin(std::move(admitted)); });
    });
    return absl::OkStatus();
  });
  if (!status.ok() && (owed == nullptr || owed->Take() != nullptr)) stream->End(status);
}

template <typename Stream>
void BlobService::PostStep(Stream* stream, absl::Status (Stream::*step)()) noexcept {
  const TenantId tenant = stream->tenant();
  OwedAnswer<Stream>::RunStepLater(
      stream, [&](std::function<void()> job) { Post(tenant, std::move(job)); }, step, tenant.value);
}

// Executors come without a proxy.
void BlobService::NoteFailure(const Caller& caller, const absl::Status& status) {
  if (callers_ == BlobCallers::kExecutors && caller.session.has_value() && IsOfDisk(status))
    driver_->SnapshotNotKept(*caller.session, caller.token);
}

std::string BlobService::PeerOf(const Caller& caller) const {
  return callers_ == BlobCallers::kClients ? door_->PeerOf(caller.credentials)
                                           : caller.credentials.peer;
}

template <typename Request, typename Reply>
UnaryCall<Request, Reply>* BlobService::Answer(
    CallMethod method, grpc::CallbackServerContext* context,
    std::function<absl::Status(TenantId, const Request*, Reply*)> body) {
  using Call = UnaryCall<Request, Reply>;
  return new Call(
      method, context, &queues_->requests,
      [this, caller = Caller::Of(*context)](CallRecord& record, typename Call::Then then) {
        if (caller.session.has_value()) record.SetSession(*caller.session);
        record.SetPeer(PeerOf(caller));
        Admit(caller, SlotKind::kCall, std::move(then));
      },
      [this, body = std::move(body)](const Admitted& admitted, const Request* request, Reply* reply,
                                     typename Call::Done done) {
        const TenantId tenant = admitted.identity.tenant;
        Post(tenant, [tenant, request, reply, body, done = std::move(done)] {
          const absl::Status status =
              ErrorIfThrown("the call", [&] { return body(tenant, request, reply); }, tenant.value);
          CountRefusal(status);
          done(status);
        });
      });
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
        reply_(reply) {
    caller_ = Caller::Of(*context);
    record_.SetPeer(service_->PeerOf(caller_));
    service_->AdmitStream(caller_, this);
  }

 private:
  friend class BlobService;
  friend class OwedAnswer<UploadStream>;

  absl::Status Begin(absl::StatusOr<Admitted> admitted) {
    if (!admitted.ok()) return admitted.status();
    admitted_ = *std::move(admitted);
    record_.SetAccount(tenant());
    auto transfer = service_->uploads_.Begin(tenant(), [this] { context_->TryCancel(); });
    if (!transfer.ok()) return transfer.status();
    transfer_ = *std::move(transfer);
    watched_ = service_->watch_.Watch(admitted_.identity.key_id,
                                      [this](const absl::Status& why) { Deny(why); });
    transfer_->Waits();
    Read();
    return absl::OkStatus();
  }
  TenantId tenant() const { return admitted_.identity.tenant; }

  void OnReadDone(bool ok) override {
    transfer_->Goes();
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(reads_, false)) return;  // denied, and finished with it
    }
    // Finish is only called from here on, so OnDone cannot come while the job runs.
    if (ok) return service_->PostStep(this, &UploadStream::TakePiece);
    absl::Status status = ErrorIfThrown(
        "the upload", [&] { return Finished(); }, tenant().value);
    End(status);
  }
  absl::Status Finished() {
    Serialize(stored_, reply_);
    if (writer_ != nullptr) return absl::AbortedError("ended in the middle of a chunk");
    // gRPC does not tell the end from a message that it cannot read: a compressed one, say.
    if (stored_.chunks_stored() == 0)
      return absl::InvalidArgumentError("no chunk came that could be read");
    return absl::OkStatus();
  }

  absl::Status TakePiece() {
    absl::Status status = ErrorIfThrown(
        "the upload", [&] { return Take(); }, tenant().value);
    if (!status.ok()) {
      writer_.reset();
      service_->NoteFailure(caller_, status);
      return status;
    }
    buffer_.Clear();
    transfer_->Waits();
    Read();
    return absl::OkStatus();
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
    End(denied_);
  }

  void Deny(const absl::Status& why) {
    {
      std::lock_guard lock(mutex_);
      if (denied_.ok()) denied_ = why;
      if (!std::exchange(reads_, false)) return;
    }
    End(denied_);
  }

  absl::Status Take() {
    auto piece = wire::DecodeBlobPiece(buffer_);
    if (!piece.ok()) return piece.status();
    if (piece->offset == 0 && writer_ == nullptr) {
      if (absl::Status status = BeginChunk(*piece); !status.ok()) return status;
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

  absl::Status BeginChunk(const wire::BlobPieceView& piece) {
    if (piece.chunk_bytes == 0 || piece.chunk_bytes > wire::kBlobChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a chunk of ", piece.chunk_bytes, " bytes; limit ", wire::kBlobChunkBytes));
    }
    auto writer = service_->store_->Begin(tenant(), piece.chunk);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
    chunk_ = piece.chunk;
    chunk_bytes_ = piece.chunk_bytes;
    return absl::OkStatus();
  }

  void End(const absl::Status& status) noexcept {
    CountRefusal(status);
    Finish(EndCall(record_, status));
  }
  void OnDone() override { delete this; }

  BlobService* const service_;
  grpc::CallbackServerContext* const context_;
  Caller caller_;
  Admitted admitted_;
  CallRecord record_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer buffer_;
  std::string joined_;
  proto::UploadReply stored_;
  std::unique_ptr<TransferLimiter::Transfer> transfer_;  // set before the first read
  std::unique_ptr<BlobStore::Writer> writer_;
  wire::Hash chunk_{};
  uint32_t chunk_bytes_ = 0;

  std::mutex mutex_;
  bool reads_ = false;                          // a read is pending, and the stream is not finished
  absl::Status denied_;                         // set once
  std::unique_ptr<KeyWatch::Watched> watched_;  // last: Deny uses the rest
};

// Sends the requested chunks; each is read whole, verified, and split into pieces that share its
// memory. When the key stands no more, the stream ends after the piece that is being sent; a client
// that does not take that piece is cut off.
class BlobService::DownloadStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DownloadStream(BlobService* service, grpc::CallbackServerContext* context)
      : service_(service), context_(context), record_(CallMethod::kDownload, *context) {
    const Caller caller = Caller::Of(*context);
    record_.SetPeer(service_->PeerOf(caller));
    service_->AdmitStream(caller, this);
  }

 private:
  friend class BlobService;
  friend class OwedAnswer<DownloadStream>;

  absl::Status Begin(absl::StatusOr<Admitted> admitted) {
    if (!admitted.ok()) return admitted.status();
    admitted_ = *std::move(admitted);
    record_.SetAccount(tenant());
    auto transfer = service_->downloads_.Begin(tenant(), [this] { context_->TryCancel(); });
    if (!transfer.ok()) return transfer.status();
    transfer_ = *std::move(transfer);
    transfer_->Waits();
    StartRead(&request_);
    return absl::OkStatus();
  }
  TenantId tenant() const { return admitted_.identity.tenant; }

  void OnReadDone(bool ok) override {
    transfer_->Goes();
    if (ok) return service_->PostStep(this, &DownloadStream::TakeRequest);
    End(absl::InvalidArgumentError("no request came that could be read"));
  }

  absl::Status TakeRequest() {
    watched_ = service_->watch_.Watch(admitted_.identity.key_id,
                                      [this](const absl::Status& why) { Deny(why); });
    proto::DownloadRequest wanted;
    if (!grpc::SerializationTraits<proto::DownloadRequest>::Deserialize(&request_, &wanted).ok())
      return absl::InvalidArgumentError("the message is not a request for chunks");
    auto hashes = ToHashes(wanted.chunks());
    if (!hashes.ok()) return hashes.status();
    chunks_ = *std::move(hashes);
    return Next();
  }

  void OnWriteDone(bool ok) override {
    transfer_->Goes();
    if (!ok) return End(absl::CancelledError("nobody reads"));
    if (const absl::Status why = denied(); !why.ok()) return End(why);
    if (at_ == bytes_->size()) return service_->PostStep(this, &DownloadStream::Next);
    OwedAnswer<DownloadStream>::RunStep(
        this, [this] { return Write(); }, tenant().value);
  }

  absl::Status Next() {
    if (next_ == chunks_.size()) {
      End(absl::OkStatus());
      return absl::OkStatus();
    }
    auto bytes = service_->store_->ReadChunk(tenant(), chunks_[next_]);
    if (!bytes.ok()) return bytes.status();
    bytes_ = std::make_shared<const std::string>(*std::move(bytes));
    at_ = 0;
    ++next_;
    return Write();
  }

  absl::Status Write() {
    const size_t count = std::min(bytes_->size() - at_, wire::kPieceBytesMax);
    buffer_ = wire::EncodeBlobPiece(chunks_[next_ - 1], static_cast<uint32_t>(bytes_->size()),
                                    static_cast<uint32_t>(at_),
                                    wire::SliceOf(bytes_, bytes_->data() + at_, count));
    at_ += count;
    CountBytes(telemetry::Direction::kOut, count);
    transfer_->Waits();
    StartWrite(&buffer_);
    return absl::OkStatus();
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

  void End(const absl::Status& status) noexcept { Finish(EndCall(record_, status)); }
  void OnDone() override { delete this; }

  BlobService* const service_;
  grpc::CallbackServerContext* const context_;
  Admitted admitted_;
  CallRecord record_;
  std::unique_ptr<TransferLimiter::Transfer> transfer_;
  std::vector<wire::Hash> chunks_;
  size_t next_ = 0;  // index into chunks_
  std::shared_ptr<const std::string> bytes_;
  size_t at_ = 0;  // offset in bytes_
  grpc::ByteBuffer request_, buffer_;

  std::mutex mutex_;
  absl::Status denied_;
  std::unique_ptr<KeyWatch::Watched> watched_;  // last: Deny uses the rest
};

grpc::ServerBidiReactor<proto::MissingRequest, proto::MissingReply>* BlobService::ServeMissing(
    grpc::CallbackServerContext* context) {
  return Answer<proto::MissingRequest, proto::MissingReply>(
      CallMethod::kMissing, context,
      [this](TenantId tenant, const proto::MissingRequest* request, proto::MissingReply* reply) {
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

grpc::ServerBidiReactor<proto::CommitRequest, proto::CommitReply>* BlobService::ServeCommit(
    grpc::CallbackServerContext* context) {
  // A worker's upload stays until the session names its purpose (Keep), or ends.
  const Caller caller = Caller::Of(*context);
  return Answer<proto::CommitRequest, proto::CommitReply>(
      CallMethod::kCommit, context,
      [this, caller](TenantId tenant, const proto::CommitRequest* request, proto::CommitReply*) {
        const std::optional<SessionId>& session = caller.session;
        auto hashes = ToHashes(request->chunks());
        if (!hashes.ok()) return hashes.status();
        auto root = ToHash(request->root());
        if (!root.ok()) return root.status();
        absl::Status status =
            store_->Commit(tenant, *root, *hashes, request->size_bytes(),
                           session.has_value() ? BlobOrigin::kSession : BlobOrigin::kClient);
        if (status.ok() && session.has_value())
          status = blob_retention_->UploadedBy(tenant, *session, *root);
        NoteFailure(caller, status);
        return status;
      });
}

grpc::ServerBidiReactor<proto::ListChunksRequest, proto::ListChunksReply>* BlobService::ServeList(
    grpc::CallbackServerContext* context) {
  return Answer<proto::ListChunksRequest, proto::ListChunksReply>(
      CallMethod::kListChunks, context,
      [this](TenantId tenant, const proto::ListChunksRequest* request,
             proto::ListChunksReply* reply) {
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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* BlobService::ServeDownload(
    grpc::CallbackServerContext* context) {
  return new DownloadStream(this, context);
}

}  // namespace outboard::gateway
