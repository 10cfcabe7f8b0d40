// Checks, apart from the meter, that no device is metered for more time than passed: a lease is
// charged for no more than the time since it began, and no longer than until another lease has its
// device.
//
// A core: no clock, thread or file inside.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/meter.h"

namespace outboard::gateway {

class DeviceTime {
 public:
  // A lease begins of these devices, by their places in the session. One name is one device,
  // whatever connection its worker has. What has one of them until now has it no longer: its worker
  // has joined again, and the old connection is not known to be gone yet.
  void Begin(const LeaseId& lease, std::span<const std::string> devices, MonoTime now);
  // Its last charges were checked before.
  void End(const LeaseId& lease);
  // INTERNAL: it is for more time than passed, or of a device that was never leased.
  absl::Status Check(const Charge& charge, MonoTime now) const;

 private:
  struct Lease {
    std::string name;
    MonoTime began;
  };
  void Close(std::map<LeasedDevice, Lease>::iterator lease);

  std::map<LeasedDevice, Lease> leases_;           // that run
  std::map<std::string, LeasedDevice> holders_;    // of each device, by its name
  // Of those that another one has replaced and that have not ended, for what is still charged.
  std::map<LeasedDevice, int64_t> passed_ms_;
};

}  // namespace outboard::gateway
