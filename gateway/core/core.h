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
#include "gateway/core/session.h"
#include "gateway/core/worker.h"
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
    std::string state;  // CoreSession::StateText
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
  using Session = CoreSession;  // session.h
  using State = CoreSession::State;
  using Takeover = CoreSession::Takeover;
  using Worker = CoreWorker;  // worker.h
  using Slot = CoreWorker::Slot;

  // A client that waits for a snapshot that its session is to begin with.
  struct Fork {
    ClientOpen open;
    SessionId parent;
    MonoTime since;
    std::string root;  // that is being shared; empty: none is
    uint64_t seq = 0;  // of `root`
    std::optional<bool> has_parts;  // as in CoreSession::Placement
  };

  using Out = std::vector<Action>;

  // ---- events: one function each, in the file of its subject (README.md)
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

  // In what follows `out` takes the actions; "may end": the session may be gone afterwards.
  // `ours`: the fault of the operator, or for another account's sake. False where the session's own
  // work, its client or its account has caused it: what is repeated is then charged.

  // ---- looking (core.cc, executors.cc)
  Session* Find(const SessionId& id);                         // nullptr: there is none
  Session* FindByConn(ConnId conn);                           // likewise
  const Worker& FirstWorkerOf(const Session& session) const;  // of one that has seats
  // Its executors cannot stay without their devices: it is stored where others are parked.
  bool IsExclusive(const Session& session) const;
  bool IsOnOwn(const Session& session) const;  // on a machine of its account's own
  // "rank 1 of 2 (device 3 of box#1): ", or nothing for a session on one device.
  std::string RankText(const Session& session, uint32_t rank) const;

  // ---- time limits (core.cc)
  void CheckDeadlines(Session& session, Out& out);             // may end
  void CheckUnclaimed(Session& session, bool idle, Out& out);  // may end

  // ---- clients come and go (clients.cc)
  Session& Begin(const ClientOpen& event);
  absl::Status MayGoOn(const SessionId& session, Out& out);  // may end
  void Reconnect(Session& session, ConnId conn, WallTime wall, const char* why_old, Out& out);
  void LeaveClient(Session& session, Out& out);

  // ---- names, forks, the next gateway (attach_and_fork.cc)
  Session* Named(TenantId tenant, const std::string& text);
  absl::Status CheckName(TenantId tenant, const std::string& name) const;
  int64_t GraceNs(const Session& session) const;  // it ends after so long without a client
  bool MaySurvive(const Session& session) const;  // the end of this gateway
  void PutToNextGateway(Session& session, Out& out);
  void BeginFork(const ClientOpen& event, Out& out);
  void CheckForks(Out& out);
  bool CheckFork(Fork& fork, Out& out);  // false: it is over
  bool DropFork(ConnId conn);            // false: this is not the client of one

  // ---- the wait for devices (waiting.cc)
  void Enqueue(Session& session, Out& out);  // may end
  void PlaceQueue(Out& out);
  void LeaveQueue(const SessionId& session) { queue_.Remove(session, pools_); }
  // Both of a session that waits and fits, and a gang as a whole. False: parked state has to be
  // saved first.
  bool TryPlace(const std::vector<DeviceGrant>& grants, Out& out);
  bool TryPlaceOne(Session& session, std::optional<Parts> parts, Out& out);
  void Place(Session& session, const Parts& parts, Out& out);
  bool Serves(WorkerId worker, const Session& session) const;
  std::vector<uint32_t> SlotsFor(const Session& session, const PlacedPart& part) const;
  DeviceWish WishOf(uint32_t devices) const;
  DeviceRequest RequestOf(const Session& session) const;
  absl::Status CheckWish(const DeviceWish& wish, TenantId tenant) const;  // refuses what never is
  bool IsHopeless(Session& session);  // nothing in the fleet could serve it
  void GiveUpWaiting(Session& session, absl::Status why, Out& out);  // may end
  absl::Status NoDevice(const Session& session) const;
  void TellQueue(Out& out);
  void TellPlace(Session& session, const QueuePlace& place, Out& out);
  bool HasOwn(TenantId tenant) const;  // machines of its own
  // G10: no other tenant has an executor on it, or it serves several at a time.
  bool Admits(WorkerId worker, TenantId tenant) const;
  void Touch(const Session& session);  // what its workers have free has changed
  void SyncPools();
  std::vector<DevicePool> PoolsOf(WorkerId worker) const;

  // ---- from devices to a live session, and to a parked or stored one (placement.cc)
  using Slots = std::pair<WorkerId, std::vector<uint32_t>>;
  void StartWith(Session& session, std::vector<Slots> places);
  void GoLiveIfReady(Session& session, Out& out);
  void GoLive(Session& session, Out& out);
  void GoDetached(Session& session, Out& out);
  void Park(Session& session, Out& out);  // may end
  void Store(Session& session, bool ours, Out& out);
  void PutAway(Session& session, bool ours, Out& out);  // Store, and the driver hears of it
  void AskForSnapshot(Session& session, Out& out);
  bool IsReadyToGo(const Session& session) const;  // G13
  std::vector<Session*> InTheWay(WorkerId worker, const std::vector<uint32_t>& taken,
                                 const Session* placed);
  bool MakeRoomFor(WorkerId worker, const std::vector<uint32_t>& taken, const Session* placed,
                   Out& out);
  void End(const SessionId& id, absl::Status why, SessionRowState row, LeaseEnd lease_end,
           Out& out);
  void EndOne(const SessionId& id, absl::Status why, SessionRowState row, LeaseEnd lease_end,
              Out& out);
  void PutRow(const Session& session, SessionRowState state, Out& out);

  // ---- losses (placement.cc; LoseWorker in workers.cc, HandOver in draining.cc)
  void LoseWorker(WorkerId id, const std::string& why, bool may_return, Out& out);
  void Orphan(Session& session, const std::string& how, Out& out);
  bool Adopt(const HeldExecutor& held, WorkerId worker, Out& out);
  void Replace(Session& session, const std::string& how, bool ours, Out& out);  // may end
  // Its worker stops soon, and its snapshot is on disk: no loss.
  void HandOver(Session& session, Out& out);  // may end
  void Leave(Session& session, LeaseEnd lease_end, bool ours, Out& out);  // the worker it is on
  bool MayMove(Session& session);                                         // G8
  bool MayTryAgain(Session& session, const ExecutorGone& event);
  static absl::Status WorkerLost(const std::string& how);
  static absl::Status MemoryNeeded();

  // ---- idle while connected (sleeping.cc)
  void CheckSleep(Session& session, Out& out);
  void Sleep(Session& session, Out& out);
  void Wake(Session& session, Out& out);
  void CheckDisk(Session& session, Out& out);

  // ---- holds, and work that is repeated free of charge (funds.cc)
  void BeginHold(Session& session, Out& out);
  void AskHold(Session& session, int64_t to_ms, Out& out);
  void EndHoldOf(Session& session, Out& out);
  void HoldFor(Session& session, UseState use, uint32_t devices, Out& out);
  bool IsFunded(const Session& session) const;
  int64_t FundsLeftNs(const Session& session) const;
  void CheckFunds(Session& session, Out& out);  // may end
  bool WaitForOwn(Session& session, Out& out);  // may end
  void Stop(Session& session, const absl::Status& why, Out& out);  // may end
  void Overrun(Session& session, Out& out);                        // may end
  template <typename Change>  // of the meter, for each device of the current lease
  void ForEachMetered(Session& session, const Change& change, Out& out);
  void BeginReplay(Session& session, Out& out);
  void CheckReplay(Session& session, Out& out);
  void EndReplay(Session& session, Out& out);

  // ---- another key for a device that is held (takeover.cc)
  bool WaitsToPay(Session& session, Takeover wants, Out& out);
  void TakeoverAnswered(Session& session, const HoldAnswer& answer, Out& out);  // may end
  void TakeOverIfReady(Session& session, Out& out);  // may end
  void GiveHoldTo(const Takeover& next, Session& session, Out& out);
  void GiveLeaseTo(const Takeover& next, Session& session, Out& out);
  std::optional<Takeover> DropTakeover(Session& session, Out& out);
  bool DropTakeover(ConnId conn, Out& out);
  void RefuseTakeover(Session& session, absl::Status why, Out& out);
  void RepeatTakeover(Session& session, Out& out);
  void RepeatEntries(Out& out);

  // ---- leases and their meters (leases.cc)
  void StartLease(Session& session, Out& out);
  void GrantPaused(Session& session, UseState use, uint32_t devices, Out& out);
  void EndMeter(Session& session, uint32_t devices, bool lost, LeaseEnd why, Out& out);
  void ReleaseDevices(Session& session, bool lost, LeaseEnd why, Out& out);
  void PostCharges(std::vector<Charge> charges, Out& out);
  const DeviceSlot& DeviceAt(const Seat& seat, size_t i) const;
  Session::Prices PricesFor(const Session& session) const;  // where it is

  // ---- what it is charged for (use_states.cc)
  void CheckUse(Session& session, Out& out);
  void ChangeUse(Session& session, UseState use, uint32_t devices, Out& out);
  void CheckStateLease(Session& session, Out& out);
  void ConfirmStateLease(Session& session, Out& out);
  void EndStateLease(Session& session, bool lost, LeaseEnd why, Out& out);

  const CoreOptions options_;
  MonoTime now_;     // of the event that is being handled
  MonoTime ticked_;  // of the last Tick
  Meter meter_;
  bool draining_ = false;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, Session> sessions_;
  std::map<ConnId, SessionId> conns_;
  std::map<ConnId, Fork> forks_;           // of clients that have no session yet
  std::map<ConnId, SessionId> takeovers_;  // of these clients
  std::vector<Event> entries_to_repeat_;   // at the end of the event that is being handled
  // What the state of a session on an account's own machine costs while it is on the gateway's
  // disk; none: there is no price file.
  std::optional<ClassPrices> default_class_;
  DeviceQueue queue_;
  DevicePools pools_;                 // of workers_, but for those that are stale
  std::set<WorkerId> stale_workers_;
  MonoTime told_queue_;
  uint64_t changes_ = 1;                            // counts what may break an invariant
  mutable uint64_t checked_at_change_ = 0;          // all invariants were found to hold then
  std::map<TenantId, std::vector<WorkerId>> warm_;  // the last that served it, latest first
  std::map<TenantId, absl::Status> refused_;  // accounts whose charges the ledger refuses
};

}  // namespace outboard::gateway
