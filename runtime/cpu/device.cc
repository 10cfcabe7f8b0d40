#include "runtime/cpu/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/cpu/elf_loader.h"
#include "runtime/cpu/symbols.h"
#include "runtime/limits.h"

namespace outboard::cpu {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

// Below this, waking another thread takes longer than the kernel (about 2 us of one core's work).
constexpr int64_t kAloneWorkMax = 16384;

class CpuKernel final : public DeviceKernel {
 public:
  CpuKernel(LoadedObject object, const CompiledKernel& kernel)
      : DeviceKernel(kernel), object_(std::move(object)) {}
  KernelFunction function() const { return object_.function(); }

 private:
  LoadedObject object_;
};

struct Call {
  KernelFunction function;
  void* const* arguments;
};

// The only place where an address becomes a pointer.
char* Pointer(DeviceAddress address) {
  return reinterpret_cast<char*>(static_cast<uintptr_t>(address));
}

// Large blocks lie on pages of 2 MiB where the system grants these: with pages of 4 KiB a step of a
// 12-layer transformer waits for address translation for 3 % of its time in a virtual machine.
void* AllocateBlock(int64_t bytes) {
  constexpr size_t kHugePageBytes = size_t{2} << 20;
  constexpr size_t kLarge = 4 * kHugePageBytes;
  const auto size = static_cast<size_t>(bytes);
  if (size < kLarge) return std::aligned_alloc(limits::kBufferAlignment, size);
  void* const block = std::aligned_alloc(kHugePageBytes, size);
  // Refused where the system has no such pages: then they are small ones.
  if (block != nullptr) madvise(block, size / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return block;
}

DeviceAddress AddressOf(void* data) { return DeviceAddress{reinterpret_cast<uintptr_t>(data)}; }

}  // namespace

CpuDevice::CpuDevice(const runtime::DeviceOptions& options)
    : memory_(options.memory_bytes_max > 0 ? options.memory_bytes_max
                                           : runtime::DefaultMemoryBytesMax(),
              {AllocateBlock, [](void* block) { std::free(block); }}),
      pool_(options.threads) {
  properties_.kind = runtime::kCpu;
  properties_.name = "CPU";
  properties_.compute_units = pool_.size();
  properties_.cuts_tasks = true;
}

absl::StatusOr<DeviceBuffer> CpuDevice::Allocate(int64_t bytes) {
  const absl::StatusOr<void*> data = memory_.Allocate(bytes);
  if (!data.ok()) return data.status();
  return MakeBuffer(AddressOf(*data), bytes, /*mapped=*/false);
}

absl::StatusOr<DeviceBuffer> CpuDevice::MapFile(int fd, int64_t bytes) {
  if (bytes <= 0) return Allocate(bytes);
  if (absl::Status status = memory_.Count(bytes); !status.ok()) return status;
  struct stat info {};
  void* data = MAP_FAILED;
  if (fstat(fd, &info) == 0 && info.st_size >= bytes) {
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  }
  if (data == MAP_FAILED) {
    memory_.Uncount(bytes);
    return absl::DataLossError(absl::StrCat("the file of ", bytes, " bytes cannot be mapped"));
  }
  return MakeBuffer(AddressOf(data), bytes, /*mapped=*/true);
}

void CpuDevice::Free(DeviceAddress address, int64_t bytes, bool mapped) {
  if (!mapped) return memory_.Free(Pointer(address), bytes);
  memory_.Uncount(bytes);
  munmap(Pointer(address), static_cast<size_t>(bytes));
}

absl::Status CpuDevice::Upload(DeviceAddress to, std::string_view from) {
  if (!from.empty()) std::memcpy(Pointer(to), from.data(), from.size());
  return absl::OkStatus();
}

absl::Status CpuDevice::Download(DeviceAddress from, int64_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, Pointer(from), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status CpuDevice::Download(DeviceAddress from, int64_t bytes, int64_t piece_bytes,
                                 Sink sink) {
  for (int64_t offset = 0; offset < bytes; offset += piece_bytes) {
    const int64_t n = std::min(bytes - offset, piece_bytes);
    absl::Status status = sink({Pointer(from + offset), static_cast<size_t>(n)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CpuDevice::Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) {
  if (bytes > 0) std::memcpy(Pointer(to), Pointer(from), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyBox(DeviceAddress to, std::span<const int64_t> to_dims,
                                DeviceAddress from, std::span<const int64_t> from_dims,
                                std::span<const int64_t> box, int element_bytes) {
  char* const target = Pointer(to);
  const char* const source = Pointer(from);
  runtime::ForEachRun(to_dims, from_dims, box, element_bytes,
                      [&](int64_t to_byte, int64_t from_byte, int64_t bytes) {
                        std::memcpy(target + to_byte, source + from_byte,
                                    static_cast<size_t>(bytes));
                      });
  return absl::OkStatus();
}

absl::Status CpuDevice::Fill(DeviceAddress to, unsigned char byte, int64_t bytes) {
  if (bytes > 0) std::memset(Pointer(to), byte, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

char* CpuDevice::HostBytes(DeviceAddress address) { return Pointer(address); }

std::optional<DeviceAddress> CpuDevice::AddressOfHost(void* data, int64_t) {
  return AddressOf(data);
}

absl::StatusOr<std::unique_ptr<DeviceKernel>> CpuDevice::Load(const CompiledKernel& kernel) {
  if (kernel.form != CompiledKernel::Form::kElfX86)
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.symbol, " is no x86-64 object"));
  absl::StatusOr<LoadedObject> object =
      kernel.tasks > 0 ? LoadedObject::Load(kernel.object, kernel.symbol) : LoadedObject::Nothing();
  if (!object.ok()) return object.status();
  return std::make_unique<CpuKernel>(*std::move(object), kernel);
}

absl::Status CpuDevice::SetArguments(const DeviceKernel& kernel,
                                     std::span<const DeviceAddress> buffers,
                                     std::span<const int64_t> vars) {
  const auto count = static_cast<size_t>(kernel.buffer_count());
  if (buffers.size() < count)
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " of ", count, " buffers got ", buffers.size()));
  arguments_.resize(count + 1);
  for (size_t i = 0; i < count; ++i) arguments_[i] = Pointer(buffers[i]);
  arguments_[count] = const_cast<int64_t*>(vars.data());
  return absl::OkStatus();
}

absl::Status CpuDevice::Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                               std::span<const int64_t> vars) {
  if (absl::Status status = SetArguments(kernel, buffers, vars); !status.ok()) return status;
  if (kernel.tasks() <= 0) return absl::OkStatus();
  const Call call{static_cast<const CpuKernel&>(kernel).function(), arguments_.data()};
  if (std::max(kernel.flops(), kernel.bytes()) < kAloneWorkMax) {
    call.function(call.arguments, 0, kernel.tasks());
    return absl::OkStatus();
  }
  pool_.ForRange(
      kernel.tasks(),
      [](void* context, int64_t begin, int64_t end) {
        const Call& call = *static_cast<const Call*>(context);
        call.function(call.arguments, begin, end);
      },
      const_cast<Call*>(&call));
  return absl::OkStatus();
}

absl::Status CpuDevice::LaunchTasks(const DeviceKernel& kernel,
                                    std::span<const DeviceAddress> buffers,
                                    std::span<const int64_t> vars, int64_t begin, int64_t end) {
  if (absl::Status status = SetArguments(kernel, buffers, vars); !status.ok()) return status;
  if (begin < end) static_cast<const CpuKernel&>(kernel).function()(arguments_.data(), begin, end);
  return absl::OkStatus();
}

absl::StatusOr<double> CpuDevice::Time(absl::FunctionRef<absl::Status()> work) {
  const auto start = std::chrono::steady_clock::now();
  if (absl::Status status = work(); !status.ok()) return status;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace outboard::cpu

namespace outboard::runtime {

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options) {
  return std::make_unique<cpu::CpuDevice>(options);
}

bool CpuOffersTiles() { return cpu::AllowedSymbol("outboard_tiles") != nullptr; }

}  // namespace outboard::runtime
