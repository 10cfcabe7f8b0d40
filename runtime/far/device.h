// A device for tests that behaves as badly as the interface allows. Its addresses are not pointers,
// so a host that dereferences one crashes. No work runs before a call waits for it, which exposes
// reads without a wait, memory that is freed too early and sources that are destroyed too early.
// Allocated memory holds garbage. Kernels are those of the CPU. Errors: as runtime/device.h; an
// error that other devices return at once (INTERNAL, RESOURCE_EXHAUSTED) may come from the next
// call that waits.
//
// Threads: as in runtime/device.h; the device does its work on a thread of its own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/device.h"

namespace outboard::far {

class FarDevice final : public runtime::Device {
 public:
  // Does its work on `near`, which must have no other user.
  explicit FarDevice(std::unique_ptr<runtime::Device> near);
  ~FarDevice() override;

  const runtime::DeviceProperties& properties() const override { return properties_; }

  absl::StatusOr<runtime::DeviceBuffer> Allocate(int64_t bytes) override;
  void LimitMemory(int64_t bytes_max) override;
  int64_t memory_bytes_max() const override;
  int64_t memory_bytes_in_use() const override;
  absl::Status Upload(runtime::DeviceAddress to, std::string_view from) override;
  absl::Status Download(runtime::DeviceAddress from, int64_t bytes, void* to) override;
  using Device::Download;
  absl::Status Copy(runtime::DeviceAddress to, runtime::DeviceAddress from, int64_t bytes) override;
  absl::Status CopyBox(runtime::DeviceAddress to, std::span<const int64_t> to_dims,
                       runtime::DeviceAddress from, std::span<const int64_t> from_dims,
                       std::span<const int64_t> box, int element_bytes) override;
  absl::Status Fill(runtime::DeviceAddress to, unsigned char byte, int64_t bytes) override;

  absl::StatusOr<std::unique_ptr<runtime::DeviceKernel>> Load(
      const CompiledKernel& kernel) override;
  absl::Status Launch(const runtime::DeviceKernel& kernel,
                      std::span<const runtime::DeviceAddress> buffers,
                      std::span<const int64_t> vars) override;
  absl::Status Synchronize() override;
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) override;

 private:
  using Work = std::function<absl::Status()>;

  void Free(runtime::DeviceAddress address, int64_t bytes, bool mapped) override;
  absl::StatusOr<runtime::DeviceAddress> AllocateNear(int64_t bytes);
  // `staged_bytes`: host memory that the work holds.
  void Enqueue(Work work, int64_t staged_bytes = 0);
  // Runs all queued work.
  void RunWaiting();
  void RunQueue();

  const std::unique_ptr<runtime::Device> near_;
  runtime::DeviceProperties properties_;

  mutable absl::Mutex memory_mutex_;
  std::map<uint64_t, runtime::DeviceBuffer> buffers_ ABSL_GUARDED_BY(memory_mutex_);  // of near_

  absl::Mutex mutex_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t staged_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // threads in RunWaiting; while it is 0, no work runs
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // the first since the last report
  std::thread thread_;
};

}  // namespace outboard::far
