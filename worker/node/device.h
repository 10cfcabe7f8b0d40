// What this machine is, in words for people and for whoever shares its tuning. Threads: any.
#pragma once

#include <string>

namespace outboard::worker {

struct DeviceInfo {
  std::string name;            // "AMD EPYC 9B45, 2 threads"
  std::string hardware_class;  // Target::Fingerprint (compiler/target.h)
};

DeviceInfo DescribeCpu();

}  // namespace outboard::worker
