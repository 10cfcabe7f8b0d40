// PROFILE=out.json: records the activity of a program, its gateway and its worker in one file for
// ui.perfetto.dev. How to read it: docs/latency.md.
//
// Scope adds spans of the client; those of the other machines arrive with the session's frames, on
// their own clocks, which clock_bounds.h relates to ours. A Trace stores the first spans_max spans
// and counts the rest. It is written when a session ends, when the process exits, and on Ctrl-C and
// SIGTERM if the program has no handler of its own: whole or not at all, by renaming.
//
// Without a trace, a Scope costs one comparison with nullptr.
//
// Units: nanoseconds of std::chrono::steady_clock. Threads: every method may be called from any
// thread. Errors: of Check and Write, UNAVAILABLE where the file cannot be written; they name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/trace/spans.h"
#include "proto/cloud.pb.h"

namespace outboard::trace {

// About 60 MB of file.
inline constexpr size_t kSpansMax = 300'000;

uint64_t NowNs();

class Trace {
 public:
  explicit Trace(std::string file, size_t spans_max = kSpansMax)
      : file_(std::move(file)), spans_max_(spans_max) {}

  // Returns the process's trace, as PROFILE was at the first call; nullptr if it is unset or empty.
  // Lives as long as the process.
  static Trace* OfProcess();

  // Checks that the file can be written, so that a program learns it before it has run for an hour.
  absl::Status Check() const;

  // Returns a number for one session: 1, 2, 3 ...
  uint32_t AddSession();
  void Sent(uint32_t session, const proto::ClientFrame& frame);
  void Came(uint32_t session, const proto::ServerFrame& frame);
  void Add(ClientSpan span);

  absl::Status Write();
  // Writes only if something was added since the last time.
  void WriteIfChanged();

 private:
  static Trace* FromEnvironment();
  Collected Snapshot();
  bool HasRoom();

  const std::string file_;
  const size_t spans_max_;
  std::mutex write_mutex_;  // one writer at a time; locked before mutex_
  std::mutex mutex_;
  uint32_t sessions_ = 0;
  Collected collected_;
  bool changed_ = false;
};

// A span of this thread's that lasts for the Scope's life, nested in those that are open.
class Scope {
 public:
  // `name` must outlive the trace: a literal.
  Scope(Trace* trace, const char* name, uint32_t session = 0) : trace_(trace) {
    if (trace_ != nullptr) Begin(name, session);
  }
  ~Scope() {
    if (trace_ != nullptr) End();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  void SetSeq(uint64_t seq) { span_.seq = seq; }

 private:
  void Begin(const char* name, uint32_t session);
  void End();
  Trace* const trace_;
  ClientSpan span_;
};

}  // namespace outboard::trace
