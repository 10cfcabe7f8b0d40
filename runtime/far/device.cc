#include "runtime/far/device.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace outboard::far {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

// No x86-64 pointer has this bit alone: following one is a fault.
constexpr uint64_t kFar = uint64_t{1} << 62;
// Any number would do: so much is queued before it is run all the same.
constexpr size_t kQueuedMax = 4096;
constexpr int64_t kStagedBytesMax = int64_t{64} << 20;
constexpr unsigned char kGarbage = 0xCD;
constexpr int64_t kGarbageBytesMax = 1 << 20;  // the beginning is enough to be noticed

DeviceAddress Near(DeviceAddress address) {
  return DeviceAddress{static_cast<uint64_t>(address) & ~kFar};
}
DeviceAddress Far(DeviceAddress address) {
  return DeviceAddress{static_cast<uint64_t>(address) | kFar};
}

class FarKernel final : public DeviceKernel {
 public:
  FarKernel(const CompiledKernel& kernel, std::shared_ptr<const DeviceKernel> near)
      : DeviceKernel(kernel), near_(std::move(near)) {}
  const std::shared_ptr<const DeviceKernel>& near() const { return near_; }

 private:
  std::shared_ptr<const DeviceKernel> near_;
};

}  // namespace

FarDevice::FarDevice(std::unique_ptr<runtime::Device> near)
    : near_(std::move(near)), properties_(near_->properties()) {
  properties_.kind = "far";
  properties_.name = "the test device far";
  properties_.cuts_tasks = false;
  properties_.records_launches = true;  // tests see what an engine does then
  thread_ = std::thread([this] { RunQueue(); });
}

FarDevice::~FarDevice() {
  RunWaiting();
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

// ---- the queue ----------------------------------------------------------------------------------

void FarDevice::Enqueue(Work work, int64_t staged_bytes) {
  bool full = false;
  {
    absl::MutexLock lock(&mutex_);
    queue_.push_back(std::move(work));
    staged_bytes_ += staged_bytes;
    full = queue_.size() > kQueuedMax || staged_bytes_ > kStagedBytesMax;
  }
  if (full) RunWaiting();
}

void FarDevice::RunWaiting() {
  absl::MutexLock lock(&mutex_);
  ++waiting_;
  const auto done = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return queue_.empty() && !running_; };
  mutex_.Await(absl::Condition(&done));
  --waiting_;
}

void FarDevice::RunQueue() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stop_ || (waiting_ > 0 && !queue_.empty());
    };
    mutex_.Await(absl::Condition(&wanted));
    if (stop_) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    mutex_.Unlock();
    absl::Status status = work();
    work = nullptr;  // what it holds ends before anybody hears that it is done
    mutex_.Lock();
    if (failure_.ok()) failure_ = std::move(status);
    running_ = false;
    if (queue_.empty()) staged_bytes_ = 0;
  }
}

absl::Status FarDevice::Synchronize() {
  RunWaiting();
  absl::MutexLock lock(&mutex_);
  return std::exchange(failure_, absl::OkStatus());
}

absl::StatusOr<double> FarDevice::Time(absl::FunctionRef<absl::Status()> work) {
  if (absl::Status status = Synchronize(); !status.ok()) return status;
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = work();
  status.Update(Synchronize());
  if (!status.ok()) return status;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ---- memory -------------------------------------------------------------------------------------

absl::StatusOr<DeviceAddress> FarDevice::AllocateNear(int64_t bytes) {
  absl::MutexLock lock(&memory_mutex_);
  absl::StatusOr<DeviceBuffer> buffer = near_->Allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  const DeviceAddress address = Far(buffer->address());
  buffers_.emplace(static_cast<uint64_t>(address), *std::move(buffer));
  return address;
}

absl::StatusOr<DeviceBuffer> FarDevice::Allocate(int64_t bytes) {
  absl::StatusOr<DeviceAddress> allocated = AllocateNear(bytes);
  if (absl::IsResourceExhausted(allocated.status())) {
    RunWaiting();  // what was given back is free then
    allocated = AllocateNear(bytes);
  }
  if (!allocated.ok()) return allocated.status();
  const DeviceAddress address = *allocated;
  if (absl::Status status = Fill(address, kGarbage, std::min(bytes, kGarbageBytesMax));
      !status.ok())
    return status;
  return MakeBuffer(address, bytes, /*mapped=*/false);
}

void FarDevice::Free(DeviceAddress address, int64_t, bool) {
  Enqueue([this, address] {
    absl::MutexLock lock(&memory_mutex_);
    buffers_.erase(static_cast<uint64_t>(address));
    return absl::OkStatus();
  });
}

void FarDevice::LimitMemory(int64_t bytes_max) {
  absl::MutexLock lock(&memory_mutex_);
  near_->LimitMemory(bytes_max);
}

int64_t FarDevice::memory_bytes_max() const {
  absl::MutexLock lock(&memory_mutex_);
  return near_->memory_bytes_max();
}

int64_t FarDevice::memory_bytes_in_use() const {
  const_cast<FarDevice*>(this)->RunWaiting();  // frees are late too
  absl::MutexLock lock(&memory_mutex_);
  return near_->memory_bytes_in_use();
}

absl::Status FarDevice::Upload(DeviceAddress to, std::string_view from) {
  Enqueue([this, to, bytes = std::string(from)] { return near_->Upload(Near(to), bytes); },
          static_cast<int64_t>(from.size()));
  return absl::OkStatus();
}

absl::Status FarDevice::Download(DeviceAddress from, int64_t bytes, void* to) {
  Enqueue([this, from, bytes, to] { return near_->Download(Near(from), bytes, to); });
  return Synchronize();
}

absl::Status FarDevice::Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) {
  Enqueue([this, to, from, bytes] { return near_->Copy(Near(to), Near(from), bytes); });
  return absl::OkStatus();
}

absl::Status FarDevice::CopyBox(DeviceAddress to, std::span<const int64_t> to_dims,
                                DeviceAddress from, std::span<const int64_t> from_dims,
                                std::span<const int64_t> box, int element_bytes) {
  using Dims = std::vector<int64_t>;
  Enqueue([this, to, from, element_bytes, to_dims = Dims(to_dims.begin(), to_dims.end()),
           from_dims = Dims(from_dims.begin(), from_dims.end()),
           box = Dims(box.begin(), box.end())] {
    return near_->CopyBox(Near(to), to_dims, Near(from), from_dims, box, element_bytes);
  });
  return absl::OkStatus();
}

absl::Status FarDevice::Fill(DeviceAddress to, unsigned char byte, int64_t bytes) {
  Enqueue([this, to, byte, bytes] { return near_->Fill(Near(to), byte, bytes); });
  return absl::OkStatus();
}

// ---- kernels ------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<DeviceKernel>> FarDevice::Load(const CompiledKernel& kernel) {
  absl::StatusOr<std::unique_ptr<DeviceKernel>> near = near_->Load(kernel);
  if (!near.ok()) return near.status();
  return std::make_unique<FarKernel>(kernel, *std::move(near));
}

absl::Status FarDevice::Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                               std::span<const int64_t> vars) {
  const auto count = static_cast<size_t>(kernel.buffer_count());
  if (buffers.size() < count)
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " of ", count, " buffers got ", buffers.size()));
  std::vector<DeviceAddress> near_buffers;
  for (const DeviceAddress address : buffers.first(count)) near_buffers.push_back(Near(address));
  Enqueue([this, near = static_cast<const FarKernel&>(kernel).near(),
           buffers = std::move(near_buffers),
           vars = std::vector<int64_t>(vars.begin(), vars.end())] {
    return near_->Launch(*near, buffers, vars);
  });
  return absl::OkStatus();
}

}  // namespace outboard::far
