// The part of GatewayCore that decides where a session's executor is: going live and parking, and
// what follows when a worker or an executor is lost (G2, G8, G9). Who gets a device is in
// waiting.cc.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

// What the customer has lost, and what it costs (docs/when-it-breaks.md).
absl::Status GatewayCore::WorkerLost(const std::string& how) {
  return absl::UnavailableError(
      absl::StrCat("worker lost: ", how,
                   "; the session's values are gone, and the time since the worker was last heard "
                   "from is not billed"));
}

absl::Status GatewayCore::MemoryNeeded() {
  return absl::ResourceExhaustedError("its memory was needed");
}

// ---- a device ----------------------------------------------------------------------------------

// A parked session keeps its seat, and with it whether the executor is attached.
void GatewayCore::StartWith(Session& session, std::vector<Slots> places) {
  if (session.placement.seats.empty()) {
    for (const auto& [id, slots] : places)
      session.placement.seats.push_back({id, {}, std::vector<bool>(slots.size())});
    session.progress.done_seq = std::max(session.progress.done_seq, session.snapshot.seq);
    session.progress.done_known = true;  // a new executor has no more
    session.snapshot.disk_failed = false;
  }
  session.snapshot.awaited_since.reset();
  session.wait.goes_first = session.billing.state_is_unpaid = false;
  for (size_t seat = 0; seat < places.size(); ++seat) {
    auto& [id, slots] = places[seat];
    for (const uint32_t i : slots) workers_.at(id).slots[i].holder = session.id;
    session.placement.seats[seat].slots = std::move(slots);
  }
  session.placement.last_pool =
      PoolNameOf(DeviceAt(session.placement.seats.front(), 0), FirstWorkerOf(session).owner);
  session.placement.worker_identity = FirstWorkerOf(session).worker_identity;
  session.state = State::kStarting;
  session.state_since = session.progress.idle_since = now_;
  if (!IsOnOwn(session)) queue_.Took(session.tenant, session.placement.slots_held(), now_);
  Touch(session);
}

// With an executor, and money for it. Its client may have left meanwhile: it pays as one does whose
// client leaves a moment later, or it would keep the device for nothing. After a fault of ours it
// has some time to come back first (CheckUnclaimed).
void GatewayCore::GoLiveIfReady(Session& session, Out& out) {
  if (session.state != State::kStarting || !session.placement.is_attached() || !IsFunded(session))
    return;
  const bool has_client = session.client.is_connected();
  if (!has_client && session.placement.start_is_our_fault) return;
  StartLease(session, out);
  if (!has_client) return GoDetached(session, out);
  BeginReplay(session, out);
  GoLive(session, out);
}

// What a client was told once not to keep, it has let go of: recoverable never comes back.
void GatewayCore::GoLive(Session& session, Out& out) {
  const bool first = session.epoch == 0;
  const auto recovers = [&](const Seat& seat) {  // G16
    return !session.request.is_group() || workers_.at(seat.worker).groups_recover;
  };
  session.recoverable = options_.snapshot_ns > 0 && session.request.recovers &&
                        std::ranges::all_of(session.placement.seats, recovers) &&
                        (first || session.recoverable);
  if (session.request.is_group())
    session.placement.has_parts = FirstWorkerOf(session).has_collectives;
  session.state = State::kLive;
  session.placement.work_arrived = true;
  session.placement.start_is_our_fault = false;
  session.snapshot.awaited_since.reset();
  session.state_since = session.progress.idle_since = now_;
  session.client.sleep_announced = false;
  if (session.snapshot.stored_at.ns == 0) session.snapshot.stored_at = now_;
  if (first) {
    telemetry::Count(telemetry::Metric::kSessionsOpened);
    telemetry::ObserveNs(telemetry::Metric::kOpenTime, now_.ns - session.opened_at.ns);
  } else {
    telemetry::Count(telemetry::Metric::kSessionsResumed);
  }
  ++session.epoch;
  PutRow(session, SessionRowState::kOpen, out);
  out.push_back(Live{session.client.conn, session.id, session.tenant, session.epoch,
                     session.placement.seats, session.billing.prices->run, session.recoverable,
                     session.snapshot.root, session.snapshot.seq, session.name,
                     session.billing.prices->price_class, session.billing.prices->idle});
  // What the client before had done is not this one's to send again.
  if (std::exchange(session.client.is_new, false)) AskForSnapshot(session, out);
}

void GatewayCore::GoDetached(Session& session, Out& out) {
  session.state = State::kDetached;
  session.state_since = now_;
  out.push_back(Detach{session.id});
  PutRow(session, SessionRowState::kDetached, out);
}

void GatewayCore::Park(Session& session, Out& out) {
  // Its process would stay on the device beside the next one's: it goes to disk, or keeps it.
  if (IsExclusive(session)) {
    // Without snapshots it keeps its device, for its client to come back to, unless that may not.
    if (!session.recoverable) {
      if (session.client.release_when_idle)
        End(session.id, absl::PermissionDeniedError("its client's key no longer stands"),
            SessionRowState::kClosed, LeaseEnd::kIdle, out);
      return;
    }
    AskForSnapshot(session, out);
    if (!IsReadyToGo(session)) return;  // the next tick comes here again
    ReleaseDevices(session, /*lost=*/false, LeaseEnd::kIdle, out);
    PutAway(session, /*ours=*/false, out);
    return PlaceQueue(out);
  }
  ReleaseDevices(session, /*lost=*/false, LeaseEnd::kIdle, out);
  session.state = State::kParked;
  session.placement.start_is_our_fault = false;
  AskForSnapshot(session, out);
  PlaceQueue(out);
}

// What is parked is to be on disk before its memory is needed.
void GatewayCore::AskForSnapshot(Session& session, Out& out) {
  if (!session.recoverable || session.is_saved() || session.snapshot.awaited_since.has_value())
    return;
  session.snapshot.awaited_since = now_;
  if (session.placement.is_attached() && FirstWorkerOf(session).snapshots_when_asked)
    out.push_back(RequestSnapshot{session.id});
}

// G13.
bool GatewayCore::IsReadyToGo(const Session& session) const {
  if (session.is_saved()) return true;
  if (!FirstWorkerOf(session).snapshots_when_asked) return true;
  return session.snapshot.awaited_since.has_value() &&
         now_.ns - session.snapshot.awaited_since->ns > options_.snapshot_wait_ns;
}

// A parked session gives its memory back: its executor ends, and another begins with the last
// snapshot when its client comes back, which sends again what came after that (G8). No loss, so it
// does not count as one.
void GatewayCore::Store(Session& session, bool ours, Out& out) {
  ours = ours && !session.billing.was_on_own();
  EndStateLease(session, /*lost=*/false, LeaseEnd::kPutAway, out);
  Touch(session);
  for (const Seat& seat : std::exchange(session.placement.seats, {}))
    out.push_back(EndExecutor{seat.worker, session.id});
  out.push_back(DropExecutor{session.id});
  session.losses.last_reason = "it was put away while its client was gone";
  session.GoBackToSnapshot(ours);
  session.placement.memory_bytes = 0;
  session.snapshot.awaited_since.reset();
  session.placement.start_is_our_fault = false;
  session.state_since = now_;
  session.state = State::kStored;
  PutRow(session, SessionRowState::kDetached, out);
}

// Of a session without a device. `ours`: another account needs its memory (G13). Where its client
// has left, or sleeps, or nobody pays, whoever sees to it that no snapshot comes in time pays for
// the rest: the session, or we where our disk could not store one.
void GatewayCore::PutAway(Session& session, bool ours, Out& out) {
  const bool is_saved = session.is_saved();
  Store(session, ours || session.snapshot.disk_failed, out);
  out.push_back(Stored{session.id, session.tenant, is_saved});
}

// Parked state counts against its worker's memory: sessions that hold a device may use all of its
// memory, and what else is there is for parked ones. Returns those that have to go to disk before
// `placed` gets these slots (nullptr, none: as it is): first those that can go now, of these those
// whose clients left first, and last those that have no snapshots, which end. One whose client
// waits for a device stays.
std::vector<GatewayCore::Session*> GatewayCore::InTheWay(WorkerId worker,
                                                         const std::vector<uint32_t>& taken,
                                                         const Session* placed) {
  uint64_t total = 0, free = 0;
  const std::vector<Slot>& slots = workers_.at(worker).slots;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    total += slots[i].device.memory_bytes;
    if (slots[i].is_free() && std::count(taken.begin(), taken.end(), i) == 0)
      free += slots[i].device.memory_bytes;
  }
  if (total == 0) return {};  // not reported
  const uint64_t allowed = free + total / options_.parked_share;
  uint64_t parked = 0;
  std::vector<Session*> may_go;
  for (auto& [id, session] : sessions_) {
    if (session.state != State::kParked || session.placement.SeatOn(worker) == nullptr ||
        &session == placed)
      continue;
    parked += session.placement.memory_bytes;
    const bool waits = session.client.is_active();
    if (!waits && session.placement.memory_bytes > 0) may_go.push_back(&session);
  }
  std::sort(may_go.begin(), may_go.end(), [&](const Session* a, const Session* b) {
    return std::tuple(!a->recoverable, !IsReadyToGo(*a), a->client.left_at) <
           std::tuple(!b->recoverable, !IsReadyToGo(*b), b->client.left_at);
  });
  size_t go = 0;
  for (; go < may_go.size() && parked > allowed; ++go) parked -= may_go[go]->placement.memory_bytes;
  may_go.resize(go);
  return may_go;
}

// True once there is room. Those in the way go together: until all can, each keeps its executor.
bool GatewayCore::MakeRoomFor(WorkerId worker, const std::vector<uint32_t>& taken,
                              const Session* placed, Out& out) {
  const std::vector<Session*> in_the_way = InTheWay(worker, taken, placed);
  bool can_go = true;
  for (Session* session : in_the_way) {
    AskForSnapshot(*session, out);
    can_go &= !session->recoverable || IsReadyToGo(*session);
  }
  if (!can_go) return false;
  // An account that needs the memory of its own sessions has none of their time for nothing.
  const auto is_for_another = [&](TenantId tenant) {
    if (placed != nullptr) return placed->tenant != tenant;
    const std::vector<Slot>& slots = workers_.at(worker).slots;
    return std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      return slot.holder.has_value() && sessions_.at(*slot.holder).tenant != tenant;
    });
  };
  for (Session* session : in_the_way) {
    if (session->recoverable)
      PutAway(*session, /*ours=*/is_for_another(session->tenant), out);
    else
      EndOne(session->id, MemoryNeeded(), SessionRowState::kClosed, LeaseEnd::kIdle, out);
  }
  return true;
}

void GatewayCore::End(const SessionId& id, absl::Status why, SessionRowState row,
                      LeaseEnd lease_end, Out& out) {
  EndOne(id, std::move(why), row, lease_end, out);
  PlaceQueue(out);
}

// And gives what it had to nobody.
void GatewayCore::EndOne(const SessionId& id, absl::Status why, SessionRowState row,
                         LeaseEnd lease_end, Out& out) {
  Session& session = sessions_.at(id);
  ReleaseDevices(session, /*lost=*/row == SessionRowState::kLost, lease_end, out);
  Bill bill = BillOf(id);
  LeaveQueue(id);
  for (const Seat& seat : session.placement.seats) out.push_back(EndExecutor{seat.worker, id});
  if (session.epoch > 0) {
    telemetry::CountAs(telemetry::Metric::kSessionsEnded, row == SessionRowState::kLost
                                                              ? telemetry::SessionEnd::kLost
                                                              : telemetry::SessionEnd::kClosed);
    PutRow(session, row, out);
  }
  if (lease_end == LeaseEnd::kNoDevice) telemetry::CountRefused(telemetry::Refusal::kNoDevice);
  if (session.client.is_connected()) {
    conns_.erase(session.client.conn);
    out.push_back(EndClient{session.client.conn, id, std::move(why), bill});
  }
  out.push_back(Forget{id, /*goes_on=*/false, bill});
  sessions_.erase(id);
}

// ---- what is lost
// --------------------------------------------------------------------------------

// The executor may live: its worker has rejoin_ns to come back with it.
void GatewayCore::Orphan(Session& session, const std::string& how, Out& out) {
  session.orphan.had_device = session.placement.slots_held() > 0;
  ReleaseDevices(session, /*lost=*/true, LeaseEnd::kWorkerLost, out);
  LeaveQueue(session.id);
  session.placement.seats.clear();
  session.snapshot.awaited_since.reset();
  session.progress.busy = false;
  session.losses.last_reason = how;
  session.state = State::kOrphaned;
  session.state_since = now_;
  session.orphan.until = {now_.ns + options_.rejoin_ns};
  out.push_back(DropExecutor{session.id});
}

// Back where it was, on a connection of its worker's that is new. Its device is free unless two say
// that they have it; then the session waits for one like a parked one.
bool GatewayCore::Adopt(const HeldExecutor& held, WorkerId id, Out& out) {
  Session* session = Find(held.session);
  Worker& worker = workers_.at(id);
  if (session == nullptr || session->state != State::kOrphaned || held.devices.empty() ||
      worker.set_aside || !Admits(id, session->tenant))
    return false;
  const bool are_all = held.devices.size() == session->request.devices;
  if (session->request.is_group() && !are_all) return false;  // G16
  session->placement.number = held.placement;
  const auto is_free = [&](uint32_t i) {
    return i < worker.slots.size() && !worker.slots[i].holder.has_value() &&
           std::count(held.devices.begin(), held.devices.end(), i) == 1;
  };
  const bool fits = are_all && std::ranges::all_of(held.devices, is_free);
  // A process that has a GPU cannot be parked: it gets that one, or ends.
  if (worker.exclusive && !fits) return false;
  if (fits && (session->orphan.had_device || worker.exclusive)) {
    StartWith(*session, {{id, held.devices}});
    session->progress.done_known = false;
    session->placement.start_is_our_fault = true;
    BeginHold(*session, out);
    return true;
  }
  session->state = State::kParked;
  session->progress.done_known = false;
  session->placement.seats = {{id, {}, std::vector<bool>(session->request.devices)}};
  session->placement.worker_identity = worker.worker_identity;
  session->state_since = now_;
  Touch(*session);
  if (session->client.is_active()) queue_.Add(RequestOf(*session), now_);
  return true;
}

// Its executor and what that held are gone: another begins with the last snapshot, and the client
// sends again what came after it. Whatever the old one still says is of an old placement.
void GatewayCore::Replace(Session& session, const std::string& how, bool ours, Out& out) {
  const bool nothing_yet = session.epoch == 0;
  if (session.is_lost_with_executor() || !MayMove(session)) {
    return End(session.id, WorkerLost(how), SessionRowState::kLost, LeaseEnd::kWorkerLost, out);
  }
  session.LossesLikeNow().push_back(now_);
  session.losses.last_reason = how;
  Leave(session, LeaseEnd::kWorkerLost, ours, out);
  const bool waits = session.client.is_active();
  session.state = waits ? State::kQueued : State::kStored;
  if (!nothing_yet)
    PutRow(session, waits ? SessionRowState::kOpen : SessionRowState::kDetached, out);
  if (!waits) return;
  if (!nothing_yet) {
    telemetry::Count(telemetry::Metric::kSessionsMoved);
    out.push_back(Moving{session.client.conn,
                         absl::StrCat("worker lost: ", how, "; the session goes on elsewhere")});
  }
  Enqueue(session, out);
}

void GatewayCore::Leave(Session& session, LeaseEnd lease_end, bool ours, Out& out) {
  ours = ours && !session.billing.was_on_own();
  if (!session.placement.seats.empty())
    session.losses.last_slots = session.placement.seats.back().slots;
  ReleaseDevices(session, /*lost=*/lease_end == LeaseEnd::kWorkerLost, lease_end, out);
  LeaveQueue(session.id);
  for (const Seat& seat : std::exchange(session.placement.seats, {})) {
    out.push_back(EndExecutor{seat.worker, session.id});
    session.losses.last_worker = seat.worker;
  }
  session.snapshot.awaited_since.reset();
  session.progress.busy = false;
  session.wait.goes_first = session.epoch > 0 && session.client.is_active();
  session.placement.start_is_our_fault = ours && session.wait.goes_first;
  session.GoBackToSnapshot(ours);
  out.push_back(DropExecutor{session.id});
  session.state_since = now_;
}

bool GatewayCore::MayMove(Session& session) {
  std::vector<MonoTime>& before = session.LossesLikeNow();
  std::erase_if(before, [&](MonoTime at) { return now_.ns - at.ns > options_.move_window_ns; });
  const uint32_t most =
      &before == &session.losses.after_work ? options_.moves_max : options_.starts_max;
  return before.size() < most && !draining_;
}

// The session's own work may have ended its executor: one more try in as long a time as moves are
// counted in. An item that has had it is not applied by the third, so that the session goes on.
bool GatewayCore::MayTryAgain(Session& session, const ExecutorGone& event) {
  if (session.is_lost_with_executor()) return false;
  const bool has_tried = session.losses.retried_at.has_value() &&
                         now_.ns - session.losses.retried_at->ns <= options_.move_window_ns;
  const uint64_t suspect = std::exchange(session.losses.suspect_seq, event.seq);
  session.losses.retried_at = now_;
  if (!has_tried || (event.seq != 0 && event.seq != suspect)) return true;
  if (event.seq == 0 || !MayMove(session)) return false;
  session.losses.refused_items.push_back({event.seq, event.why});
  return true;
}

// Its executors cannot stay without their devices: a GPU has one process, and one that is spread
// would have to get back the same devices of several workers at once.
bool GatewayCore::IsExclusive(const Session& session) const {
  return session.placement.is_spread() ||
         (!session.placement.seats.empty() && FirstWorkerOf(session).exclusive);
}

void GatewayCore::PutRow(const Session& session, SessionRowState state, Out& out) {
  std::optional<WorkerId> worker;
  if (!session.placement.seats.empty()) worker = session.placement.seats.front().worker;
  out.push_back(WriteSession{session.id, session.tenant, session.epoch, worker, state,
                             session.client.resume_hash, session.request.devices,
                             session.recoverable, session.snapshot.root, session.snapshot.seq,
                             {}, session.name});
  if (!session.billing.prices.has_value()) return;
  auto& row = std::get<WriteSession>(out.back());
  row.price_per_hour = session.billing.prices->run;
  row.price_class = session.billing.prices->price_class;
  row.idle_prices = session.billing.prices->idle;
}

}  // namespace outboard::gateway
