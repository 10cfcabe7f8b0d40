// Describes this machine: a name for people, and the hardware class for which tuning results are
// valid. Threads: any.
#pragma once

#include <string>

namespace outboard::worker {

struct DeviceInfo {
  std::string name;            // "AMD EPYC 9B45, 2 threads"
  std::string hardware_class;  // Target::Fingerprint (compiler/target.h)
};

DeviceInfo DescribeCpu();

}  // namespace outboard::worker
