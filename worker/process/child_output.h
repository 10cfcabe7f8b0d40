// What a child prints, on its standard output and error, as lines of this process's log: the child
// may be hostile, and has a pipe instead of the log. A line is an event `executor_output`, or
// `compiler_output` or `search_output`; control characters are escaped, long lines cut, and of many
// lines only some are written. Several children of one kind may share a pipe.
//
// With DEBUG set whoever runs this process wants to read all of them (docs/debugging.md): they go
// to its standard error, behind the session's number or what the child is, escaped and longer, but
// none is left out.
//
// Nobody waits for the log. A child that prints more than kOutputBytesPerSecond waits for its pipe.
// Threads: one of this class reads; calls may come from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"

namespace outboard::worker {

namespace limits {
// Enough for an error of a library; more is a flood, whose lines nobody reads.
inline constexpr size_t kOutputLineBytesMax = 400;
inline constexpr double kOutputLinesBurst = 40, kOutputLinesPerSecond = 2;
// Of DEBUG=4, whose lines are expressions.
inline constexpr size_t kDebugLineBytesMax = 16 << 10;
// What is read of a child, so that one that prints for ever takes no core of the supervisor's.
inline constexpr size_t kOutputBytesPerSecond = 4 << 20;
}  // namespace limits

// Splits the output into lines. The part of a line beyond `bytes_max` is dropped.
class OutputLines {
 public:
  using Take = std::function<void(std::string_view line, uint64_t bytes_cut)>;

  OutputLines(size_t bytes_max, Take take) : bytes_max_(bytes_max), take_(std::move(take)) {}
  void Add(std::string_view bytes);
  void Finish();  // the last line, if it has no end

 private:
  const size_t bytes_max_;
  const Take take_;
  std::string line_;
  uint64_t cut_ = 0;
};

class ChildOutput {
 public:
  enum class Of { kExecutor, kCompiler, kSearch };

  // Errors: RESOURCE_EXHAUSTED  no descriptors
  static absl::StatusOr<std::unique_ptr<ChildOutput>> Open(Of child = Of::kExecutor);
  // Opens `output` where it is null, and returns its child_end. -1 in a sanitizer's build, whose
  // reports are long: there a child has this process's log.
  static absl::StatusOr<int> EndFor(Of child, std::unique_ptr<ChildOutput>& output);
  ~ChildOutput();  // Finish
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;

  // What a child gets (ChildOptions::output); belongs to this object, until Started, which is not
  // called where more children are to come.
  int child_end() const { return child_end_; }
  void Started();
  // From now on lines are told to be this session's.
  void BelongsTo(const std::string& session);
  // When the child has ended: writes the rest of what it has printed. Also where a process that it
  // has left behind holds the pipe open.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;

  ChildOutput(Of child, int ours, int theirs);
  void Main();
  enum class Got { kBytes, kNothingNow, kEnd };
  Got ReadPiece(OutputLines& lines);
  void Write(std::string_view line, uint64_t bytes_cut);
  void TellLeftOut();
  std::string Session();

  const Of child_;
  const bool debug_;
  const int ours_;
  int child_end_;
  const int wake_;  // an eventfd: the child has ended
  std::mutex mutex_;
  std::string session_;  // in hex; empty: none yet
  // Of the thread.
  double tokens_ = limits::kOutputLinesBurst;
  Clock::time_point filled_ = Clock::now();
  uint64_t left_out_ = 0;  // lines, since the last that was written
  std::thread thread_;
};

}  // namespace outboard::worker
