#include "worker/device.h"

#include <unistd.h>

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

DeviceInfo DescribeCpu() {
  DeviceInfo device;
  std::string model = "CPU";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  const unsigned threads = std::thread::hardware_concurrency();
  const char* const vectors = __builtin_cpu_supports("avx512f") ? "avx512"
                              : __builtin_cpu_supports("avx2")  ? "avx2"
                                                                : "sse2";
  device.name = absl::StrCat(model, ", ", threads, " threads");
  device.hardware_class = absl::StrCat("x86-64/", vectors, "/", threads);
  device.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return device;
}

}  // namespace outboard::worker
