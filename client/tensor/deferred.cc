#include "client/tensor/deferred.h"

#include <utility>

#include "client/tensor/recorder.h"
#include "client/tensor/recording.h"

namespace outboard::internal {

void Define(std::span<const std::shared_ptr<Storage>> storages, const At& at) {
  std::vector<std::shared_ptr<Storage>> wanted;
  std::vector<wire::BlobSource> sources;
  for (const std::shared_ptr<Storage>& storage : storages) {
    if (storage->deferred == nullptr || storage->handle != 0) continue;
    storage->handle = storage->engine->NewHandle();  // also says that it is listed
    wanted.push_back(storage);
    sources.push_back(storage->deferred->source);
  }
  if (wanted.empty()) return;
  Engine& engine = *wanted.front()->engine;  // of one Run or Fetch, so of one engine
  absl::Status status;
  absl::StatusOr<wire::Uploaded> uploaded = engine.Upload(sources);
  if (!uploaded.ok()) status = uploaded.status();
  for (size_t i = 0; i < wanted.size(); ++i) {
    Storage& storage = *wanted[i];
    if (status.ok())
      status = engine.PutBlob(storage.handle, storage.dtype, storage.dims, sources[i].size_bytes,
                              uploaded->names[i].root);
    if (!status.ok()) {
      storage.handle = 0;  // may be tried again
      continue;
    }
    if (storage.deferred->named) storage.deferred->named(uploaded->names[i]);
    storage.deferred.reset();
  }
  ThrowIfError(status, at);
}

}  // namespace outboard::internal
