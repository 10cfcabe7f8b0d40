// How much of something a peer may do: a bucket that time fills, up to a limit, and that each use
// empties. Threads: none of its own; not thread-safe.
#pragma once

#include <algorithm>

#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class Allowance {
 public:
  // Begins full.
  Allowance(double limit, MonoTime now) : left_(limit), at_(now) {}

  // From `at` of the last call to `now`, `per_s` each second; never more than `limit`.
  void Fill(double per_s, double limit, MonoTime now) {
    if (now.ns > at_.ns) left_ += per_s * static_cast<double>(now.ns - at_.ns) * 1e-9;
    at_ = std::max(at_, now);
    left_ = std::min(left_, limit);
  }
  void Give(double more, double limit) { left_ = std::min(limit, left_ + more); }
  // False: so much is not left, and nothing is taken.
  bool Take(double count) {
    if (left_ < count) return false;
    left_ -= count;
    return true;
  }
  double left() const { return left_; }

 private:
  double left_;
  MonoTime at_;
};

}  // namespace outboard::gateway
