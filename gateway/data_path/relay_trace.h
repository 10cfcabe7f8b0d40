// What took how long in a gateway, for a client that asked for a trace (Open.trace): spans of one
// session collect here until a Done that the executor sends takes them along. Where nobody asked it
// is one load of a flag a frame.
//
// Bounded: what finds no room is counted, and the count goes with the next Done. Clock: monotonic,
// in nanoseconds. Threads: every method may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gateway/base/clock.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

class RelayTrace {
 public:
  // Few enough, with as many Passages, to fit beside a full frame, below wire::kMessageBytesMax.
  static constexpr size_t kSpansMax = 512;
  using Clock = std::function<MonoTime()>;

  explicit RelayTrace(Clock clock = MonoNow) : clock_(std::move(clock)) {}

  // With each epoch; what the one before has left is forgotten.
  void Begin(bool wanted);

  // The time, or 0 where no trace is wanted: what begins at 0 is not kept.
  uint64_t Now() const { return wanted_ ? static_cast<uint64_t>(clock_().ns) : 0; }
  // Items up to `seq` came from the client at begin_ns and are about to be passed on.
  void Up(uint64_t begin_ns, uint64_t seq, int items);
  void Verified(uint64_t begin_ns, size_t graph_bytes);
  // A Done came from the executor at begin_ns and is about to be passed on.
  void Down(uint64_t begin_ns, proto::Done& done);

 private:
  void Add(const char* name, uint64_t begin_ns, uint64_t seq, std::string detail);

  const Clock clock_;
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;
  std::vector<proto::Passage> came_;  // since the last Done
  std::vector<proto::Span> spans_;
  uint64_t dropped_ = 0;
};

}  // namespace outboard::gateway
