// Collects the executor's time spans, for a client that asked for a trace (Open.trace); they are
// sent with the next Done. Without a trace there is no ExecutorTrace, and the cost is a comparison
// with nullptr.
//
// Bounded: spans over the limit are dropped and counted, and the count goes with the next Done. The
// clock is the caller's, monotonic, in nanoseconds, since cores have no clock. Threads: one.
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
  // A Done with kSpansMax spans is well below wire::kFrameBytesMax.
  static constexpr size_t kSpansMax = 2048;
  static constexpr size_t kTextBytesMax = 160;  // of a name or a detail; the rest is cut off

  explicit ExecutorTrace(NowNs now) : now_(std::move(now)) {}

  uint64_t Now() const { return now_(); }
  // A frame has arrived; `seq` is that of its last item, 0 if no item has one.
  void FrameCame(uint64_t seq);
  // Sets the item that the following spans belong to; 0: none.
  void SetItem(uint64_t seq) { item_ = seq; }

  // Adds a span from begin_ns to now.
  void Add(std::string_view name, uint64_t begin_ns, std::string_view detail = {});
  // Adds a launch of a kernel, named as in KernelInUse: "out 128x64 loop 25 reads in0 in1 writes
  // t2". The loops become the span's name, the rest its detail; formatting is deferred until Take,
  // to add little time between two kernels.
  void AddKernel(const std::string& name, const std::string& opts, uint64_t begin_ns, int64_t flops,
                 int64_t bytes);

  // True if the buffer is half full: a Done should be sent now.
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

// Adds a span from construction to destruction. Does nothing if `trace` is nullptr.
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
