// Which kernels of a schedule a plan launches together, and over which buffers.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "runtime/device.h"

namespace outboard::worker {

inline constexpr int kNoResult = -1;

// For each of Schedule::buffers the first result that is in it or that is computed from it.
std::vector<int> ResultsOf(const schedule::Schedule& schedule);

// A launch of a plan: the kernel `first` of its schedule and those behind it that are one launch
// with it (compiler/copies.h).
struct WantedKernel {
  size_t first = 0;
  int copies = 1;
  GraphId id;            // of the kernel in so many copies
  bool refused = false;  // nobody compiles it, or the device does not take it
};

std::vector<WantedKernel> WantedBy(const schedule::Schedule& schedule);

// Those that were refused become launches of one kernel each.
std::vector<WantedKernel> OneByOne(const std::vector<WantedKernel>& wanted);

// Places in Schedule::buffers: those of each copy, one after the other, as many as `kernel`, which
// was compiled for it, has slots.
std::vector<int> BuffersOf(const schedule::Schedule& schedule, const WantedKernel& one,
                           const runtime::DeviceKernel& kernel);

// A kernel's step becomes that of the launch which it begins; steps inside of a launch go.
void NumberByLaunch(const std::vector<WantedKernel>& wanted,
                    std::vector<schedule::ScheduledStep>& steps);

}  // namespace outboard::worker
