#include "gateway/groups/link_table.h"

#include <algorithm>

namespace outboard::gateway {
namespace {

LinkTable::Pair InOrder(LinkTable::Pair pair) {
  if (pair.second < pair.first) std::swap(pair.first, pair.second);
  return pair;
}

bool Has(const LinkTable::Pair& pair, WorkerId worker) {
  return pair.first == worker || pair.second == worker;
}

}  // namespace

void LinkTable::Joined(WorkerId worker, const std::string& owner) {
  size_t neighbours = 0;
  for (auto at = workers_.rbegin(); at != workers_.rend() && neighbours < kNeighbours; ++at) {
    if (at->second != owner) continue;
    waiting_.emplace_back(worker, at->first);
    ++neighbours;
  }
  workers_.emplace_back(worker, owner);
}

void LinkTable::Left(WorkerId worker) {
  std::erase_if(workers_, [&](const auto& known) { return known.first == worker; });
  std::erase_if(waiting_, [&](const Pair& pair) { return Has(pair, worker); });
  std::erase_if(running_, [&](const auto& entry) { return Has(entry.second.pair, worker); });
  std::erase_if(measured_, [&](const auto& entry) { return Has(entry.first, worker); });
}

bool LinkTable::IsBusy(WorkerId worker) const {
  return std::ranges::any_of(
      running_, [&](const auto& entry) { return Has(entry.second.pair, worker); });
}

std::optional<LinkTable::Pair> LinkTable::Next(MonoTime now) {
  std::erase_if(running_, [&](const auto& entry) {
    return now.ns - entry.second.begun.ns > kProbeMostNs;
  });
  for (const Pair& pair : waiting_)
    if (!IsBusy(pair.first) && !IsBusy(pair.second)) return pair;
  return std::nullopt;
}

void LinkTable::Begun(const Pair& pair, std::string id, MonoTime now) {
  std::erase(waiting_, pair);
  running_[std::move(id)] = {pair, now};
}

void LinkTable::Measured(WorkerId worker, std::string_view id, Speed speed) {
  const auto found = running_.find(std::string(id));
  if (found == running_.end() || found->second.pair.first != worker) return;
  if (speed.bytes_per_s > 0) measured_[InOrder(found->second.pair)] = speed;
  running_.erase(found);
}

std::optional<LinkTable::Speed> LinkTable::Between(WorkerId a, WorkerId b) const {
  if (const auto exact = measured_.find(InOrder({a, b})); exact != measured_.end())
    return exact->second;
  std::optional<Speed> slowest;
  for (const auto& [pair, speed] : measured_) {
    if (!Has(pair, a) && !Has(pair, b)) continue;
    if (!slowest) slowest = speed;
    slowest->bytes_per_s = std::min(slowest->bytes_per_s, speed.bytes_per_s);
    slowest->message_s = std::max(slowest->message_s, speed.message_s);
  }
  return slowest;
}

}  // namespace outboard::gateway
