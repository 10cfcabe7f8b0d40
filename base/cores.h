// The processor's cores that this process may use: those of its worker's device, which may be a
// part of the machine's. Threads: any.
#pragma once

#include <sched.h>

#include <vector>

namespace outboard {

// Their numbers, in order, as the kernel schedules the calling thread (sched_getaffinity(2)); never
// empty.
inline std::vector<int> UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// As sched_setaffinity(2) takes them. Numbers that the kernel's mask has no room for are left out.
inline cpu_set_t CoreMask(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  return set;
}

}  // namespace outboard
