// Kernels of the CUDA device: PTX, of which the driver makes a module, and the function in it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/driver_context.h"
#include "runtime/cuda/linker.h"
#include "runtime/device.h"

namespace outboard::cuda {

// Things that queued work may use still: they go when somebody has waited for all of it.
class LeftToWork {
 public:
  void Keep(std::shared_ptr<const void> thing) { things_.push_back(std::move(thing)); }
  void WorkIsDone() { things_.clear(); }

 private:
  std::vector<std::shared_ptr<const void>> things_;
};

class CudaKernel final : public runtime::DeviceKernel {
 public:
  CudaKernel(const CompiledKernel& kernel, LeftToWork* left);
  ~CudaKernel() override { left_->Keep(std::move(module)); }

  std::shared_ptr<const LinkedModule> module;  // nullptr: nothing to compute
  CUfunction function = nullptr;
  std::array<unsigned, 3> blocks{}, threads{};
  unsigned shared_bytes = 0;  // beside what the text declares with a size
  const bool reads_vars;
  // It may start before the launches that it depends on are done: its text waits for them.
  const bool waits;
  const int copies;  // over buffers of their own, all in one launch
  const std::vector<MappedTensor> maps;
  const uint64_t serial;  // among the kernels of the process, from 1 on

 private:
  LeftToWork* const left_;
};

// Threads: one at a time.
class KernelLoader {
 public:
  KernelLoader(DriverContext* context, LeftToWork* left)
      : context_(context), left_(left), linker_(context) {}

  void UseStore(runtime::LinkedCodeStore* store) { linker_.UseStore(store); }
  // Memory of the device, of a multiple of 16, that views are tried with (tensor_maps.h).
  void UseMemory(CUdeviceptr memory) { memory_ = memory; }

  // Results are in the order of `compiled`. Equal texts become one module, while a kernel of that
  // text lives. Errors: as runtime::Device::Load
  std::vector<runtime::LoadedKernel> Load(std::span<const CompiledKernel> compiled);

 private:
  absl::Status CheckFits(const CompiledKernel& kernel) const;
  absl::Status FindFunction(const CompiledKernel& compiled, CudaKernel& kernel);
  // Errors: UNIMPLEMENTED  the device can never run all blocks of one of its clusters at once
  absl::Status CheckClusters(const CompiledKernel& compiled, const CudaKernel& kernel);

  DriverContext* const context_;
  LeftToWork* const left_;
  Linker linker_;
  CUdeviceptr memory_ = 0;
  absl::flat_hash_map<std::string, std::weak_ptr<const LinkedModule>> by_text_;
};

}  // namespace outboard::cuda
