#include "base/thread_slice.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace outboard {
namespace {

constexpr int kNicenessMax = 19;
constexpr uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK, the one flag of sched_getattr

struct Attributes {  // struct sched_attr of sched_setattr(2), which glibc 2.36 lacks
  uint32_t bytes = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t niceness = 0;
  uint32_t priority = 0;
  uint64_t slice_ns = 0, deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);

bool Get(Attributes& attributes) {
  const int saved = errno;
  const bool known = syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
  errno = saved;
  return known;
}

// Slices are those of the default policy: a real-time thread has none.
bool HasSlice(const Attributes& attributes) { return attributes.priority == 0; }

}  // namespace

ThreadSlice SliceOfThisThread() {
  Attributes attributes;
  if (!Get(attributes) || !HasSlice(attributes)) return {};
  return {.niceness = attributes.niceness, .slice = std::chrono::nanoseconds(attributes.slice_ns)};
}

bool SetSliceOfThisThread(const ThreadSlice& to) {
  Attributes attributes;
  if (!Get(attributes) || !HasSlice(attributes)) return false;
  attributes.bytes = sizeof attributes;
  attributes.flags &= kResetOnFork;
  attributes.niceness = std::min(to.niceness, kNicenessMax);
  attributes.slice_ns = static_cast<uint64_t>(to.slice.count());
  const int saved = errno;
  const bool set = syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
  errno = saved;
  return set;
}

void YieldToOthers(int more_niceness) {
  if (SetSliceOfThisThread(
          {.niceness = SliceOfThisThread().niceness + more_niceness, .slice = kLongestSlice}))
    return;
  const int saved = errno;
  [[maybe_unused]] const int now = nice(more_niceness);  // all that is left, if it is allowed
  errno = saved;
}

ScopedShortSlice::ScopedShortSlice() : before_(SliceOfThisThread()) {
  SetSliceOfThisThread({.niceness = before_.niceness, .slice = kShortestSlice});
}

ScopedShortSlice::~ScopedShortSlice() { SetSliceOfThisThread(before_); }

}  // namespace outboard
