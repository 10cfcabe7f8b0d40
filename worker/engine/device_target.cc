#include "worker/engine/device_target.h"

#include <algorithm>

#include "base/check.h"

namespace outboard::worker {
namespace {

// A program takes no larger blocks (compiler/program/spec.cc); some devices would.
constexpr int64_t kBlockThreadsMax = 1024;
constexpr int kVectorBytesMin = 16, kVectorBytesMax = 64;

Target OpenClTarget(const runtime::DeviceProperties& properties) {
  Target target;
  if (properties.is_processor) {
    target = HostTarget();
    target.bf16 = Bf16Products::kNone;
    if (properties.vector_bytes >= kVectorBytesMin)
      target.vector_bytes = std::min(properties.vector_bytes, kVectorBytesMax);
  } else {
    target.block_threads = std::clamp<int64_t>(properties.block_threads_max, 1, kBlockThreadsMax);
  }
  target.kind = TargetKind::kOpenCl;
  target.name = properties.name;
  target.threads = std::max(1, properties.compute_units);
  target.shared_bytes = properties.shared_bytes;
  target.fp64 = properties.fp64;
  target.fp16 = properties.fp16;
  return target;
}

// Code for one kind of GPU runs on newer ones, except that of sm_90a.
const char* CudaArch(int compute_capability) {
  if (compute_capability == 90) return "sm_90a";
  if (compute_capability > 90) return "sm_90";
  return compute_capability == 89 ? "sm_89" : "sm_80";
}

// The driver's first version that knows PTX 8.4.
constexpr int kCudaOfPtx84 = 12'040;

Target CudaTargetOf(const runtime::DeviceProperties& properties) {
  Target target = CudaTarget(CudaArch(properties.compute_capability), properties.compute_units);
  if (properties.cuda_version < kCudaOfPtx84) target.features = "-ptx84";
  target.name = properties.name;
  // Times are of one model of card: another with as many multiprocessors may have other memory.
  target.model = properties.name;
  target.block_threads =
      std::min<int64_t>(target.block_threads, std::max<int64_t>(1, properties.block_threads_max));
  target.shared_bytes = std::min(target.shared_bytes, properties.shared_bytes);
  // Code for sm_80 also runs on devices that have less.
  target.shared_bytes_max = std::min(target.shared_bytes_max, properties.shared_bytes);
  target.fp64 = properties.fp64;
  return target;
}

}  // namespace

Target TargetOfDevice(const runtime::DeviceProperties& properties) {
  switch (properties.form) {
    case CompiledKernel::Form::kElfX86: return HostTarget();
    case CompiledKernel::Form::kOpenClC: return OpenClTarget(properties);
    case CompiledKernel::Form::kPtx: return CudaTargetOf(properties);
    case CompiledKernel::Form::kElfAmdgpu: break;  // of no device
  }
  OB_CHECK(false);
}

}  // namespace outboard::worker
