// A rollout: nodes get another image, a share of them at a time, and the old one again where the
// new one does not serve. Takes what is seen and the time, and returns what is to be done; the rows
// of image_rows.h keep it.
//
// A node:
//   kPending   --its turn: boots the new image once, restart--> kUpdating
//   kUpdating  --is here under the new image--> kUpdated
//   kUpdating  --not in time, a failed join test, here again under another image--> kReturning
//   kUpdated   --Rollback, its turn--> kReturning     boots the old image; restart, or power cycle
//   kReturning --is here under the old image--> kTakenBack
// The rollout:
//   kRunning --each node is kUpdated, or is not here--> kDone
//   kRunning --a node is kReturning--> kStopped       kRunning, kStopped, kDone --Rollback-->
//   kRollingBack --none is left under the new image--> kRolledBack
//
// U1  At most share_percent of the nodes, and at least one, are kUpdating or kReturning because it
//     was their turn.
// U2  No second node begins before the first has served under the new image.
// U3  None begins once one is kReturning.
// U4  A node counts as kUpdated only where it has joined, which its join test precedes.
// U5  A node that is not here is not waited for: it stays as it is.
// U6  A node in kReturning that has shown itself since it was last told, by asking what to boot or
//     by enrolling, is on its way: its time starts anew at each such sign and is twice within_ms,
//     doubled each time that it is told to restart. within_ms may be shorter than a start.
//
// Threads: any; pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gateway/ledger/ids.h"

namespace outboard::gateway {

enum class RolloutNodeState { kPending, kUpdating, kUpdated, kReturning, kTakenBack };
const char* ToString(RolloutNodeState state);
enum class RolloutState { kRunning, kStopped, kDone, kRollingBack, kRolledBack };
const char* ToString(RolloutState state);

struct RolloutNode {
  std::string from;  // the image that it ran when the rollout began, "sha256:..."; "": not known
  RolloutNodeState state = RolloutNodeState::kPending;
  std::string boot = {};  // its start (NodeSeen::boot) when it was last told to restart
  // Since when it is in this state. In kReturning: when it was last told, or showed itself since.
  WallTime since = {};
  int tries = 0;          // in kReturning: how often it was told to restart
  int signs = 0;          // in kReturning, since it was told: 1, it has asked; 2, it has enrolled
  std::string why = {};   // it is kReturning or kTakenBack
};

struct Rollout {
  int64_t id = 0;
  std::string image;  // "sha256:..."
  std::string nodes;  // the pattern of serial numbers that it is for
  int share_percent = 10;
  int64_t within_ms = 0;  // from the restart until the node serves
  RolloutState state = RolloutState::kRunning;
  std::string why = {};  // it was stopped
  WallTime began = {};
  std::map<std::string, RolloutNode> by_serial = {};
};

struct NodeSeen {
  bool is_here = false;     // it has joined
  std::string image;        // as it said when it enrolled; "": it did not say
  std::string boot;         // differs with each start of the machine
  std::string test_failed;  // why its last join test failed under that image; "": it did not
  // It has asked the boot server what to boot since it was last told to restart. Set by ImageRows.
  bool has_asked = false;
  // And once more after that, of an image on trial: it was told what it had before, and is on its
  // way back.
  bool has_asked_again = false;
};

struct RolloutAction {
  enum class Kind {
    kTryImage,    // its next boot gets `image`, once; each other one what it had
    kKeepImage,   // each boot gets `image`
    kRestart,     // it hands its sessions on, and starts again through firmware
    kPowerCycle,  // it is not here to be told
  };
  Kind kind;
  std::string serial;
  std::string image = {};
};

// How often a node that does not come back under its old image is restarted.
inline constexpr int kReturnTriesMax = 3;

std::vector<RolloutAction> Step(Rollout& rollout, const std::map<std::string, NodeSeen>& seen,
                                WallTime now);
// An operator takes it back. Step does the rest.
void Rollback(Rollout& rollout);
// Nothing of it is under way.
bool IsSettled(const Rollout& rollout);

}  // namespace outboard::gateway
