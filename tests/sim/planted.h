// Bugs that the simulator must find, planted one at a time; each once broke a guarantee of
// sessions, in some system.
#pragma once

#include "worker/executor/executor_core.h"

namespace outboard::sim {

enum class Planted {
  kNone,
  kAckBeforeStore,         // durable is reported when a snapshot starts
  kReplayWithoutSeqCheck,  // applied items are applied again
  kOldEpoch,               // a resumed session continues in its previous epoch
  kLiveBeforeWritten,      // a client gets an epoch that is not on disk yet
  kKeptBeforeWritten,      // an executor gets a confirmation for a snapshot that no row names yet
  kAsksNoSnapshot,         // a parked session is put away without having been asked to save itself
  kNeverWakes,             // a session that sleeps does not hear its client
  kPostTwice,              // time is charged again in the range behind it
  kForgetVoid,             // what is held for a lease is not given back at its end
  kSkipFence,              // writes of a gateway that has crashed still arrive
  kBillReplay,             // what is repeated after a fault is charged
  kSnapshotsDiffer,        // ranks of one session take their snapshots at different items
  kOldPlacement,           // the end of a rank that was replaced is taken for that of its successor
  kWallClock,              // leases are metered by the wall clock
  kAdmitsRevoked,          // a key that was revoked opens sessions
  kKeepsRevoked,           // what is open with a key that was revoked goes on
  kAnyAccount,             // a key opens sessions of another account
  kFirstKeyPays,           // what a program does counts for the first key that it had
  kAnyKeyTakesOver,        // a key that cannot pay takes a session from one that does
  kTwoWriters,             // writes of a gateway whose turn is over still arrive
  kNeverIdle,              // a session without work seems to have some
  kWrongLimit,             // a client that meets a cap is told: no credit is left
  kFailedRankGoesOn,       // a rank applies items after its group has ended
  kBelievesConflict,       // what contradicts a receipt is taken for good
};

}  // namespace outboard::sim
