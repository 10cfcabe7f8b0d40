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
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/meter.h"
#include "gateway/ledger/money.h"

namespace outboard::gateway {

// A client's stream and a worker's control stream, numbered by the adapter from 1, never reused.
struct ConnId {
  uint64_t value = 0;
  auto operator<=>(const ConnId&) const = default;
};
// A worker, numbered as it joins; one that comes back is another.
struct WorkerId {
  uint64_t value = 0;
  auto operator<=>(const WorkerId&) const = default;
};
// 128 random bits, drawn by the adapter.
struct Token {
  uint64_t hi = 0;
  uint64_t lo = 0;
  bool operator==(const Token& other) const { return ((hi ^ other.hi) | (lo ^ other.lo)) == 0; }
};

constexpr int64_t kSecondNs = 1'000'000'000;

struct CoreOptions {
  MicroUsd price_per_hour = kDefaultPricePerHour;
  // A session waits so long for a device: longer than idle_ns, so that a program that is started
  // again after a Ctrl-C gets the device of the one before.
  int64_t queue_ns = 20 * kSecondNs;
  int64_t start_ns = 30 * kSecondNs;  // a worker has so long to attach an executor
  int64_t idle_ns =
      10 * kSecondNs;  // a detached session gives its device back after so long without work
  int64_t grace_ns = 900 * kSecondNs;  // and is forgotten after so long
  int64_t heartbeat_ns = 1 * kSecondNs;
  int64_t lease_ttl_ns = 5 * kSecondNs;  // a worker unheard for so long is lost
  uint32_t sessions_per_tenant_max = 64;
  uint32_t queue_max = 1024;
  uint64_t memory_bytes_max = 0;  // of a session, told to its worker; 0: what the worker has
};

// ---- events
struct WorkerJoined {
  WorkerId worker;
  std::string name;
  uint32_t devices = 1;
};
struct WorkerHeartbeat {
  WorkerId worker;
  std::vector<SessionId> alive;  // sessions whose executor runs
};
struct WorkerDraining {  // takes nothing new and ends when its sessions have
  WorkerId worker;
};
struct WorkerGone {  // its stream ended: so have its executors
  WorkerId worker;
};
struct ClientOpen {  // authenticated; `session`, `resume_token` and `attach_token` are fresh
  ConnId conn;
  TenantId tenant;
  uint32_t devices = 1;
  SessionId session;
  Token resume_token, attach_token;
  WallTime wall;
};
struct ClientResume {  // authenticated; takes over the session that the token names
  ConnId conn;
  TenantId tenant;
  Token resume_token;
  WallTime wall;
};
struct ClientClosed {  // its session ends
  ConnId conn;
  absl::Status why;  // OK: it said Close
};
struct ClientGone {  // its stream ended without
  ConnId conn;
};
struct ExecutorAttached {  // with the right token, see CheckAttach
  SessionId session;
  WallTime wall;
};
struct ExecutorGone {  // with it, the values of the session
  SessionId session;
  absl::Status why;
};
struct Progress {  // told before Tick
  SessionId session;
  bool busy = false;  // items are under way
};
struct Tick {};     // time has passed: deadlines are looked at, whole seconds are charged
struct StopAll {};  // the last step of a shutdown: everything ends, everything is billed
using Event = std::variant<WorkerJoined, WorkerHeartbeat, WorkerDraining, WorkerGone, ClientOpen,
                           ClientResume, ClientClosed, ClientGone, ExecutorAttached, ExecutorGone,
                           Progress, Tick, StopAll>;

// ---- actions
struct Assign {
  WorkerId worker;
  SessionId session;
  TenantId tenant;
  Token attach_token;
  uint64_t grant = 0;
  std::vector<uint32_t> devices;
};
struct EndExecutor {
  WorkerId worker;
  SessionId session;
};
struct Live {
  ConnId conn;
  SessionId session;
  TenantId tenant;
  Token resume_token;
  uint64_t epoch = 0;
  WorkerId worker;
  std::vector<uint32_t> devices;
};
struct Detach {  // frames from the executor have nowhere to go for now
  SessionId session;
};
struct Queued {  // no device is free; `before` others wait longer
  ConnId conn;
  uint64_t before = 0;
};
struct Bill {  // what a session has cost, from its first grant
  int64_t seconds = 0;
  MicroUsd amount;
};
struct EndClient {
  ConnId conn;
  std::optional<SessionId> session;
  absl::Status why;
  Bill bill;
};
struct Post {  // to the ledger, all or none
  std::vector<Charge> charges;
};
struct Forget {  // nothing of it is left
  SessionId session;
};
// How a session stands, in SQL: with a client, without, ended in order, ended otherwise.
enum class RowState : uint8_t { kOpen, kDetached, kClosed, kLost };
struct WriteSession {  // its row in SQL, as it is now
  SessionId session;
  TenantId tenant;
  uint64_t epoch = 0;
  WorkerId worker;
  RowState state = RowState::kOpen;
};
struct WriteLease {
  LeaseId lease;
  TenantId tenant;
  uint32_t devices = 0;
  WorkerId worker;
  std::string end;  // why it ended; empty at grant
};
using Action = std::variant<Assign, EndExecutor, Live, Detach, Queued, EndClient, Post, Forget,
                            WriteSession, WriteLease>;

class GatewayCore {
 public:
  explicit GatewayCore(CoreOptions options = {});

  std::vector<Action> On(const Event& event, MonoTime now);

  // Whether `token` is the one that was sent with the session's Assign, and an executor is awaited.
  bool CheckAttach(const SessionId& session, const Token& token) const;
  // Whose session it is, if `token` was sent with its Assign.
  std::optional<TenantId> TenantOf(const SessionId& session, const Token& token) const;
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
  enum class State { kQueued, kStarting, kLive, kDetached, kParked };

  struct Worker {
    std::string name;
    std::vector<std::optional<SessionId>> devices;  // who holds it
    MonoTime heard;
    bool draining = false;
    uint32_t free() const;
  };

  struct Session {
    SessionId id;
    TenantId tenant;
    Token resume_token, attach_token;
    State state = State::kQueued;
    ConnId conn;  // value 0: none
    uint64_t epoch = 0;
    uint32_t devices_wanted = 1;
    std::optional<WorkerId> worker;  // where its state is, from kStarting on
    std::vector<uint32_t> devices;   // held; empty in kQueued and kParked
    uint64_t grant = 0;              // of the current or last lease
    bool metered = false;
    bool attached = false;
    bool busy = false;
    MonoTime since;       // of the state
    MonoTime idle_since;  // kDetached
    WallTime wall;
    Bill past;     // of leases that ended
    Bill charged;  // all charges so far, of these and of the current one
  };

  using Out = std::vector<Action>;

  void Handle(const WorkerJoined& event, Out& out);
  void Handle(const WorkerHeartbeat& event, Out& out);
  void Handle(const WorkerDraining& event, Out& out);
  void Handle(const WorkerGone& event, Out& out);
  void Handle(const ClientOpen& event, Out& out);
  void Handle(const ClientResume& event, Out& out);
  void Handle(const ClientClosed& event, Out& out);
  void Handle(const ClientGone& event, Out& out);
  void Handle(const ExecutorAttached& event, Out& out);
  void Handle(const ExecutorGone& event, Out& out);
  void Handle(const Progress& event, Out& out);
  void Handle(const Tick& event, Out& out);
  void Handle(const StopAll& event, Out& out);

  Session* Find(const SessionId& id);
  Session* FindByConn(ConnId conn);
  void Enqueue(Session& session, Out& out);
  void PlaceQueue(Out& out);
  bool TryPlace(Session& session, Out& out);
  void GoLive(Session& session, Out& out);
  void GoDetached(Session& session, Out& out);
  void Park(Session& session, Out& out);
  void End(const SessionId& id, absl::Status why, RowState row, const std::string& lease_end,
           Out& out);
  void LoseWorker(WorkerId id, const std::string& why, Out& out);
  void StartLease(Session& session, Out& out);
  void StopLease(Session& session, bool lost, const std::string& why, Out& out);
  static void Charged(Session& session, const std::vector<Charge>& more, std::vector<Charge>& all);
  void PostCharges(std::vector<Charge> charges, Out& out);
  absl::Status NoDevice(const Session& session) const;

  const CoreOptions options_;
  MonoTime now_;
  Meter meter_;
  bool draining_ = false;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, Session> sessions_;
  std::map<ConnId, SessionId> conns_;
  std::deque<SessionId> queue_;
};

}  // namespace outboard::gateway
