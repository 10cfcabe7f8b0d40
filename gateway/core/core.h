// The gateway's mind: which session is on which worker, who waits, what is billed. No threads,
// sockets, clocks, files or randomness: an adapter tells events with the time and carries out the
// actions, in their order.
//
//   actions = core.On(event, now)
//
// The data path (frames between a client and its executor) does not pass here; the adapter connects
// the two streams on Live and cuts them on EndClient and EndExecutor.
//
// Threads: one owner at a time. Times are monotonic; one that is earlier than a time told before
// counts as that time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gateway/core/events.h"
#include "gateway/ledger/meter.h"

namespace outboard::gateway {

class GatewayCore {
 public:
  explicit GatewayCore(CoreOptions options = {});

  std::vector<Action> On(const Event& event, MonoTime now);

  bool IsTheClients(const SessionId& session, TenantId tenant, const Token& resume_hash) const;
  // Whether this client has the session, in this epoch.
  bool IsLive(const SessionId& session, ConnId conn, uint64_t epoch) const;
  bool Has(const SessionId& session) const { return sessions_.contains(session); }
  // Whether a snapshot that holds item `seq` takes the place of the session's last.
  bool MayKeep(const SessionId& session, uint64_t seq) const;
  // Whether the session's executor has still to attach.
  bool Awaits(const SessionId& session) const;
  // Whether it has an executor, attached or not.
  bool HasSeat(const SessionId& session) const;
  Bill BillOf(const SessionId& session) const;

  // From now on no session is opened or resumed: UNAVAILABLE.
  void Drain() { draining_ = true; }

  size_t session_count() const { return sessions_.size(); }
  size_t worker_count() const { return workers_.size(); }
  uint32_t devices_total() const;
  uint32_t devices_busy() const;

  // Checks the numbered invariants of core.cc; "" or what is broken. For tests and simulators.
  std::string CheckInvariants() const;

 private:
  enum class State { kQueued, kStarting, kLive, kDetached, kParked, kOrphaned, kShelved };

  struct Slot {
    DeviceSlot device;
    std::optional<SessionId> holder;
  };
  struct Worker {
    std::string name, node;
    std::vector<Slot> slots;
    MonoTime heard;
    bool draining = false;
    uint32_t free() const;
  };

  struct Session {
    SessionId id;
    TenantId tenant;
    Token resume_hash;
    State state = State::kQueued;
    ConnId conn;  // value 0: none
    uint64_t epoch = 0;
    uint32_t devices_wanted = 1;
    std::vector<Seat> seats;  // where its executors are
    std::string node;         // of that worker, or the last one
    uint64_t placement = 0;   // of the last Assign
    uint64_t grant = 0;       // of the current or last lease
    bool metered = false;
    bool busy = false;
    bool held_device = false;  // kOrphaned: before
    // Its client keeps what no snapshot holds, so that another executor can go on from there.
    bool recoverable = false;
    bool client_recovers = false;
    std::string snapshot_root;
    uint64_t snapshot_seq = 0;
    std::vector<MonoTime> moved;      // when its executor was replaced
    std::optional<WorkerId> lost_on;  // the last time
    std::string lost_how;
    MonoTime orphan_until;  // kOrphaned
    MonoTime since;         // of the state
    MonoTime idle_since;    // kDetached, and kStarting without a client
    MonoTime client_left;   // without a client
    WallTime wall;
    Bill past;     // of leases that ended
    Bill charged;  // all charges so far, of these and of the current one

    const Seat* SeatOn(WorkerId worker) const;
    bool attached() const;  // all of its executors
    uint32_t slots_held() const;
  };

  using Out = std::vector<Action>;
  static bool IsSome(ConnId conn) { return conn.value != 0; }

  void Handle(const WorkerJoined& event, Out& out);
  void Handle(const WorkerHeartbeat& event, Out& out);
  void Handle(const WorkerDraining& event, Out& out);
  void Handle(const WorkerGone& event, Out& out);
  void Handle(const SessionRestored& event, Out& out);
  void Handle(const ClientOpen& event, Out& out);
  void Handle(const ClientResume& event, Out& out);
  void Handle(const ClientClosed& event, Out& out);
  void Handle(const ClientGone& event, Out& out);
  void Handle(const ExecutorAttached& event, Out& out);
  void Handle(const ExecutorGone& event, Out& out);
  void Handle(const SnapshotKept& event, Out& out);
  void Handle(const SessionProgress& event, Out& out);
  void Handle(const Tick& event, Out& out);
  void Handle(const StopAll& event, Out& out);

  Session* Find(const SessionId& id);
  Session* FindByConn(ConnId conn);
  void Enqueue(Session& session, Out& out);
  void PlaceQueue(Out& out);
  bool TryPlace(Session& session, Out& out);
  void StartWith(Session& session, WorkerId worker, std::vector<uint32_t> slots);
  void LeaseAndGoLive(Session& session, Out& out);
  void GoLive(Session& session, Out& out);
  void GoDetached(Session& session, Out& out);
  void Park(Session& session, Out& out);
  void End(const SessionId& id, absl::Status why, SessionRowState row, const std::string& lease_end,
           Out& out);
  void LoseWorker(WorkerId id, const std::string& why, bool may_return, Out& out);
  void Orphan(Session& session, const std::string& how, Out& out);
  bool Adopt(const HeldExecutor& held, WorkerId worker);
  void Replace(Session& session, const std::string& how, Out& out);
  bool MayMove(Session& session);
  void CheckDeadlines(Session& session, Out& out);
  void PutRow(const Session& session, SessionRowState state, Out& out);
  void StartLease(Session& session, Out& out);
  void StopLease(Session& session, bool lost, const std::string& why, Out& out);
  const DeviceSlot& DeviceAt(const Seat& seat, size_t i) const;
  MicroUsd PriceOf(const Session& session) const;
  static void Charged(Session& session, const std::vector<Charge>& more, std::vector<Charge>& all);
  void PostCharges(std::vector<Charge> charges, Out& out);
  absl::Status NoDevice(const Session& session) const;
  static absl::Status WorkerLost(const std::string& how);

  const CoreOptions options_;
  MonoTime now_, ticked_;
  Meter meter_;
  bool draining_ = false;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, Session> sessions_;
  std::map<ConnId, SessionId> conns_;
  std::deque<SessionId> queue_;
};

}  // namespace outboard::gateway
