#include "runtime/devices.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/far/device.h"
#include "runtime/opencl/device.h"

namespace outboard::runtime {
namespace {

struct Entry {
  std::string_view kind;
  bool (*is_there)();
  absl::StatusOr<std::unique_ptr<Device>> (*make)(const DeviceOptions&);
};

constexpr Entry kDevices[] = {
    {kCpu, [] { return true; },
     [](const DeviceOptions& options) -> absl::StatusOr<std::unique_ptr<Device>> {
       return MakeCpuDevice(options);
     }},
    {"far", [] { return true; },
     [](const DeviceOptions& options) -> absl::StatusOr<std::unique_ptr<Device>> {
       return std::make_unique<far::FarDevice>(MakeCpuDevice(options));
     }},
    {"opencl", opencl::IsThere, opencl::MakeOpenClDevice},
};

const Entry* Find(std::string_view kind) {
  for (const Entry& entry : kDevices)
    if (entry.kind == kind && entry.is_there()) return &entry;
  return nullptr;
}

}  // namespace

int64_t DefaultMemoryBytesMax() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4 * 3;
}

std::vector<std::string> DeviceKinds() {
  std::vector<std::string> kinds;
  for (const Entry& entry : kDevices)
    if (entry.is_there()) kinds.emplace_back(entry.kind);
  return kinds;
}

absl::Status CheckDeviceKind(std::string_view kind) {
  if (Find(kind) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device \"", std::string(kind),
                   "\"; there are: ", absl::StrJoin(DeviceKinds(), ", ")));
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(std::string_view kind,
                                                   const DeviceOptions& options) {
  const Entry* const entry = Find(kind);
  if (entry == nullptr) return CheckDeviceKind(kind);
  return entry->make(options);
}

}  // namespace outboard::runtime
