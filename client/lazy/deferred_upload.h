// Uploads of arrays, at once (Upload) or deferred: the bytes are on this machine, in a file or a
// tensor, and are sent to the cloud only when something needs them. Those that one Run, Fetch or
// Save needs are sent in one transfer.
//
// Threads: as a Tensor's. Ownership: the source keeps its file open for as long as it lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "compiler/ir/dtype.h"
#include "wire/blobs/source.h"

namespace outboard::internal {

struct CloudBuffer;

struct DeferredUpload {
  wire::BlobSource source;
  std::function<void(const wire::BlobName&)> named;  // called after the upload; may be empty
};

// Uploads the deferred content of `buffers` and defines their handles; leaves other buffers as
// they are. A failed upload may be retried. Throws Error with the upload's status.
void Define(std::span<const std::shared_ptr<CloudBuffer>> buffers, const At& at);

// Makes a buffer of the current session with these bytes. Throws Error.
std::shared_ptr<CloudBuffer> Upload(DType dtype, const std::vector<int64_t>& dims,
                                    std::string_view bytes, const At& at);

}  // namespace outboard::internal
