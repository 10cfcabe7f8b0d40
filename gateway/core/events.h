// What GatewayCore is told (events) and what it decides (actions), and its options.
//
// Times in options are nanoseconds of the monotonic clock; money is micro-dollars. Secrets do not
// pass here: of a resume token the core knows a hash, and attach tokens are the adapter's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gateway/base/session_row_state.h"
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
// 128 random bits, drawn by the adapter, or a hash of them.
struct Token {
  uint64_t hi = 0;
  uint64_t lo = 0;
  bool operator==(const Token& other) const { return ((hi ^ other.hi) | (lo ^ other.lo)) == 0; }
};

constexpr int64_t kSecondNs = 1'000'000'000;

// A device of a worker. Its index in the worker's list is its slot, which an Assign names.
struct DeviceSlot {
  std::string device_class;                        // of its hardware; empty: not told
  uint64_t memory_bytes = 0;                       // 0: not told
  MicroUsd price_per_hour = kDefaultPricePerHour;  // a lease keeps the one it began with
};

// Where one executor of a session is, and which slots it holds there. Its index in the session's
// list is its rank.
struct Seat {
  WorkerId worker;
  std::vector<uint32_t> slots;  // empty: its device was given back, its state is still there
  bool attached = false;
  bool operator==(const Seat&) const = default;
};

struct CoreOptions {
  MicroUsd price_per_hour = kDefaultPricePerHour;
  // A session waits so long for a device: longer than idle_ns, so that a program that is started
  // again after a Ctrl-C gets the device of the one before.
  int64_t queue_ns = 20 * kSecondNs;
  int64_t start_ns = 30 * kSecondNs;   // a worker has so long to attach an executor
  int64_t rejoin_ns = 2 * kSecondNs;   // and to come back after its connection ended
  int64_t orphan_ns = 60 * kSecondNs;  // and to join after the gateway was started again
  // A session that goes on elsewhere waits so long for a device; longer than a node takes to start
  // its worker again.
  int64_t move_ns = 60 * kSecondNs;
  // What brings down two executors more within this time is the session's own doing.
  uint32_t moves_max = 2;
  int64_t move_window_ns = 600 * kSecondNs;
  int64_t snapshot_ns = 0;  // how often a session's state is stored; 0: never
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
struct HeldExecutor {  // one that outlived its connection; its attach token is the session's last
  SessionId session;
  std::vector<uint32_t> devices;
  uint64_t placement = 0;  // of its Assign
};
struct WorkerJoined {
  WorkerId worker;
  std::string name;
  std::vector<DeviceSlot> devices;
  std::string node;  // the same each time that it joins
  std::vector<HeldExecutor> held;
};
struct SessionRestored {  // at start: what the gateway before this one had promised
  SessionId session;
  TenantId tenant;
  Token resume_hash;
  uint64_t epoch = 0, grant = 0;  // the last of either
  uint64_t placement = 0;         // no Assign of the gateway before had a higher one
  uint32_t devices = 1;
  std::string node;  // whose worker had its state
  bool had_client = false;
  bool recoverable = false;
  std::string snapshot_root;
  uint64_t snapshot_seq = 0;
  MicroUsd past_amount;
  int64_t past_seconds = 0;
  WallTime wall;
};
struct WorkerHeartbeat {
  WorkerId worker;
  std::vector<SessionId> alive;  // sessions whose executor runs
};
struct WorkerDraining {  // takes nothing new and ends when its sessions have
  WorkerId worker;
};
struct WorkerGone {  // its stream ended; its executors may live, and it may come back with them
  WorkerId worker;
};
struct ClientOpen {  // authenticated; `session` is fresh, and so is what `resume_hash` is of
  ConnId conn;
  TenantId tenant;
  uint32_t devices = 1;
  SessionId session;
  Token resume_hash;
  WallTime wall;
  bool recovers = true;  // the client speaks a protocol with recovery
};
struct ClientResume {  // authenticated; takes over the session that the token names
  ConnId conn;
  TenantId tenant;
  Token resume_hash;
  WallTime wall;
};
struct ClientClosed {  // its session ends
  ConnId conn;
  absl::Status why;  // OK: it said Close
};
struct ClientGone {  // its stream ended without
  ConnId conn;
};
struct ExecutorAttached {  // with the token of its Assign, see Awaits
  SessionId session;
  WallTime wall;
};
struct ExecutorGone {
  SessionId session;
  absl::Status why;
  // It ended for no reason of the session's, so that another may do better. Otherwise the session
  // ends with it.
  bool crashed = true;
  uint64_t placement = 0;          // of its Assign; 0: the last
  std::optional<WorkerId> worker;  // whose word this is; none: its stream's
};
struct SnapshotKept {  // by the session's executor; its blobs are on disk
  SessionId session;
  std::string root;
  uint64_t seq = 0;  // what it holds
};
struct SessionProgress {  // told before Tick
  SessionId session;
  bool busy = false;  // items are under way
};
struct Tick {};     // time has passed: deadlines are looked at, whole seconds are charged
struct StopAll {};  // the last step of a shutdown: everything ends, everything is billed
using Event =
    std::variant<WorkerJoined, WorkerHeartbeat, WorkerDraining, WorkerGone, SessionRestored,
                 ClientOpen, ClientResume, ClientClosed, ClientGone, ExecutorAttached, ExecutorGone,
                 SnapshotKept, SessionProgress, Tick, StopAll>;

// ---- actions
struct Welcome {  // answers WorkerJoined, before any Assign
  WorkerId worker;
  std::vector<HeldExecutor> sessions;  // of those it holds, which go on; they attach again
  std::vector<TenantId> tenants;       // of these
};
struct Assign {  // with a fresh attach token
  WorkerId worker;
  SessionId session;
  TenantId tenant;
  uint64_t placement = 0;  // rises with each of a session
  std::vector<uint32_t> devices;
};
struct DropExecutor {  // it is not the session's any more, whatever it still says
  SessionId session;
};
struct EndWorker {  // it counts as lost; if it lives it may join again
  WorkerId worker;
  absl::Status why;
};
struct EndExecutor {  // and forget its state; the worker may not know it
  WorkerId worker;
  SessionId session;
};
struct Live {
  ConnId conn;
  SessionId session;
  TenantId tenant;
  uint64_t epoch = 0;
  std::vector<Seat> seats;  // one, until a session spans several workers
  MicroUsd price_per_hour;  // of all its slots together
  bool recoverable = false;
  std::string snapshot_root;  // where an executor that has no state yet begins; empty: with none
};
struct Moving {  // its executor was lost; another Live follows
  ConnId conn;
  std::string text;  // for people
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
// After the last Done and, unless it said Close, why: UNAVAILABLE (a worker was lost, the gateway
// stops), RESOURCE_EXHAUSTED (no device), NOT_FOUND (nothing to resume), ABORTED (resumed
// elsewhere), or what the adapter told.
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
struct WriteSession {  // its row in SQL, as it is now
  SessionId session;
  TenantId tenant;
  uint64_t epoch = 0;
  std::optional<WorkerId> worker;
  SessionRowState state = SessionRowState::kOpen;
  Token resume_hash;
  uint32_t devices = 1;
  bool recoverable = false;
  std::string snapshot_root;
  uint64_t snapshot_seq = 0;
};
struct WriteLease {
  LeaseId lease;
  TenantId tenant;
  uint32_t devices = 0;
  WorkerId worker;
  std::string end;  // why it ended; empty at grant
};
using Action = std::variant<Welcome, Assign, EndExecutor, DropExecutor, EndWorker, Live, Detach,
                            Queued, Moving, EndClient, Post, Forget, WriteSession, WriteLease>;

}  // namespace outboard::gateway
