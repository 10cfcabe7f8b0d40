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
    target.block_threads = std::clamp<int64_t>(properties.work_group_size_max, 1, kBlockThreadsMax);
  }
  target.kind = TargetKind::kOpenCl;
  target.name = properties.name;
  target.threads = std::max(1, properties.threads);
  target.shared_bytes = properties.local_memory_bytes;
  target.fp64 = properties.fp64;
  target.fp16 = properties.fp16;
  return target;
}

}  // namespace

Target TargetOf(const runtime::DeviceProperties& properties) {
  switch (properties.form) {
    case CompiledKernel::Form::kElfX86: return HostTarget();
    case CompiledKernel::Form::kOpenClC: return OpenClTarget(properties);
    case CompiledKernel::Form::kPtx: break;  // no renderer yet
  }
  OB_CHECK(false);
}

}  // namespace outboard::worker
