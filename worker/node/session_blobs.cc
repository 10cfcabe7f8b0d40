#include "worker/node/session_blobs.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/fleet.grpc.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/blobs/download.h"
#include "wire/blobs/upload.h"
#include "wire/status.h"
#include "worker/node/grpc_attach.h"

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

// Opened for each read, since a session may store more files than a process may have open.
wire::BlobSource SourceOfFile(const std::string& path, uint64_t size_bytes) {
  return {size_bytes, [path](uint64_t offset, std::span<char> out) -> absl::Status {
            const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
            if (fd < 0) return absl::DataLossError("a file to be stored has disappeared");
            absl::Status status = wire::SourceOf(fd, 0, offset + out.size()).read(offset, out);
            close(fd);
            return status;
          }};
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
  connections_.metadata = SessionMetadata(options_.assign, options_.fleet_secret);
  store_folder_ = absl::StrCat(options_.cache->folder(), "/store-",
                               absl::BytesToHexString(options_.assign.session_id()));
  std::error_code ignored;  // an executor that cannot write there says so
  std::filesystem::create_directories(store_folder_, ignored);
}

SessionBlobs::~SessionBlobs() {
  Cancel();
  for (std::thread& thread : threads_) thread.join();
  std::error_code ignored;
  std::filesystem::remove_all(store_folder_, ignored);
}

void SessionBlobs::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  wake_.notify_all();
}

void SessionBlobs::Want(const proto::WantBlob& want) {
  Post([this, want] {
    const absl::StatusOr<std::string> path = Pull(want);
    proto::NodeCommand command;
    proto::BlobHere& here = *command.mutable_blob_here();
    here.set_root(want.root());
    here.set_code(static_cast<uint32_t>(path.status().code()));
    here.set_message(std::string(path.status().message()));
    if (path.ok()) here.set_path(*path);
    options_.answer(command);
  });
}

void SessionBlobs::Store(const proto::StoreBlobs& store) {
  Post([this, store] {
    const absl::StatusOr<uint64_t> sent = Upload(store);
    CountStored(store, sent);
    Tell(sent.status());
    Empty(store);
    proto::NodeCommand command;
    proto::Stored& stored = *command.mutable_stored();
    stored.set_id(store.id());
    stored.set_code(static_cast<uint32_t>(sent.status().code()));
    stored.set_message(std::string(sent.status().message()));
    if (sent.ok()) stored.set_sent_bytes(*sent);
    options_.answer(command);
  });
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

// What was not stored the executor writes again.
void SessionBlobs::Empty(const proto::StoreBlobs& store) const {
  std::vector<std::string> roots(store.roots().begin(), store.roots().end());
  roots.push_back(store.manifest_root());
  for (const std::string& root : roots)
    unlink(absl::StrCat(store_folder_, "/", wire::ToHex(root)).c_str());
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

absl::StatusOr<std::string> SessionBlobs::Pull(const proto::WantBlob& want) {
  const absl::StatusOr<wire::Hash> root = ToHash(want.root());
  if (!root.ok()) return root.status();
  const absl::StatusOr<wire::ChunkList> blob = wire::ListBlob(connections_, *root, Options());
  if (!blob.ok()) return blob.status();
  if (want.size_bytes() != 0 && want.size_bytes() != blob->size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a blob of ", blob->size_bytes, " bytes where ",
                                                   want.size_bytes(), " were wanted"));
  }
  std::string own = absl::StrCat(store_folder_, "/pulled-", pulled_++);
  bool pulled = false;
  const absl::Status here = options_.cache->Get(*root, blob->size_bytes, own, [&](int fd) {
    pulled = true;
    return wire::DownloadBlob(connections_, *blob, fd, /*fresh=*/true, Options()).status();
  });
  telemetry::CountAs(telemetry::Metric::kBlobCache,
                     pulled ? telemetry::Lookup::kMiss : telemetry::Lookup::kHit);
  if (!here.ok()) return here;
  if (pulled) telemetry::Count(telemetry::Metric::kBlobsPulled, blob->size_bytes);
  return own;
}

absl::StatusOr<uint64_t> SessionBlobs::Upload(const proto::StoreBlobs& store) {
  std::set<std::string> roots(store.roots().begin(), store.roots().end());
  roots.insert(store.manifest_root());
  std::vector<wire::BlobSource> sources;
  std::vector<wire::Hash> named;  // as sources
  for (const std::string& bytes : roots) {
    const absl::StatusOr<wire::Hash> root = ToHash(bytes);
    if (!root.ok()) return root.status();
    const std::string path = absl::StrCat(store_folder_, "/", wire::ToHex(*root));
    std::error_code absent;
    const uint64_t size = std::filesystem::file_size(path, absent);
    if (absent) continue;  // stored before
    sources.push_back(SourceOfFile(path, size));
    named.push_back(*root);
  }
  const absl::StatusOr<wire::Uploaded> uploaded =
      wire::UploadBlobs(connections_, sources, Options());
  if (!uploaded.ok()) return uploaded.status();
  for (size_t i = 0; i < named.size(); ++i) {
    if (uploaded->names[i].root != named[i])
      return absl::DataLossError("a file to be stored does not match its hash");
  }
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
        wire::TransferStripes::Call call(&stripes, connections_);
        return wire::FromGrpc(
            proto::Fleet::NewStub(connections_.channels[0])->Keep(call.context(), request, &reply));
      },
      [] {});
  if (!kept.ok()) return kept;
  return uploaded->sent_bytes;
}

}  // namespace outboard::worker
