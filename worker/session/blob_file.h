// A blob that the supervisor has put into a file (BlobHere in proto/executor.proto), as memory of
// the session. The file's bytes were verified by whoever wrote it. They are mapped, so nothing is
// read before it is used, and what is written over stays this process's. The name is the executor's
// own, and goes once it is mapped.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

// Errors: DATA_LOSS  the file cannot be mapped;  RESOURCE_EXHAUSTED  over the session's memory
absl::StatusOr<runtime::DeviceBuffer> MapBlobFile(const std::string& path, Engine& engine);

}  // namespace outboard::worker
