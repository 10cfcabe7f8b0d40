// Memory of the device and of the host, copies and fills.
#include <cstdlib>
#include <cstring>

#include "tests/gpu/driver/entry.h"

using namespace outboard::fake_cuda;  // NOLINT: entry points are C

namespace {

bool IsDevice(uint64_t address) {
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  return device.memory().Find(address, 1) != nullptr;
}

Result Copy(void* stream_handle, GraphNode work, bool wait) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  FakeStream* stream = device.StreamOf(stream_handle);
  if (stream == nullptr) return kInvalidHandle;
  work.kind = GraphNode::kCopy;
  // Pageable memory is read before the call returns, and written before it returns.
  if (stream->capture == nullptr && work.bytes > 0) {
    if (work.source_host && !work.target_host &&
        !device.IsPinned(reinterpret_cast<void*>(work.source), work.bytes)) {
      const auto* from = reinterpret_cast<const uint8_t*>(work.source);
      work.staged.assign(from, from + work.bytes);
    }
    if (work.target_host && !device.IsPinned(reinterpret_cast<void*>(work.target), work.bytes))
      wait = true;
  }
  const Result result = device.Enqueue(stream, std::move(work));
  if (result != kSuccess || !wait) return result;
  return device.WaitStream(stream);
}
GraphNode ToDevice(DevicePointer to, const void* from, size_t bytes) {
  GraphNode work;
  work.target = to;
  work.source = reinterpret_cast<uint64_t>(from);
  work.source_host = true;
  work.bytes = bytes;
  return work;
}
GraphNode ToHost(void* to, DevicePointer from, size_t bytes) {
  GraphNode work;
  work.target = reinterpret_cast<uint64_t>(to);
  work.target_host = true;
  work.source = from;
  work.bytes = bytes;
  return work;
}
GraphNode WithinDevice(DevicePointer to, DevicePointer from, size_t bytes) {
  GraphNode work;
  work.target = to;
  work.source = from;
  work.bytes = bytes;
  return work;
}
GraphNode Unified(DevicePointer to, DevicePointer from, size_t bytes) {
  GraphNode work = WithinDevice(to, from, bytes);
  work.target_host = !IsDevice(to);
  work.source_host = !IsDevice(from);
  return work;
}

Result Fill(void* stream_handle, DevicePointer to, unsigned value, int element, size_t width,
            bool wait) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  FakeStream* stream = device.StreamOf(stream_handle);
  if (stream == nullptr) return kInvalidHandle;
  if (to % static_cast<unsigned>(element) != 0) return kInvalidValue;
  GraphNode work;
  work.kind = GraphNode::kFill;
  work.target = to;
  work.value = value;
  work.element_bytes = element;
  work.width = width;
  const Result result = device.Enqueue(stream, std::move(work));
  return result != kSuccess || !wait ? result : device.WaitStream(stream);
}

}  // namespace

FAKE_API cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  FAKE_READY();
  if (address == nullptr || bytes == 0) return kInvalidValue;
  FakeDevice& device = FakeDevice::Get();
  if (device.AllocationDue(bytes)) return kOutOfMemory;
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  const uint64_t allocated = device.memory().Allocate(bytes);
  if (allocated == 0) return kOutOfMemory;
  // Whatever a program reads that it has not written is odd; as garbage, or as a report.
  device.memory().Fill(allocated, 0xaa, bytes, device.fill_aa());
  if (device.leftovers() != nullptr) device.leftovers()->Give(&device.memory(), allocated, bytes);
  *address = allocated;
  return kSuccess;
}
FAKE_API cuMemFree_v2(DevicePointer address) {
  FAKE_READY();
  if (address == 0) return kSuccess;
  FakeDevice& device = FakeDevice::Get();
  const Result result = device.WaitAll();
  if (result != kSuccess) return result;
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  return device.Free(address);
}
FAKE_API cuMemAllocAsync(DevicePointer* address, size_t bytes, void* stream) {
  if (FakeDevice::Get().StreamOf(stream) == nullptr) return kInvalidHandle;
  return cuMemAlloc_v2(address, bytes);
}
FAKE_API cuMemFreeAsync(DevicePointer address, void* stream_handle) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(stream_handle);
  if (stream == nullptr) return kInvalidHandle;
  GraphNode work;
  work.kind = GraphNode::kFree;
  work.target = address;
  return FakeDevice::Get().Enqueue(stream, std::move(work));
}
FAKE_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  *total_bytes = device.memory().capacity();
  *free_bytes = *total_bytes - device.memory().used();
  return kSuccess;
}
FAKE_API cuMemGetAddressRange_v2(DevicePointer* base, size_t* bytes, DevicePointer address) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  outboard::ptx::Region* region = device.memory().Find(address, 1);
  if (region == nullptr) return kNotFound;
  if (base != nullptr) *base = region->base;
  if (bytes != nullptr) *bytes = region->bytes();
  return kSuccess;
}

// Pinned memory. It has no device address here: kernels do not read the host's memory.
FAKE_API cuMemHostAlloc(void** host, size_t bytes, unsigned flags) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  if (bytes == 0) return kInvalidValue;
  if (device.Due("host")) return kOutOfMemory;
  *host = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*host == nullptr) return kOutOfMemory;
  std::memset(*host, 0xaa, bytes);
  std::lock_guard<std::mutex> lock(device.mutex());
  device.pinned()[reinterpret_cast<uint64_t>(*host)] = bytes;
  return kSuccess;
}
FAKE_API cuMemAllocHost_v2(void** host, size_t bytes) { return cuMemHostAlloc(host, bytes, 0); }
FAKE_API cuMemFreeHost(void* host) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  const Result result = device.WaitAll();
  if (result != kSuccess) return result;
  std::lock_guard<std::mutex> lock(device.mutex());
  if (device.pinned().erase(reinterpret_cast<uint64_t>(host)) == 0) return kInvalidValue;
  std::free(host);
  return kSuccess;
}
FAKE_API cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.mutex());
  device.pinned()[reinterpret_cast<uint64_t>(host)] = bytes;
  return kSuccess;
}
FAKE_API cuMemHostUnregister(void* host) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.mutex());
  return device.pinned().erase(reinterpret_cast<uint64_t>(host)) != 0 ? kSuccess : kInvalidValue;
}

FAKE_API cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  return Copy(nullptr, ToDevice(to, from, bytes), true);
}
FAKE_API cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  return Copy(nullptr, ToHost(to, from, bytes), true);
}
FAKE_API cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
  return Copy(nullptr, WithinDevice(to, from, bytes), false);
}
FAKE_API cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, void* stream) {
  return Copy(stream, ToDevice(to, from, bytes), false);
}
FAKE_API cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, void* stream) {
  return Copy(stream, ToHost(to, from, bytes), false);
}
FAKE_API cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, void* stream) {
  return Copy(stream, WithinDevice(to, from, bytes), false);
}
FAKE_API cuMemcpy(DevicePointer to, DevicePointer from, size_t bytes) {
  FAKE_READY();
  return Copy(nullptr, Unified(to, from, bytes), true);
}
FAKE_API cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, void* stream) {
  FAKE_READY();
  return Copy(stream, Unified(to, from, bytes), false);
}

FAKE_API cuMemsetD8_v2(DevicePointer to, unsigned char value, size_t n) {
  return Fill(nullptr, to, value, 1, n, false);
}
FAKE_API cuMemsetD16_v2(DevicePointer to, unsigned short value, size_t n) {
  return Fill(nullptr, to, value, 2, n, false);
}
FAKE_API cuMemsetD32_v2(DevicePointer to, unsigned value, size_t n) {
  return Fill(nullptr, to, value, 4, n, false);
}
FAKE_API cuMemsetD8Async(DevicePointer to, unsigned char value, size_t n, void* stream) {
  return Fill(stream, to, value, 1, n, false);
}
FAKE_API cuMemsetD16Async(DevicePointer to, unsigned short value, size_t n, void* stream) {
  return Fill(stream, to, value, 2, n, false);
}
FAKE_API cuMemsetD32Async(DevicePointer to, unsigned value, size_t n, void* stream) {
  return Fill(stream, to, value, 4, n, false);
}
