// Arrays whose bytes are on this machine, in a file or a tensor, and are sent to the cloud only
// when something needs them. Those that one Run, Fetch or Save needs are sent in one transfer.
//
// Threads: as a Tensor's. Ownership: the source keeps its file open for as long as it lives.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
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

}  // namespace outboard::internal
