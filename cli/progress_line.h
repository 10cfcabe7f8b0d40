// Shows the progress of a transfer as one line on a terminal: bytes, rate, time left, and bytes
// that were not transferred because they were there already. Prints nothing if stderr is no
// terminal.
#pragma once

#include <chrono>
#include <string>

#include "wire/blobs/transfer.h"

namespace outboard::cli {

// Returns a size for people: "812 B", "1.4 MB", "23.1 GB".
std::string Bytes(uint64_t bytes);

// Returns "x.bin  1.2 GB of 4.0 GB  312.0 MB/s  9 s left  1.0 GB saved"; `elapsed_s` is the time
// since the transfer began.
std::string ProgressText(const std::string& what, const wire::TransferProgress& progress,
                         double elapsed_s);

class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();  // clears the line
  void Show(const wire::TransferProgress& progress);

 private:
  const std::string what_;
  const bool on_terminal_;
  const std::chrono::steady_clock::time_point began_;
};

}  // namespace outboard::cli
