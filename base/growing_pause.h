// How long to wait before something is tried again: twice as long each time, up to a limit, more or
// less, so that a thousand machines that were switched on together do not come together.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>

namespace outboard {

inline uint32_t SystemRandom() { return std::random_device()(); }

class GrowingPause {
 public:
  // Seconds. `random`: numbers for the jitter.
  GrowingPause(double first_s, double most_s, std::function<uint32_t()> random)
      : first_s_(first_s), most_s_(most_s), next_s_(first_s), random_(std::move(random)) {}

  // Between half and all of 1, 2, 4 ... times the first, up to the most.
  double Next() {
    const double now = next_s_;
    next_s_ = std::min(next_s_ * 2, most_s_);
    return now * (0.5 + 0.5 * static_cast<double>(random_()) / 4294967296.0);
  }
  std::chrono::duration<double> NextWait() { return std::chrono::duration<double>(Next()); }
  void Reset() { next_s_ = first_s_; }  // it worked

 private:
  const double first_s_, most_s_;
  double next_s_;
  const std::function<uint32_t()> random_;
};

}  // namespace outboard
