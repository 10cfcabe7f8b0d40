// What nodes log, in the folder "nodes" of the data folder: SERIAL.log, and SERIAL.log.1 with what
// came before it. Lines come from machines that may lie: control characters are escaped, long lines
// cut, and a file is at most kNodeLogBytesMax long.
//
// Threads: any; a mutex inside. Writes the disk.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::gateway {

inline constexpr size_t kNodeLogBytesMax = 1 << 20;
inline constexpr size_t kNodeLogLineBytesMax = 1024;
inline constexpr int kNodeLogLinesMax = 256;  // of one call

class NodeLogs {
 public:
  explicit NodeLogs(const std::string& data_folder) : folder_(data_folder + "/nodes") {}

  // Errors: INVALID_ARGUMENT  a serial number; UNAVAILABLE  the disk
  absl::Status Append(const std::string& serial, const std::vector<std::string_view>& lines);
  // Both files, the older first. NOT_FOUND: there is none.
  absl::StatusOr<std::string> Read(const std::string& serial) const;

 private:
  std::string PathOf(const std::string& serial) const { return folder_ + "/" + serial + ".log"; }

  const std::string folder_;
  std::mutex mutex_;
};

}  // namespace outboard::gateway
