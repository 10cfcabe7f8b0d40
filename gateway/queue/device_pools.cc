#include "gateway/queue/device_pools.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace outboard::gateway {

// ---- what there is ------------------------------------------------------------------------------

bool DevicePools::IsReserved(const std::string& pool_name, WorkerId worker) const {
  return reservation_.has_value() && reservation_->pool_name == pool_name &&
         reservation_->workers.contains(worker);
}

void DevicePools::List(ClassPools& of_class, const DevicePool& pool) {
  if (pool.free == 0 || IsReserved(pool.pool_name, pool.worker)) return;
  of_class.by_free[pool.free].insert(pool.worker);
  of_class.free += pool.free;
  free_ += pool.free;
  barred_ += pool.only.has_value();
}

void DevicePools::Unlist(ClassPools& of_class, const DevicePool& pool) {
  if (pool.free == 0 || IsReserved(pool.pool_name, pool.worker)) return;
  const auto bucket = of_class.by_free.find(pool.free);
  bucket->second.erase(pool.worker);
  if (bucket->second.empty()) of_class.by_free.erase(bucket);
  of_class.free -= pool.free;
  free_ -= pool.free;
  barred_ -= pool.only.has_value();
}

void DevicePools::ClassPools::CountSpanning(const DevicePool& pool, bool comes) {
  if (!pool.spans) return;
  uint32_t& devices = spanning[pool.build];
  devices = comes ? devices + pool.total : devices - pool.total;
  if (devices == 0) spanning.erase(pool.build);
}

void DevicePools::Set(DevicePool pool) {
  ClassPools& of_class = classes_[pool.pool_name];
  classes_of_[pool.worker].insert(pool.pool_name);
  const auto [it, is_new] = of_class.pools.try_emplace(pool.worker, pool);
  if (!is_new) {
    // What was reserved there may never come.
    if (pool.total < it->second.total && IsReserved(pool.pool_name, pool.worker))
      EndReservation();
    Unlist(of_class, it->second);
    if (--of_class.totals[it->second.total] == 0) of_class.totals.erase(it->second.total);
    of_class.total -= it->second.total;
    of_class.CountSpanning(it->second, false);
  }
  of_class.total += pool.total;
  of_class.CountSpanning(pool, true);
  ++of_class.totals[pool.total];
  it->second = std::move(pool);
  List(of_class, it->second);
}

void DevicePools::Erase(WorkerId worker) {
  const auto known = classes_of_.find(worker);
  if (known == classes_of_.end()) return;
  for (const std::string& name : known->second) {
    ClassPools& of_class = classes_.at(name);
    const auto it = of_class.pools.find(worker);
    Unlist(of_class, it->second);
    if (--of_class.totals[it->second.total] == 0) of_class.totals.erase(it->second.total);
    of_class.total -= it->second.total;
    of_class.CountSpanning(it->second, false);
    of_class.pools.erase(it);
    // What was to be had there is to be had elsewhere: the owner reserves anew.
    if (IsReserved(name, worker)) EndReservation();
    if (of_class.pools.empty()) classes_.erase(name);
  }
  classes_of_.erase(known);
}

void DevicePools::Move(const Parts& parts, bool take) {
  for (const PlacedPart& part : parts) {
    DevicePool pool = classes_.at(part.pool_name).pools.at(part.worker);
    pool.free = take ? pool.free - part.devices : pool.free + part.devices;
    Set(std::move(pool));
  }
}

void DevicePools::Take(const Parts& parts) { Move(parts, true); }
void DevicePools::GiveBack(const Parts& parts) { Move(parts, false); }

std::vector<DevicePool> DevicePools::All() const {
  std::vector<DevicePool> all;
  for (const auto& [name, of_class] : classes_)
    for (const auto& [worker, pool] : of_class.pools) all.push_back(pool);
  return all;
}

const DevicePool* DevicePools::Find(WorkerId worker, const std::string& pool_name) const {
  const auto of_class = classes_.find(pool_name);
  if (of_class == classes_.end()) return nullptr;
  const auto pool = of_class->second.pools.find(worker);
  return pool == of_class->second.pools.end() ? nullptr : &pool->second;
}

size_t DevicePools::CountBut(const std::set<WorkerId>& workers) const {
  size_t count = 0;
  for (const auto& [name, of_class] : classes_) {
    count += of_class.pools.size();
    for (const WorkerId worker : workers) count -= of_class.pools.count(worker);
  }
  return count;
}

bool DevicePools::IsOf(const DeviceWish& wish, const std::string& pool_name) {
  const std::string& wanted = wish.device_class;
  return wanted.empty() || (pool_name.starts_with(wanted) &&
                            (pool_name.size() == wanted.size() ||
                             pool_name[wanted.size()] == '/'));
}

uint32_t DevicePools::Largest(const DeviceWish& wish, TenantId account) const {
  uint32_t largest = 0;
  for (const auto& [name, of_class] : classes_) {
    if (!IsOf(wish, name)) continue;
    // Machines of one account's own are a class by themselves.
    const DevicePool& any = of_class.pools.begin()->second;
    if (any.is_own && any.only != account) continue;
    uint32_t most = 0, together = 0;  // on one worker, and on those that span
    if (wish.only_on.has_value()) {
      const auto it = of_class.pools.find(*wish.only_on);
      most = it == of_class.pools.end() ? 0 : it->second.total;
    } else if (wish.memory_bytes > 0) {
      for (const auto& [worker, pool] : of_class.pools) {
        if (pool.memory_bytes != 0 && pool.memory_bytes < wish.memory_bytes) continue;
        most = std::max(most, pool.total);
        if (pool.spans) together += pool.total;
      }
    } else {
      most = of_class.totals.rbegin()->first;
      for (const auto& [build, devices] : of_class.spanning) together += devices;
    }
    largest = std::max(largest, wish.workers_max == 0 ? std::max(most, together) : most);
  }
  return largest;
}

// ---- a place ------------------------------------------------------------------------------------

bool DevicePools::Fits(const DevicePool& pool, const DeviceWish& wish, const PlaceHints& hints) {
  return (!pool.only.has_value() || *pool.only == hints.account) &&
         (pool.memory_bytes == 0 || pool.memory_bytes >= wish.memory_bytes) &&
         (hints.barred == nullptr || !hints.barred->contains(pool.worker));
}

std::vector<DevicePools::Classes::const_iterator> DevicePools::ClassesFor(
    const DeviceWish& wish, const PlaceHints& hints) const {
  std::vector<Classes::const_iterator> classes;
  for (auto it = classes_.begin(); it != classes_.end(); ++it) {
    if (IsOf(wish, it->first)) classes.push_back(it);
  }
  if (classes.size() < 2) return classes;
  std::stable_sort(classes.begin(), classes.end(), [&](const auto& a, const auto& b) {
    const auto key = [&](const auto& it) {
      return std::tuple(it->first != hints.class_before,
                        it->second.pools.begin()->second.price_per_hour.value,
                        -static_cast<int64_t>(it->second.free));
    };
    return key(a) < key(b);
  });
  return classes;
}

std::optional<Parts> DevicePools::PickOne(const Classes::value_type& entry, const DeviceWish& wish,
                                          const PlaceHints& hints) const {
  const auto& [name, of_class] = entry;
  const auto at = [&](WorkerId worker) -> std::optional<Parts> {
    const auto it = of_class.pools.find(worker);
    if (it == of_class.pools.end() || it->second.free < wish.devices || IsReserved(name, worker) ||
        !Fits(it->second, wish, hints))
      return std::nullopt;
    return Parts{{worker, name, wish.devices}};
  };
  if (wish.only_on.has_value()) return at(*wish.only_on);
  for (const WorkerId worker : hints.warm)
    if (auto found = at(worker); found && worker != hints.last_resort) return found;
  for (auto bucket = of_class.by_free.lower_bound(wish.devices); bucket != of_class.by_free.end();
       ++bucket) {
    for (const WorkerId worker : bucket->second) {
      if (worker != hints.last_resort && Fits(of_class.pools.at(worker), wish, hints))
        return Parts{{worker, name, wish.devices}};
    }
  }
  return std::nullopt;
}

// Of the builds that have enough the one on the fewest workers.
std::optional<Parts> DevicePools::PickMany(const Classes::value_type& entry, const DeviceWish& wish,
                                           const PlaceHints& hints, bool reserved_too) const {
  const auto& [name, of_class] = entry;
  for (const WorkerId worker : reserved_too ? reservation_->workers : std::set<WorkerId>()) {
    const DevicePool& pool = of_class.pools.at(worker);
    if (pool.free >= wish.devices && Fits(pool, wish, hints))
      return Parts{{worker, name, wish.devices}};
  }
  std::optional<Parts> best;
  for (const auto& [build, devices] : of_class.spanning) {
    if (devices < wish.devices) continue;
    std::optional<Parts> found = PickManyOf(build, entry, wish, hints, reserved_too);
    if (found.has_value() && (!best.has_value() || found->size() < best->size()))
      best = std::move(found);
  }
  return best;
}

// From the fullest pools down, and for the rest the smallest that has it.
std::optional<Parts> DevicePools::PickManyOf(const std::string& build,
                                             const Classes::value_type& entry,
                                             const DeviceWish& wish, const PlaceHints& hints,
                                             bool reserved_too) const {
  const auto& [name, of_class] = entry;
  const auto serves = [&](const DevicePool& pool) {
    return pool.spans && pool.build == build && Fits(pool, wish, hints);
  };
  std::vector<std::pair<uint32_t, WorkerId>> chosen;
  if (reserved_too) {
    for (const WorkerId worker : reservation_->workers)
      if (const DevicePool& pool = of_class.pools.at(worker); pool.free > 0 && serves(pool))
        chosen.emplace_back(pool.free, worker);
    std::sort(chosen.rbegin(), chosen.rend());
  }
  uint64_t found = 0;
  for (const auto& [free, worker] : chosen) found += free;
  for (auto bucket = of_class.by_free.rbegin();
       bucket != of_class.by_free.rend() && found < wish.devices; ++bucket) {
    for (const WorkerId worker : bucket->second) {
      if (found >= wish.devices) break;
      const DevicePool& pool = of_class.pools.at(worker);
      if (!serves(pool)) continue;
      chosen.emplace_back(bucket->first, worker);
      found += bucket->first;
    }
  }
  if (found < wish.devices) return std::nullopt;
  Parts parts;
  uint32_t left = wish.devices;
  for (const auto& [free, worker] : chosen) {
    if (left == 0) break;
    const uint32_t taken = std::min(left, free);
    parts.push_back({worker, name, taken});
    left -= taken;
  }
  if (wish.workers_max != 0 && parts.size() > wish.workers_max) return std::nullopt;
  PlacedPart& last = parts.back();
  const bool is_taken = reserved_too && IsReserved(name, last.worker);
  for (auto bucket = of_class.by_free.lower_bound(last.devices);
       !is_taken && bucket != of_class.by_free.end(); ++bucket) {
    for (const WorkerId worker : bucket->second) {
      const bool has_part = std::any_of(parts.begin(), parts.end(),
                                        [&](const auto& part) { return part.worker == worker; });
      const DevicePool& pool = of_class.pools.at(worker);
      if (worker == last.worker || (!has_part && serves(pool))) {
        last.worker = worker;
        return parts;
      }
    }
  }
  return parts;
}

std::optional<Parts> DevicePools::Pick(const DeviceWish& wish, const PlaceHints& hints) const {
  const auto classes = ClassesFor(wish, hints);
  for (const auto& it : classes) {
    if (it->second.free < wish.devices) continue;
    if (auto found = PickOne(*it, wish, hints)) return found;
    if (wish.workers_max == 1 || wish.only_on.has_value()) continue;
    if (auto found = PickMany(*it, wish, hints, /*reserved_too=*/false)) return found;
  }
  if (!hints.last_resort.has_value()) return std::nullopt;
  PlaceHints last = hints;
  last.warm = {*std::exchange(last.last_resort, std::nullopt)};
  for (const auto& it : classes)
    if (auto found = PickOne(*it, wish, last)) return found;
  return std::nullopt;
}

// ---- a reservation ------------------------------------------------------------------------------

// The pools that have the most devices free, then the most in all: what runs there ends soonest, as
// far as anybody knows.
bool DevicePools::Reserve(uint64_t owner, const DeviceWish& wish, const PlaceHints& hints,
                          uint32_t each) {
  if (reservation_.has_value()) return false;
  const bool is_one = each == 0;
  each = std::max(each, 1u);
  for (const auto& it : ClassesFor(wish, hints)) {
    const auto& [name, of_class] = *it;
    if (of_class.total < wish.devices) continue;
    const auto reserve = [&](const auto& may) {
      std::vector<const DevicePool*> pools;
      for (const auto& [worker, pool] : of_class.pools)
        if (may(pool) && pool.total >= each && pool.total > 0 && Fits(pool, wish, hints))
          pools.push_back(&pool);
      std::sort(pools.begin(), pools.end(), [](const DevicePool* a, const DevicePool* b) {
        return std::tuple(b->free, b->total, a->worker) < std::tuple(a->free, a->total, b->worker);
      });
      Reservation made{owner, name, {}};
      uint64_t devices = 0;
      for (const DevicePool* pool : pools) {
        if (devices >= wish.devices) break;
        devices += pool->total / each * each;
        made.workers.insert(pool->worker);
      }
      if (devices < wish.devices ||
          (wish.workers_max != 0 && made.workers.size() > wish.workers_max))
        return false;
      ClassPools& changed = classes_.at(name);
      for (const WorkerId worker : made.workers) Unlist(changed, changed.pools.at(worker));
      reservation_ = std::move(made);
      return true;
    };
    if (!is_one) {
      if (reserve([](const DevicePool&) { return true; })) return true;
      continue;
    }
    // One request has several workers that span, of one build, the one with the most devices
    // first; or a worker that has it all.
    std::vector<std::pair<uint64_t, std::string>> builds;
    for (const auto& [build, total] : of_class.spanning)
      if (wish.workers_max != 1 && total >= wish.devices) builds.emplace_back(total, build);
    std::sort(builds.rbegin(), builds.rend());
    for (const auto& [total, build] : builds)
      if (reserve([&](const DevicePool& pool) { return pool.spans && pool.build == build; }))
        return true;
    if (reserve([&](const DevicePool& pool) { return pool.total >= wish.devices; })) return true;
  }
  return false;
}

void DevicePools::EndReservation() {
  if (!reservation_.has_value()) return;
  const Reservation ended = *std::exchange(reservation_, std::nullopt);
  const auto of_class = classes_.find(ended.pool_name);
  if (of_class == classes_.end()) return;
  for (const WorkerId worker : ended.workers) {
    const auto pool = of_class->second.pools.find(worker);
    if (pool != of_class->second.pools.end()) List(of_class->second, pool->second);
  }
}

std::optional<uint64_t> DevicePools::reserved_by() const {
  if (!reservation_.has_value()) return std::nullopt;
  return reservation_->owner;
}

uint32_t DevicePools::reserved_free() const {
  uint32_t free = 0;
  if (!reservation_.has_value()) return free;
  const auto of_class = classes_.find(reservation_->pool_name);
  if (of_class == classes_.end()) return free;
  for (const WorkerId worker : reservation_->workers) {
    const auto pool = of_class->second.pools.find(worker);
    if (pool != of_class->second.pools.end()) free += pool->second.free;
  }
  return free;
}

std::optional<Parts> DevicePools::PickReserved(const DeviceWish& wish,
                                               const PlaceHints& hints) const {
  if (auto found = Pick(wish, hints)) return found;
  if (!reservation_.has_value()) return std::nullopt;
  return PickMany(*classes_.find(reservation_->pool_name), wish, hints, /*reserved_too=*/true);
}

}  // namespace outboard::gateway
