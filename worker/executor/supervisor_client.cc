#include "worker/executor/supervisor_client.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

namespace {

// Maps a blob that the supervisor has passed as an open file (BlobHere in proto/executor.proto) as
// memory of the session. The supervisor has verified the bytes. The mapping is private: pages are
// read on first use, and writes do not reach the file.
// Errors: DATA_LOSS  the file cannot be mapped;  RESOURCE_EXHAUSTED  over the session's memory
absl::StatusOr<runtime::DeviceBuffer> MapBlobFile(int fd, Engine& engine) {
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) return absl::DataLossError("a downloaded blob is missing");
  return engine.MapFile(fd, info.st_size);
}

// The same of a part, which is copied: it need not begin where a page does.
absl::StatusOr<runtime::DeviceBuffer> ReadBlobPart(int fd, const BlobWant& want, Engine& engine) {
  constexpr uint64_t kPieceBytes = 4 << 20;
  OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer,
                      engine.NewBuffer(static_cast<int64_t>(want.stored_bytes)));
  std::string piece;
  for (uint64_t at = 0; at < want.stored_bytes; at += piece.size()) {
    piece.assign(std::min(kPieceBytes, want.stored_bytes - at), '\0');  // padding is zeros
    const uint64_t here = at < want.bytes ? std::min<uint64_t>(piece.size(), want.bytes - at) : 0;
    for (uint64_t got = 0; got < here;) {
      const ssize_t more = pread(fd, piece.data() + got, here - got,
                                 static_cast<off_t>(want.offset + at + got));
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) return absl::DataLossError("a downloaded blob is missing");
      got += static_cast<uint64_t>(more);
    }
    OB_RETURN_IF_ERROR(
        engine.device().Upload(buffer.address() + static_cast<int64_t>(at), piece));
  }
  return buffer;
}

// How often a busy writer is polled; an idle session is notified within this time.
constexpr std::chrono::milliseconds kWriterPatience{50};
// How often counts are reported: more often than Prometheus asks for them.
constexpr int64_t kCountsEveryMs = 2000;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

proto::Stored NotStored(uint64_t id, const absl::Status& why) {
  proto::Stored stored;
  stored.set_id(id);
  stored.set_code(static_cast<uint32_t>(why.code()));
  stored.set_message(std::string(why.message()));
  return stored;
}

}  // namespace

void SupervisorClient::OnCommand(const proto::ToExecutor& command, int passed, ExecutorCore& core,
                                 Engine& engine, const ExecutorCore::SendFrame& send) {
  if (command.has_store_file()) {
    if (writer_ == nullptr && passed >= 0)
      writer_ = std::make_unique<PersistWriter>(std::exchange(passed, -1));
  } else if (command.has_blob_here()) {
    const proto::BlobHere& blob = command.blob_here();
    if (wants_in_flight_ > 0) --wants_in_flight_;
    const BlobWant want = TakeSent(blob.root());
    if (blob.code() == 0)
      core.OnBlob(want.key,
                  want.is_part ? ReadBlobPart(passed, want, engine) : MapBlobFile(passed, engine),
                  send);
    else
      core.OnBlob(want.key,
                  absl::Status(static_cast<absl::StatusCode>(blob.code()), blob.message()), send);
  } else if (command.has_stored()) {
    OnStored(command.stored(), core, send);
  }
  if (passed >= 0) close(passed);
}

// All answers for one root bring the same file: whose each is makes no difference.
BlobWant SupervisorClient::TakeSent(const std::string& root) {
  const auto sent = sent_wants_.find(root);
  if (sent == sent_wants_.end()) return {.root = root};
  BlobWant want = std::move(sent->second.front());
  sent->second.pop_front();
  if (sent->second.empty()) sent_wants_.erase(sent);
  return want;
}

void SupervisorClient::OnStored(proto::Stored stored, ExecutorCore& core,
                                const ExecutorCore::SendFrame& send) {
  sent_bytes_ += stored.sent_bytes();
  if (stored.code() == 0 && !parts_.empty()) return TellPart();
  parts_.clear();
  stored.set_sent_bytes(std::exchange(sent_bytes_, 0));
  if (writer_ != nullptr) writer_->Stored(stored);
  if (stored.code() == 0) trouble_.clear();
  core.OnStored(stored, NowMs(), send);
}

void SupervisorClient::TellPart() {
  proto::FromExecutor event;
  *event.mutable_store() = std::move(parts_.front());
  parts_.pop_front();
  tell_(event);
}

// A snapshot that fails is tried again, of which the client hears nothing: whoever runs this worker
// does, once for each reason. What the supervisor could not do it has said itself.
void SupervisorClient::NotWritten(uint64_t id, const absl::Status& why, ExecutorCore& core,
                                  const ExecutorCore::SendFrame& send) {
  const proto::Stored stored = NotStored(id, why);
  if (std::exchange(trouble_, stored.message()) != stored.message())
    telemetry::LogWarning("session_not_written", {{"message", stored.message()}});
  core.OnStored(stored, NowMs(), send);
}

void SupervisorClient::TellCounts() {
  may_count_ = false;
  counted_ms_ = NowMs();
  proto::FromExecutor event;
  for (const telemetry::CellCount& count : telemetry::TakeCounts()) {
    proto::Counts::Cell& cell = *event.mutable_counts()->add_cells();
    cell.set_metric(count.metric);
    cell.set_cell(count.cell);
    cell.set_more(count.more);
  }
  if (event.has_counts()) tell_(event);
}

void SupervisorClient::SendPending(ExecutorCore& core, const ExecutorCore::SendFrame& send) {
  if (NowMs() - counted_ms_ >= kCountsEveryMs)
    TellCounts();
  else
    may_count_ = true;
  for (BlobWant& want : core.TakeBlobWants()) wants_.push_back(std::move(want));
  for (; !wants_.empty() && wants_in_flight_ < kBlobWantsMax; ++wants_in_flight_) {
    proto::FromExecutor event;
    event.mutable_want_blob()->set_root(wants_.front().root);
    event.mutable_want_blob()->set_size_bytes(wants_.front().size_bytes);
    tell_(event);
    sent_wants_[wants_.front().root].push_back(wants_.front());
    wants_.pop_front();
  }
  if (writer_ != nullptr)
    if (std::optional<PersistWriter::Written> written = writer_->Take()) {
      if (written->blobs.ok()) {
        for (proto::StoreBlobs& part : written->before) parts_.push_back(std::move(part));
        parts_.push_back(*std::move(written->blobs));
        TellPart();
      } else {
        NotWritten(written->id, written->blobs.status(), core, send);
      }
    }
  while (std::shared_ptr<const PersistRequest> request = core.TakeStore(NowMs())) {
    if (writer_ != nullptr) return writer_->Write(std::move(request));
    const uint64_t id = request->id;
    request.reset();
    NotWritten(id, absl::FailedPreconditionError("this worker stores nothing"), core, send);
  }
}

std::optional<std::chrono::milliseconds> SupervisorClient::patience(
    const ExecutorCore& core) const {
  if (writer_ != nullptr && writer_->busy()) return kWriterPatience;
  std::optional<int64_t> wake_ms = core.wake_ms();
  if (may_count_) {
    const int64_t counts_ms = counted_ms_ + kCountsEveryMs;
    wake_ms = wake_ms ? std::min(*wake_ms, counts_ms) : counts_ms;
  }
  if (!wake_ms) return std::nullopt;
  return std::chrono::milliseconds(std::max<int64_t>(0, *wake_ms - NowMs()));
}

void SupervisorClient::LetGo() {
  if (writer_ != nullptr) writer_->LetGo();
}

}  // namespace outboard::worker
