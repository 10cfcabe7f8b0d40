// Stores files under names in the cloud and loads them: a safetensors file array by array, so that
// arrays which the cloud has are not sent again and programs can load them one by one; any other
// file as a whole. The loaded file is the same, bit for bit. A checkpoint that a session saved is
// loaded as a safetensors file.
//
// Both functions block and can be repeated after a failure: content that has arrived is not sent
// again. Threads: any.
// Errors: INVALID_ARGUMENT  a file that cannot be read or written (named), an invalid name
//         those of transfers (wire/blobs/transfer.h) and of the store (store_client.h)
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/files/file_index.h"
#include "client/files/store_client.h"
#include "wire/blobs/transfer.h"

namespace outboard::files {

struct Pushed {
  std::string name;
  uint64_t size_bytes = 0;  // of the file
  uint64_t sent_bytes = 0;
  int arrays = 0;             // 0: stored as a whole
  std::string whole_because;  // why a .safetensors file was stored as a whole
};
// `name` empty: the file's own name, without its folder. Ranges that `index` knows are not read.
absl::StatusOr<Pushed> PushFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& path, std::string name,
                                const wire::TransferOptions& options = {},
                                const FileIndex& index = FileIndex::Default());

struct Pulled {
  std::string path;
  uint64_t size_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t kept_bytes = 0;  // from an earlier attempt
};
// Where a file goes.
struct PullTo {
  // Empty: the file's original name, else the last part of its name in the store and
  // ".safetensors", in this folder.
  std::string path;
  bool replace = false;  // a file that is there already
};
// Errors: ALREADY_EXISTS    a file is there, and `replace` is false
//         INVALID_ARGUMENT  the stored name is a hidden file's, and no path is given: whoever
//                           stored it does not choose what this user's programs read
absl::StatusOr<Pulled> PullFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& name, PullTo to,
                                const wire::TransferOptions& options = {});

}  // namespace outboard::files
