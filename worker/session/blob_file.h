// Maps a blob that the supervisor has put into a file (BlobHere in proto/executor.proto) as memory
// of the session. The supervisor has verified the bytes. The mapping is private: pages are read on
// first use, and writes do not reach the file. The file name, which belongs to the executor, is
// removed after mapping.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

// Errors: DATA_LOSS  the file cannot be mapped;  RESOURCE_EXHAUSTED  over the session's memory
absl::StatusOr<runtime::DeviceBuffer> MapBlobFile(const std::string& path, Engine& engine);

}  // namespace outboard::worker
