// The host's processor as a device: it uses the process's memory, addresses are pointers, and the
// work of every call is done when the call returns. Kernels are x86-64 objects (elf_loader.h).
//
// Threads: as in runtime/device.h; launches use a pool of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/block_cache.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"
#include "runtime/devices.h"

namespace outboard::cpu {

class CpuDevice final : public runtime::Device {
 public:
  explicit CpuDevice(const runtime::DeviceOptions& options = {});

  const runtime::DeviceProperties& properties() const override { return properties_; }

  absl::StatusOr<runtime::DeviceBuffer> Allocate(int64_t bytes) override;
  // Maps the file copy-on-write.
  absl::StatusOr<runtime::DeviceBuffer> MapFile(int fd, int64_t bytes) override;
  void LimitMemory(int64_t bytes_max) override { memory_.Limit(bytes_max); }
  int64_t memory_bytes_max() const override { return memory_.bytes_max(); }
  int64_t memory_bytes_in_use() const override { return memory_.bytes_in_use(); }
  absl::Status Upload(runtime::DeviceAddress to, std::string_view from) override;
  absl::Status Download(runtime::DeviceAddress from, int64_t bytes, void* to) override;
  // The pieces are views of the device's memory; nothing is copied.
  absl::Status Download(runtime::DeviceAddress from, int64_t bytes, int64_t piece_bytes,
                        Sink sink) override;
  absl::Status Copy(runtime::DeviceAddress to, runtime::DeviceAddress from, int64_t bytes) override;
  absl::Status CopyBox(runtime::DeviceAddress to, std::span<const int64_t> to_dims,
                       runtime::DeviceAddress from, std::span<const int64_t> from_dims,
                       std::span<const int64_t> box, int element_bytes) override;
  absl::Status Fill(runtime::DeviceAddress to, unsigned char byte, int64_t bytes) override;
  char* HostBytes(runtime::DeviceAddress address) override;
  std::optional<runtime::DeviceAddress> AddressOfHost(void* data, int64_t bytes) override;

  absl::StatusOr<std::unique_ptr<runtime::DeviceKernel>> Load(
      const CompiledKernel& kernel) override;
  absl::Status Launch(const runtime::DeviceKernel& kernel,
                      std::span<const runtime::DeviceAddress> buffers,
                      std::span<const int64_t> vars) override;
  absl::Status LaunchTasks(const runtime::DeviceKernel& kernel,
                           std::span<const runtime::DeviceAddress> buffers,
                           std::span<const int64_t> vars, int64_t begin, int64_t end) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) override;

 private:
  void Free(runtime::DeviceAddress address, int64_t bytes, bool mapped) override;
  // Fills in arguments_.
  absl::Status SetArguments(const runtime::DeviceKernel& kernel,
                            std::span<const runtime::DeviceAddress> buffers,
                            std::span<const int64_t> vars);

  runtime::DeviceProperties properties_;
  runtime::BlockCache memory_;
  ThreadPool pool_;
  std::vector<void*> arguments_;  // of one launch; a member so that launches do not allocate
};

}  // namespace outboard::cpu
