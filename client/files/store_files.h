// Files to names in the cloud and back: a safetensors file array by array, so that arrays which are
// there already are not sent and programs load them one by one; any other file as it is. What comes
// back is the same file, bit for bit. A checkpoint that a session saved comes as a safetensors
// file.
//
// Both block, and may be made again after whatever broke them off: what has arrived does not travel
// twice. Threads: any.
// Errors: INVALID_ARGUMENT  a file that cannot be read or written (named), a name that cannot be
//         those of transfers (wire/blobs/transfer.h) and of the store (store_client.h)
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/files/file_index.h"
#include "client/files/store_client.h"
#include "wire/blobs/transfer.h"

namespace outboard::blobs {

struct Pushed {
  std::string name;
  uint64_t size_bytes = 0;  // of the file
  uint64_t sent_bytes = 0;
  int arrays = 0;             // 0: one file as it is
  std::string whole_because;  // why a file that is named as safetensors is not stored by its arrays
};
// `name` empty: the file's own name, without its folder. What `index` knows of the file is not
// read.
absl::StatusOr<Pushed> PushFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& path, std::string name,
                                const wire::TransferOptions& options = {},
                                const FileIndex& index = FileIndex::Default());

struct Pulled {
  std::string path;
  uint64_t size_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t kept_bytes = 0;  // of a try before
};
// `path` empty: the name that the file had, else the last part of `name` and ".safetensors".
absl::StatusOr<Pulled> PullFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& name, std::string path,
                                const wire::TransferOptions& options = {});

}  // namespace outboard::blobs
