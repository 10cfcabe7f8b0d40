#include "runtime/cuda/gpu_state.h"

#include <dlfcn.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::cuda {

// Names and numbers are those of NVML's binary interface, from NVIDIA's "NVML API Reference Guide":
// a function whose arguments change gets a new symbol, and the old one stays.
struct GpuState::Api {
  int (*init)() = nullptr;
  const char* (*error_string)(int code) = nullptr;
  int (*by_bus_id)(const char* bus_id, void** gpu) = nullptr;
  int (*clock)(void* gpu, int which, unsigned* mhz) = nullptr;
  int (*power)(void* gpu, unsigned* milliwatts) = nullptr;
  int (*temperature)(void* gpu, int sensor, unsigned* celsius) = nullptr;
};

namespace {

constexpr int kSuccess = 0;
constexpr int kClockOfMultiprocessors = 1;  // NVML_CLOCK_SM
constexpr int kSensorOfGpu = 0;             // NVML_TEMPERATURE_GPU

// What the library does not know may be all ones; nothing that a GPU runs at is so large.
int Known(unsigned reading) {
  constexpr unsigned kReadingMax = 100'000'000;
  return reading <= kReadingMax ? static_cast<int>(reading) : 0;
}

template <class Function>
bool Find(void* handle, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  return function != nullptr;
}

}  // namespace

std::string ManagementLibrary() {
  const char* const named = std::getenv("OUTBOARD_NVML");
  return named != nullptr && *named != '\0' ? named : "libnvidia-ml.so.1";
}

absl::StatusOr<GpuState> GpuState::Open(const std::string& library, const std::string& bus_id) {
  const auto none = [](const auto&... what) {
    return absl::UnimplementedError(absl::StrCat("NVML: ", what...));
  };
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return none("no library: ", dlerror());
  auto api = std::make_shared<Api>();
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto& function) {
    if (!Find(handle, symbol, function) && missing == nullptr) missing = symbol;
  };
  find("nvmlInit_v2", api->init);
  find("nvmlErrorString", api->error_string);
  find("nvmlDeviceGetHandleByPciBusId_v2", api->by_bus_id);
  find("nvmlDeviceGetClockInfo", api->clock);
  find("nvmlDeviceGetPowerUsage", api->power);
  find("nvmlDeviceGetTemperature", api->temperature);
  if (missing != nullptr) return none(library, " has no function ", missing);
  // Without nvmlShutdown: what is opened is closed with the process.
  if (const int code = api->init(); code != kSuccess)
    return none("nvmlInit: ", api->error_string(code));
  void* gpu = nullptr;
  if (const int code = api->by_bus_id(bus_id.c_str(), &gpu); code != kSuccess)
    return none("GPU ", bus_id, ": ", api->error_string(code));
  return GpuState(std::move(api), gpu);
}

absl::StatusOr<runtime::DeviceState> GpuState::Read() const {
  unsigned clock = 0, power = 0, celsius = 0;
  if (const int code = api_->clock(gpu_, kClockOfMultiprocessors, &clock); code != kSuccess)
    return absl::UnimplementedError(
        absl::StrCat("NVML: nvmlDeviceGetClockInfo: ", api_->error_string(code)));
  if (api_->power(gpu_, &power) != kSuccess) power = 0;
  if (api_->temperature(gpu_, kSensorOfGpu, &celsius) != kSuccess) celsius = 0;
  return runtime::DeviceState{
      .clock_mhz = Known(clock), .power_mw = Known(power), .celsius = Known(celsius)};
}

struct StateReader::Gpu {
  const std::string library, bus_id;
  std::optional<GpuState> state;  // from the first reading on

  absl::StatusOr<runtime::DeviceState> Read() {
    if (!state.has_value()) {
      absl::StatusOr<GpuState> opened = GpuState::Open(library, bus_id);
      if (!opened.ok()) return opened.status();
      state = *std::move(opened);
    }
    return state->Read();
  }
};

StateReader::StateReader(std::string library, std::string bus_id,
                         std::chrono::milliseconds within)
    : gpu_(std::make_shared<Gpu>(std::move(library), std::move(bus_id))), within_(within) {}

absl::StatusOr<runtime::DeviceState> StateReader::Read() {
  if (!failed_.ok()) return failed_;
  std::promise<absl::StatusOr<runtime::DeviceState>> promise;
  auto reading = promise.get_future();
  std::thread([gpu = gpu_, promise = std::move(promise)]() mutable {
    promise.set_value(gpu->Read());
  }).detach();
  if (reading.wait_for(within_) != std::future_status::ready) {
    failed_ = absl::UnimplementedError(
        absl::StrCat("NVML: no answer within ", within_.count(), " ms"));
    return failed_;
  }
  absl::StatusOr<runtime::DeviceState> read = reading.get();
  failed_ = read.status();
  return read;
}

}  // namespace outboard::cuda
