#include "gateway/queue/device_queue.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace outboard::gateway {
namespace {

// What became free longer ago says little about what becomes free next.
constexpr double kRateHalfLifeS = 600;
// Fewer than this, and a guess would be told to people as if it were known.
constexpr double kGivenMin = 1.5;
constexpr int64_t kExpectedMaxS = 24 * 3600;

double SecondsBetween(MonoTime from, MonoTime to) {
  return to.ns > from.ns ? static_cast<double>(to.ns - from.ns) * 1e-9 : 0;
}

}  // namespace

// ---- lines --------------------------------------------------------------------------------------

double DeviceQueue::RankOf(TenantId account, MonoTime now) const {
  return shares_.RankOf(account, HeldBy(account), now);
}

void DeviceQueue::List(Line& line, MonoTime now) {
  Unlist(line);
  if (line.waiting.empty()) return;
  const uint64_t order = line.waiting.begin()->first;
  const double rank = line.goes_first ? 0 : RankOf(line.account, now);
  line.turn = Turn{!line.goes_first, rank, order, &line};
  turns_[*line.wish].insert(*line.turn);
}

void DeviceQueue::Unlist(Line& line) {
  if (!line.turn.has_value()) return;
  const auto turns = turns_.find(*line.wish);
  turns->second.erase(*line.turn);
  if (turns->second.empty()) turns_.erase(turns);
  line.turn.reset();
}

void DeviceQueue::Rerank(TenantId account, MonoTime now) {
  const auto it = accounts_.find(account);
  if (it == accounts_.end()) return;
  for (auto& [key, line] : it->second.lines) List(line, now);
}

void DeviceQueue::AddWaiting(std::vector<DeviceRequest> members, uint64_t order, MonoTime now) {
  const DeviceRequest& first = members.front();
  Account& account = accounts_[first.account];
  const auto key =
      std::pair(!first.goes_first, Wish{first.wish, static_cast<uint32_t>(members.size())});
  const auto [it, is_new] = account.lines.try_emplace(key);
  Line& line = it->second;
  if (is_new) {
    line.account = first.account;
    line.goes_first = first.goes_first;
    line.wish = &it->first.second;
  }
  line.waiting[order] = {std::move(members), &line};
  line_of_[order] = &line;
  List(line, now);
}

void DeviceQueue::Add(const DeviceRequest& request, MonoTime now) {
  seen_ = now;
  if (order_of_.contains(request.session)) return;
  if (request.gang.empty() || request.gang_size < 2) {
    const uint64_t order = order_of_[request.session] = ++last_order_;
    return AddWaiting({request}, order, now);
  }
  const auto key = std::pair(request.account, request.gang);
  Gathering& gathering = gathering_[key];
  if (gathering.members.empty()) gathering.order = ++last_order_;
  gathering.members.push_back(request);
  order_of_[request.session] = gathering.order;
  if (gathering.members.size() < request.gang_size) return;
  const Gathering whole = std::move(gathering);
  gathering_.erase(key);
  AddWaiting(whole.members, whole.order, now);
}

bool DeviceQueue::Has(const SessionId& session) const { return order_of_.contains(session); }

// Of a gang that is whole, the others go on waiting for a member.
void DeviceQueue::Remove(const SessionId& session, DevicePools& pools) {
  const auto known = order_of_.find(session);
  if (known == order_of_.end()) return;
  const uint64_t order = known->second;
  order_of_.erase(known);
  if (pools.reserved_by() == order) EndReservation(pools);
  const auto is_it = [&](const DeviceRequest& member) { return member.session == session; };
  const auto at = line_of_.find(order);
  if (at == line_of_.end()) {
    for (auto it = gathering_.begin(); it != gathering_.end(); ++it) {
      if (it->second.order != order) continue;
      std::erase_if(it->second.members, is_it);
      if (it->second.members.empty()) gathering_.erase(it);
      return;
    }
    return;
  }
  Line& line = *at->second;
  std::vector<DeviceRequest> left = std::move(line.waiting.at(order).members);
  std::erase_if(left, is_it);
  line.waiting.erase(order);
  line_of_.erase(at);
  if (!left.empty()) {
    const uint32_t gang_size = left.front().gang_size;
    const auto key = std::pair(line.account, left.front().gang);
    Gathering& gathering = gathering_[key];
    if (gathering.members.empty()) gathering.order = order;
    for (DeviceRequest& member : left) {
      order_of_[member.session] = gathering.order;
      gathering.members.push_back(std::move(member));
    }
    // With those who gathered under the same name meanwhile it may be whole again.
    if (gathering.members.size() >= gang_size) {
      const auto end = gathering.members.begin() + gang_size;
      std::vector<DeviceRequest> whole(gathering.members.begin(), end);
      const uint64_t whole_order = gathering.order;
      gathering.members.erase(gathering.members.begin(), end);
      gathering.order = ++last_order_;
      for (const DeviceRequest& member : gathering.members)
        order_of_[member.session] = gathering.order;
      if (gathering.members.empty()) gathering_.erase(key);
      AddWaiting(std::move(whole), whole_order, seen_);
    }
  }
  // The rank of an account that is not touched stays comparable: only the order changes.
  if (line.turn.has_value()) {
    const double rank = line.turn->rank;
    Unlist(line);
    if (!line.waiting.empty()) {
      line.turn = Turn{!line.goes_first, rank, line.waiting.begin()->first, &line};
      turns_[*line.wish].insert(*line.turn);
    }
  }
  if (!line.waiting.empty()) return;
  Account& account = accounts_.at(line.account);
  const TenantId id = line.account;
  const auto key = std::pair(!line.goes_first, *line.wish);
  account.lines.erase(key);
  if (account.lines.empty() && account.held == 0) accounts_.erase(id);
}

// ---- next ---------------------------------------------------------------------------------------

PlaceHints DeviceQueue::HintsOf(const DeviceRequest& request) {
  return {.account = request.account,
          .class_before = request.class_before,
          .warm = request.warm,
          .last_resort = request.last_resort};
}

std::optional<std::vector<DeviceGrant>> DeviceQueue::Fit(uint64_t order, const Waiting& waiting,
                                                         DevicePools& pools) const {
  const bool owns = pools.reserved_by() == order;
  std::vector<DeviceGrant> grants;
  for (const DeviceRequest& member : waiting.members) {
    auto parts = owns ? pools.PickReserved(member.wish, HintsOf(member))
                      : pools.Pick(member.wish, HintsOf(member));
    if (!parts.has_value()) break;
    if (waiting.members.size() > 1) pools.Take(*parts);  // the next member sees what is left
    grants.push_back({member.session, *std::move(parts)});
  }
  if (waiting.members.size() > 1)
    for (const DeviceGrant& grant : grants) pools.GiveBack(grant.parts);
  if (grants.size() < waiting.members.size()) return std::nullopt;
  return grants;
}

bool DeviceQueue::IsOverQuota(const Line& line) const {
  const auto& [wish, count] = *line.wish;
  return quota_ > 0 && !wish.is_own &&
         HeldBy(line.account) + uint64_t{wish.devices} * count > quota_;
}

// Who owns the reservation is asked first: what became free there is its.
std::optional<std::vector<DeviceGrant>> DeviceQueue::FitOwner(
    DevicePools& pools, const std::set<SessionId>& passed) {
  const auto owner = line_of_.find(pools.reserved_by().value_or(0));
  if (owner == line_of_.end()) return std::nullopt;
  if (IsOverQuota(*owner->second)) {  // others need not wait for its account
    EndReservation(pools);
    return std::nullopt;
  }
  const Waiting& waiting = owner->second->waiting.at(owner->first);
  if (IsPassed(waiting, passed)) {  // what fits, and cannot be placed yet, is not a grant
    if (reserved_.has_value()) reserved_->fits = false;
    return std::nullopt;
  }
  auto grants = Fit(owner->first, waiting, pools);
  if (reserved_.has_value()) reserved_->fits = grants.has_value();
  return grants;
}

bool DeviceQueue::IsPassed(const Waiting& waiting, const std::set<SessionId>& passed) {
  return !passed.empty() &&
         std::any_of(waiting.members.begin(), waiting.members.end(),
                     [&](const DeviceRequest& member) { return passed.contains(member.session); });
}

// For a gang as for one request: what its members want together, each of them on one worker.
bool DeviceQueue::ReserveFor(uint64_t order, const Waiting& waiting, DevicePools& pools) {
  const DeviceRequest& first = waiting.members.front();
  const auto count = static_cast<uint32_t>(waiting.members.size());
  DeviceWish whole = first.wish;
  whole.devices *= count;
  if (count > 1) whole.workers_max = 0;
  const uint32_t each = count > 1 ? std::max(first.wish.devices, 1u) : 0;
  if (whole.devices <= 1 || !pools.Reserve(order, whole, HintsOf(first), each)) return false;
  reserved_ = Reserved{.account = first.account,
                       .is_own = first.wish.is_own,
                       .since = seen_,
                       .accrued = seen_};
  return true;
}

bool DeviceQueue::MayReserve(TenantId account) const {
  const auto from = may_reserve_from_.find(account);
  return from == may_reserve_from_.end() || from->second <= seen_;
}

// Whoever gives up what it reserved, and asks again, has no more of it than who waits to the end.
void DeviceQueue::EndReservation(DevicePools& pools) {
  pools.EndReservation();
  const auto ended = std::exchange(reserved_, std::nullopt);
  if (!ended.has_value() || ended->fits) return;
  may_reserve_from_[ended->account] = {seen_.ns + (seen_.ns - ended->since.ns)};
}

void DeviceQueue::CheckReservation(DevicePools& pools, MonoTime now) {
  std::erase_if(may_reserve_from_, [&](const auto& entry) { return entry.second <= now; });
  if (!reserved_.has_value()) return;
  if (!pools.reserved_by().has_value()) return reserved_.reset();  // a worker of it has gone
  // A device that stands idle for an account is used by it.
  if (!reserved_->is_own) {
    const double passed_s = SecondsBetween(reserved_->accrued, now);
    shares_.Add(reserved_->account, pools.reserved_free() * passed_s, now);
    Rerank(reserved_->account, now);
  }
  reserved_->accrued = now;
  if (now.ns - reserved_->since.ns >= kReservationMaxNs) EndReservation(pools);
}

std::vector<DeviceGrant> DeviceQueue::Next(DevicePools& pools, const std::set<SessionId>& passed) {
  if (!pools.any_free() || turns_.empty()) return {};
  if (auto grants = FitOwner(pools, passed)) return *std::move(grants);
  // How far the turns of each wish have been looked at.
  struct Head {
    std::set<Turn>::const_iterator at, end;
  };
  std::vector<Head> heads;
  heads.reserve(turns_.size());
  for (const auto& [wish, turns] : turns_) heads.push_back({turns.begin(), turns.end()});
  bool may_reserve = true;
  std::vector<Line*> over_quota;
  std::vector<DeviceGrant> found;
  while (!heads.empty() && found.empty()) {
    const auto head = std::min_element(heads.begin(), heads.end(),
                                       [](const auto& a, const auto& b) { return *a.at < *b.at; });
    Line& line = *head->at->line;
    const auto next =
        std::find_if(line.waiting.begin(), line.waiting.end(),
                     [&](const auto& entry) { return !IsPassed(entry.second, passed); });
    bool others_may_fit = true;  // with the same wish
    if (IsOverQuota(line)) {
      over_quota.push_back(&line);
    } else if (next != line.waiting.end()) {
      auto grants = Fit(next->first, next->second, pools);
      if (!grants.has_value() && may_reserve && !line.wish->first.only_on.has_value() &&
          MayReserve(line.account)) {
        may_reserve = false;  // for who is next alone
        if (ReserveFor(next->first, next->second, pools))
          grants = Fit(next->first, next->second, pools);
      }
      if (grants.has_value()) found = *std::move(grants);
      others_may_fit = pools.any_barred();
    }
    if (!others_may_fit || ++head->at == head->end) heads.erase(head);
  }
  for (Line* line : over_quota) Unlist(*line);
  return found;
}

// ---- use ----------------------------------------------------------------------------------------

uint32_t DeviceQueue::HeldBy(TenantId account) const {
  const auto it = accounts_.find(account);
  return it == accounts_.end() ? 0 : it->second.held;
}

void DeviceQueue::AccrueOne(TenantId id, Account& account, MonoTime now) {
  shares_.Add(id, account.held * SecondsBetween(account.accrued, now), now);
  account.accrued = now;
}

void DeviceQueue::Took(TenantId id, uint32_t devices, MonoTime now) {
  Account& account = accounts_[id];
  AccrueOne(id, account, now);
  account.held += devices;
  Rerank(id, now);
}

void DeviceQueue::RememberUse(TenantId id, double device_s, MonoTime now) {
  shares_.Add(id, device_s, now);
  if (accounts_.contains(id)) Rerank(id, now);
}

void DeviceQueue::Gave(TenantId id, uint32_t devices, MonoTime now) {
  const auto it = accounts_.find(id);
  if (it == accounts_.end()) return;
  AccrueOne(id, it->second, now);
  it->second.held -= std::min(devices, it->second.held);
  Watch(now);
  given_ += devices;
  if (it->second.held == 0 && it->second.lines.empty())
    accounts_.erase(it);
  else
    Rerank(id, now);
}

void DeviceQueue::Accrue(DevicePools& pools, MonoTime now) {
  seen_ = now;
  Watch(now);
  CheckReservation(pools, now);
  for (auto& [id, account] : accounts_) {
    if (account.held == 0) continue;
    AccrueOne(id, account, now);
    // Who is at its quota stays unlisted until it gives something back.
    for (auto& [key, line] : account.lines)
      if (line.turn.has_value()) List(line, now);
  }
  shares_.Prune(now);
}

// ---- what is told -------------------------------------------------------------------------------

void DeviceQueue::Watch(MonoTime now) {
  const double passed_s = SecondsBetween(watched_until_.value_or(now), now);
  watched_until_ = now;
  const double kept = std::exp2(-passed_s / kRateHalfLifeS);
  given_ *= kept;
  watched_s_ = watched_s_ * kept + passed_s;
}

std::optional<int64_t> DeviceQueue::ExpectedS(uint64_t devices, MonoTime now) const {
  const double passed_s = SecondsBetween(watched_until_.value_or(now), now);
  if (given_ < kGivenMin || watched_s_ + passed_s <= 0) return std::nullopt;
  const double expected = static_cast<double>(devices) * (watched_s_ + passed_s) / given_;
  return std::min(kExpectedMaxS, static_cast<int64_t>(std::ceil(expected)));
}

// As if one device after the other became free, and nobody else came.
std::vector<QueuePlace> DeviceQueue::Positions(MonoTime now) const {
  std::vector<QueuePlace> places;
  uint64_t devices = 0;
  const auto put = [&](const Waiting& waiting, WaitReason reason) {
    const uint64_t before = places.size();
    for (const DeviceRequest& member : waiting.members) devices += member.wish.devices;
    for (const DeviceRequest& member : waiting.members)
      places.push_back({member.session, before, ExpectedS(devices, now), reason});
  };
  // By account: its requests in their order, and how many devices it would have by then.
  struct Account {
    std::map<uint64_t, const Waiting*> waiting;
    uint32_t held = 0;
  };
  std::map<uint64_t, const Waiting*> first, at_quota;
  std::map<TenantId, Account> accounts;
  for (const auto& [order, line] : line_of_) {
    const Waiting& waiting = line->waiting.at(order);
    if (IsOverQuota(*line))
      at_quota[order] = &waiting;
    else if (line->goes_first)
      first[order] = &waiting;
    else
      accounts[line->account].waiting[order] = &waiting;
  }
  for (const auto& [order, waiting] : first) put(*waiting, WaitReason::kDevices);
  using Head = std::tuple<double, uint64_t, TenantId>;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  const auto push = [&](TenantId id, const Account& account) {
    if (!account.waiting.empty())
      heads.emplace(shares_.RankOf(id, account.held, now), account.waiting.begin()->first, id);
  };
  for (auto& [id, account] : accounts) {
    account.held = HeldBy(id);
    push(id, account);
  }
  while (!heads.empty()) {
    const TenantId id = std::get<TenantId>(heads.top());
    heads.pop();
    Account& account = accounts.at(id);
    const Waiting& waiting = *account.waiting.begin()->second;
    put(waiting, WaitReason::kDevices);
    for (const DeviceRequest& member : waiting.members) account.held += member.wish.devices;
    account.waiting.erase(account.waiting.begin());
    push(id, account);
  }
  for (const auto& [order, waiting] : at_quota) put(*waiting, WaitReason::kQuota);
  for (const auto& [key, gathering] : gathering_)
    put({gathering.members, nullptr}, WaitReason::kGang);
  return places;
}

}  // namespace outboard::gateway
