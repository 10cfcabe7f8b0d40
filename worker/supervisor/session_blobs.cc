#include "worker/supervisor/session_blobs.h"

#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/fleet.grpc.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/blobs/download.h"
#include "wire/blobs/upload.h"
#include "wire/status.h"
#include "worker/session/blob_inbox.h"
#include "worker/supervisor/grpc_attach.h"

namespace outboard::worker {
namespace {

// Blobs at a time; each is striped over all connections, so more only help with many small ones.
constexpr size_t kThreads = 4;

absl::StatusOr<wire::Hash> ToHash(const std::string& bytes) {
  const std::optional<wire::Hash> hash = wire::HashFromBytes(bytes);
  if (!hash)
    return absl::InvalidArgumentError(absl::StrCat("a blob's root of ", bytes.size(), " bytes"));
  return *hash;
}

void CountStored(const proto::StoreBlobs& store, const absl::StatusOr<uint64_t>& sent) {
  const auto what =
      store.checkpoint() ? telemetry::StoredKind::kCheckpoint : telemetry::StoredKind::kSnapshot;
  if (sent.ok()) return telemetry::CountAs(telemetry::Metric::kBlobsStored, what, *sent);
  telemetry::CountAs(telemetry::Metric::kStoreFailures, what);
}

}  // namespace

SessionBlobs::SessionBlobs(SessionBlobsOptions options) : options_(std::move(options)) {
  connections_.channels = options_.channels;
  connections_.metadata = SessionMetadata(options_.assign, options_.rank, options_.fleet_secret);
}

SessionBlobs::~SessionBlobs() {
  Cancel();
  for (std::thread& thread : threads_) thread.join();
}

void SessionBlobs::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  wake_.notify_all();
}

void SessionBlobs::UseChannels(std::vector<std::shared_ptr<grpc::Channel>> channels) {
  std::lock_guard lock(mutex_);
  connections_.channels = std::move(channels);
}

wire::BlobConnections SessionBlobs::Connections() {
  std::lock_guard lock(mutex_);
  return connections_;
}

absl::Status SessionBlobs::Want(const proto::WantBlob& want) {
  if (absl::StatusOr<wire::Hash> root = ToHash(want.root()); !root.ok()) return root.status();
  if (++wants_ > kBlobWantsMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kBlobWantsMax, " requests for blobs in flight"));
  Post([this, want] {
    const absl::StatusOr<int> file = Pull(want);
    proto::ToExecutor command;
    proto::BlobHere& here = *command.mutable_blob_here();
    here.set_root(want.root());
    here.set_code(static_cast<uint32_t>(file.status().code()));
    here.set_message(std::string(file.status().message()));
    --wants_;  // before the executor can send the next
    options_.answer(command, file.value_or(-1));
  });
  return absl::OkStatus();
}

absl::Status SessionBlobs::Store(const proto::StoreBlobs& store) {
  if (++stores_ > 1) return absl::ResourceExhaustedError("two requests to store in flight");
  Post([this, store] {
    const absl::StatusOr<uint64_t> sent = Upload(store);
    CountStored(store, sent);
    Tell(sent.status());
    // What was not stored the executor writes again.
    const bool goes_on = store.more() && sent.ok();
    if (options_.file != nullptr && !goes_on) options_.file->Clear();
    proto::ToExecutor command;
    proto::Stored& stored = *command.mutable_stored();
    stored.set_id(store.id());
    stored.set_code(static_cast<uint32_t>(sent.status().code()));
    stored.set_message(std::string(sent.status().message()));
    if (sent.ok()) stored.set_sent_bytes(*sent);
    --stores_;
    options_.answer(command, -1);
  });
  return absl::OkStatus();
}

// Once for each reason: a snapshot is tried again.
void SessionBlobs::Tell(const absl::Status& status) {
  const absl::string_view message = status.message();
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(trouble_, std::string(message)) == message || status.ok() || cancelled_)
      return;
  }
  telemetry::LogWarning(
      "session_not_stored",
      {{"session", absl::BytesToHexString(options_.assign.session_id())}, {"message", message}});
}

void SessionBlobs::Post(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return;
  jobs_.push_back(std::move(job));
  if (threads_.size() < kThreads) threads_.emplace_back([this] { Work(); });
  wake_.notify_one();
}

void SessionBlobs::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return cancelled_ || !jobs_.empty(); });
    if (cancelled_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

absl::StatusOr<int> SessionBlobs::Pull(const proto::WantBlob& want) {
  const absl::StatusOr<wire::Hash> root = ToHash(want.root());
  if (!root.ok()) return root.status();
  const wire::BlobConnections connections = Connections();
  const absl::StatusOr<wire::ChunkList> blob = wire::ListBlob(connections, *root, Options());
  if (!blob.ok()) return blob.status();
  if (want.size_bytes() != 0 && want.size_bytes() != blob->size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a blob of ", blob->size_bytes, " bytes where ",
                                                   want.size_bytes(), " were wanted"));
  }
  bool pulled = false;
  absl::StatusOr<int> file =
      options_.cache->Get(options_.owner, *root, blob->size_bytes, [&](int fd) {
        pulled = true;
        return wire::DownloadBlob(connections, *blob, fd, /*fresh=*/true, Options()).status();
      });
  telemetry::CountAs(telemetry::Metric::kBlobCache,
                     pulled ? telemetry::Lookup::kMiss : telemetry::Lookup::kHit);
  if (pulled && file.ok()) telemetry::Count(telemetry::Metric::kBlobsPulled, blob->size_bytes);
  return file;
}

absl::StatusOr<uint64_t> SessionBlobs::Upload(const proto::StoreBlobs& store) {
  if (options_.file == nullptr)
    return absl::FailedPreconditionError("this worker has no file for what a session stores");
  if (!store.more())
    if (absl::StatusOr<wire::Hash> root = ToHash(store.manifest_root()); !root.ok())
      return root.status();
  std::set<std::string_view> roots;
  std::vector<wire::BlobSource> sources;
  uint64_t bytes_left = options_.store_bytes_max;
  for (const proto::StoreBlobs::Piece& piece : store.pieces()) {
    if (!roots.insert(piece.root()).second)
      return absl::InvalidArgumentError("two pieces of one blob");
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(piece.root()));
    OB_ASSIGN_OR_RETURN(
        wire::BlobSource source,
        options_.file->Find(root, piece.offset(), piece.size_bytes(), bytes_left, cancelled_));
    bytes_left -= source.size_bytes;
    sources.push_back(std::move(source));
  }
  const wire::BlobConnections connections = Connections();
  const absl::StatusOr<wire::Uploaded> uploaded =
      wire::UploadBlobs(connections, sources, Options());
  if (!uploaded.ok()) return uploaded.status();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (uploaded->names[i].root != sources[i].name->root)
      return absl::DataLossError("a file to be stored does not match its hash");
  }
  if (store.more()) return uploaded->sent_bytes;
  proto::KeepRequest request;
  request.set_what(store.checkpoint() ? proto::KeepRequest::CHECKPOINT
                                      : proto::KeepRequest::SNAPSHOT);
  request.set_name(store.name());
  request.set_manifest_root(store.manifest_root());
  request.set_seq(store.seq());
  const wire::TransferOptions options = Options();
  wire::TransferStripes stripes(options, 0);
  const absl::Status kept = stripes.RunWithRetries(
      1,
      [&](int) {
        proto::KeepReply reply;
        wire::TransferStripes::Call call(&stripes, connections);
        return wire::FromGrpc(
            proto::Fleet::NewStub(connections.channels[0])->Keep(call.context(), request, &reply));
      },
      [] {});
  if (!kept.ok()) return kept;
  return uploaded->sent_bytes;
}

}  // namespace outboard::worker
