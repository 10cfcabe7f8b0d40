// What took how long in an executor, for a client that asked for a trace (Open.trace): spans
// collect here until the next Done takes them along. There is none where nobody asked, so that a
// session without a trace pays for a comparison with nullptr.
//
// Bounded: what finds no room is counted, and the count goes with the next Done. The clock is the
// caller's, monotonic, in nanoseconds: cores have none. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/cloud.pb.h"

namespace outboard::worker {

class ExecutorTrace {
 public:
  using NowNs = std::function<uint64_t()>;
  // A Done of so many spans is well below wire::kFrameBytesMax.
  static constexpr size_t kSpansMax = 2048;
  static constexpr size_t kTextBytesMax = 160;  // of a name or a detail; the rest is cut off

  explicit ExecutorTrace(NowNs now) : now_(std::move(now)) {}

  uint64_t Now() const { return now_(); }
  // A frame has come; `seq` is the last of its items', 0 if it has none with one.
  void FrameCame(uint64_t seq);
  // The item that what follows belongs to; 0: none.
  void SetItem(uint64_t seq) { item_ = seq; }

  // From begin_ns to now.
  void Add(std::string_view name, uint64_t begin_ns, std::string_view detail = {});
  // A launch of a kernel, named as KernelInUse does: "out 128x64 loop 25 reads in0 in1 writes t2".
  // The loops name the span, the rest is detail; that and its speed are worked out when a Done
  // takes it, so that little of it lies between two kernels.
  void AddKernel(const std::string& name, const std::string& opts, uint64_t begin_ns, int64_t flops,
                 int64_t bytes);

  // Half of the room is taken: a Done should go now.
  bool wants_done() const { return spans_.size() >= kSpansMax / 2; }
  void Take(proto::Done& done);

 private:
  struct Pending {
    proto::Span span;
    int64_t flops = -1, bytes = 0;  // of a kernel
  };
  static void DescribeKernel(Pending& pending);
  Pending* Push(std::string_view name, uint64_t begin_ns);

  const NowNs now_;
  uint64_t item_ = 0;
  uint64_t came_seq_ = 0, came_ns_ = 0;
  std::vector<Pending> spans_;
  uint64_t dropped_ = 0;
};

// A span from here to the end of its life; of no trace: nothing.
class TraceSpan {
 public:
  TraceSpan(ExecutorTrace* trace, const char* name)
      : trace_(trace), name_(name), begin_ns_(trace != nullptr ? trace->Now() : 0) {}
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->Add(name_, begin_ns_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  ExecutorTrace* const trace_;
  const char* const name_;
  const uint64_t begin_ns_;
};

}  // namespace outboard::worker
