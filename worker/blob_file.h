// A blob that the supervisor has put into a file (BlobHere in proto/node.proto), as memory of the session.
// The file's bytes were verified by whoever wrote it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine.h"

namespace outboard::worker {

// Errors: DATA_LOSS  the file cannot be read;  RESOURCE_EXHAUSTED  over the session's memory
absl::StatusOr<cpu::Buffer> ReadBlobFile(const std::string& path, Engine& engine);

}  // namespace outboard::worker
