// How much shared memory a block of an NVIDIA GPU may have (CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability"). Target::shared_bytes is what every launch gives; more is
// asked for at the launch, as CompiledKernel::shared_bytes says.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compiler/target.h"

namespace outboard {

// The most that a launch may ask for.
inline int64_t BlockBytesMax(const Target& target) {
  if (target.kind != TargetKind::kCuda) return target.shared_bytes;
  if (target.arch.starts_with("sm_9")) return kHopperSharedBytesMax;
  if (target.arch == "sm_80") return 163 << 10;
  return target.shared_bytes;  // of others not much more
}

// The most that leaves room for a second block on the multiprocessor, each with 1 KiB of the
// system's own.
inline int64_t HalfOfBlockBytes(const Target& target) {
  return std::max(target.shared_bytes, (BlockBytesMax(target) + 1024) / 2 - 1024);
}

}  // namespace outboard
