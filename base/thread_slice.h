// How long a thread keeps a processor while others wait for it, and how much of it (niceness).
//
// From Linux 6.12 on, a thread that wakes up interrupts one whose slice is longer than its own,
// instead of waiting for the end of that one's turn, which is 1 to 4 ms. Threads that pass steps on
// have the shortest slice, those that hash and check the longest one. Neither needs a right, and
// neither gets more of a processor by it. Older kernels ignore slices.
//
// Threads: each call is about the thread that makes it; threads that it starts inherit both.
#pragma once

#include <chrono>
#include <cstdint>

namespace outboard {

// The kernel's own limits.
inline constexpr std::chrono::nanoseconds kShortestSlice = std::chrono::microseconds(100);
inline constexpr std::chrono::nanoseconds kLongestSlice = std::chrono::milliseconds(100);

struct ThreadSlice {
  int niceness = 0;                   // nice(2) of the thread
  std::chrono::nanoseconds slice{0};  // 0: the kernel's choice
};

// What the thread has; the default where the kernel does not tell. Kernels before 6.12 tell 0.
ThreadSlice SliceOfThisThread();
// Niceness is at most 19; a lower one than before needs a right. False: nothing was changed.
bool SetSliceOfThisThread(const ThreadSlice& to);

// Gives up the processor for whoever waits: `more_niceness` is added, and the slice is the longest.
void YieldToOthers(int more_niceness);

// While it lives, this thread and those that it starts have the shortest slice.
class ScopedShortSlice {
 public:
  ScopedShortSlice();
  ~ScopedShortSlice();
  ScopedShortSlice(const ScopedShortSlice&) = delete;
  ScopedShortSlice& operator=(const ScopedShortSlice&) = delete;

 private:
  const ThreadSlice before_;
};

}  // namespace outboard
