// Transfers between the devices of a group, beside the sockets of its ranks: by NCCL where each has
// a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/nccl.h"

namespace outboard::worker {

struct DeviceTransfers {
  std::string library;  // as of LoadNccl
  std::function<absl::StatusOr<std::unique_ptr<collective::NcclStream>>()> make_stream;
};

// Returns what moves the memory of devices, and has `sockets` for all else; or `sockets`, where one
// rank lacks the library or the stream, which the log says. All ranks call it, as the first that
// they do with `sockets`; returns when all have.
// Errors: those of the group; INTERNAL  NCCL does not connect them
absl::StatusOr<std::unique_ptr<collective::Collective>> WithDeviceTransfers(
    std::unique_ptr<collective::Collective> sockets, const DeviceTransfers& transfers);

// What this process was told to use: OUTBOARD_NCCL names the library, and the device is a GPU of
// CUDA's. nullptr: nothing.
const DeviceTransfers* DeviceTransfersOf(const std::string& device_kind);

}  // namespace outboard::worker
