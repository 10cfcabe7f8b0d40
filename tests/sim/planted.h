// Mistakes that the simulator must find, one at a time; each broke a promise of sessions once,
// somewhere.
#pragma once

#include "worker/executor/executor_core.h"

namespace outboard::sim {

enum class Planted {
  kNone,
  kAckBeforeStore,         // durable is told when a snapshot is begun
  kReplayWithoutSeqCheck,  // what was applied is applied again
  kOldEpoch,               // a resumed session goes on in the epoch of before
  kLiveBeforeWritten,      // a client is told of an epoch that is not on disk yet
  kKeptBeforeWritten,      // an executor is told so of a snapshot that no row names yet
};

}  // namespace outboard::sim
