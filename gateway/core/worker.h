// A worker as the gateway's core knows it, from WorkerJoined until it is lost: its devices, what it
// is able to do, and what keeps sessions from it. Each join is a worker of its own, also of the
// same machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/core/events.h"

namespace outboard::gateway {

struct CoreWorker {
  // A device of it; its number is its place in `slots`.
  struct Slot {
    DeviceSlot device;
    std::optional<SessionId> holder;  // the session that it is leased to, or starts for
    bool out = false;                 // out of service (DeviceWentOut): given to no session (G14)
    bool is_free() const { return !holder.has_value() && !out; }
  };

  std::string name;             // with the number of its join, for people
  std::string worker_identity;  // the same at each join of the same worker
  std::vector<Slot> slots;
  MonoTime heard_at;  // its last heartbeat

  // What it is, as WorkerJoined said; fixed.
  bool one_account = false;  // its executors at any time are of one tenant (G10)
  bool exclusive = false;    // an executor cannot stay without its device: nothing is parked here
  bool snapshots_when_asked = false;  // it knows RequestSnapshot
  bool serves_groups = false;         // it starts executors for several devices of a session
  bool has_collectives = false;       // these share the work, and hold parts of the state
  bool groups_recover = false;        // and take snapshots of an item that they are told
  bool spans = false;                 // and exchange data with those of other workers that span
  std::string build;                  // of its programs: executors of a group are of one build
  std::optional<TenantId> owner;      // the one account that it serves (G19); nothing: rented out

  // Why it takes no new sessions.
  bool draining = false;   // it is being stopped, or was lost
  bool set_aside = false;  // it lied: it has no session at all (G11)
  // Its process has joined again, as another worker: this one's messages are of the past. What its
  // sessions did is charged no further, and its devices are the new one's to give.
  bool superseded = false;

  uint32_t free_slots() const {
    if (draining || set_aside) return 0;
    return static_cast<uint32_t>(std::count_if(slots.begin(), slots.end(),
                                               [](const Slot& slot) { return slot.is_free(); }));
  }
};

}  // namespace outboard::gateway
