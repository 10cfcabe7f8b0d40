// Describes a device of this machine: a name for people, and the hardware class for which tuning
// results are valid and within which bits are equal. Threads: any.
#pragma once

#include <string>

#include "runtime/device.h"

namespace outboard::worker {

struct DeviceInfo {
  std::string name;            // "AMD EPYC 9B45, 2 threads"; "opencl on AMD EPYC 9B45, 2 threads"
  std::string hardware_class;  // Target::Fingerprint (compiler/target.h), after the kind if not cpu
};

// `kind` is a name of runtime/devices.h. Devices of different kinds are never of one class, nor are
// those of different numbers of threads. threads: 0 for one for each core that this process may
// use.
DeviceInfo DescribeDevice(const std::string& kind, int threads = 0);
// Of a GPU, whose class says nothing of the machine around it: model, kind of code, and what it
// has.
DeviceInfo DescribeGpu(const runtime::DeviceProperties& properties);

}  // namespace outboard::worker
