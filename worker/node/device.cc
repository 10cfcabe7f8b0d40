#include "worker/node/device.h"

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "worker/tuning/hardware_class.h"

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
  device.name = absl::StrCat(model, ", ", threads, " threads");
  device.hardware_class = HardwareClass();
  return device;
}

}  // namespace outboard::worker
