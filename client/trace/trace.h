// PROFILE=out.json: what a program, its gateway and its worker did and when, in one file for
// ui.perfetto.dev. How to read it: docs/latency.md.
//
// Spans of the client are added by Scope; those of the others come with the session's frames, on
// their own clocks, which clock_bounds.h puts into relation. A Trace keeps the first spans_max
// spans and counts the rest. It is written when a session ends, when the process exits, and on
// Ctrl-C and SIGTERM where the program has no handler of its own: whole or not at all, by renaming.
//
// Where there is no trace, a Scope is a comparison with nullptr.
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

  // The process's, as PROFILE says at the first call; nullptr where it is unset or empty. Lives as
  // long as the process.
  static Trace* OfProcess();

  // Whether the file could be written: to be known before the program has run for an hour.
  absl::Status Check() const;

  // A number for one session: 1, 2, 3 ...
  uint32_t AddSession();
  void Sent(uint32_t session, const proto::ClientFrame& frame);
  void Came(uint32_t session, const proto::ServerFrame& frame);
  void Add(ClientSpan span);

  absl::Status Write();
  // Only if something was added since.
  void WriteIfChanged();

 private:
  static Trace* FromEnvironment();
  Collected Snapshot();
  bool HasRoom();

  const std::string file_;
  const size_t spans_max_;
  std::mutex write_mutex_;  // one writes at a time; before mutex_
  std::mutex mutex_;
  uint32_t sessions_ = 0;
  Collected collected_;
  bool changed_ = false;
};

// A span of this thread's from here to the end of the Scope's life, within those that are open.
class Scope {
 public:
  // `name` outlives the trace: a literal.
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
