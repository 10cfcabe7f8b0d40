#include "gateway/queue/fair_shares.h"

#include <cmath>
#include <limits>

namespace outboard::gateway {
namespace {

double HalfLives(MonoTime now) {
  return static_cast<double>(now.ns) * 1e-9 / FairShares::kHalfLifeS;
}

double Ranked(double used_s, MonoTime now) {
  return used_s > 0 ? std::log2(used_s) + HalfLives(now) : -std::numeric_limits<double>::infinity();
}

}  // namespace

void FairShares::Add(TenantId account, double device_s, MonoTime now) {
  if (device_s <= 0) return;
  log2_used_[account] = Ranked(UsedS(account, now) + device_s, now);
}

double FairShares::UsedS(TenantId account, MonoTime now) const {
  const auto it = log2_used_.find(account);
  return it == log2_used_.end() ? 0 : std::exp2(it->second - HalfLives(now));
}

double FairShares::RankOf(TenantId account, uint32_t held, MonoTime now) const {
  return Ranked(UsedS(account, now) + held * kHeldS, now);
}

void FairShares::Prune(MonoTime now) {
  std::erase_if(log2_used_, [&](const auto& entry) { return entry.second < HalfLives(now); });
}

}  // namespace outboard::gateway
