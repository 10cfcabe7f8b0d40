#include "client/tensor/session_engine.h"

#include <utility>

#include "base/check.h"

namespace outboard {
namespace {

class SessionEngine : public Engine {
 public:
  explicit SessionEngine(std::unique_ptr<transport::Session> session)
      : session_(std::move(session)) {}

  uint64_t NewHandle() override { return session_->NewHandle(); }
  absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                   std::string_view bytes) override {
    return session_->Put(handle, static_cast<uint32_t>(dtype), dims, bytes);
  }
  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) override {
    return session_->Upload(sources);
  }
  absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                       uint64_t size_bytes, std::string_view root) override {
    return session_->PutBlob(handle, static_cast<uint32_t>(dtype), dims, size_bytes, root);
  }
  absl::Status AwaitRoom() override { return session_->AwaitRoom(); }
  absl::StatusOr<uint64_t> Run(const transport::RunRequest& request) override {
    return session_->Run(request);
  }
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) override {
    return session_->Fetch(handles);
  }
  absl::StatusOr<uint64_t> Save(std::string_view name,
                                std::span<const transport::SaveEntry> entries) override {
    return session_->Save(name, entries);
  }
  absl::StatusOr<transport::Saved> AwaitSaved(uint64_t seq) override {
    return session_->AwaitSaved(seq);
  }
  absl::StatusOr<std::vector<transport::StoredArray>> Stored(const std::string& name) override {
    return session_->Stored(name);
  }
  void Release(uint64_t handle) override { session_->Release(handle); }
  absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) override {
    OB_ASSIGN_OR_RETURN(transport::Value value, session_->Await(seq, index));
    HostTensor tensor;
    tensor.dtype = static_cast<DType>(value.dtype);
    tensor.dims = std::move(value.dims);
    tensor.bytes = std::move(value.bytes);
    return tensor;
  }
  bool Ready(uint64_t seq, uint32_t index) const override { return session_->Ready(seq, index); }
  void Forget(uint64_t seq, uint32_t index) override { session_->Forget(seq, index); }
  absl::Status Sync() override { return session_->Sync(); }
  transport::Stats stats() const override { return session_->stats(); }
  absl::Status Close() override { return session_->Close(); }

 private:
  std::unique_ptr<transport::Session> session_;
};

}  // namespace

std::unique_ptr<Engine> MakeSessionEngine(std::unique_ptr<transport::Session> session) {
  return std::make_unique<SessionEngine>(std::move(session));
}

}  // namespace outboard
