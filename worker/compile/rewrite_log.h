// VIZ=1: writes a log of all rule applications in this process, for `outboard viz` (format:
// docs/viz.md). NewestLog fails with NOT_FOUND.
//
// A file is at most `bytes_max` long: what comes after is left out, and its last line says so. A
// folder keeps the newest kLogsMax files. Only graphs are written: no values, no names but those of
// operations and rules.
//
// Threads: the one that it is set for (RecordedThread).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/rewrite/recorder.h"

namespace outboard::worker {

inline constexpr int64_t kLogBytesMax = int64_t{64} << 20;
inline constexpr int kLogsMax = 16;

// What VIZ asks for: "" where it is unset, empty or "0"; for "1" the folder that `outboard viz`
// looks into, viz in CacheFolder (environment.h); else the folder that it names.
std::string LogFolderFromEnvironment();
std::string DefaultLogFolder();  // "" where the environment has no home

// Writes a new file in `folder`, made when the first pass begins, the folder too if need be:
// rewrites-<microseconds since 1970>-<process>.jsonl. Where it cannot be made, stderr says so once
// and nothing is recorded: a session matters more than a look into it.
std::unique_ptr<RewriteRecorder> MakeRewriteLog(const std::string& folder,
                                                int64_t bytes_max = kLogBytesMax);

// The newest file of a folder; NOT_FOUND where it has none.
absl::StatusOr<std::string> NewestLog(const std::string& folder);

}  // namespace outboard::worker
