// What each account has used of late: device-seconds that count half after an hour.
//
// An account's rank is log2(use) + time / half-life. Use without additions decays at the same pace
// for all accounts, so ranks stay comparable without being touched: only an account whose devices
// change is ranked anew.
//
// Threads: none of its own; not thread-safe. Pure. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class FairShares {
 public:
  // Long enough that a program which starts again cannot jump the queue, short enough that a heavy
  // morning is forgiven by the evening.
  static constexpr double kHalfLifeS = 3600;
  // A device that is held counts as if it had been used for so long already: else an account could
  // take all devices that become free at one moment.
  static constexpr double kHeldS = 60;

  void Add(TenantId account, double device_s, MonoTime now);
  double UsedS(TenantId account, MonoTime now) const;  // device-seconds, decayed
  // Lower goes first; -infinity: nothing was used. `held`: devices that it has, or would have.
  double RankOf(TenantId account, uint32_t held, MonoTime now) const;
  // Forgets accounts with less than a device-second; call now and then.
  void Prune(MonoTime now);
  size_t size() const { return log2_used_.size(); }

 private:
  std::map<TenantId, double> log2_used_;  // log2 of the use, plus time in half-lives
};

}  // namespace outboard::gateway
