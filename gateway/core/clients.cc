// What clients do: open, come back, leave, and what becomes of a session without one. The
// invariants are in core.cc.
#include "gateway/core/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

void GatewayCore::Handle(const SessionRestored& event, Out&) {
  Session& session = sessions_[event.session];
  session.id = event.session;
  session.tenant = event.tenant;
  session.client.resume_hash = event.resume_hash;
  session.epoch = event.epoch;
  session.lease.grant = event.grant;
  session.client.key_id = event.key_id;
  session.placement.number = event.placement;
  session.request.devices = event.devices;
  session.request.mesh = event.mesh;
  session.request.spread = event.spread;
  if (event.devices > 1) session.placement.has_parts = event.has_parts;
  session.placement.worker_identity = event.worker_identity;
  session.orphan.had_device = event.had_client;
  session.request.recovers = session.recoverable = event.recoverable;
  session.snapshot.root = event.snapshot_root;
  session.snapshot.seq = event.snapshot_seq;
  session.billing.past = session.billing.charged = {event.past_ms, event.past_amount};
  session.replay.billed_ms_at_snapshot = event.past_ms;
  if (event.price_per_hour.has_value())
    session.billing.prices = {event.price_class, *event.price_per_hour, event.idle_prices};
  session.billing.wall = event.wall;
  session.name = event.name;
  session.opened_at = now_;
  // Without a worker it was on its way to another.
  const bool nowhere = event.recoverable && event.worker_identity.empty();
  session.state = nowhere ? State::kStored : State::kOrphaned;
  session.losses.last_reason =
      absl::StrCat(event.worker_identity.substr(0, event.worker_identity.rfind('@')),
                   " (it did not join the gateway that was started again)");
  session.orphan.until = {now_.ns + options_.orphan_ns};
  session.state_since = session.client.left_at = now_;
}

void GatewayCore::Handle(const ClientOpen& event, Out& out) {
  auto refuse = [&](absl::Status why, telemetry::Refusal reason) {
    telemetry::CountRefused(reason);
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  if (draining_)
    return refuse(absl::UnavailableError("the gateway is stopping"),
                  telemetry::Refusal::kStopping);
  if (!event.fork_of.empty()) {
    const Session* const parent = Named(event.tenant, event.fork_of);
    if (parent == nullptr || parent->epoch == 0)
      return refuse(absl::NotFoundError(absl::StrCat("the account has no session ", event.fork_of,
                                                     " with state to begin with")),
                    telemetry::Refusal::kNoSession);
    if (absl::Status other = parent->request.CheckShape(event.devices, event.mesh, event.spread);
        !other.ok())
      return refuse(std::move(other), telemetry::Refusal::kNoSession);
    if (event.devices == 0) {
      ClientOpen like_parent = event;
      like_parent.devices = parent->request.devices;
      return Handle(like_parent, out);
    }
  }
  SyncPools();
  DeviceWish wish = WishOf(event.devices);
  wish.device_class =
      event.device_class == kOwnMachines ? OwnPoolsOf(event.tenant) : event.device_class;
  wish.is_own = event.device_class == kOwnMachines;
  wish.memory_bytes = event.memory_bytes;
  if (absl::Status never = CheckWish(wish, event.tenant); !never.ok())
    return refuse(std::move(never), telemetry::Refusal::kNoDevice);
  if (!event.gang.empty()) {
    const uint64_t together = uint64_t{event.devices} * event.gang_size;
    const uint32_t quota = options_.devices_per_tenant_max;
    if (quota > 0 && together > quota && !wish.is_own)
      return refuse(absl::ResourceExhaustedError(
                        absl::StrCat("a gang of ", together, " devices: an account may hold ",
                                     quota, " at a time")),
                    telemetry::Refusal::kNoDevice);
    for (const auto& [id, other] : sessions_) {
      if (other.state != State::kQueued || other.tenant != event.tenant ||
          other.request.gang != event.gang ||
          (other.request.devices == event.devices && other.request.gang_size == event.gang_size))
        continue;
      return refuse(absl::InvalidArgumentError(absl::StrCat(
                        "gang ", event.gang, " waits with devices = ", other.request.devices,
                        " and size = ", other.request.gang_size)),
                    telemetry::Refusal::kNoDevice);
    }
  }
  // Forks that wait for a snapshot count as sessions already, so that none is refused later.
  auto of_tenant = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.tenant == event.tenant;
  });
  of_tenant += std::count_if(forks_.begin(), forks_.end(), [&](const auto& entry) {
    return entry.second.open.tenant == event.tenant;
  });
  if (of_tenant >= options_.sessions_per_tenant_max) {
    return refuse(absl::ResourceExhaustedError(
                      absl::StrCat("this account has ", of_tenant, " sessions; limit ",
                                   options_.sessions_per_tenant_max)),
                  telemetry::Refusal::kSessions);
  }
  if (const auto refused = refused_.find(event.tenant); refused != refused_.end())
    return refuse(refused->second, telemetry::Refusal::kLedger);
  if (absl::Status taken = CheckName(event.tenant, event.name); !taken.ok())
    return refuse(std::move(taken), telemetry::Refusal::kNoSession);
  if (!event.fork_of.empty()) return BeginFork(event, out);
  Enqueue(Begin(event), out);
}

GatewayCore::Session& GatewayCore::Begin(const ClientOpen& event) {
  Session& session = sessions_[event.session];
  session.id = event.session;
  session.tenant = event.tenant;
  session.name = event.name;
  session.client.key_id = event.key_id;
  session.request.max_cost = event.max_cost;
  session.request.queue_max_ns = event.queue_ns;
  session.request.device_class = event.device_class;
  session.request.memory_bytes = event.memory_bytes;
  session.request.gang = event.gang;
  session.request.gang_size = event.gang_size;
  session.client.resume_hash = event.resume_hash;
  session.request.devices = event.devices;
  session.request.mesh = event.mesh;
  session.request.spread = event.spread;
  session.request.recovers = event.recovers;
  session.client.conn = event.conn;
  session.billing.wall = event.wall;
  session.state_since = session.opened_at = now_;
  conns_[event.conn] = event.session;
  return session;
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
    if (candidate.client.resume_hash == event.resume_hash && candidate.tenant == event.tenant)
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
  if (WaitsToPay(*session, {event.conn, event.key_id, event.max_cost, event}, out)) return;
  const SessionId id = session->id;
  if (absl::Status why = MayGoOn(id, out); !why.ok()) {
    telemetry::CountRefused(telemetry::Refusal::kCredit);
    out.push_back(
        EndClient{.conn = event.conn, .why = std::move(why), .is_kept = Find(id) != nullptr});
    return;
  }
  if (event.max_cost.has_value()) session->request.max_cost = event.max_cost;
  session->request.queue_max_ns = event.queue_ns;
  // It asks for another device than before: it leaves the queue here, and enters it again below.
  if (session->state == State::kQueued && (session->request.device_class != event.device_class ||
                                           session->request.memory_bytes != event.memory_bytes))
    LeaveQueue(id);
  session->request.device_class = event.device_class;
  session->request.memory_bytes = event.memory_bytes;
  session->client.key_id = event.key_id;
  Reconnect(*session, event.conn, event.wall, "the session was resumed elsewhere", out);
}

// Of a session that stopped for want of money, and whose client is back. Without steps in flight it
// is parked, and asks for money as it begins again. Where it cannot be parked yet, it goes on with
// what is held, and asks at once; with nothing left of that, it has to stop first. What is parked
// may have to go at once, to make room for who waits; then the session is no more.
absl::Status GatewayCore::MayGoOn(const SessionId& id, Out& out) {
  Session* session = Find(id);
  const auto stops = [&] {
    return !session->billing.stopped.ok() && session->state == State::kDetached;
  };
  if (!stops()) return absl::OkStatus();
  if (!session->progress.busy) {
    // Its client is here with a key that stands: Park is not to end it.
    session->client.release_when_idle = false;
    Park(*session, out);
    session = Find(id);
    if (session == nullptr) return MemoryNeeded();
    if (!stops()) return absl::OkStatus();
  }
  if (FundsLeftNs(*session) <= 0) return session->billing.stopped;
  session->hold.limit = absl::OkStatus();
  return absl::OkStatus();
}

// A client takes the session over from whoever has it.
void GatewayCore::Reconnect(Session& session, ConnId conn, WallTime wall, const char* why_old,
                            Out& out) {
  session.billing.stopped = absl::OkStatus();
  const bool waited_for_own = std::exchange(session.wait.own_devices_only, false);
  if (session.client.is_connected()) {
    // The client noticed the broken connection before we did, or has two: the last one counts.
    ConnId old = session.client.conn;
    conns_.erase(old);
    out.push_back(EndClient{old, std::nullopt, absl::AbortedError(why_old), {}});
  }
  session.client.conn = conn;
  session.client.release_when_idle = session.client.asleep = false;
  session.billing.wall = wall;
  conns_[conn] = session.id;
  switch (session.state) {
    case State::kDetached:
      // It may have started without a client, who begins to repeat only now.
      if (!session.replay.active) BeginReplay(session, out);
      return GoLive(session, out);
    case State::kLive: return GoLive(session, out);
    case State::kStarting: return GoLiveIfReady(session, out);
    case State::kQueued:
      if (!waited_for_own && queue_.Has(session.id)) return;
      LeaveQueue(session.id);  // this client may be able to pay for a rented device
      break;
    case State::kOrphaned: return;
    case State::kStored: session.state = State::kQueued; break;
    case State::kParked: LeaveQueue(session.id); break;
  }
  session.state_since = now_;
  Enqueue(session, out);
}

void GatewayCore::Handle(const ClientClosed& event, Out& out) {
  if (DropFork(event.conn) || DropTakeover(event.conn, out)) {
    out.push_back(EndClient{event.conn, std::nullopt, event.why, {}});
    return;
  }
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  End(session->id, event.why, SessionRowState::kClosed,
      event.why.ok() ? LeaseEnd::kClosed : LeaseEnd::kRefused, out);
}

void GatewayCore::Handle(const ClientLeft& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr || session->epoch == 0)
    return Handle(ClientClosed{event.conn, absl::OkStatus()}, out);
  out.push_back(EndClient{event.conn, session->id, absl::OkStatus(), BillOf(session->id)});
  LeaveClient(*session, out);
  session->client.release_when_idle = true;
}

void GatewayCore::Handle(const ClientGone& event, Out& out) {
  if (DropFork(event.conn) || DropTakeover(event.conn, out)) return;
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  if (session->epoch == 0) {  // nothing was opened that a client could come back for
    conns_.erase(event.conn);
    session->client.conn = {};
    return End(session->id, absl::CancelledError("the client disconnected"),
               SessionRowState::kClosed, LeaseEnd::kClosed, out);
  }
  LeaveClient(*session, out);
}

void GatewayCore::Handle(const ClientDenied& event, Out& out) {
  if (DropFork(event.conn) || DropTakeover(event.conn, out)) {
    out.push_back(EndClient{event.conn, std::nullopt, event.why, {}});
    return;
  }
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  if (session->epoch == 0)
    return End(session->id, event.why, SessionRowState::kClosed, LeaseEnd::kRefused, out);
  out.push_back(EndClient{event.conn, session->id, event.why, BillOf(session->id)});
  LeaveClient(*session, out);
  session->client.release_when_idle = true;
}

// The session goes on without its client, for a resume.
void GatewayCore::LeaveClient(Session& session, Out& out) {
  conns_.erase(session.client.conn);
  session.client.conn = {};
  session.client.asleep = false;
  session.client.left_at = session.progress.idle_since = now_;
  switch (session.state) {
    case State::kLive: GoDetached(session, out); break;
    case State::kQueued:
      LeaveQueue(session.id);
      session.placement.start_is_our_fault = false;
      session.state = State::kStored;
      PutRow(session, SessionRowState::kDetached, out);
      break;
    case State::kParked: LeaveQueue(session.id); break;
    case State::kStarting:
    case State::kOrphaned: PutRow(session, SessionRowState::kDetached, out); break;
    case State::kDetached:
    case State::kStored: break;
  }
}

}  // namespace outboard::gateway
