// The target of a device: the one description that schedule, optimiser, search and compilers use
// for kernels that run on it.
#pragma once

#include "compiler/target.h"
#include "runtime/device.h"

namespace outboard::worker {

// For devices that run x86-64 objects, HostTarget(). An OpenCL device that is a processor is taken
// for this one, with its own vectors, since it tells neither caches nor registers. A CUDA device is
// described by its compute capability.
Target TargetOfDevice(const runtime::DeviceProperties& properties);

}  // namespace outboard::worker
