// VIZ=1: a log of all rule applications in a process, for `outboard viz` (format: docs/viz.md). The
// process records lines; its supervisor, which alone opens files, writes them. NewestLog fails with
// NOT_FOUND.
//
// A file is at most `bytes_max` long: what comes after is left out, and its last line says so. A
// folder keeps the newest kLogsMax files. Only graphs are written: no values, no names but those of
// operations and rules.
//
// Threads: of a recorder, the one that it is set for (RecordedThread); of a file, one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/rewrite/recorder.h"

namespace outboard::worker {

inline constexpr int64_t kLogBytesMax = int64_t{64} << 20;
inline constexpr int kLogsMax = 16;

// What VIZ asks for: "" where it is unset, empty or "0"; for "1" the folder that `outboard viz`
// looks into, viz in CacheFolder (environment.h); else the folder that it names.
std::string LogFolderFromEnvironment();
std::string DefaultLogFolder();  // "" where the environment has no home

// Records whole lines, at most `bytes_max` in all, and passes them on when a plan has ended or many
// have come; `append` returns false when no more can be kept.
using AppendLines = std::function<bool(std::string_view lines)>;
std::unique_ptr<RewriteRecorder> MakeRewriteRecorder(AppendLines append,
                                                     int64_t bytes_max = kLogBytesMax);

class RewriteLogFile {
 public:
  virtual ~RewriteLogFile() = default;
  // False: nothing was written, and nothing will be.
  virtual bool Append(std::string_view lines) = 0;
};

// Writes a new file in `folder`, made with the first lines, the folder too if need be:
// rewrites-<microseconds since 1970>-<process>.jsonl. Where it cannot be made, stderr says so once
// and nothing is recorded: a session matters more than a look into it.
std::unique_ptr<RewriteLogFile> MakeRewriteLogFile(const std::string& folder,
                                                   int64_t bytes_max = kLogBytesMax);
// Both in one process.
std::unique_ptr<RewriteRecorder> MakeRewriteLog(const std::string& folder,
                                                int64_t bytes_max = kLogBytesMax);

// The newest file of a folder; NOT_FOUND where it has none.
absl::StatusOr<std::string> NewestLog(const std::string& folder);

}  // namespace outboard::worker
