// The gateway's state machine: sessions, the queue for devices, placement on workers, and billing.
// It uses no threads, sockets, clocks, files or randomness: an adapter passes in events with the
// time, and carries out the returned actions in order.
//
//   actions = core.On(event, now)
//
// Frames between a client and its executor do not pass through the core; the driver connects the
// two streams on Live and cuts them on EndClient and EndExecutor.
//
// Threads: one owner at a time. Times are monotonic; a time earlier than the last one counts as the
// last one. Errors reach clients in EndClient (events.h), for example UNAVAILABLE.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gateway/core/census.h"
#include "gateway/core/events.h"
#include "gateway/core/fleet_view.h"
#include "gateway/ledger/meter.h"

namespace outboard::gateway {

class GatewayCore {
 public:
  explicit GatewayCore(CoreOptions options = {});

  std::vector<Action> On(const Event& event, MonoTime now);

  bool IsTheClients(const SessionId& session, TenantId tenant, const Token& resume_hash) const;
  // True if this connection serves the session, in this epoch.
  bool IsLive(const SessionId& session, ConnId conn, uint64_t epoch) const;
  bool Has(const SessionId& session) const { return sessions_.contains(session); }
  // True if a snapshot that includes item `seq` replaces the session's last one.
  bool MayKeep(const SessionId& session, uint64_t seq) const;
  // True if the session's executor of this rank has yet to attach.
  bool Awaits(const SessionId& session, uint32_t rank = 0) const;
  // False for the report of an executor that others have replaced: it says nothing of these (G9).
  bool Concerns(const ExecutorGone& report) const;
  // True if somebody goes live only when this hold is there.
  bool AwaitsHold(const SessionId& session, uint64_t number) const;
  // True if the session has an executor, attached or not.
  bool HasSeat(const SessionId& session) const;
  // Of the session's executor of this rank; none: it has none.
  std::optional<WorkerId> WorkerOf(const SessionId& session, uint32_t rank = 0) const;
  // Devices of this worker that sessions hold; and sessions that have an executor there.
  size_t DevicesHeldOn(WorkerId worker) const;
  size_t SessionsOn(WorkerId worker) const;
  // True if its executor is on another worker than this one.
  bool IsElsewhere(const SessionId& session, WorkerId worker) const;
  // True if this lease runs, and LeaseWritten came for it.
  bool IsWritten(const LeaseId& lease) const;
  Bill BillOf(const SessionId& session) const;
  // Classes of the price file that devices or sessions are of.
  std::set<std::string> ClassesInUse() const;

  // A session as its account sees it.
  struct Listed {
    SessionId session;
    std::string name;
    std::string state;  // StateOf
    uint32_t devices = 0;
    int64_t age_ms = 0;
    Bill bill;
    bool has_client = false;
    absl::Status stopped;  // why it cannot go on: a cap, or the credit
  };
  std::vector<Listed> List(TenantId tenant, MonoTime now) const;  // by age, the oldest first
  // The tenant's session of this name or id; never another's.
  std::optional<SessionId> FindNamed(TenantId tenant, const std::string& session) const;

  // Refuses to open or resume sessions from now on, with UNAVAILABLE.
  void Drain() { draining_ = true; }

  size_t session_count() const { return sessions_.size(); }
  // What an account used before this core was made, decayed to `now`: its place in the queue.
  void RememberUse(TenantId account, double device_s, MonoTime now) {
    ++changes_;
    queue_.RememberUse(account, device_s, now);
  }
  size_t worker_count() const { return workers_.size(); }
  uint32_t devices_total() const;
  uint32_t devices_busy() const;
  // What there is now, for people who watch the gateway; `now` as in On.
  Census CountAll(MonoTime now) const;
  FleetView Look(MonoTime now) const;

  // Checks the numbered invariants of core.cc; returns "" or a description of the violation. For
  // tests and simulators, which call it after each of their events. Where no event has reached the
  // core since the last check that found nothing, it checks nothing and returns "".
  std::string CheckInvariants() const;

 private:
  // A client that enters a session whose device is on another key's cap (takeover.cc).
  struct Takeover {
    ConnId conn;
    std::string key_id;
    std::optional<MicroUsd> max_cost;  // of the session, once this client is in
    Event entry;  // its ClientResume or ClientAttach, handled once more when it may enter
    LeaseId lease = {};   // that its hold is for
    uint64_t number = 0;  // of its TakeHold, of the session's one count (Funds)
    MonoTime since = {};
    std::optional<HoldAnswer> paid = {};  // enough is held
  };

  enum class State { kQueued, kStarting, kLive, kDetached, kParked, kOrphaned, kStored };

  struct Slot {
    DeviceSlot device;
    std::optional<SessionId> holder;
    bool out = false;  // DeviceWentOut
    bool free() const { return !holder.has_value() && !out; }
  };
  struct Worker {
    std::string name, worker_identity;
    std::vector<Slot> slots;
    MonoTime heard;
    bool draining = false;
    bool set_aside = false;
    bool one_account = false;
    // Its process has joined again: what this connection still says is of the past, and its devices
    // are the new one's to give. Nothing more is charged for what it holds.
    bool superseded = false;
    bool exclusive = false;  // WorkerJoined::exclusive
    bool snapshots_when_asked = false;
    bool serves_groups = false;
    bool has_collectives = false;
    bool groups_recover = false;
    bool spans = false;  // WorkerJoined::spans
    std::string build;   // WorkerJoined::build
    std::optional<TenantId> owner;  // WorkerJoined::owner
    uint32_t free() const;
  };

  struct Session {
    SessionId id;
    TenantId tenant;
    Token resume_hash;
    std::string name;  // empty: none
    State state = State::kQueued;
    ConnId conn;  // value 0: none
    uint64_t epoch = 0;
    uint32_t devices_wanted = 1;  // its ranks
    std::vector<uint32_t> mesh;   // empty: one axis of them
    std::string spread;
    std::vector<Seat> seats;  // of its executors
    std::string worker_identity;  // of its worker, or of the last one
    // Of one on several devices, since its first epoch: whether they hold parts of its state, which
    // others can go on with that do, too.
    std::optional<bool> has_parts;
    uint64_t placement = 0;   // of the last Assign
    uint64_t grant = 0;       // of the current or last lease
    bool metered = false;
    bool is_written = false;  // the current or last lease: its row is on disk
    bool busy = false;
    // Its client is connected and has no work: no device, and not in the queue.
    bool sleeping = false;
    bool sleep_told = false;    // that it will be
    bool awaits = false;       // SessionProgress::awaits
    bool held_device = false;  // kOrphaned: whether it held a device before
    // Its client was, or has left: it gives its device back as soon as it is idle.
    bool denied = false;
    bool has_new_client = false;  // by its name, and it has not been told so
    absl::Status stopped;      // OK, or for want of what money; as `denied`
    std::string key_id;        // of its client
    std::optional<MicroUsd> max_cost;
    // Of each of its devices, since its first lease on one of this class.
    struct Prices {
      std::string price_class;
      MicroUsd run;
      IdlePrices idle;
      MicroUsd Of(UseState state) const { return PriceOf(state, run, idle); }
    };
    std::optional<Prices> price;
    UseState use = UseState::kRun;  // of the current or last lease
    bool kept = false;         // a lease of its state alone, parked or stored (use_states.cc)
    bool unpaid = false;       // nobody pays for its state, until it has a device again
    struct Funds {             // of the current lease, or the one that is to begin
      LeaseId lease;
      std::string key_id;            // the key whose cap the hold counts for
      std::vector<MicroUsd> prices;  // of each device
      uint64_t number = 0;        // of the session's last TakeHold, a takeover's included
      bool asked = false;         // an answer is to come,
      uint64_t asked_number = 0;  // to this one; any other is of the past
      bool any = false;        // a hold may be there
      int64_t funded_ms = 0;
      absl::Status why;        // of the last answer
      MonoTime asked_at;
    } funds;
    std::optional<Takeover> takeover;  // only while it holds a device
    // Work that is repeated after a fault of ours is not charged (GoBackToSnapshot).
    uint64_t done_seq = 0;      // the last item that is known to be done, by any of its executors
    bool done_known = true;     // false: one that outlived a connection may have done more
    uint64_t replay_until = 0;  // items up to here were done before; 0: none is repeated
    bool replaying = false;     // its meter stands
    int64_t replayed_ns = 0;  // the time that was free, before replay_since
    MonoTime replay_since, replay_busy;
    int64_t ms_at_snapshot = 0;  // of its bill
    // Its client retains the items that no snapshot includes, so that another executor can replay
    // them.
    bool recoverable = false;
    bool client_recovers = false;
    std::string snapshot_root;
    uint64_t snapshot_seq = 0;
    // Since it was parked, or was to be.
    std::optional<MonoTime> snapshot_asked;
    bool disk_failed = false;  // ours, at a snapshot, and none was kept since
    uint64_t memory_bytes = 0;               // of its executor, as its worker said last
    std::string device_class;                // as its client asked; empty: any
    bool own_only = false;                   // nobody pays for a rented device (funds.cc)
    uint64_t memory_wanted = 0;              // likewise
    std::string class_before;                // of the pool where it last had a device
    std::optional<int64_t> queue_ns;  // as its client asked
    std::string gang;
    uint32_t gang_size = 1;
    std::optional<QueuePlace> told;  // of the queue, and when
    MonoTime told_at;
    bool displaced = false;  // its executor was lost, or its worker stopped: it goes first
    // It starts, or is to, after a fault of ours (the operator's): its client may not know yet, and
    // for idle_ns from when it has started it pays for nothing.
    bool start_is_our_fault = false;
    MonoTime attached_at;  // the last of its executors
    MonoTime hope_at;  // when the fleet last had what it waits for
    bool is_reached = true;  // its work has reached the executors of this placement
    std::vector<MonoTime> moved;      // when its executor was replaced
    std::vector<MonoTime> not_begun;  // likewise, of those that its work had not reached
    std::optional<WorkerId> lost_on;   // the worker of the last loss
    std::vector<uint32_t> lost_slots;  // and what it held there
    std::string lost_how;
    std::optional<MonoTime> tried_again;  // after an end that it may have caused
    uint64_t suspect_seq = 0;             // the item of that end; 0: not known
    std::vector<RefusedItem> refused;     // those after the last snapshot
    MonoTime orphan_until;  // kOrphaned
    MonoTime since;         // when `state` was entered
    MonoTime asked;         // when its client asked for it
    MonoTime leased;        // when the current or last lease began,
    MonoTime key_since;     // and the first of its device on the same key: RUN and HELD alternate
    MonoTime snapshot_at;   // when the last snapshot was kept, or it went live without one
    MonoTime idle_since;    // kLive, kDetached, and kStarting without a client
    MonoTime client_left;   // valid without a client, and while it sleeps: since when
    MonoTime opened;        // or restored
    WallTime wall;
    Bill past;     // of leases that ended
    Bill charged;  // all charges so far, of ended leases and of the current one

    const Seat* SeatOn(WorkerId worker) const;
    bool attached() const;  // all of its executors
    // Where an executor is: its seat, and its place there. Nothing: it has none.
    struct Place {
      size_t seat, index;
    };
    std::optional<Place> PlaceOf(uint32_t rank) const;
    bool is_group() const { return devices_wanted > 1; }
    bool is_spread() const { return seats.size() > 1; }  // over several workers
    // Has begun, and no other executor can go on with it.
    bool is_lost_with_executor() const { return epoch > 0 && !recoverable; }
    bool is_saved() const { return done_known && snapshot_seq >= done_seq; }
    uint32_t slots_held() const;
  };

  // A client that waits for a snapshot that its session is to begin with.
  struct Fork {
    ClientOpen open;
    SessionId parent;
    MonoTime since;
    std::string root;  // that is being shared; empty: none is
    uint64_t seq = 0;  // of `root`
    std::optional<bool> has_parts;  // as in Session
  };

  using Out = std::vector<Action>;
  static bool IsSome(ConnId conn) { return conn.value != 0; }

  void HandleAny(const Event& event, Out& out);
  void Handle(const WorkerJoined& event, Out& out);
  void Handle(const DeviceWentOut& event, Out& out);
  void Handle(const WorkerHeartbeat& event, Out& out);
  void Handle(const WorkerDraining& event, Out& out);
  void Handle(const WorkerSetAside& event, Out& out);
  void Handle(const WorkerGone& event, Out& out);
  void Handle(const SessionRestored& event, Out& out);
  void Handle(const ClientOpen& event, Out& out);
  void Handle(const ClientResume& event, Out& out);
  void Handle(const ClientAttach& event, Out& out);
  void Handle(const ClientClosed& event, Out& out);
  void Handle(const ClientLeft& event, Out& out);
  void Handle(const ClientGone& event, Out& out);
  void Handle(const ClientActs& event, Out& out);
  void Handle(const ClientDenied& event, Out& out);
  void Handle(const ExecutorAttached& event, Out& out);
  void Handle(const ExecutorGone& event, Out& out);
  void Handle(const SnapshotShared& event, Out& out);
  void Handle(const SnapshotKept& event, Out& out);
  void Handle(const SnapshotNotKept& event, Out& out);
  void Handle(const SessionProgress& event, Out& out);
  void Handle(const EndSession& event, Out& out);
  void Handle(const HoldAnswered& event, Out& out);
  void Handle(const LeaseWritten& event, Out& out);
  void Handle(const RowNotWritten& event, Out& out);
  void Handle(const PostingRefused& event, Out& out);
  void Handle(const PricesSet& event, Out& out);
  void Handle(const Tick& event, Out& out);
  void Handle(const StopAll& event, Out& out);

  Session* Find(const SessionId& id);
  Session* FindByConn(ConnId conn);
  // ---- names, and state that goes from session to session (attach_and_fork.cc)
  Session* Named(TenantId tenant, const std::string& text);
  void Reconnect(Session& session, ConnId conn, WallTime wall, const char* why_old, Out& out);
  absl::Status MayGoOn(const SessionId& session, Out& out);  // may end the session
  absl::Status CheckName(TenantId tenant, const std::string& name) const;
  static absl::Status CheckShape(const Session& session, uint32_t devices,
                                 const std::vector<uint32_t>& mesh, const std::string& spread);
  Session& Begin(const ClientOpen& event);
  void BeginFork(const ClientOpen& event, Out& out);
  void CheckForks(Out& out);
  bool CheckFork(Fork& fork, Out& out);  // false: it is over
  bool DropFork(ConnId conn);
  int64_t GraceNs(const Session& session) const;
  bool MaySurvive(const Session& session) const;
  void PutToNextGateway(Session& session, Out& out);
  // ---- the wait for a device (waiting.cc)
  void Enqueue(Session& session, Out& out);
  void PlaceQueue(Out& out);
  void LeaveQueue(const SessionId& session) { queue_.Remove(session, pools_); }
  // Both of a session that waits and fits, and a gang as a whole. False: parked state has to be
  // saved first.
  bool TryPlace(const std::vector<DeviceGrant>& grants, Out& out);
  bool TryPlaceOne(Session& session, std::optional<Parts> parts, Out& out);
  bool Serves(WorkerId worker, const Session& session) const;
  void Place(Session& session, const Parts& parts, Out& out);
  std::vector<uint32_t> SlotsFor(const Session& session, const PlacedPart& part) const;
  DeviceWish WishOf(uint32_t devices) const;
  DeviceRequest RequestOf(const Session& session) const;
  bool IsHopeless(Session& session);
  void GiveUpWaiting(Session& session, absl::Status why, Out& out);
  void TellQueue(Out& out);
  void TellPlace(Session& session, const QueuePlace& place, Out& out);
  // Refuses what the fleet never has.
  absl::Status CheckWish(const DeviceWish& wish, TenantId account) const;
  bool HasOwn(TenantId account) const;  // machines of its own
  bool IsOnOwn(const Session& session) const;
  bool WaitForOwn(Session& session, Out& out);
  void Touch(const Session& session);  // what its workers have free has changed
  void SyncPools();
  std::vector<DevicePool> PoolsOf(WorkerId worker) const;
  // G10: no other tenant has an executor on it, or it serves several at a time.
  bool Admits(WorkerId worker, TenantId tenant) const;
  using Slots = std::pair<WorkerId, std::vector<uint32_t>>;
  void StartWith(Session& session, std::vector<Slots> places);
  void GoLiveIfReady(Session& session, Out& out);
  void GoLive(Session& session, Out& out);
  void LeaveClient(Session& session, Out& out);
  void GoDetached(Session& session, Out& out);
  void Park(Session& session, Out& out);
  // ---- idle while connected (sleeping.cc)
  void CheckSleep(Session& session, Out& out);
  void Sleep(Session& session, Out& out);
  void Wake(Session& session, Out& out);
  void CheckDisk(Session& session, Out& out);
  void Store(Session& session, bool ours, Out& out);
  void PutAway(Session& session, bool ours, Out& out);
  void AskForSnapshot(Session& session, Out& out);
  std::vector<Session*> InTheWay(WorkerId worker, const std::vector<uint32_t>& taken,
                                 const Session* placed);
  bool IsReadyToGo(const Session& session) const;
  bool MakeRoomFor(WorkerId worker, const std::vector<uint32_t>& taken, const Session* placed,
                   Out& out);
  void End(const SessionId& id, absl::Status why, SessionRowState row, LeaseEnd lease_end,
           Out& out);
  void EndOne(const SessionId& id, absl::Status why, SessionRowState row, LeaseEnd lease_end,
              Out& out);
  void LoseWorker(WorkerId id, const std::string& why, bool may_return, Out& out);
  void Orphan(Session& session, const std::string& how, Out& out);
  bool Adopt(const HeldExecutor& held, WorkerId worker, Out& out);
  // `ours`, here and below: the operator's fault, or for another's sake. False where the session's
  // own work, its client or its account has caused it. What is repeated is free only where it is.
  void Replace(Session& session, const std::string& how, bool ours, Out& out);
  // Its worker stops soon, and its snapshot is kept: no loss.
  void HandOver(Session& session, Out& out);
  void Leave(Session& session, LeaseEnd lease_end, bool ours, Out& out);  // the worker it is on
  void GoBackToSnapshot(Session& session, bool ours);
  static bool RanOnOwn(const Session& session);  // its last lease of a device
  static std::vector<MonoTime>& LossesLikeThis(Session& session);
  bool MayMove(Session& session);
  bool MayTryAgain(Session& session, const ExecutorGone& event);
  bool IsExclusive(const Session& session) const;
  void CheckDeadlines(Session& session, Out& out);
  void CheckUnclaimed(Session& session, bool idle, Out& out);
  void PutRow(const Session& session, SessionRowState state, Out& out);
  // ---- money (funds.cc)
  void BeginHold(Session& session, Out& out);
  void AskHold(Session& session, int64_t to_ms, Out& out);
  void EndHoldOf(Session& session, Out& out);
  void HoldFor(Session& session, UseState use, uint32_t devices, Out& out);
  bool IsFunded(const Session& session) const;
  void CheckFunds(Session& session, Out& out);
  void Stop(Session& session, const absl::Status& why, Out& out);
  void Overrun(Session& session, Out& out);
  // ---- another key for a device that is held (takeover.cc)
  bool WaitsToPay(Session& session, Takeover wants, Out& out);
  void TakeoverAnswered(Session& session, const HoldAnswer& answer, Out& out);
  void TakeOverIfReady(Session& session, Out& out);  // may end the session
  void GiveHoldTo(const Takeover& next, Session& session, Out& out);
  void GiveLeaseTo(const Takeover& next, Session& session, Out& out);
  std::optional<Takeover> DropTakeover(Session& session, Out& out);
  bool DropTakeover(ConnId conn, Out& out);
  void RefuseTakeover(Session& session, absl::Status why, Out& out);
  void RepeatTakeover(Session& session, Out& out);
  void RepeatEntries(Out& out);
  void BeginReplay(Session& session, Out& out);
  void CheckReplay(Session& session, Out& out);
  void EndReplay(Session& session, Out& out);
  int64_t FundsLeftNs(const Session& session) const;
  template <typename Change>  // of the meter, for each device of the current lease
  void ForEachMetered(Session& session, const Change& change, Out& out);
  void StartLease(Session& session, Out& out);
  void ReleaseDevices(Session& session, bool lost, LeaseEnd why, Out& out);
  void GrantPaused(Session& session, UseState use, uint32_t devices, Out& out);
  void EndMeter(Session& session, uint32_t devices, bool lost, LeaseEnd why, Out& out);
  const DeviceSlot& DeviceAt(const Seat& seat, size_t i) const;
  Session::Prices PricesFor(const Session& session) const;  // where it is
  // ---- what it is charged for (use_states.cc)
  void CheckUse(Session& session, Out& out);
  void ChangeUse(Session& session, UseState use, uint32_t devices, Out& out);
  void CheckKept(Session& session, Out& out);
  void ConfirmKept(Session& session, Out& out);
  void StopKeeping(Session& session, bool lost, LeaseEnd why, Out& out);
  static bool Waits(const Session& session);  // in the queue, G5
  std::string StateOf(const Session& session) const;  // for people
  static void Charged(Session& session, const std::vector<Charge>& more, std::vector<Charge>& all);
  void PostCharges(std::vector<Charge> charges, Out& out);
  absl::Status NoDevice(const Session& session) const;
  // "rank 1 of 2 (device 3 of box#1): ", or nothing for a session on one device.
  std::string RankText(const Session& session, uint32_t rank) const;
  // The first that the worker has.
  static uint32_t FirstRankOn(const Session& session, WorkerId worker);
  static absl::Status WorkerLost(const std::string& how);
  static absl::Status MemoryNeeded();

  const CoreOptions options_;
  MonoTime now_, ticked_;
  Meter meter_;
  bool draining_ = false;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, Session> sessions_;
  std::map<ConnId, SessionId> conns_;
  std::map<ConnId, Fork> forks_;
  std::map<ConnId, SessionId> takeovers_;  // of these clients
  std::vector<Event> entries_to_repeat_;   // at the end of the event that is being handled
  // What the state of a session on an account's own machine costs while it is on the gateway's
  // disk; none: there is no price file.
  std::optional<ClassPrices> default_class_;
  DeviceQueue queue_;
  DevicePools pools_;                 // of workers_, but for those that are stale
  std::set<WorkerId> stale_workers_;
  MonoTime told_queue_;
  uint64_t changes_ = 1;
  mutable uint64_t held_at_ = 0;  // the change after which all invariants were found to hold
  std::map<TenantId, std::vector<WorkerId>> warm_;  // the last that served it, latest first
  std::map<TenantId, absl::Status> refused_;  // accounts whose charges the ledger refuses
};

}  // namespace outboard::gateway
