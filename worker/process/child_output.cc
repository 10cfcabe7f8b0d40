#include "worker/process/child_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "telemetry/log.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

// One read is at most this far from the next: also bytes that come one by one cost little.
constexpr int kRoundMs = 20;
constexpr size_t kRoundBytes = limits::kOutputBytesPerSecond / (1000 / kRoundMs);
constexpr size_t kPieceBytes = 16 << 10;
// Of the rest, when the child has ended: what a pipe holds.
constexpr size_t kRestBytesMax = 1 << 20;

bool IsDebugging() {
  const char* const debug = std::getenv("DEBUG");
  return debug != nullptr && std::atoi(debug) > 0;
}

}  // namespace

void OutputLines::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const size_t kept = std::min(piece.size(), bytes_max_ - line_.size());
    line_.append(piece.substr(0, kept));
    cut_ += piece.size() - kept;
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (!line_.empty()) take_(line_, cut_);
    line_.clear();
    cut_ = 0;
  }
}

void OutputLines::Finish() {
  if (!line_.empty()) Add("\n");
}

absl::StatusOr<std::unique_ptr<ChildOutput>> ChildOutput::Open(Of child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", strerror(errno)));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);  // of our end alone
  return std::unique_ptr<ChildOutput>(new ChildOutput(child, ends[0], ends[1]));
}

absl::StatusOr<int> ChildOutput::EndFor(Of child, std::unique_ptr<ChildOutput>& output) {
  if (kIsSanitizersBuild) return -1;
  if (output == nullptr) {
    OB_ASSIGN_OR_RETURN(output, Open(child));
  }
  return output->child_end();
}

ChildOutput::ChildOutput(Of child, int ours, int theirs)
    : child_(child),
      debug_(IsDebugging()),
      ours_(ours),
      child_end_(theirs),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Main(); }) {}

ChildOutput::~ChildOutput() {
  Finish();
  close(ours_);
  close(wake_);
}

void ChildOutput::Started() {
  if (child_end_ >= 0) close(std::exchange(child_end_, -1));
}

void ChildOutput::BelongsTo(const std::string& session) {
  std::lock_guard lock(mutex_);
  session_ = session;
}

std::string ChildOutput::Session() {
  std::lock_guard lock(mutex_);
  return session_;
}

void ChildOutput::Finish() {
  Started();
  eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
}

void ChildOutput::Main() {
  OutputLines lines(debug_ ? limits::kDebugLineBytesMax : limits::kOutputLineBytesMax,
                    [this](std::string_view line, uint64_t cut) { Write(line, cut); });
  for (bool ended = false; !ended;) {
    pollfd waited[] = {{ours_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (poll(waited, 2, -1) < 0) continue;  // a signal
    const bool has_child_ended = waited[1].revents != 0;
    const size_t bytes_max = has_child_ended ? kRestBytesMax : kRoundBytes;
    Got got = Got::kBytes;
    for (size_t bytes = 0; got == Got::kBytes && bytes < bytes_max; bytes += kPieceBytes)
      got = ReadPiece(lines);
    ended = has_child_ended || got == Got::kEnd;
    if (!ended) poll(&waited[1], 1, kRoundMs);
  }
  lines.Finish();
  TellLeftOut();
}

ChildOutput::Got ChildOutput::ReadPiece(OutputLines& lines) {
  char bytes[kPieceBytes];
  const ssize_t got = read(ours_, bytes, sizeof bytes);
  if (got == 0) return Got::kEnd;
  if (got < 0) return Got::kNothingNow;
  lines.Add({bytes, static_cast<size_t>(got)});
  return Got::kBytes;
}

void ChildOutput::Write(std::string_view line, uint64_t bytes_cut) {
  const std::string session = Session();
  if (debug_) {
    const std::string whole = absl::StrCat("[",
                                           child_ == Of::kCompiler ? "compiler"
                                           : child_ == Of::kSearch ? "search"
                                                                   : session.substr(0, 8),
                                           "] ", Escaped(line), "\n");
    [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, whole.data(), whole.size());
    return;
  }
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(filled_, now);
  tokens_ =
      std::min(limits::kOutputLinesBurst, tokens_ + passed.count() * limits::kOutputLinesPerSecond);
  if (tokens_ < 1) {
    ++left_out_;
    return;
  }
  tokens_ -= 1;
  TellLeftOut();
  std::optional<uint64_t> cut;
  if (bytes_cut > 0) cut = bytes_cut;
  switch (child_) {
    case Of::kExecutor:
      return telemetry::LogWarning("executor_output",
                                   {{"session", session}, {"line", line}, {"bytes_cut", cut}});
    case Of::kCompiler:
      return telemetry::LogWarning("compiler_output", {{"line", line}, {"bytes_cut", cut}});
    case Of::kSearch:
      return telemetry::LogWarning("search_output", {{"line", line}, {"bytes_cut", cut}});
  }
}

void ChildOutput::TellLeftOut() {
  if (left_out_ == 0) return;
  const uint64_t lines = std::exchange(left_out_, 0);
  const std::string session = Session();
  switch (child_) {
    case Of::kExecutor:
      return telemetry::LogWarning("executor_output_left_out",
                                   {{"session", session}, {"lines", lines}});
    case Of::kCompiler:
      return telemetry::LogWarning("compiler_output_left_out", {{"lines", lines}});
    case Of::kSearch: return telemetry::LogWarning("search_output_left_out", {{"lines", lines}});
  }
}

}  // namespace outboard::worker
