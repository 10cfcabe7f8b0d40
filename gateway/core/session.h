// A session as the gateway's core knows it. It is made of parts, each with one subject: the client,
// what it asked for, where the executors are, what they have done, snapshots, the wait for devices,
// losses, and money. Which file of the core changes which part: README.md. The invariants that hold
// across parts (G1 to G20) are in core.cc.
//
// `seq` numbers the items of a session; a time is monotonic unless it is a WallTime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gateway/core/events.h"
#include "gateway/ledger/meter.h"

namespace outboard::gateway {

struct CoreSession {
  // In the order of telemetry::SessionStateLabel. The diagram of core.cc names the transitions.
  enum class State {
    kQueued,    // waits for devices, without an executor
    kStarting,  // has devices; waits for its executors to attach, and for a hold to pay for them
    kLive,      // its client is connected to its executors
    kDetached,  // as kLive, but its client is gone
    kParked,    // has no device; its executors keep its values in a worker's memory
    kOrphaned,  // its worker's connection ended; the worker may join again with its executors
    kStored,    // has no executor; its values are those of the last snapshot
  };

  // Its client, connected or not: the one that opened it, or whoever entered it last.
  // `conn` is not 0 in kLive and kQueued, and may be in all other states but kDetached (G4).
  struct Client {
    ConnId conn;              // value 0: not connected
    Token resume_hash;        // of the token by which it comes back
    std::string key_id;       // of its API key, whose cap pays for the devices (G20)
    MonoTime left_at;         // valid while it is not connected, or asleep: since when
    bool is_new = false;      // it entered by the session's name, and no Live was sent to it
    bool asleep = false;      // connected and without work: the session has no device (sleeping.cc)
    bool sleep_announced = false;  // IdleSoon was sent
    // It left the session to others, or its key was withdrawn: the devices are given back as soon
    // as they are idle.
    bool release_when_idle = false;

    bool is_connected() const { return conn.value != 0; }
    // It waits for devices where the session has none.
    bool is_active() const { return is_connected() && !asleep; }
  };

  // What the client asked for. Valid from ClientOpen on; a client that comes back may change
  // device_class, memory_bytes, queue_max_ns and max_cost.
  struct Request {
    uint32_t devices = 1;        // one rank on each
    std::vector<uint32_t> mesh;  // axis sizes, whose product is `devices`; empty: one axis
    std::string spread;          // of Open: how work is spread over the ranks; empty: "auto"
    std::string device_class;    // of the price file, or kOwnMachines; empty: any
    uint64_t memory_bytes = 0;   // of each device, at least
    std::optional<int64_t> queue_max_ns;  // its longest wait for devices; nothing: without an end
    std::optional<MicroUsd> max_cost;     // of the session in all; nothing: no limit
    // Sessions that start together; empty once this one was placed.
    std::string gang;
    uint32_t gang_size = 1;
    bool recovers = false;  // it speaks a protocol in which it retains items for a replay

    bool is_group() const { return devices > 1; }
    // OK if this is the same shape; what is left out (0, empty) is. INVALID_ARGUMENT names both.
    absl::Status CheckShape(uint32_t other_devices, const std::vector<uint32_t>& other_mesh,
                            const std::string& other_spread) const;
  };

  // Where the executors are. `seats` has some in kStarting, kLive, kDetached and kParked (G2);
  // in other states the rest tells of the last placement.
  struct Placement {
    std::vector<Seat> seats;
    uint64_t number = 0;          // of the last Assign; messages of earlier ones are ignored (G9)
    std::string worker_identity;  // of the first seat's worker, or of the last; empty: not known
    std::string last_pool;        // of its first device (PoolNameOf)
    uint64_t memory_bytes = 0;    // that an executor of it uses, as its worker reported last
    MonoTime attached_at;         // when an executor attached last
    bool work_arrived = true;     // the client's work has reached these executors
    // Of a group: whether each rank has a part of the arrays. Nothing: not known before it is live.
    // Only executors that do the same can go on with its snapshot (G16).
    std::optional<bool> has_parts;
    // The start follows a fault of ours: its client may not know of it yet, and the session is not
    // charged until that is back, or idle_ns have passed.
    bool start_is_our_fault = false;

    const Seat* SeatOn(WorkerId worker) const;  // nullptr: it has none there
    uint32_t FirstRankOn(WorkerId worker) const;
    struct RankIndex {
      size_t seat, index;  // in `seats`, and in that seat's lists
    };
    std::optional<RankIndex> FindRank(uint32_t rank) const;  // nothing: it has no executor
    bool is_attached() const;  // all executors are, and there are some
    bool is_spread() const { return seats.size() > 1; }  // over several workers
    uint32_t slots_held() const;
  };

  // What the executors have done, as the last SessionProgress said.
  // Of a session without executors: what its last ones had done, or its snapshot has.
  struct Progress {
    bool busy = false;           // items are in flight
    bool awaits_answer = false;  // SessionProgress::awaits
    uint64_t done_seq = 0;       // the last item that is known to be done
    bool done_known = true;      // false: executors that outlived a connection may have done more
    MonoTime idle_since;         // valid in kLive, kDetached, and kStarting without a client
  };

  // The last snapshot on the gateway's disk, and the wait for another.
  struct Snapshot {
    std::string root;        // empty: there is none
    uint64_t seq = 0;        // of the last item that it includes
    MonoTime stored_at;      // or when the session went live without one
    // Since when another is waited for, so that the session can give up its executors (G13), or its
    // client; nothing: none is (AskForSnapshot). Only in states with an executor.
    std::optional<MonoTime> awaited_since;
    bool disk_failed = false;  // ours: the latest could not be stored
  };

  // Items that the client sends again after a fault of ours: their time is not charged (funds.cc).
  // Valid while until_seq is not 0, but for the last two: they are of the last snapshot.
  struct Replay {
    uint64_t until_seq = 0;  // items up to here were done before
    bool active = false;     // they are being repeated: the meter is paused
    MonoTime since;          // active: when this began
    MonoTime busy_at;        // active: when items were last in flight
    int64_t free_ns = 0;     // not charged since the last snapshot, but for what `since` begins
    int64_t billed_ms_at_snapshot = 0;  // Bill::ms at the last snapshot
  };

  // The wait for devices. Places are of the current wait in the queue (G5); the two flags say how
  // the session enters it.
  struct Wait {
    std::optional<QueuePlace> sent_place;  // the last that its client was sent
    MonoTime sent_at;
    MonoTime servable_at;     // when the fleet last had devices that could ever serve it
    bool goes_first = false;  // it was open, and its executors were lost, or are to move
    bool own_devices_only = false;  // nobody pays for a rented device (WaitForOwn)
  };

  // How executors were lost so far: who is to blame, and where not to start the next (G8).
  // Times longer ago than move_window_ns do not count.
  struct Losses {
    std::vector<MonoTime> after_work;   // replacements
    std::vector<MonoTime> before_work;  // likewise, of executors that its work had not reached
    std::optional<WorkerId> last_worker;
    std::vector<uint32_t> last_slots;  // that it held there
    std::string last_reason;           // for people; also of a session that was stored
    // When an executor was replaced that the session's own work may have ended, and the item that
    // was being applied then; 0: not known.
    std::optional<MonoTime> retried_at;
    uint64_t suspect_seq = 0;
    // Those after the last snapshot: they ended two executors, and are not applied again.
    std::vector<RefusedItem> refused_items;
  };

  // kOrphaned alone: until when its worker may join with its executors.
  struct Orphan {
    MonoTime until;
    bool had_device = false;  // before it was orphaned: it is to get one back
  };

  // The current lease, or the last one (leases.cc, use_states.cc). Of its two kinds at most one
  // runs: for devices in kLive and kDetached (G3), for state alone in kParked or kStored (G18).
  struct Lease {
    uint64_t grant = 0;  // counts the session's leases; 0: there was none
    bool for_devices = false;
    bool for_state = false;
    UseState use = UseState::kRun;
    bool is_written = false;  // its row is on disk: the meter counts
    MonoTime began_at;
    // When the first lease for its devices on the same key began: RUN and HELD alternate.
    MonoTime key_since;
    bool is_running() const { return for_devices || for_state; }
  };

  // The money that is held for the current lease, or the one that is to begin (funds.cc).
  // Empty but for `last_number` where there is neither.
  struct Hold {
    LeaseId lease;
    std::string key_id;             // the key whose cap the hold counts for
    std::vector<MicroUsd> prices;   // of each device, per hour
    uint64_t last_number = 0;       // of the session's last TakeHold, a takeover's included
    bool is_requested = false;      // HoldAnswered is to come,
    uint64_t requested_number = 0;  // with this number; any other is of the past
    MonoTime requested_at;
    bool may_exist = false;  // a TakeHold was sent: EndHold has to follow
    int64_t funded_ms = 0;   // of the lease: so much of it is paid for
    absl::Status limit;      // of the last answer: OK, or what allows no more
  };

  // Prices an hour of each device, since the first lease on one of this class.
  struct Prices {
    std::string price_class;
    MicroUsd run;
    IdlePrices idle;
    MicroUsd Of(UseState state) const { return PriceOf(state, run, idle); }
  };

  // What it costs. Amounts are those since the session was opened.
  struct Billing {
    std::optional<Prices> prices;  // nothing: it had no lease yet
    // Not OK: it was stopped for want of this money, until a client enters it.
    absl::Status stopped;
    bool state_is_unpaid = false;  // nobody pays for its state, until it has a device again
    WallTime wall;  // the last known time of day: charges of the next lease are dated by it
    Bill past;      // of leases that ended
    Bill charged;   // all charges so far, those of the current lease included

    // Its last lease was of a machine of its account's own.
    bool was_on_own() const;
    // Counts these charges, and appends them to `all`.
    void Add(const std::vector<Charge>& more, std::vector<Charge>& all);
  };

  // A client that waits to enter, because the device is on another key's cap (takeover.cc).
  struct Takeover {
    ConnId conn;
    std::string key_id;
    std::optional<MicroUsd> max_cost;  // of the session, once this client is in
    Event entry;  // its ClientResume or ClientAttach, handled once more when it may enter
    LeaseId lease = {};   // that its hold is for
    uint64_t number = 0;  // of its TakeHold (Hold::last_number)
    MonoTime since = {};
    std::optional<HoldAnswer> paid = {};  // enough is held
  };

  SessionId id;
  TenantId tenant;
  std::string name;  // empty: none
  State state = State::kQueued;
  MonoTime state_since;
  MonoTime opened_at;  // or restored
  uint64_t epoch = 0;  // counts the times that it went live; 0: nothing was opened yet
  // Another executor can go on from the last snapshot, or from the start: the client retains the
  // items that it does not include. Once it was live without, it never is again.
  bool recoverable = false;

  Client client;
  Request request;
  Placement placement;
  Progress progress;
  Snapshot snapshot;
  Replay replay;
  Wait wait;
  Losses losses;
  Orphan orphan;
  Lease lease;
  Hold hold;
  Billing billing;
  std::optional<Takeover> takeover;  // only while it holds devices

  // In the queue (G5): it waits for devices, with a client that has work.
  bool is_waiting() const;
  // It has begun, and no other executor can go on with it.
  bool is_lost_with_executor() const { return epoch > 0 && !recoverable; }
  // The last snapshot has all that was done.
  bool is_saved() const { return progress.done_known && snapshot.seq >= progress.done_seq; }
  // The losses that count together with one now. Before a session is open its client waits for each
  // of them: they all count alike.
  std::vector<MonoTime>& LossesLikeNow();
  // Its executors are gone. `free`: what was done since the snapshot is repeated free of charge.
  void GoBackToSnapshot(bool free);
  // For people: "queued", "running" and so on (SessionView::state).
  std::string StateText() const;
};

}  // namespace outboard::gateway
