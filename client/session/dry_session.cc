#include "client/session/dry_session.h"

#include <atomic>

namespace outboard {
namespace {

absl::Status NoValues() {
  return absl::FailedPreconditionError("a dry run computes nothing: there is no value to read");
}

class DrySession final : public Session {
 public:
  uint64_t NewHandle() override { return ++last_handle_; }
  absl::Status Put(uint64_t, DType, std::span<const int64_t>, std::string_view bytes) override {
    bytes_ += bytes.size();
    return absl::OkStatus();
  }
  absl::Status PutBlob(uint64_t, DType, std::span<const int64_t>, uint64_t,
                       std::string_view) override {
    return absl::OkStatus();
  }
  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) override {
    for (const wire::BlobSource& source : sources) bytes_ += source.size_bytes;
    wire::Uploaded uploaded;
    uploaded.names.resize(sources.size());
    return uploaded;
  }
  absl::Status AwaitWindow() override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Run(const session::RunRequest& request) override {
    ++runs_;
    steps_ += request.repeat;
    return ++last_seq_;
  }
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t>) override { return ++last_seq_; }
  absl::StatusOr<uint64_t> Save(std::string_view, std::span<const session::SaveEntry>) override {
    return ++last_seq_;
  }
  absl::StatusOr<session::Saved> AwaitSaved(uint64_t) override { return NoValues(); }
  absl::StatusOr<std::vector<session::StoredArray>> Stored(const std::string&) override {
    return NoValues();
  }
  void Release(uint64_t) override {}
  absl::StatusOr<HostTensor> Await(uint64_t, uint32_t) override { return NoValues(); }
  bool Ready(uint64_t, uint32_t) const override { return true; }
  void Forget(uint64_t, uint32_t) override {}
  absl::Status Sync() override { return absl::OkStatus(); }
  absl::Status status() const override { return absl::OkStatus(); }
  session::Stats stats() const override {
    session::Stats stats;
    stats.runs = runs_;
    stats.steps = steps_;
    stats.bytes_up = bytes_;
    stats.device = "none: a dry run";
    return stats;
  }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  std::atomic<uint64_t> last_handle_ = 0, last_seq_ = 0, runs_ = 0, steps_ = 0, bytes_ = 0;
};

}  // namespace

std::shared_ptr<Session> MakeDrySession() { return std::make_shared<DrySession>(); }

}  // namespace outboard
