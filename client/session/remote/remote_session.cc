// The program's calls on a session over a link: each makes an item, or waits for an answer.
// How it begins and ends: opening.cc; its streams: links.cc; its sleep: waits.cc.
#include "client/session/remote/remote_session.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/files/store_client.h"
#include "client/session/link/grpc_link.h"
#include "client/session/request.h"
#include "client/session/waiting.h"
#include "compiler/ir/dtype.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard::session {
namespace {

constexpr size_t kReleasesPending = 4096;  // who only drops handles frees memory over there, too

// Dimensions of a dtype that are as long as the bytes: what comes from the cloud is checked here,
// too.
bool IsArray(const proto::Checkpoint::Entry& entry) {
  if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount || entry.blob_root().size() != 32)
    return false;
  uint64_t bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(entry.dtype())));
  for (const uint64_t dim : entry.dims()) {
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, dim, &bytes))
      return false;
  }
  return bytes == entry.size_bytes();
}

// Lists the arrays stored under a name, validated, so that a program can put them by their blobs.
//
// Blocks for a round trip. Errors: those of client/files/store_client.h; INVALID_ARGUMENT for a
// name that holds a plain file, DATA_LOSS for a malformed list.
absl::StatusOr<std::vector<StoredArray>> StoredArrays(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::string& key,
                                                      const std::string& name) {
  OB_ASSIGN_OR_RETURN(const proto::StoreGetReply got, files::StoreClient(channel, key).Get(name));
  if (!got.checkpoint().file_name().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is a plain file, not arrays; `outboard pull` downloads it"));
  }
  std::vector<StoredArray> arrays;
  for (const proto::Checkpoint::Entry& entry : got.checkpoint().entries()) {
    if (!IsArray(entry)) {
      return absl::DataLossError(
          absl::StrCat("entry ", arrays.size(), " of ", name, " is not an array"));
    }
    arrays.push_back({entry.name(),
                      static_cast<DType>(entry.dtype()),
                      {entry.dims().begin(), entry.dims().end()},
                      entry.size_bytes(),
                      entry.blob_root()});
  }
  return arrays;
}

}  // namespace

absl::Status RemoteSession::Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                std::string_view bytes) {
  return Traced("put", [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(CheckDims(dims));
    if (bytes.size() > wire::kInlinePutBytesMax && bulk_ != nullptr) {
      const wire::BlobSource source = wire::SourceOf(bytes);
      OB_ASSIGN_OR_RETURN(const wire::Uploaded uploaded, Upload({&source, 1}));
      return SendPutBlob(handle, dtype, dims, bytes.size(), wire::AsBytes(uploaded.names[0].root));
    }
    auto copy = std::make_shared<const std::string>(bytes);
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, bytes.size()));
    core_.Put(handle, static_cast<uint32_t>(dtype), dims, std::move(copy));
    Flush();
    return absl::OkStatus();
  });
}

absl::Status RemoteSession::PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                    uint64_t total_bytes, std::string_view root) {
  return Traced("put", [&] { return SendPutBlob(handle, dtype, dims, total_bytes, root); });
}

absl::Status RemoteSession::SendPutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                        uint64_t total_bytes, std::string_view root) {
  OB_RETURN_IF_ERROR(CheckDims(dims));
  if (root.size() != wire::kHashBytes)
    return absl::InvalidArgumentError(absl::StrCat("a blob's root of ", root.size(), " bytes"));
  std::unique_lock lock(mutex_);
  OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
  core_.PutBlob(handle, static_cast<uint32_t>(dtype), dims, total_bytes, root);
  Flush();
  return absl::OkStatus();
}

absl::StatusOr<wire::Uploaded> RemoteSession::Upload(std::span<const wire::BlobSource> sources) {
  OB_RETURN_IF_ERROR(status());
  if (bulk_ == nullptr)
    return absl::UnimplementedError("this session's connection does not support blobs");
  ++blob_round_trips_;
  // Outside the lock: values and steps of other threads go on.
  const trace::Scope scope(options_.trace, "upload", trace_session_);
  const Waiting waiting;
  auto uploaded = bulk_->Upload(sources);
  if (absl::Status ended = status(); !uploaded.ok() && !ended.ok()) return ended;
  return uploaded;
}

absl::Status RemoteSession::AwaitWindow() {
  if (!here()) return ForkedError();
  std::unique_lock lock(mutex_);
  return AwaitWindow(lock, 0);
}

absl::StatusOr<uint64_t> RemoteSession::Run(const RunRequest& request) {
  return Traced("run", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0, Interruptible::kNo));
    if (measured_) return absl::CancelledError("enough steps are measured for an estimate");
    auto seq = core_.Run(request);
    if (seq.ok()) {
      run_log_.NoteRun(request, Clock::now());
      steps_by_seq_.emplace_back(*seq, steps_sent_ += request.repeat);
    }
    Flush();
    return seq;
  });
}

absl::StatusOr<uint64_t> RemoteSession::Fetch(std::span<const uint64_t> handles) {
  return Traced("fetch", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Fetch(handles);
    Flush();
    return seq;
  });
}

absl::StatusOr<uint64_t> RemoteSession::Save(std::string_view name,
                                             std::span<const SaveEntry> entries) {
  return Traced("save", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Save(name, entries);
    Flush();
    return seq;
  });
}

absl::StatusOr<Saved> RemoteSession::AwaitSaved(uint64_t seq) {
  const auto call = [&]() -> absl::StatusOr<Saved> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.SavedReady(seq) || stopped(); }));
    if (!core_.SavedReady(seq)) return core_.status();
    return core_.TakeSaved(seq);
  };
  return Traced("wait for save", call, seq);
}

absl::StatusOr<std::vector<StoredArray>> RemoteSession::Stored(const std::string& name) {
  return Traced("ask the store", [&]() -> absl::StatusOr<std::vector<StoredArray>> {
    if (bulk_ == nullptr)
      return absl::UnimplementedError("this session's connection does not support the store");
    ++blob_round_trips_;
    const Waiting waiting;
    return StoredArrays(MakeChannel(target_, options_.protection), options_.key, name);
  });
}

absl::Status RemoteSession::Keep(std::span<const KeepEntry> entries) {
  const auto call = [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Keep(entries);
    Flush();
    return seq;
  };
  return Traced("keep", call).status();
}

bool RemoteSession::keeps_any() const {
  if (!here()) return false;
  std::lock_guard lock(mutex_);
  return core_.keeps_any();
}

std::vector<KeptArray> RemoteSession::Kept() {
  if (!here()) return {};
  std::unique_lock lock(mutex_);
  AwaitBegun(lock, Interruptible::kNo).IgnoreError();  // an ended session has none
  return core_.TakeKept();
}

void RemoteSession::Release(uint64_t handle) {
  if (!here()) return;
  std::lock_guard lock(mutex_);
  core_.Advance(Now());
  core_.Release(handle);
  if (core_.pending_releases() < kReleasesPending) return;
  core_.FlushReleases();
  Flush();
}

absl::StatusOr<HostTensor> RemoteSession::Await(uint64_t seq, uint32_t index) {
  const auto call = [&]() -> absl::StatusOr<HostTensor> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.Ready(seq, index) || stopped(); }));
    if (!core_.Ready(seq, index)) return core_.status();
    return core_.Take(seq, index);
  };
  return Traced("wait for value", call, seq);
}

bool RemoteSession::Ready(uint64_t seq, uint32_t index) const {
  if (!here()) return true;
  std::lock_guard lock(mutex_);
  return core_.Ready(seq, index);
}

void RemoteSession::Forget(uint64_t seq, uint32_t index) {
  if (!here()) return;
  std::lock_guard lock(mutex_);
  core_.Forget(seq, index);
}

absl::Status RemoteSession::Sync() {
  return Traced("wait for all", [&]() -> absl::Status {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitBegun(lock));
    core_.Advance(Now());
    core_.FlushReleases();
    Flush();
    const uint64_t seq = core_.last_seq();
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.done_seq() >= seq || ended(); }));
    if (ended()) return core_.status();
    return core_.TakeFirstFailure();
  });
}

absl::Status RemoteSession::status() const {
  if (!here()) return ForkedError();
  std::lock_guard lock(mutex_);
  return ended() ? core_.status() : absl::OkStatus();
}

Stats RemoteSession::stats() const {
  Stats stats;
  if (!here()) return stats;
  std::lock_guard lock(mutex_);
  core_.FillStats(stats);
  stats.blocking_round_trips = round_trips_ + blob_round_trips_;
  stats.window_waits = window_waits_;
  stats.frames_up = frames_up_;
  if (link_ != nullptr) {
    stats.bytes_up = bytes_up_before_ + link_->bytes_up();
    stats.bytes_down = bytes_down_before_ + link_->bytes_down();
    stats.bytes_down_apart = values_bytes_before_;
    if (values_ != nullptr) stats.bytes_down_apart += values_->bytes_down();
    stats.bytes_down += stats.bytes_down_apart;
  }
  if (bulk_ != nullptr) stats.bytes_up += bulk_->bytes_up();
  if (opened_at_ != Clock::time_point()) {
    const auto end = closed_at_ != Clock::time_point() ? closed_at_ : Clock::now();
    stats.seconds_open = std::chrono::duration<double>(end - opened_at_).count();
  }
  return stats;
}

}  // namespace outboard::session
