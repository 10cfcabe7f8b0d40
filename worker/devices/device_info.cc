#include "worker/devices/device_info.h"

#include "absl/strings/str_cat.h"
#include "compiler/target.h"
#include "runtime/devices.h"
#include "worker/engine/device_target.h"

namespace outboard::worker {

DeviceInfo DescribeDevice(const std::string& kind, int threads) {
  Target target = HostTarget();
  if (threads > 0) target.threads = threads;
  DeviceInfo host = {absl::StrCat(target.name, ", ", target.threads, " threads"),
                     target.Fingerprint()};
  if (kind == runtime::kCpu) return host;
  return {absl::StrCat(kind, " on ", host.name), absl::StrCat(kind, "; ", host.hardware_class)};
}

DeviceInfo DescribeGpu(const runtime::DeviceProperties& properties) {
  return {properties.name,
          absl::StrCat(properties.kind, "; ", TargetOfDevice(properties).Fingerprint())};
}

}  // namespace outboard::worker
