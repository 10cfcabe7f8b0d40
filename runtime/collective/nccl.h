// Ranks that have a GPU each, by NVIDIA's NCCL: bytes go from GPU to GPU, over NVLink where there
// is one, without a copy in the host's memory.
//
// NCCL moves bytes and nothing else. Whatever it does not do comes from another Collective between
// the same ranks, over sockets: it passes the communicator's id on, carries the cause of an abort
// to all, and knows when a partner has gone. Every call of NCCL's is one that does not block; a
// transfer that a partner never joins is ended by a watchdog.
//
// A transfer is a group of sends and receives, so one communicator of all ranks serves the groups
// of every mesh axis. Ranks that start different transfers are not noticed by NCCL: they run into
// the watchdog.
//
// An executor uses it where it is told of a library (OUTBOARD_NCCL): docs/decisions/149-*.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/nccl_api.h"

namespace outboard::collective {

// The device's queue for transfers. Threads: that of Start and Wait.
class NcclStream {
 public:
  virtual ~NcclStream() = default;
  virtual void* handle() = 0;  // a CUstream
  // Names all that is queued by now. Errors: those of the device
  virtual absl::StatusOr<uint64_t> Mark() = 0;
  // Whether what `mark` names is done. Errors: those of the device
  virtual absl::StatusOr<bool> IsDone(uint64_t mark) = 0;
};

struct NcclOptions {
  NcclApi api;
  std::unique_ptr<Collective> control;  // between the same ranks; its Member is this one's
  std::shared_ptr<NcclStream> stream;
  // For all to come, and for a transfer, computing of slower partners included.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

// Connects this rank with all others, which call this, too; returns when all are there. The memory
// of its transfers is the device's.
// Errors: INTERNAL, with NCCL's words; DEADLINE_EXCEEDED; UNAVAILABLE  a partner has gone
absl::StatusOr<std::unique_ptr<Collective>> MakeNccl(NcclOptions options);

}  // namespace outboard::collective
