#include "worker/session/blob_file.h"

#include <filesystem>
#include <system_error>

namespace outboard::worker {

absl::StatusOr<runtime::DeviceBuffer> MapBlobFile(const std::string& path, Engine& engine) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return absl::DataLossError("a blob that was pulled is not here");
  absl::StatusOr<runtime::DeviceBuffer> mapped = engine.MapFile(path, static_cast<int64_t>(bytes));
  // The mapping holds the bytes; with the name, they would stay on disk as long as the session.
  std::filesystem::remove(path, error);
  return mapped;
}

}  // namespace outboard::worker
