// The transfers of a schedule: between the buffers of a Run on this device and the other ranks; and
// what ranks tell each other before they run it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/schedule.h"
#include "runtime/collective/collective.h"
#include "runtime/device.h"
#include "worker/engine/plans/planned_launches.h"
#include "worker/session/kernel_use_log.h"

namespace outboard::worker {

// Of one Run. Where the host cannot read the device's memory, and `group` does not take that
// (Collective::takes_device_memory), bytes are copied to the host before a transfer and back.
class Transfers {
 public:
  // `memory` has the address of each of schedule.buffers. All outlive this.
  Transfers(collective::Collective* group, runtime::Device* device,
            const schedule::Schedule* schedule, const std::vector<runtime::DeviceAddress>* memory)
      : group_(group), device_(device), schedule_(schedule), memory_(memory) {}

  // Starts the transfers of a bucket, once queued work is done.
  // Errors: as collective::Collective; those of the device; INTERNAL  this engine is in no group
  absl::Status Start(int bucket);
  // Waits for them; what they receive is then in the device's memory.
  absl::Status Wait(int bucket);

 private:
  struct Bucket {
    collective::TransferId id{};
    std::vector<std::string> staged;  // what each sends, then what each receives
  };

  collective::Collective* const group_;
  runtime::Device* const device_;
  const schedule::Schedule* const schedule_;
  const std::vector<runtime::DeviceAddress>* const memory_;
  absl::flat_hash_map<int, Bucket> started_;
};

// Tells all ranks of `group` how this one fares, and hears of the others: OK if all are. A rank
// whose `mine` is an error gets that, the others the error of the first rank that has one, with its
// number. All ranks call it at the same point.
// Errors: those, and as collective::Collective
absl::Status Agree(collective::Collective& group, const absl::Status& mine);

// What ranks have told each other.
struct Agreement {
  absl::Status status;             // as Agree returns it, of the ranks alone
  std::optional<int64_t> differs;  // the first rank whose number is not that of rank 0
};
// As Agree, with what a rank has made, as a number, which is told whether or not `mine` is OK.
// Whether numbers differ is no status, since those come from compilers and drivers, too.
// Errors: as collective::Collective
absl::StatusOr<Agreement> AgreeOn(collective::Collective& group, const absl::Status& mine,
                                  uint64_t made);

// Returns the versions that rank 0 passes, on all ranks; what others pass is not looked at. All
// ranks call it at the same point. More than kSharedVersionBytesMax in a message are none.
// Errors: as collective::Collective; INVALID_ARGUMENT  what came is no list of versions
absl::StatusOr<std::vector<KernelVersion>> ShareVersions(collective::Collective& group,
                                                         const std::vector<KernelVersion>& mine);
inline constexpr int64_t kSharedVersionBytesMax = int64_t{4} << 20;

// Returns what all ranks pass, in their order. All call it at the same point. Of more than
// kSharedSimplerMax of one rank the first are told.
// Errors: as collective::Collective; INVALID_ARGUMENT  what came is no list of them
absl::StatusOr<std::vector<SimplerKernel>> ShareSimpler(collective::Collective& group,
                                                        std::span<const SimplerKernel> mine);
inline constexpr int64_t kSharedSimplerMax = 4096;

}  // namespace outboard::worker
