// Invariants (CheckInvariants; tests quote the numbers)
//   G1  A slot is held by at most one session, and a seat of that session names it.
//   G2  A session has a seat exactly in kStarting, kLive, kDetached and kParked, on a worker that
//       is known; the seat holds slots in all of these but kParked. No session has two seats yet.
//   G3  A session is metered exactly in kLive and kDetached: never before the customer can use the
//       device, never after.
//   G4  A connection belongs to at most one session; kLive and kQueued have one, kDetached none,
//       and kShelved only while it sleeps.
//   G5  The queue holds exactly the sessions in kQueued, and those in kParked that have a
//       connection and do not sleep. Only kParked, kShelved and kOrphaned sleep.
//   G6  An epoch rises with every Live of a session.
//   G7  No session waits for ever: each state but kLive has a time limit, checked on Tick. In the
//       queue it is the client's own, or starts when no device of the fleet could serve it.
//   G8  An executor is replaced only if nothing was opened yet, or if the client retains all items
//       that no snapshot includes; and at most moves_max times within move_window_ns.
//   G9  Messages of a replaced executor are ignored: they name an earlier placement, or another
//       worker than the session's.
//   G10 All seats on a worker of one account are of one tenant, those without slots included: the
//       executor of a parked session lives.
//   G11 No session has a seat on a worker that was set aside.
//   G12 A session is metered only with a hold, and never for more than that (funds.cc).
//   G13 A parked session that is shelved for its memory has all of its state in a snapshot, unless
//       none came within snapshot_wait_ns, or its worker cannot be asked for one. Until then nobody
//       is placed where that memory is needed.
//   G14 A device that went out of service is given to no session; one that holds it keeps it.
//   G15 The queue knows what each account holds, and what each worker has free unless it is stale.
//   G16 A session of several devices has an executor for each, all or none of them: it goes live
//       when all have attached, and ends when one of them does, since it has no snapshots.
//
//   ClientOpen --Enqueue--> kQueued --TryPlace--> kStarting --ExecutorAttached/GoLive--> kLive
//   kLive --ClientGone, ClientDenied/GoDetached--> kDetached --ClientResume/GoLive--> kLive
//   kDetached --idle/Park--> kParked --ClientResume/Enqueue, TryPlace--> kLive
//   kLive --without work for long/Sleep--> kParked, or of an exclusive device kShelved, sleeping
//   sleeping --ClientActs/Wake, Enqueue, TryPlace--> kStarting, in a new epoch
//   kParked, and waits for nothing, for long/CheckDisk, Shelve--> kShelved
//   kDetached, of an exclusive device --idle/Park, Shelve--> kShelved
//   kParked --its memory is needed/MakeRoomFor, once its snapshot is kept/Shelve--> kShelved
//   with a worker --WorkerGone/Orphan--> kOrphaned <--SessionRestored (the gateway restarted)
//   kOrphaned --WorkerJoined, which holds it/Adopt--> kStarting, or kParked if it held no device
//   kOrphaned, or with a worker --executor lost/Replace--> kQueued with a client, else kShelved
//   with a worker that drains --SnapshotKept/HandOver--> kQueued with a client, else kShelved
//   kShelved --ClientResume/Enqueue, TryPlace--> kStarting, with the last snapshot
//   any --ClientClosed, ExecutorGone, a time limit/End--> gone
#include "gateway/core/core.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

int64_t Since(MonoTime now, MonoTime then) { return now.ns - then.ns; }

}  // namespace

uint32_t GatewayCore::Worker::free() const {
  if (draining || set_aside) return 0;
  return static_cast<uint32_t>(
      std::count_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.free(); }));
}

GatewayCore::GatewayCore(CoreOptions options)
    : options_(options),
      meter_(MeterOptions{.unheard_max_ns = options.lease_ttl_ns}),
      queue_(options.devices_per_tenant_max) {}

std::vector<Action> GatewayCore::On(const Event& event, MonoTime now) {
  now_ = std::max(now_, now);
  Out out;
  std::visit([&](const auto& e) { Handle(e, out); }, event);
  return out;
}

// ---- workers ------------------------------------------------------------------------------------

void GatewayCore::Handle(const WorkerJoined& event, Out& out) {
  telemetry::Count(telemetry::Metric::kWorkerJoins);
  Worker& worker = workers_[event.worker];
  worker.name = event.name;
  worker.node = event.node;
  worker.one_account = event.one_account;
  worker.set_aside = event.set_aside;
  worker.exclusive = event.exclusive;
  worker.snapshots_when_asked = event.snapshots_when_asked;
  worker.serves_groups = event.serves_groups;
  worker.slots.clear();
  for (const DeviceSlot& device : event.devices) worker.slots.push_back({device, std::nullopt});
  for (const uint32_t device : event.out)
    if (device < worker.slots.size()) worker.slots[device].out = true;
  worker.heard = now_;
  stale_workers_.insert(event.worker);
  Welcome welcome{event.worker, {}, {}};
  for (const HeldExecutor& held : event.held) {
    if (!Adopt(held, event.worker, out)) continue;
    welcome.sessions.push_back(held);
    welcome.tenants.push_back(sessions_.at(held.session).tenant);
  }
  out.push_back(std::move(welcome));
  // A node that comes back without an executor has lost it. Another process may run there: what
  // only that executor could go on with waits for it.
  std::vector<SessionId> lost;
  for (const auto& [id, session] : sessions_) {
    if (session.state == State::kOrphaned && session.recoverable && session.node == event.node)
      lost.push_back(id);
  }
  for (const SessionId& id : lost)
    Replace(sessions_.at(id), absl::StrCat(event.name, " has started again"), out);
  PlaceQueue(out);
}

void GatewayCore::Handle(const WorkerHeartbeat& event, Out& out) {
  auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  telemetry::ObserveNs(telemetry::Metric::kHeartbeatGap, Since(now_, it->second.heard));
  it->second.heard = now_;
  bool has_parked = false;
  for (size_t i = 0; i < std::min(event.alive.size(), event.memory_bytes.size()); ++i)
    if (Session* session = Find(event.alive[i]);
        session != nullptr && session->SeatOn(event.worker) != nullptr) {
      session->memory_bytes = event.memory_bytes[i];
      has_parked |= session->state == State::kParked;
    }
  std::vector<Charge> charges;
  for (const SessionId& id : event.alive) {
    Session* session = Find(id);
    if (session == nullptr || !session->metered) continue;
    uint32_t device = 0;  // counts within the session
    for (const Seat& seat : session->seats) {
      for (size_t i = 0; i < seat.slots.size(); ++i, ++device) {
        if (seat.worker != event.worker) continue;
        auto more = meter_.Confirm({{id, session->grant}, device}, now_);
        if (more.ok()) Charged(*session, *more, charges);
      }
    }
  }
  PostCharges(std::move(charges), out);
  // What it uses may be known only now, where it was adopted.
  if (has_parked) MakeRoomFor(event.worker, {}, nullptr, out);
}

// G11. Nobody knows since when its results were wrong: a session goes back to its last snapshot.
void GatewayCore::Handle(const WorkerSetAside& event, Out& out) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  it->second.set_aside = event.aside;
  stale_workers_.insert(event.worker);
  if (!event.aside) return PlaceQueue(out);
  std::vector<SessionId> moved;
  for (const auto& [id, session] : sessions_)
    if (session.SeatOn(event.worker) != nullptr) moved.push_back(id);
  for (const SessionId& id : moved)
    if (Session* session = Find(id); session != nullptr)
      Replace(*session, absl::StrCat(it->second.name, " was set aside"), out);
}

void GatewayCore::Handle(const WorkerGone& event, Out& out) {
  LoseWorker(event.worker, "its connection ended", /*may_return=*/true, out);
}

void GatewayCore::LoseWorker(WorkerId id, const std::string& why, bool may_return, Out& out) {
  auto it = workers_.find(id);
  if (it == workers_.end()) return;
  telemetry::CountAs(
      telemetry::Metric::kWorkersLost,
      may_return ? telemetry::WorkerLoss::kDisconnected : telemetry::WorkerLoss::kSilent);
  const std::string how = absl::StrCat(it->second.name, " (", why, ")");
  it->second.draining = true;  // what its sessions give back must not be given to those who wait
  stale_workers_.insert(id);
  std::vector<SessionId> lost;
  for (const auto& [session_id, session] : sessions_) {
    if (session.SeatOn(id) != nullptr) lost.push_back(session_id);
  }
  for (const SessionId& session_id : lost) {
    Session& session = sessions_.at(session_id);
    if (may_return && session.epoch > 0) {
      Orphan(session, how, out);
    } else {
      Replace(session, how, out);
    }
  }
  workers_.erase(id);
  stale_workers_.erase(id);
  pools_.Erase(id);
  for (auto& [tenant, warm] : warm_) std::erase(warm, id);
  std::erase_if(warm_, [](const auto& entry) { return entry.second.empty(); });
}

// ---- clients ------------------------------------------------------------------------------------

void GatewayCore::Handle(const SessionRestored& event, Out&) {
  Session& session = sessions_[event.session];
  session.id = event.session;
  session.tenant = event.tenant;
  session.resume_hash = event.resume_hash;
  session.epoch = event.epoch;
  session.grant = event.grant;
  session.placement = event.placement;
  session.devices_wanted = event.devices;
  session.node = event.node;
  session.held_device = event.had_client;
  session.client_recovers = session.recoverable = event.recoverable;
  session.snapshot_root = event.snapshot_root;
  session.snapshot_seq = event.snapshot_seq;
  session.past = session.charged = {event.past_ms, event.past_amount};
  session.ms_at_snapshot = event.past_ms;
  session.price = event.price_per_hour;
  session.wall = event.wall;
  // Without a worker it was on its way to another.
  const bool nowhere = event.recoverable && event.node.empty();
  session.state = nowhere ? State::kShelved : State::kOrphaned;
  session.lost_how = absl::StrCat(event.node.substr(0, event.node.rfind('@')),
                                  " (it did not join the gateway that was started again)");
  session.orphan_until = {now_.ns + options_.orphan_ns};
  session.since = session.client_left = now_;
}

void GatewayCore::Handle(const ClientOpen& event, Out& out) {
  auto refuse = [&](absl::Status why, telemetry::Refusal reason) {
    telemetry::CountRefused(reason);
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  if (draining_)
    return refuse(absl::UnavailableError("the gateway is stopping"),
                  telemetry::Refusal::kStopping);
  SyncPools();
  if (absl::Status never = CheckWish({.devices = event.devices}); !never.ok())
    return refuse(std::move(never), telemetry::Refusal::kNoDevice);
  if (!event.gang.empty()) {
    const uint64_t together = uint64_t{event.devices} * event.gang_size;
    if (const uint32_t quota = options_.devices_per_tenant_max; quota > 0 && together > quota)
      return refuse(absl::ResourceExhaustedError(
                        absl::StrCat("a gang of ", together, " devices: an account may hold ",
                                     quota, " at a time")),
                    telemetry::Refusal::kNoDevice);
    for (const auto& [id, other] : sessions_) {
      if (other.state != State::kQueued || other.tenant != event.tenant ||
          other.gang != event.gang ||
          (other.devices_wanted == event.devices && other.gang_size == event.gang_size))
        continue;
      return refuse(absl::InvalidArgumentError(absl::StrCat(
                        "gang ", event.gang, " waits with devices = ", other.devices_wanted,
                        " and size = ", other.gang_size)),
                    telemetry::Refusal::kNoDevice);
    }
  }
  auto of_tenant = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.tenant == event.tenant;
  });
  if (of_tenant >= options_.sessions_per_tenant_max) {
    return refuse(absl::ResourceExhaustedError(
                      absl::StrCat("this account has ", of_tenant, " sessions; limit ",
                                   options_.sessions_per_tenant_max)),
                  telemetry::Refusal::kSessions);
  }
  if (const auto refused = refused_.find(event.tenant); refused != refused_.end())
    return refuse(refused->second, telemetry::Refusal::kLedger);
  Session& session = sessions_[event.session];
  session.id = event.session;
  session.tenant = event.tenant;
  session.key_id = event.key_id;
  session.max_cost = event.max_cost;
  session.queue_ns = event.queue_ns;
  session.gang = event.gang;
  session.gang_size = event.gang_size;
  session.resume_hash = event.resume_hash;
  session.devices_wanted = event.devices;
  session.mesh = event.mesh;
  session.spread = event.spread;
  session.client_recovers = event.recovers;
  session.conn = event.conn;
  session.wall = event.wall;
  session.since = session.asked = now_;
  conns_[event.conn] = event.session;
  Enqueue(session, out);
}

void GatewayCore::Handle(const ClientResume& event, Out& out) {
  auto refuse = [&](absl::Status why, telemetry::Refusal reason) {
    telemetry::CountRefused(reason);
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  if (draining_)
    return refuse(absl::UnavailableError("the gateway is stopping"),
                  telemetry::Refusal::kStopping);
  Session* session = nullptr;
  for (auto& [id, candidate] : sessions_) {
    if (candidate.resume_hash == event.resume_hash && candidate.tenant == event.tenant)
      session = &candidate;
  }
  if (session == nullptr || session->epoch == 0) {
    return refuse(
        absl::NotFoundError("no such session: it was closed, its worker was lost, the gateway was "
                            "started again, or it was left alone for too long"),
        telemetry::Refusal::kNoSession);
  }
  if (const auto refused = refused_.find(event.tenant); refused != refused_.end())
    return refuse(refused->second, telemetry::Refusal::kLedger);
  if (event.max_cost.has_value()) session->max_cost = event.max_cost;
  session->queue_ns = event.queue_ns;
  session->key_id = event.key_id;
  // Its steps in flight still end; it asks for money again once they have.
  if (!session->stopped.ok() && session->state == State::kDetached)
    return refuse(session->stopped, telemetry::Refusal::kCredit);
  session->stopped = absl::OkStatus();
  if (IsSome(session->conn)) {
    // The client noticed the broken connection before we did, or has two: the last one counts.
    ConnId old = session->conn;
    conns_.erase(old);
    out.push_back(
        EndClient{old, std::nullopt, absl::AbortedError("the session was resumed elsewhere"), {}});
  }
  session->conn = event.conn;
  session->denied = session->sleeping = false;
  session->wall = event.wall;
  conns_[event.conn] = session->id;
  switch (session->state) {
    case State::kLive:
    case State::kDetached: return GoLive(*session, out);
    case State::kStarting: return GoLiveIfReady(*session, out);
    case State::kQueued:
    case State::kOrphaned: return;
    case State::kShelved: session->state = State::kQueued; break;
    case State::kParked: LeaveQueue(session->id); break;
  }
  session->since = now_;
  Enqueue(*session, out);
}

void GatewayCore::Handle(const ClientClosed& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  End(session->id, event.why, SessionRowState::kClosed, event.why.ok() ? "closed" : "refused", out);
}

void GatewayCore::Handle(const ClientGone& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  if (session->epoch == 0) {  // nothing was opened that a client could come back for
    conns_.erase(event.conn);
    session->conn = {};
    return End(session->id, absl::CancelledError("the client disconnected"),
               SessionRowState::kClosed, "closed", out);
  }
  LeaveClient(*session, out);
}

void GatewayCore::Handle(const ClientDenied& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  if (session->epoch == 0)
    return End(session->id, event.why, SessionRowState::kClosed, "refused", out);
  out.push_back(EndClient{event.conn, session->id, event.why, BillOf(session->id)});
  LeaveClient(*session, out);
  session->denied = true;
}

// The session goes on without its client, for a resume.
void GatewayCore::LeaveClient(Session& session, Out& out) {
  conns_.erase(session.conn);
  session.conn = {};
  session.sleeping = false;
  session.client_left = session.idle_since = now_;
  switch (session.state) {
    case State::kLive: GoDetached(session, out); break;
    case State::kQueued:
      LeaveQueue(session.id);
      session.state = State::kShelved;
      PutRow(session, SessionRowState::kDetached, out);
      break;
    case State::kParked: LeaveQueue(session.id); break;
    case State::kStarting:
    case State::kOrphaned: PutRow(session, SessionRowState::kDetached, out); break;
    case State::kDetached:
    case State::kShelved: break;
  }
}

// ---- what executors did -------------------------------------------------------------------------

void GatewayCore::Handle(const SnapshotKept& event, Out& out) {
  if (!MayKeep(event.session, event.seq)) return;
  Session* session = Find(event.session);
  session->snapshot_root = event.root;
  session->snapshot_seq = event.seq;
  session->snapshot_at = now_;
  session->ms_at_snapshot = BillOf(event.session).ms;
  session->replayed_ns = 0;
  std::erase_if(session->refused,
                [&](const RefusedItem& item) { return item.seq <= event.seq; });
  telemetry::Count(telemetry::Metric::kSnapshots);
  PutRow(*session, IsSome(session->conn) ? SessionRowState::kOpen : SessionRowState::kDetached,
         out);
  if (!session->seats.empty() && workers_.at(session->seats.front().worker).draining)
    return HandOver(*session, out);
  if (session->state == State::kParked) PlaceQueue(out);  // G13
}

void GatewayCore::Handle(const SessionProgress& event, Out& out) {
  Session* session = Find(event.session);
  if (session == nullptr) return;
  const bool advanced = event.done_seq > session->done_seq;
  if (event.busy || session->busy || advanced) session->idle_since = now_;
  session->busy = event.busy;
  session->awaits = event.awaits;
  // What its client sent at the moment when it fell asleep; the executor has it, and no client.
  if (session->sleeping && session->state == State::kParked && (event.busy || advanced))
    Wake(*session, out);
  if (event.done_seq > 0 && !session->seats.empty()) {
    session->done_seq = std::max(session->done_seq, event.done_seq);
    session->done_known = true;
  }
}

// ---- time ---------------------------------------------------------------------------------------

void GatewayCore::Handle(const Tick&, Out& out) {
  // A gateway that stood still itself has heard nobody meanwhile, and that is no news of them.
  const bool stood = Since(now_, std::exchange(ticked_, now_)) > 2 * options_.heartbeat_ns;
  std::vector<WorkerId> unheard;
  for (auto& [id, worker] : workers_) {
    if (stood) worker.heard = now_;
    if (Since(now_, worker.heard) > options_.lease_ttl_ns) unheard.push_back(id);
  }
  for (WorkerId id : unheard) {
    LoseWorker(id, "no heartbeat", /*may_return=*/false, out);
    out.push_back(EndWorker{id, absl::UnavailableError("no heartbeat arrived in time")});
  }

  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    if (Session* session = Find(id); session != nullptr) CheckDeadlines(*session, out);
    if (Session* session = Find(id); session != nullptr) CheckFunds(*session, out);
  }
  if (now_.ns - told_queue_.ns >= kSecondNs) queue_.Accrue(now_);
  PlaceQueue(out);
  TellQueue(out);
}

// G7. May end the session.
void GatewayCore::CheckDeadlines(Session& session, Out& out) {
  const int64_t in_state = Since(now_, session.since);
  const bool has_client = IsSome(session.conn);
  const bool moved = session.state == State::kQueued && session.epoch > 0;
  const bool queued =
      session.state == State::kQueued ||
      (session.state == State::kParked && has_client && !session.sleeping);
  const int64_t hopeless_ns =
      queued && IsHopeless(session) ? Since(now_, std::max(session.since, session.hope_at)) : 0;
  const bool stopped = !session.stopped.ok();
  const bool idle =
      session.denied || stopped || Since(now_, session.idle_since) > options_.idle_ns;
  const bool is_left = !has_client && Since(now_, session.client_left) > options_.grace_ns;
  const bool waits_for_money =
      stopped && session.recoverable &&
      Since(now_, session.client_left) <= options_.stopped_grace_ns &&
      (session.state == State::kParked || session.state == State::kShelved);
  if (is_left && waits_for_money) {
    if (session.state == State::kParked) PutAway(session, out);  // it costs no memory from now on
  } else if (is_left) {
    End(session.id, absl::CancelledError("the client did not reconnect"), SessionRowState::kClosed,
        session.metered ? "abandoned" : "idle", out);
  } else if (moved && hopeless_ns > options_.move_ns) {
    End(session.id, WorkerLost(session.lost_how), SessionRowState::kLost, "worker lost", out);
  } else if (queued && !moved && hopeless_ns > options_.queue_ns) {
    GiveUpWaiting(session, NoDevice(session), out);
  } else if (queued && session.queue_ns.has_value() && in_state > *session.queue_ns) {
    GiveUpWaiting(session, NoDevice(session), out);
  } else if (session.state == State::kStarting && !session.attached() &&
             in_state > options_.start_ns) {
    Replace(session, "it started no executor in time", out);
  } else if (session.state == State::kStarting && session.attached() && !has_client && idle) {
    Park(session, out);
  } else if (session.state == State::kDetached && !session.busy && idle) {
    Park(session, out);
  } else if (session.state == State::kOrphaned && now_ > session.orphan_until) {
    Replace(session, session.lost_how, out);
  } else if (session.state == State::kLive) {
    CheckSleep(session, out);
  } else if (session.sleeping && Since(now_, session.client_left) > options_.stopped_grace_ns) {
    End(session.id, absl::CancelledError("the session had no work for too long"),
        SessionRowState::kClosed, "abandoned", out);
  } else if (session.state == State::kParked && !queued) {
    CheckDisk(session, out);
  }
}

void GatewayCore::Handle(const StopAll&, Out& out) {
  draining_ = true;
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    End(id, absl::UnavailableError("the gateway is stopping"), SessionRowState::kClosed,
        "gateway stopped", out);
  }
}

// ---- looking ------------------------------------------------------------------------------------

GatewayCore::Session* GatewayCore::Find(const SessionId& id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

GatewayCore::Session* GatewayCore::FindByConn(ConnId conn) {
  auto it = conns_.find(conn);
  return it == conns_.end() ? nullptr : Find(it->second);
}

uint32_t GatewayCore::devices_total() const {
  uint32_t total = 0;
  for (const auto& [id, worker] : workers_)
    if (!worker.set_aside) total += static_cast<uint32_t>(worker.slots.size());
  return total;
}

uint32_t GatewayCore::devices_busy() const {
  uint32_t busy = 0;
  for (const auto& [id, worker] : workers_) {
    for (const Slot& slot : worker.slots) busy += slot.holder.has_value();
  }
  return busy;
}

std::string GatewayCore::CheckInvariants() const {
  std::map<WorkerId, TenantId> accounts;  // of workers that serve one
  std::map<TenantId, uint32_t> held_by;
  size_t held = 0, queued = 0;
  for (const auto& [id, s] : sessions_) {
    const auto in = [&](std::initializer_list<State> states) {
      return std::find(states.begin(), states.end(), s.state) != states.end();
    };
    const bool holds = in({State::kStarting, State::kLive, State::kDetached});
    if (holds != (s.slots_held() > 0)) return "G2: slots of " + id.Hex();
    const bool sits = holds || in({State::kParked});
    if (s.seats.size() != (sits ? 1 : 0)) return "G2: seats of " + id.Hex();
    if (holds && s.slots_held() != s.devices_wanted) return "G16: devices of " + id.Hex();
    if (s.is_group() && s.recoverable) return "G16: " + id.Hex();
    for (const Seat& seat : s.seats) {
      if (seat.attached.size() != s.devices_wanted) return "G16: ranks of " + id.Hex();
      if (!workers_.contains(seat.worker)) return "G2: worker of " + id.Hex();
      if (workers_.at(seat.worker).one_account &&
          accounts.try_emplace(seat.worker, s.tenant).first->second != s.tenant)
        return "G10: " + id.Hex();
      if (workers_.at(seat.worker).set_aside) return "G11: " + id.Hex();
      for (uint32_t i : seat.slots) {
        if (workers_.at(seat.worker).slots.at(i).holder != id) return "G1: slot of " + id.Hex();
      }
    }
    held += s.slots_held();
    held_by[s.tenant] += s.slots_held();
    if (s.metered != in({State::kLive, State::kDetached})) return "G3: " + id.Hex();
    if (s.metered && meter_.Read(LeaseId{id, s.grant}).ms > s.funds.funded_ms * s.slots_held())
      return "G12: " + id.Hex();
    const bool has_conn = IsSome(s.conn);
    if (in({State::kLive, State::kQueued}) && !has_conn) return "G4: no connection: " + id.Hex();
    if ((in({State::kDetached}) || (in({State::kShelved}) && !s.sleeping)) && has_conn)
      return "G4: connection: " + id.Hex();
    if (s.sleeping && (!has_conn || !in({State::kParked, State::kShelved, State::kOrphaned})))
      return "G5: sleeps: " + id.Hex();
    if (has_conn && (!conns_.contains(s.conn) || conns_.at(s.conn) != id)) return "G4: " + id.Hex();
    const bool waits =
        s.state == State::kQueued || (s.state == State::kParked && has_conn && !s.sleeping);
    if (waits != queue_.Has(id)) return "G5: " + id.Hex();
    queued += waits;
    if (in({State::kShelved}) && !s.recoverable) return "G8: " + id.Hex();
    if (s.snapshot_asked.has_value() &&
        !in({State::kStarting, State::kLive, State::kDetached, State::kParked}))
      return "G13: " + id.Hex();
    if (s.moved.size() > options_.moves_max) return "G8: moved too often: " + id.Hex();
  }
  if (held != devices_busy()) return "G1: a slot is held by no session";
  if (queued != queue_.size()) return "G5: the queue has somebody who is gone";
  for (const auto& [tenant, devices] : held_by)
    if (queue_.HeldBy(tenant) != devices) return "G15: what an account holds";
  std::vector<DevicePool> pools;
  for (const auto& [id, worker] : workers_)
    for (DevicePool& pool : PoolsOf(id)) pools.push_back(std::move(pool));
  std::vector<DevicePool> known = pools_.All();
  const auto by_worker = [](const DevicePool& a, const DevicePool& b) {
    return std::tie(a.worker, a.device_class) < std::tie(b.worker, b.device_class);
  };
  std::sort(known.begin(), known.end(), by_worker);
  std::sort(pools.begin(), pools.end(), by_worker);
  const auto is_stale = [&](const DevicePool& pool) {
    return stale_workers_.contains(pool.worker);
  };
  std::erase_if(known, is_stale);
  std::erase_if(pools, is_stale);
  if (known != pools) return "G15: what is free";
  return "";
}

}  // namespace outboard::gateway
