// Arrays whose bytes are somewhere here and go to the cloud only when something needs them: a
// file's, by tensor. What one Run, Fetch or Save needs of them goes together, in one transfer.
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
  std::function<void(const wire::BlobName&)> named;  // when the bytes are there; may be empty
};

// Sends what `storages` have deferred, and defines their handles; the others are left as they are.
// What fails may be tried again. Throws Error.
void Define(std::span<const std::shared_ptr<CloudBuffer>> storages, const At& at);

}  // namespace outboard::internal
