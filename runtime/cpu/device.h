// The CPU device: memory, programs and launches. Knows kernels as compiled_kernel.h describes them,
// and no graphs.
//
// Threads: a Device and all that it makes belong to one thread at a time; launches use its pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "runtime/cpu/elf_loader.h"
#include "runtime/cpu/memory.h"
#include "runtime/cpu/thread_pool.h"

namespace outboard::cpu {

struct DeviceOptions {
  int threads = 0;               // 0: one a processor
  int64_t memory_bytes_max = 0;  // 0: DefaultMemoryBytesMax
};

// A kernel, ready to run.
class Program {
 public:
  int64_t flops() const { return flops_; }
  int64_t bytes() const { return bytes_; }
  int buffer_count() const { return buffer_count_; }
  const std::string& name() const { return name_; }

 private:
  friend class Device;
  Program(LoadedObject object, const CompiledKernel& kernel);
  LoadedObject object_;
  std::string name_;
  int64_t tasks_, flops_, bytes_;
  int buffer_count_;
};

class Device {
 public:
  explicit Device(const DeviceOptions& options = {});

  Allocator& memory() { return memory_; }
  int threads() const { return pool_.size(); }

  // Errors: as LoadedObject::Load. A kernel of no tasks has no object and loads as one that does
  // nothing.
  absl::StatusOr<std::unique_ptr<Program>> Load(const CompiledKernel& kernel);

  // buffers[i] is the kernel's slot i; they do not overlap. The values of VARs follow, if it reads
  // any (compiled_kernel.h). Returns when the kernel is done.
  // Errors: INTERNAL  fewer buffers than the kernel uses
  absl::Status Launch(const Program& program, std::span<void* const> buffers);

 private:
  Allocator memory_;
  ThreadPool pool_;
};

}  // namespace outboard::cpu
