// The part of GatewayCore that waits for a device: who is in the queue (G5), what the queue knows
// of the fleet (G15), and what those who wait are told. Who goes next, and where, is decided by
// gateway/queue.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

// Places near the front matter to people, and change; of the others each change is not news.
constexpr uint64_t kNearFront = 10;
constexpr int64_t kTellNearNs = 1 * kSecondNs;
constexpr int64_t kTellFarNs = 10 * kSecondNs;
// Workers that are remembered to have what an account's programs need: kernels and blobs.
constexpr size_t kWarmMax = 4;

bool IsNews(const QueuePlace& told, const QueuePlace& now) {
  if (told.before != now.before || told.reason != now.reason ||
      told.expected_s.has_value() != now.expected_s.has_value())
    return true;
  const int64_t was = told.expected_s.value_or(0), is = now.expected_s.value_or(0);
  return std::abs(was - is) > std::max<int64_t>(5, was / 4);
}

}  // namespace

// ---- what is free -------------------------------------------------------------------------------

void GatewayCore::Touch(const Session& session) {
  for (const Seat& seat : session.placement.seats) stale_workers_.insert(seat.worker);
}

std::vector<DevicePool> GatewayCore::PoolsOf(WorkerId id) const {
  const Worker& worker = workers_.at(id);
  std::optional<TenantId> only = worker.owner;
  if (worker.one_account && !only.has_value()) {
    for (const auto& [session_id, session] : sessions_)
      if (session.placement.SeatOn(id) != nullptr) only = session.tenant;
  }
  std::vector<DevicePool> all;  // few
  for (const Slot& slot : worker.slots) {
    std::string name = PoolNameOf(slot.device, worker.owner);
    auto pool = std::ranges::find(all, name, &DevicePool::pool_name);
    if (pool == all.end())
      pool = all.insert(pool, {.worker = id,
                               .pool_name = std::move(name),
                               .memory_bytes = slot.device.memory_bytes,
                               .only = only,
                               .spans = worker.spans,
                               .build = worker.build,
                               .is_own = worker.owner.has_value()});
    pool->memory_bytes = std::min(pool->memory_bytes, slot.device.memory_bytes);
    pool->price_per_hour = std::max(pool->price_per_hour, slot.device.price_per_hour);
    if (slot.out || worker.draining || worker.set_aside) continue;
    ++pool->total;
    pool->free += slot.is_free();
  }
  return all;
}

void GatewayCore::SyncPools() {
  for (const WorkerId id : std::exchange(stale_workers_, {})) {
    if (!workers_.contains(id)) continue;
    for (DevicePool& pool : PoolsOf(id)) pools_.Set(std::move(pool));
  }
}

// G14.
void GatewayCore::Handle(const DeviceWentOut& event, Out&) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end() || event.device >= it->second.slots.size()) return;
  it->second.slots[event.device].out = true;
  stale_workers_.insert(event.worker);
}

bool GatewayCore::Admits(WorkerId id, TenantId tenant) const {
  if (workers_.at(id).owner.value_or(tenant) != tenant) return false;  // G19
  if (!workers_.at(id).one_account) return true;
  return std::all_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.tenant == tenant || entry.second.placement.SeatOn(id) == nullptr;
  });
}

// ---- the queue ----------------------------------------------------------------------------------

// On one worker, or where it needs them, on several that span.
DeviceWish GatewayCore::WishOf(uint32_t devices) const {
  return {.devices = devices, .workers_max = devices > 1 ? 0u : 1u};
}

// What was open already goes first; a parked session can only go back to where its state is.
DeviceRequest GatewayCore::RequestOf(const Session& session) const {
  DeviceRequest request{.session = session.id, .account = session.tenant};
  request.wish = WishOf(session.request.devices);
  const bool own = session.wait.own_devices_only || session.request.device_class == kOwnMachines;
  request.wish.device_class = own ? OwnPoolsOf(session.tenant) : session.request.device_class;
  request.wish.is_own = own;
  request.wish.memory_bytes = session.request.memory_bytes;
  request.class_before = session.placement.last_pool;
  if (session.state == State::kParked)
    request.wish.only_on = session.placement.seats.front().worker;
  request.goes_first = session.state == State::kQueued && session.wait.goes_first;
  request.last_resort = session.losses.last_worker;
  if (const auto warm = warm_.find(session.tenant); warm != warm_.end())
    request.warm = warm->second;
  if (session.epoch == 0) {
    request.gang = session.request.gang;
    request.gang_size = session.request.gang_size;
  }
  return request;
}

// Ends with the session on its way, in the queue, or turned away.
void GatewayCore::Enqueue(Session& session, Out& out) {
  EndStateLease(session, /*lost=*/false, LeaseEnd::kResumed, out);
  const DeviceRequest request = RequestOf(session);
  session.wait.sent_place.reset();
  session.wait.servable_at = now_;
  // A device that is free where its state is has nobody who could take it at once: others wait for
  // its memory there, which it keeps.
  if (session.state == State::kParked && (queue_.MayHold(request) || IsOnOwn(session))) {
    SyncPools();
    if (TryPlaceOne(session, pools_.Pick(request.wish, {.account = session.tenant}), out)) return;
  }
  // Whoever has a machine of his own waits for nobody there, nor for a quota.
  const bool may_be_own =
      session.request.device_class.empty() || session.request.device_class == kOwnMachines;
  if (session.state == State::kQueued && request.gang.empty() && may_be_own &&
      HasOwn(session.tenant)) {
    const bool own_only = std::exchange(session.wait.own_devices_only, true);
    SyncPools();
    const DeviceWish own = RequestOf(session).wish;
    const bool placed =
        TryPlaceOne(session, pools_.Pick(own, {.account = session.tenant}), out);
    session.wait.own_devices_only = own_only;
    if (placed) return;
  }
  queue_.Add(request, now_);
  PlaceQueue(out);
  if (!queue_.Has(session.id)) return;
  if (!request.goes_first && queue_.size() > options_.queue_max)
    return GiveUpWaiting(session, NoDevice(session), out);
  for (const QueuePlace& place : queue_.Positions(now_))
    if (place.session == session.id) TellPlace(session, place, out);
}

void GatewayCore::PlaceQueue(Out& out) {
  if (draining_) return;
  std::set<SessionId> passed;
  for (;;) {
    SyncPools();
    const std::vector<DeviceGrant> grants = queue_.Next(pools_, passed);
    if (grants.empty()) return;
    if (TryPlace(grants, out)) continue;
    for (const DeviceGrant& grant : grants) passed.insert(grant.session);
  }
}

bool GatewayCore::TryPlace(const std::vector<DeviceGrant>& grants, Out& out) {
  if (grants.size() == 1) {
    Session& session = sessions_.at(grants.front().session);
    return TryPlaceOne(session, grants.front().parts, out);
  }
  // Of two that are placed on one worker the first takes its slots before the second chooses, so
  // room is made for all of them before any is placed.
  for (const DeviceGrant& grant : grants) {
    Session& session = sessions_.at(grant.session);
    for (const PlacedPart& part : grant.parts)
      if (!Serves(part.worker, session) ||
          !MakeRoomFor(part.worker, SlotsFor(session, part), &session, out))
        return false;
  }
  for (const DeviceGrant& grant : grants) Place(sessions_.at(grant.session), grant.parts, out);
  return true;
}

// Where parked sessions have to be saved first it waits (G13), if there is room nowhere else.
bool GatewayCore::TryPlaceOne(Session& session, std::optional<Parts> parts, Out& out) {
  const DeviceRequest request = RequestOf(session);
  std::set<WorkerId> barred;
  while (parts.has_value()) {
    const auto cannot = std::find_if(parts->begin(), parts->end(), [&](const PlacedPart& part) {
      return !Serves(part.worker, session) ||
             !MakeRoomFor(part.worker, SlotsFor(session, part), &session, out);
    });
    if (cannot == parts->end()) {
      Place(session, *parts, out);
      return true;
    }
    barred.insert(cannot->worker);
    SyncPools();
    parts = pools_.Pick(request.wish, {.account = session.tenant,
                                       .warm = request.warm,
                                       .last_resort = session.losses.last_worker,
                                       .barred = &barred});
  }
  return false;
}

// A worker from before sessions of several devices starts one executor.
bool GatewayCore::Serves(WorkerId worker, const Session& session) const {
  if (!session.request.is_group()) return true;
  const Worker& candidate = workers_.at(worker);
  if (!candidate.serves_groups) return false;
  const bool has_state = session.epoch > 0 || !session.snapshot.root.empty();
  if (!has_state || !session.recoverable) return true;
  return candidate.groups_recover &&
         candidate.has_collectives == session.placement.has_parts;  // G16
}

// Devices that it did not lose, if there are enough.
std::vector<uint32_t> GatewayCore::SlotsFor(const Session& session, const PlacedPart& part) const {
  const std::vector<Slot>& all = workers_.at(part.worker).slots;
  const std::optional<TenantId>& owner = workers_.at(part.worker).owner;
  std::vector<uint32_t> slots;
  for (const bool where_it_was_lost : {false, true}) {
    for (uint32_t i = 0; i < all.size() && slots.size() < part.devices; ++i) {
      const bool lost_there = part.worker == session.losses.last_worker &&
                              std::ranges::count(session.losses.last_slots, i) > 0;
      if (all[i].is_free() && PoolNameOf(all[i].device, owner) == part.pool_name &&
          lost_there == where_it_was_lost)
        slots.push_back(i);
    }
  }
  return slots;
}

void GatewayCore::Place(Session& session, const Parts& parts, Out& out) {
  const bool parked = session.state == State::kParked;
  telemetry::ObserveNs(telemetry::Metric::kQueueWait, now_.ns - session.state_since.ns);
  LeaveQueue(session.id);
  std::vector<WorkerId>& warm = warm_[session.tenant];
  std::vector<Slots> places;
  for (const PlacedPart& part : parts) {
    std::erase(warm, part.worker);
    warm.insert(warm.begin(), part.worker);
    places.emplace_back(part.worker, SlotsFor(session, part));
  }
  if (warm.size() > kWarmMax) warm.resize(kWarmMax);
  StartWith(session, std::move(places));
  // If its start is repeated, the others of its gang do not wait with it.
  session.request.gang.clear();
  session.request.gang_size = 1;
  BeginHold(session, out);
  if (parked) return;
  ++session.placement.number;
  session.placement.work_arrived = false;
  std::vector<GroupPart> all;
  if (session.placement.is_spread())
    for (const Seat& seat : session.placement.seats)
      all.push_back({seat.worker, static_cast<uint32_t>(seat.slots.size())});
  for (const Seat& seat : session.placement.seats)
    out.push_back(Assign{seat.worker, session.id, session.tenant, session.placement.number,
                         seat.slots, session.losses.refused_items, session.request.mesh,
                         session.request.spread, session.placement.FirstRankOn(seat.worker), all,
                         session.snapshot.seq});
}

// ---- those who wait -----------------------------------------------------------------------------

absl::Status GatewayCore::CheckWish(const DeviceWish& wish, TenantId account) const {
  const uint32_t largest = pools_.Largest(wish, account);
  if (options_.devices_per_tenant_max > 0 && !wish.is_own &&
      wish.devices > options_.devices_per_tenant_max)
    return absl::ResourceExhaustedError(
        absl::StrCat("devices = ", wish.devices, ": an account may hold ",
                     options_.devices_per_tenant_max, " at a time"));
  if (wish.devices <= largest || largest == 0) return absl::OkStatus();  // 0: one may be joining
  return absl::ResourceExhaustedError(absl::StrCat("devices = ", wish.devices,
                                                   ": a session has at most ", largest, " here",
                                                   largest > 1 ? ", all of one class" : ""));
}

bool GatewayCore::IsHopeless(Session& session) {
  SyncPools();
  if (pools_.Largest(RequestOf(session).wish, session.tenant) >= session.request.devices)
    session.wait.servable_at = now_;
  return session.wait.servable_at < now_;
}

// Its state stays, if it has one.
void GatewayCore::GiveUpWaiting(Session& session, absl::Status why, Out& out) {
  if (session.epoch == 0)
    return End(session.id, std::move(why), SessionRowState::kClosed, LeaseEnd::kNoDevice, out);
  telemetry::CountRefused(telemetry::Refusal::kNoDevice);
  out.push_back(EndClient{session.client.conn, session.id, std::move(why), BillOf(session.id),
                          /*is_kept=*/true});
  LeaveClient(session, out);
}

void GatewayCore::TellQueue(Out& out) {
  if (now_.ns - told_queue_.ns < kTellNearNs) return;
  told_queue_ = now_;
  if (queue_.size() == 0) return;
  for (const QueuePlace& place : queue_.Positions(now_))
    if (Session* const session = Find(place.session)) TellPlace(*session, place, out);
}

void GatewayCore::TellPlace(Session& session, const QueuePlace& place, Out& out) {
  if (!session.client.is_connected()) return;
  if (session.wait.sent_place.has_value()) {
    const int64_t every_ns = place.before <= kNearFront ? kTellNearNs : kTellFarNs;
    if (now_.ns - session.wait.sent_at.ns < every_ns || !IsNews(*session.wait.sent_place, place))
      return;
  }
  const bool is_first = !session.wait.sent_place.has_value();
  session.wait.sent_place = place;
  session.wait.sent_at = now_;
  out.push_back(
      Queued{session.client.conn, is_first, place.before, place.expected_s, place.reason});
}

bool GatewayCore::HasOwn(TenantId account) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& entry) { return entry.second.owner == account; });
}

bool GatewayCore::IsOnOwn(const Session& session) const {
  return !session.placement.seats.empty() && FirstWorkerOf(session).owner.has_value();
}

absl::Status GatewayCore::NoDevice(const Session& session) const {
  if (session.request.device_class == kOwnMachines && !HasOwn(session.tenant))
    return absl::UnavailableError(
        "no machine of this account's own has joined (`outboard worker --own`)");
  if (workers_.empty()) return absl::UnavailableError("no worker has joined this gateway");
  const auto of_one = std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.one_account && entry.second.free_slots() > 0;
  });
  if (std::all_of(workers_.begin(), workers_.end(),
                  [](const auto& entry) { return entry.second.set_aside; }))
    return absl::UnavailableError("every worker of this gateway was set aside by it");
  const size_t others = queue_.size() - (queue_.Has(session.id) ? 1 : 0);
  const uint32_t holds = queue_.HeldBy(session.tenant), quota = options_.devices_per_tenant_max;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no device was granted within ", (now_.ns - session.state_since.ns) / kSecondNs, " s: ",
      devices_busy(), " of ", devices_total(), " are in use, ", others, " other sessions wait",
      session.request.device_class.empty() ? "" : "; it asked for the class ",
      session.request.device_class,
      session.request.memory_bytes == 0
          ? ""
          : absl::StrCat("; it asked for ", session.request.memory_bytes, " bytes of memory"),
      quota == 0 || holds + session.request.devices <= quota
          ? ""
          : absl::StrCat("; its account holds ", holds, ", of ", quota, " that it may hold"),
      of_one == 0 ? "" : "; workers with a free device serve one account at a time",
      session.epoch == 0 ? "" : "; the session's state is kept"));
}

}  // namespace outboard::gateway
