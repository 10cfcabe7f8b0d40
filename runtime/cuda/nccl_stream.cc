#include "runtime/cuda/nccl_stream.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/collective/nccl_stream.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {
namespace {

// A mark is a number, counted from 1, and an event until it is known to be done. Marks are done in
// their order.
class CudaNcclStream final : public collective::NcclStream {
 public:
  CudaNcclStream(const DriverApi& api, CUdevice device) : context_(api, device) {}
  ~CudaNcclStream() override {
    if (stream_ == nullptr || !context_.Enter().ok()) return;
    const bool is_done = context_.api().cuStreamSynchronize(stream_) == CUDA_SUCCESS;
    for (const auto& [mark, event] : open_) context_.api().cuEventDestroy(event);
    for (const CUevent event : unused_) context_.api().cuEventDestroy(event);
    if (is_done) context_.api().cuStreamDestroy(stream_);
  }

  absl::Status Open() {
    if (absl::Status status = context_.Open(); !status.ok()) return status;
    OB_CUDA(context_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    return absl::OkStatus();
  }

  void* handle() override { return stream_; }

  absl::StatusOr<uint64_t> Mark() override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    CUevent event = nullptr;
    if (!unused_.empty()) {
      event = unused_.back();
      unused_.pop_back();
    } else {
      OB_CUDA(context_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    }
    open_.emplace_back(++last_, event);
    OB_CUDA(context_, cuEventRecord, event, stream_);
    return last_;
  }

  absl::StatusOr<bool> IsDone(uint64_t mark) override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    while (!open_.empty() && open_.front().first <= mark) {
      const CUresult result = context_.api().cuEventQuery(open_.front().second);
      if (result == CUDA_ERROR_NOT_READY) return false;
      if (absl::Status status = context_.Check(result, "cuEventQuery"); !status.ok())
        return status;
      unused_.push_back(open_.front().second);
      open_.pop_front();
    }
    return true;
  }

 private:
  DriverContext context_;
  CUstream stream_ = nullptr;
  uint64_t last_ = 0;
  std::deque<std::pair<uint64_t, CUevent>> open_;  // the oldest first
  std::vector<CUevent> unused_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<collective::NcclStream>> MakeNcclStreamOf(const DriverApi& api) {
  const absl::StatusOr<CUdevice> gpu = FindFirstGpu(api);
  if (!gpu.ok()) return gpu.status();
  auto made = std::make_unique<CudaNcclStream>(api, *gpu);
  if (absl::Status status = made->Open(); !status.ok()) return status;
  return std::unique_ptr<collective::NcclStream>(std::move(made));
}

}  // namespace outboard::cuda

namespace outboard::collective {

absl::StatusOr<std::unique_ptr<NcclStream>> MakeNcclStream() {
  const absl::StatusOr<cuda::DriverApi>& api = cuda::LoadApi();
  if (!api.ok()) return api.status();
  return cuda::MakeNcclStreamOf(*api);
}

}  // namespace outboard::collective
