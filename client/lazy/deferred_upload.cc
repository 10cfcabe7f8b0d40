#include "client/lazy/deferred_upload.h"

#include <algorithm>
#include <utility>

#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"

namespace outboard::internal {
namespace {

// `storages` are of one session.
absl::Status DefineIn(Session& session, std::span<const std::shared_ptr<CloudBuffer>> storages) {
  std::vector<wire::BlobSource> sources;
  for (const std::shared_ptr<CloudBuffer>& storage : storages)
    sources.push_back(storage->deferred->source);
  absl::StatusOr<wire::Uploaded> uploaded = session.Upload(sources);
  if (!uploaded.ok()) return uploaded.status();
  for (size_t i = 0; i < storages.size(); ++i) {
    CloudBuffer& storage = *storages[i];
    const uint64_t handle = session.NewHandle();
    if (absl::Status status =
            session.PutBlob(handle, storage.dtype, storage.dims, sources[i].size_bytes,
                            wire::AsBytes(uploaded->names[i].root));
        !status.ok())
      return status;
    storage.handle = handle;
    if (storage.deferred->named) storage.deferred->named(uploaded->names[i]);
    storage.deferred.reset();
  }
  return absl::OkStatus();
}

}  // namespace

void Define(std::span<const std::shared_ptr<CloudBuffer>> storages, const At& at) {
  std::vector<std::shared_ptr<CloudBuffer>> wanted;
  for (const std::shared_ptr<CloudBuffer>& storage : storages)
    if (storage->deferred != nullptr &&
        std::find(wanted.begin(), wanted.end(), storage) == wanted.end())
      wanted.push_back(storage);
  while (!wanted.empty()) {  // once for each session: more than one only after a new session
    const std::shared_ptr<Session> session = wanted.front()->session;
    const auto others =
        std::stable_partition(wanted.begin(), wanted.end(),
                              [&](const auto& storage) { return storage->session == session; });
    ThrowIfError(DefineIn(*session, {wanted.begin(), others}), at);
    wanted.erase(wanted.begin(), others);
  }
}

}  // namespace outboard::internal
