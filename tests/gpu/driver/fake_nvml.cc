// NVIDIA's management library for tests: one GPU, at the place of the bus that the fake driver
// tells, whose clocks a test sets.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
              kNotFound = 6;
constexpr char kBusId[] = "0000:1B:00.0";  // cuDeviceGetPCIBusId
constexpr unsigned kMilliwatts = 402'500, kCelsius = 58;

int gpu_object = 0;  // its address is the handle
bool initialised = false;
std::mutex mutex;
std::vector<unsigned> clocks;  // of the next readings; the last one stays
size_t readings = 0;

void SetClocks(const char* list) {
  clocks.clear();
  readings = 0;
  std::istringstream numbers(list);
  for (std::string number; std::getline(numbers, number, ',');)
    clocks.push_back(static_cast<unsigned>(std::strtoul(number.c_str(), nullptr, 10)));
}

// Does not answer where OUTBOARD_FAKE_NVML_HANGS names this function.
void HangIf(const char* function) {
  const char* const named = std::getenv("OUTBOARD_FAKE_NVML_HANGS");
  while (named != nullptr && std::strcmp(named, function) == 0) pause();
}

}  // namespace

FAKE_API int nvmlInit_v2() {
  HangIf("nvmlInit_v2");
  std::lock_guard<std::mutex> lock(mutex);
  if (std::getenv("OUTBOARD_FAKE_NVML_FAILS") != nullptr) return kNotSupported;
  initialised = true;
  if (clocks.empty()) SetClocks("1980");
  return kSuccess;
}
FAKE_API const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kNotSupported: return "Not Supported";
    case kNotFound: return "Not Found";
    default: return "Unknown Error";
  }
}
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** gpu) {
  if (!initialised) return kUninitialized;
  if (std::strcmp(bus_id, kBusId) != 0) return kNotFound;
  *gpu = &gpu_object;
  return kSuccess;
}
FAKE_API int nvmlDeviceGetClockInfo(void* gpu, int which, unsigned* mhz) {
  HangIf("nvmlDeviceGetClockInfo");
  std::lock_guard<std::mutex> lock(mutex);
  if (!initialised) return kUninitialized;
  if (gpu != &gpu_object || which != 1 || mhz == nullptr) return kInvalidArgument;
  *mhz = clocks[std::min(readings++, clocks.size() - 1)];
  return kSuccess;
}
FAKE_API int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  if (!initialised) return kUninitialized;
  if (gpu != &gpu_object || milliwatts == nullptr) return kInvalidArgument;
  *milliwatts = kMilliwatts;
  return kSuccess;
}
FAKE_API int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* celsius) {
  if (!initialised) return kUninitialized;
  if (gpu != &gpu_object || sensor != 0 || celsius == nullptr) return kInvalidArgument;
  *celsius = kCelsius;
  return kSuccess;
}

// For tests: the clocks in MHz of the next readings, as "1980,1200,1980", and how many there were
// since.
FAKE_API void outboard_fake_nvml_clocks(const char* list) {
  std::lock_guard<std::mutex> lock(mutex);
  SetClocks(list);
}
FAKE_API int outboard_fake_nvml_readings() {
  std::lock_guard<std::mutex> lock(mutex);
  return static_cast<int>(readings);
}
