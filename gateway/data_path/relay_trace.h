// Collects the gateway's time spans of one session, for a client that asked for a trace
// (Open.trace). They are sent with the next Done of the executor. Without a trace the cost is one
// load of a flag per frame.
//
// Bounded: spans over the limit are dropped and counted, and the count goes with the next Done.
// Clock: monotonic, in nanoseconds. Threads: every method may be called from any thread.
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

  // Called at the start of each epoch; drops the spans of the previous one.
  void Begin(bool wanted);

  // Returns the time, or 0 without a trace: spans that begin at 0 are not recorded.
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
