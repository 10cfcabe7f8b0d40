#include "runtime/devices.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/cuda/device.h"
#include "runtime/far/device.h"
#include "runtime/opencl/device.h"

namespace outboard::runtime {
namespace {

struct Entry {
  std::string_view kind;
  absl::Status (*check)();  // OK: this machine has it
  absl::StatusOr<std::unique_ptr<Device>> (*make)(const DeviceOptions&);
};

absl::Status IsAlwaysThere() { return absl::OkStatus(); }

constexpr Entry kDevices[] = {
    {kCpu, IsAlwaysThere,
     [](const DeviceOptions& options) -> absl::StatusOr<std::unique_ptr<Device>> {
       return MakeCpuDevice(options);
     }},
    {kFar, IsAlwaysThere,
     [](const DeviceOptions& options) -> absl::StatusOr<std::unique_ptr<Device>> {
       return std::make_unique<far::FarDevice>(MakeCpuDevice(options));
     }},
    {kOpenCl, opencl::CheckThere, opencl::MakeOpenClDevice},
    {kCuda, cuda::CheckThere, cuda::MakeCudaDevice},
};

const Entry* Find(std::string_view kind) {
  for (const Entry& entry : kDevices)
    if (entry.kind == kind) return &entry;
  return nullptr;
}

}  // namespace

int64_t DefaultMemoryBytesMax() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4 * 3;
}

std::vector<std::string> DeviceKinds() {
  std::vector<std::string> kinds;
  for (const Entry& entry : kDevices)
    if (entry.check().ok()) kinds.emplace_back(entry.kind);
  return kinds;
}

absl::Status TryDeviceKind(std::string_view kind) {
  const Entry* const entry = Find(kind);
  return entry != nullptr ? entry->check() : absl::InvalidArgumentError("there is no such kind");
}

absl::Status CheckDeviceKind(std::string_view kind) {
  std::string why;
  if (Find(kind) != nullptr) {
    const absl::Status status = TryDeviceKind(kind);
    if (status.ok()) return absl::OkStatus();
    why = absl::StrCat(" (", status.message(), ")");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device \"", std::string(kind), "\"", why,
                   "; there are: ", absl::StrJoin(DeviceKinds(), ", ")));
}

std::vector<ListedDevice> ListDevices(std::string_view kind, std::vector<std::string>* left_out) {
  return kind == kCuda ? cuda::ListDevices(left_out) : std::vector<ListedDevice>();
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(std::string_view kind,
                                                   const DeviceOptions& options) {
  if (absl::Status status = CheckDeviceKind(kind); !status.ok()) return status;
  return Find(kind)->make(options);
}

}  // namespace outboard::runtime
