// What this machine is, in words for people and in numbers for whoever shares its memory and its
// tuning. Threads: any; reads /proc each time.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::worker {

struct DeviceInfo {
  std::string name;            // "AMD EPYC 9B45, 2 threads"
  std::string hardware_class;  // "x86-64/avx512/2": machines of one class run each other's tuning
  int64_t memory_bytes = 0;
};

DeviceInfo DescribeCpu();

}  // namespace outboard::worker
