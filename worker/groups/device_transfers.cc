#include "worker/groups/device_transfers.h"

#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "runtime/collective/nccl_stream.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/engine/transfers.h"

namespace outboard::worker {

absl::StatusOr<std::unique_ptr<collective::Collective>> WithDeviceTransfers(
    std::unique_ptr<collective::Collective> sockets, const DeviceTransfers& transfers) {
  const absl::StatusOr<collective::NcclApi> api = collective::LoadNccl(transfers.library);
  absl::StatusOr<std::unique_ptr<collective::NcclStream>> stream =
      absl::UnknownError("not asked for");
  if (api.ok()) stream = transfers.make_stream();
  const absl::Status all = Agree(*sockets, api.ok() ? stream.status() : api.status());
  OB_RETURN_IF_ERROR(sockets->status());
  if (!all.ok()) {
    telemetry::LogWarning("nccl_not_used", {{"message", std::string(all.message())}});
    return sockets;
  }
  return collective::MakeNccl(
      {.api = *api, .control = std::move(sockets), .stream = *std::move(stream)});
}

const DeviceTransfers* DeviceTransfersOf(const std::string& device_kind) {
  static const DeviceTransfers told = [] {
    const char* const library = std::getenv("OUTBOARD_NCCL");
    return DeviceTransfers{library != nullptr ? library : "", collective::MakeNcclStream};
  }();
  return device_kind == runtime::kCuda && !told.library.empty() ? &told : nullptr;
}

}  // namespace outboard::worker
