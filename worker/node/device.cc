#include "worker/node/device.h"

#include "absl/strings/str_cat.h"
#include "compiler/target.h"

namespace outboard::worker {

DeviceInfo DescribeCpu() {
  const Target& target = HostTarget();
  return {absl::StrCat(target.name, ", ", target.threads, " threads"), target.Fingerprint()};
}

}  // namespace outboard::worker
