#include "cli/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace outboard::cli {

std::string Bytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 999.95 && *unit != 0) break;
    value /= 1000;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string ProgressText(const std::string& what, const wire::TransferProgress& progress,
                         double elapsed_s) {
  std::string text =
      absl::StrCat(what, "  ", Bytes(progress.done_bytes()), " of ", Bytes(progress.total_bytes));
  // A rate over less than half a second is meaningless.
  if (elapsed_s >= 0.5 && progress.moved_bytes > 0) {
    const double rate = static_cast<double>(progress.moved_bytes) / elapsed_s;
    const uint64_t left =
        progress.total_bytes - std::min(progress.total_bytes, progress.done_bytes());
    absl::StrAppend(&text, "  ", Bytes(static_cast<uint64_t>(rate)), "/s  ",
                    static_cast<uint64_t>(static_cast<double>(left) / rate + 0.5), " s left");
  }
  if (progress.saved_bytes > 0) absl::StrAppend(&text, "  ", Bytes(progress.saved_bytes), " saved");
  return text;
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)),
      on_terminal_(isatty(STDERR_FILENO) == 1),
      began_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (on_terminal_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::Show(const wire::TransferProgress& progress) {
  if (!on_terminal_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  std::fprintf(stderr, "\r\x1b[K%s", ProgressText(what_, progress, elapsed.count()).c_str());
  std::fflush(stderr);
}

}  // namespace outboard::cli
