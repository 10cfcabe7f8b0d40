// Invariants (CheckInvariants; tests quote the numbers)
//   G1  A slot is held by at most one session, and a seat of that session names it.
//   G2  A session has a seat exactly in kStarting, kLive, kDetached and kParked, on a worker that
//       is known; a seat holds slots in all of these but kParked. Of several seats only a session
//       of several devices has, and it is never kParked: its workers span (WorkerJoined).
//   G3  A session has a lease for its devices, and is metered, exactly in kLive and kDetached: not
//       before the customer can use the device, nor after; and then also where its client left
//       before (GoLiveIfReady). Its meter, and that of state alone, is paused until the row of the
//       lease is on disk (LeaseWritten).
//   G4  A connection belongs to at most one session; kLive and kQueued have one, kDetached none,
//       and kStored only while it sleeps.
//   G5  The queue holds exactly the sessions in kQueued, and those in kParked that have a
//       connection and do not sleep. Only kParked, kStored and kOrphaned sleep.
//   G6  An epoch rises with every Live of a session.
//   G7  No session waits for ever: each state but kLive has a time limit, checked on Tick. In the
//       queue it is the client's own, or starts when no device of the fleet could serve it.
//   G8  An executor is replaced only if nothing was opened yet, or if the client retains all items
//       that no snapshot includes; and at most moves_max times within move_window_ns. Those that
//       its work had not reached do not count there: of them, at most starts_max.
//   G9  Messages of a replaced executor are ignored: they name an earlier placement, or another
//       worker than the session's.
//   G10 All seats on a worker of one account are of one tenant, those without slots included: the
//       executor of a parked session lives.
//   G11 No session has a seat on a worker that was set aside.
//   G12 A session is metered only with a hold, and never for more than that (funds.cc).
//   G13 A parked session that is stored for its memory has all of its state in a snapshot, unless
//       none came within snapshot_wait_ns, or its worker cannot be asked for one. Until then nobody
//       is placed where that memory is needed.
//   G14 A device that went out of service is given to no session; one that holds it keeps it.
//   G15 The queue knows what each account holds, and what each worker has free unless it is stale.
//   G16 A session of several devices has an executor for each, all or none of them: it goes live
//       when all have attached. When one of them ends, all do: what the others hold is of no use
//       without its part. A new placement, of all of them, begins with the last snapshot, which has
//       the parts of all at one item; where there is none to go on from (G8) the session ends, and
//       its client hears of rank, device and worker.
//   G17 Of the sessions of a tenant no two have the same name.
//   G18 A lease of a session's state alone is PARKED exactly in kParked, outside of the queue, and
//       STORED exactly in kStored (use_states.cc).
//   G19 A worker that has an owner serves no other account, costs nothing, and counts for no share
//       and no quota.
//   G20 A device is on the cap of its client's key, from when it is taken. A client that enters
//       with another key waits, and has no session, until that key can pay (takeover.cc); only a
//       session that holds a device is waited for.
//
//   ClientOpen --Enqueue--> kQueued --TryPlace--> kStarting --ExecutorAttached/GoLive--> kLive
//   kLive --ClientGone, ClientDenied/GoDetached--> kDetached --ClientResume/GoLive--> kLive
//   kStarting, its client has left --ExecutorAttached/GoLiveIfReady, GoDetached--> kDetached
//   kDetached --idle/Park--> kParked --ClientResume/Enqueue, TryPlace--> kLive
//   kLive --without work for long/Sleep--> kParked, or of an exclusive device kStored, sleeping
//   sleeping --ClientActs/Wake, Enqueue, TryPlace--> kStarting, in a new epoch
//   kParked, and waits for nothing, for long/CheckDisk, Store--> kStored
//   kDetached, of an exclusive device --idle/Park, Store--> kStored
//   kParked --its memory is needed/MakeRoomFor, once its snapshot is stored/Store--> kStored
//   with a worker --WorkerGone/Orphan--> kOrphaned <--SessionRestored (the gateway restarted)
//   kOrphaned --WorkerJoined, which holds it/Adopt--> kStarting, or kParked if it held no device
//   kOrphaned, or with a worker --executor lost/Replace--> kQueued with a client, else kStored
//   with a worker that drains --SnapshotKept/HandOver--> kQueued with a client, else kStored
//   kStored --ClientResume/Enqueue, TryPlace--> kStarting, with the last snapshot
//   any with an epoch --ClientLeft/LeaveClient--> as by ClientGone, and its device is given back
//   any with an epoch --ClientAttach/Reconnect--> as by ClientResume, from another client
//   with a device --ClientResume, ClientAttach by another key/WaitsToPay--> as it was
//   any --ClientClosed, EndSession, ExecutorGone, a time limit/End--> gone
#include "gateway/core/core.h"

#include <algorithm>
#include <utility>

#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

int64_t Since(MonoTime now, MonoTime then) { return now.ns - then.ns; }

}  // namespace

GatewayCore::GatewayCore(CoreOptions options)
    : options_(options),
      meter_(MeterOptions{.unheard_max_ns = options.worker_timeout_ns}),
      queue_(options.devices_per_tenant_max) {}

std::vector<Action> GatewayCore::On(const Event& event, MonoTime now) {
  ++changes_;
  now_ = std::max(now_, now);
  Out out;
  HandleAny(event, out);
  RepeatEntries(out);
  return out;
}

void GatewayCore::HandleAny(const Event& event, Out& out) {
  std::visit([&](const auto& e) { Handle(e, out); }, event);
}

// ---- what executors did -------------------------------------------------------------------------

void GatewayCore::Handle(const SnapshotKept& event, Out& out) {
  if (!MayKeep(event.session, event.seq)) return;
  Session* session = Find(event.session);
  session->snapshot.root = event.root;
  session->snapshot.seq = event.seq;
  session->snapshot.stored_at = now_;
  session->snapshot.disk_failed = false;
  session->replay.billed_ms_at_snapshot = BillOf(event.session).ms;
  session->replay.free_ns = 0;
  std::erase_if(session->losses.refused_items,
                [&](const RefusedItem& item) { return item.seq <= event.seq; });
  telemetry::Count(telemetry::Metric::kSnapshots);
  PutRow(*session,
         session->client.is_connected() ? SessionRowState::kOpen : SessionRowState::kDetached, out);
  if (!forks_.empty()) CheckForks(out);
  if (std::ranges::any_of(session->placement.seats,
                          [&](const Seat& seat) { return workers_.at(seat.worker).draining; }))
    return HandOver(*session, out);
  if (session->state == State::kParked) PlaceQueue(out);  // G13
}

void GatewayCore::Handle(const SnapshotNotKept& event, Out&) {
  if (Session* const session = Find(event.session)) session->snapshot.disk_failed = true;
}

void GatewayCore::Handle(const SessionProgress& event, Out& out) {
  Session* session = Find(event.session);
  if (session == nullptr) return;
  const bool advanced = event.done_seq > session->progress.done_seq;
  if (event.busy || session->progress.busy || advanced) session->progress.idle_since = now_;
  session->progress.busy = event.busy;
  session->progress.awaits_answer = event.awaits;
  // What its client sent at the moment when it fell asleep; the executor has it, and no client.
  if (session->client.asleep && session->state == State::kParked && (event.busy || advanced))
    Wake(*session, out);
  if (event.done_seq > 0 && !session->placement.seats.empty()) {
    session->progress.done_seq = std::max(session->progress.done_seq, event.done_seq);
    session->progress.done_known = true;
  }
}

// ---- time ---------------------------------------------------------------------------------------

void GatewayCore::Handle(const Tick&, Out& out) {
  // A gateway that stood still itself has heard nobody meanwhile, and that is no news of them.
  const bool stood = Since(now_, std::exchange(ticked_, now_)) > 2 * options_.heartbeat_ns;
  std::vector<WorkerId> unheard;
  for (auto& [id, worker] : workers_) {
    if (stood) worker.heard_at = now_;
    if (Since(now_, worker.heard_at) > options_.worker_timeout_ns) unheard.push_back(id);
  }
  for (WorkerId id : unheard) {
    LoseWorker(id, "no heartbeat", /*may_return=*/false, out);
    out.push_back(EndWorker{id, absl::UnavailableError("no heartbeat arrived in time")});
  }

  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    // First: whoever pays for the device is not to wait for one because it was given back just now.
    if (Session* session = Find(id); session != nullptr) TakeOverIfReady(*session, out);
    if (Session* session = Find(id); session != nullptr) CheckDeadlines(*session, out);
    if (Session* session = Find(id); session != nullptr) CheckFunds(*session, out);
    if (Session* session = Find(id); session != nullptr) CheckUse(*session, out);
  }
  if (!forks_.empty()) CheckForks(out);
  if (now_.ns - told_queue_.ns >= kSecondNs) {
    SyncPools();
    queue_.Accrue(pools_, now_);
  }
  PlaceQueue(out);
  TellQueue(out);
}

// G7. May end the session.
void GatewayCore::CheckDeadlines(Session& session, Out& out) {
  const int64_t in_state = Since(now_, session.state_since);
  const bool has_client = session.client.is_connected();
  const bool moved = session.state == State::kQueued && session.epoch > 0;
  const bool queued = session.is_waiting();
  const int64_t hopeless_ns =
      queued && IsHopeless(session)
          ? Since(now_, std::max(session.state_since, session.wait.servable_at))
          : 0;
  const bool stopped = !session.billing.stopped.ok();
  const bool is_paid_for = session.takeover.has_value() && session.takeover->paid.has_value();
  const bool idle = session.client.release_when_idle || stopped ||
                    (Since(now_, session.progress.idle_since) > options_.idle_ns && !is_paid_for);
  const bool is_left = !has_client && Since(now_, session.client.left_at) > GraceNs(session);
  const bool waits_for_money = stopped && session.recoverable &&
                               Since(now_, session.client.left_at) <= options_.stopped_grace_ns &&
                               (session.state == State::kParked || session.state == State::kStored);
  if (is_left && waits_for_money) {
    if (session.state == State::kParked)  // it costs no memory from now on
      PutAway(session, /*ours=*/false, out);
  } else if (is_left) {
    End(session.id, absl::CancelledError("the client did not reconnect"), SessionRowState::kClosed,
        session.lease.for_devices ? LeaseEnd::kAbandoned : LeaseEnd::kIdle, out);
  } else if (moved && hopeless_ns > options_.move_ns) {
    End(session.id, WorkerLost(session.losses.last_reason), SessionRowState::kLost,
        LeaseEnd::kWorkerLost, out);
  } else if (queued && !moved && hopeless_ns > options_.queue_ns) {
    GiveUpWaiting(session, NoDevice(session), out);
  } else if (queued && session.request.queue_max_ns.has_value() &&
             in_state > *session.request.queue_max_ns) {
    GiveUpWaiting(session, NoDevice(session), out);
  } else if (session.state == State::kStarting && !session.placement.is_attached() &&
             in_state >
                 options_.start_ns + (session.request.devices - 1) * options_.start_more_ns) {
    Replace(session, "it started no executor in time", /*ours=*/true, out);
  } else if (session.state == State::kStarting && session.placement.is_attached() && !has_client) {
    CheckUnclaimed(session, idle, out);
  } else if (session.state == State::kDetached && !session.progress.busy && idle) {
    Park(session, out);
  } else if (session.state == State::kOrphaned && now_ > session.orphan.until) {
    Replace(session, session.losses.last_reason, /*ours=*/true, out);
  } else if (session.state == State::kLive) {
    CheckSleep(session, out);
  } else if (session.client.asleep &&
             Since(now_, session.client.left_at) > options_.stopped_grace_ns) {
    End(session.id, absl::CancelledError("the session had no work for too long"),
        SessionRowState::kClosed, LeaseEnd::kAbandoned, out);
  } else if (session.state == State::kParked && !queued) {
    CheckDisk(session, out);
  }
}

// What has started, and waits for its client. One that works meanwhile, or cannot be parked, would
// have its device for nothing for as long as that stays away. May end the session.
void GatewayCore::CheckUnclaimed(Session& session, bool idle, Out& out) {
  const SessionId id = session.id;
  const bool is_over = Since(now_, session.placement.attached_at) > options_.idle_ns;
  if (idle) Park(session, out);
  Session* const stays = Find(id);
  if (stays == nullptr || stays->state != State::kStarting || !is_over) return;
  stays->placement.start_is_our_fault = false;
  GoLiveIfReady(*stays, out);
}

void GatewayCore::Handle(const StopAll&, Out& out) {
  draining_ = true;
  for (const auto& [conn, fork] : std::exchange(forks_, {}))
    out.push_back(EndClient{
        conn, std::nullopt, absl::UnavailableError("the gateway is stopping"), {}});
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    if (Session& session = sessions_.at(id); MaySurvive(session)) {
      PutToNextGateway(session, out);
      continue;
    }
    End(id, absl::UnavailableError("the gateway is stopping"), SessionRowState::kClosed,
        LeaseEnd::kGatewayStopped, out);
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
  if (checked_at_change_ == changes_) return "";
  std::map<WorkerId, TenantId> accounts;  // of workers that serve one
  std::vector<std::pair<TenantId, uint32_t>> held_by;  // few accounts
  const auto of = [&](TenantId tenant) -> uint32_t& {
    const auto found = std::ranges::find(held_by, tenant, &std::pair<TenantId, uint32_t>::first);
    return (found != held_by.end() ? *found : held_by.emplace_back(tenant, 0)).second;
  };
  size_t held = 0, queued = 0, takeovers = 0;
  std::set<std::pair<TenantId, std::string_view>> names;
  for (const auto& [id, s] : sessions_) {
    if (!s.name.empty() && !names.insert({s.tenant, s.name}).second) return "G17: " + id.Hex();
    const auto in = [&](std::initializer_list<State> states) {
      return std::find(states.begin(), states.end(), s.state) != states.end();
    };
    const bool holds = in({State::kStarting, State::kLive, State::kDetached});
    if (holds != (s.placement.slots_held() > 0)) return "G2: slots of " + id.Hex();
    const bool sits = holds || in({State::kParked});
    if (s.placement.seats.empty() == sits) return "G2: seats of " + id.Hex();
    if (s.placement.is_spread() && (!s.request.is_group() || in({State::kParked})))
      return "G2: spread: " + id.Hex();
    if (holds && s.placement.slots_held() != s.request.devices)
      return "G16: devices of " + id.Hex();
    size_t ranks = 0;
    for (const Seat& seat : s.placement.seats) {
      ranks += seat.attached.size();
      if (!workers_.contains(seat.worker)) return "G2: worker of " + id.Hex();
      if (workers_.at(seat.worker).one_account &&
          accounts.try_emplace(seat.worker, s.tenant).first->second != s.tenant)
        return "G10: " + id.Hex();
      if (workers_.at(seat.worker).set_aside) return "G11: " + id.Hex();
      if (workers_.at(seat.worker).owner.value_or(s.tenant) != s.tenant)
        return "G19: " + id.Hex();
      for (uint32_t i : seat.slots) {
        if (workers_.at(seat.worker).slots.at(i).holder != id) return "G1: slot of " + id.Hex();
      }
    }
    if (sits && ranks != s.request.devices) return "G16: ranks of " + id.Hex();
    held += s.placement.slots_held();
    if (!IsOnOwn(s)) of(s.tenant) += s.placement.slots_held();
    if (s.lease.for_devices != in({State::kLive, State::kDetached})) return "G3: " + id.Hex();
    if (s.lease.is_running() && !s.lease.is_written && meter_.MsOf({id, s.lease.grant}) > 0)
      return "G3: before it is written: " + id.Hex();
    if (s.lease.for_devices &&
        meter_.MsOf({id, s.lease.grant}) > s.hold.funded_ms * s.placement.slots_held())
      return "G12: " + id.Hex();
    if (s.takeover.has_value() && !holds) return "G20: " + id.Hex();
    if (holds && s.client.is_connected() && s.hold.key_id != s.client.key_id)
      return "G20: on another key's cap than its client's: " + id.Hex();
    takeovers += s.takeover.has_value();
    const bool has_conn = s.client.is_connected();
    if (in({State::kLive, State::kQueued}) && !has_conn) return "G4: no connection: " + id.Hex();
    if ((in({State::kDetached}) || (in({State::kStored}) && !s.client.asleep)) && has_conn)
      return "G4: connection: " + id.Hex();
    if (s.client.asleep && (!has_conn || !in({State::kParked, State::kStored, State::kOrphaned})))
      return "G5: sleeps: " + id.Hex();
    if (has_conn && (!conns_.contains(s.client.conn) || conns_.at(s.client.conn) != id))
      return "G4: " + id.Hex();
    if (s.is_waiting() != queue_.Has(id)) return "G5: " + id.Hex();
    queued += s.is_waiting();
    const bool parked = in({State::kParked}) && !s.is_waiting() && s.lease.use == UseState::kParked;
    if (s.lease.for_state && !parked && !(in({State::kStored}) && s.lease.use == UseState::kStored))
      return "G18: " + id.Hex();
    if (s.lease.for_state &&
        meter_.MsOf({id, s.lease.grant}) > s.hold.funded_ms * s.request.devices)
      return "G12: " + id.Hex();
    if (in({State::kStored}) && !s.recoverable) return "G8: " + id.Hex();
    if (s.snapshot.awaited_since.has_value() &&
        !in({State::kStarting, State::kLive, State::kDetached, State::kParked}))
      return "G13: " + id.Hex();
    if (s.losses.after_work.size() > options_.moves_max ||
        s.losses.before_work.size() > options_.starts_max)
      return "G8: moved too often: " + id.Hex();
  }
  if (takeovers != takeovers_.size() || !entries_to_repeat_.empty())
    return "G20: a client of nobody";
  if (held != devices_busy()) return "G1: a slot is held by no session";
  if (queued != queue_.size()) return "G5: the queue has somebody who is gone";
  for (const auto& [tenant, devices] : held_by)
    if (queue_.HeldBy(tenant) != devices) return "G15: what an account holds";
  size_t pools = 0;
  for (const auto& [id, worker] : workers_) {
    if (stale_workers_.contains(id)) continue;
    for (const DevicePool& pool : PoolsOf(id)) {
      const DevicePool* const known = pools_.Find(id, pool.pool_name);
      if (known == nullptr || *known != pool) return "G15: what is free";
      ++pools;
    }
  }
  if (pools != pools_.CountBut(stale_workers_)) return "G15: pools of nobody";
  checked_at_change_ = changes_;
  return "";
}

}  // namespace outboard::gateway
