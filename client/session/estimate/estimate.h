// Seconds and money of a program on each class of devices, from what its graphs do, or from steps
// that were measured (docs/estimates.md).
//
// By graphs alone: each kernel takes the longer of its arithmetic and its memory traffic, at the
// rates of the class (its price file promises them, the rate check measures them), and something to
// be started. The constants are processors' as tests/bench/estimate_figures.cc measured them; the
// rates alone differ between classes, those of matrix units among them. Not counted: compiling,
// waiting in the queue, values that travel over a network.
//
// What a class does not say is not guessed: then there are no seconds, and `unknown` says why.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/session/estimate/run_log.h"

namespace outboard::session {

struct DeviceClass {
  std::string name;                      // empty: of a gateway without a price file
  double gflops = 0;                     // float32, of a product of matrices; 0: not said
  double memory_gb_per_s = 0;            // 0: not said
  uint64_t memory_bytes = 0;             // at least; 0: not said
  uint64_t run_per_hour_micro_usd = 0;   // of each device
  // The same by matrix units of such operands, always on paper, since nobody measures them. 0: it
  // has none, or they are as fast as `gflops`.
  double tf32_gflops = 0, half_gflops = 0, f8_gflops = 0;
  // Nobody has measured its rates: they are a data sheet's, or the price file's word of hardware
  // that no worker serves. Of an estimate, also where a kernel has a rate of matrix units.
  bool rates_on_paper = false;
};

// `low` to `high` holds nine of ten programs that were measured. With `rates_on_paper` it
// is a guess that nothing has tested.
struct EstimateRange {
  double expected = 0, low = 0, high = 0;
};

struct ClassEstimate {
  DeviceClass of;
  std::optional<EstimateRange> seconds;     // nothing: see `unknown`
  std::optional<EstimateRange> micro_usd;
  bool is_measured = false;         // from steps that were measured, not from graphs
  std::string unknown;              // why there are no seconds
};

// The part of `expected` by which a range goes to both sides: of graphs alone as a factor.
inline constexpr double kGraphRangeFactor = 2.0;
// The same with rates on paper: neither they nor what kernels reach of them has been tested.
inline constexpr double kRatesOnPaperRangeFactor = 4.0;
inline constexpr double kMeasuredRange = 0.1;

// Of graphs alone.
ClassEstimate EstimateFor(const DeviceClass& of, const RecordedWork& work);
// Of `steps` steps, of which each was measured to take `seconds_per_step` on a device of the class.
ClassEstimate EstimateMeasured(const DeviceClass& of, uint64_t steps, double seconds_per_step,
                               uint64_t devices = 1);

// At which the class computes such products; `gflops` where it says no other rate.
double GflopsOf(const DeviceClass& of, ProductKind kind);
// Seconds that a device of the class takes for the kernels alone; requires `gflops` and
// `memory_gb_per_s`.
double DeviceSeconds(const std::vector<KernelWork>& kernels, const DeviceClass& of);

// "estimate 12 s (6 to 24), $0.0017; actual 11 s, $0.0015; error 8 %", for people.
std::string EstimateLine(const ClassEstimate& estimate, double actual_seconds,
                         uint64_t actual_micro_usd);

// |actual / estimate - 1|; requires an estimate above zero.
double ErrorOf(double estimate, double actual);

}  // namespace outboard::session
