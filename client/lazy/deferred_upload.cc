#include "client/lazy/deferred_upload.h"

#include <algorithm>
#include <utility>

#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"

namespace outboard::internal {
namespace {

// `buffers` are of one session.
absl::Status DefineIn(Session& session, std::span<const std::shared_ptr<CloudBuffer>> buffers) {
  std::vector<wire::BlobSource> sources;
  for (const std::shared_ptr<CloudBuffer>& buffer : buffers)
    sources.push_back(buffer->deferred->source);
  absl::StatusOr<wire::Uploaded> uploaded = session.Upload(sources);
  if (!uploaded.ok()) return uploaded.status();
  for (size_t i = 0; i < buffers.size(); ++i) {
    CloudBuffer& buffer = *buffers[i];
    const uint64_t handle = session.NewHandle();
    if (absl::Status status =
            session.PutBlob(handle, buffer.dtype, buffer.dims, sources[i].size_bytes,
                            wire::AsBytes(uploaded->names[i].root));
        !status.ok())
      return status;
    buffer.handle = handle;
    if (buffer.deferred->named) buffer.deferred->named(uploaded->names[i]);
    buffer.deferred.reset();
  }
  return absl::OkStatus();
}

}  // namespace

void Define(std::span<const std::shared_ptr<CloudBuffer>> buffers, const At& at) {
  std::vector<std::shared_ptr<CloudBuffer>> wanted;
  for (const std::shared_ptr<CloudBuffer>& buffer : buffers)
    if (buffer->deferred != nullptr &&
        std::find(wanted.begin(), wanted.end(), buffer) == wanted.end())
      wanted.push_back(buffer);
  while (!wanted.empty()) {  // once for each session: more than one only after a new session
    const std::shared_ptr<Session> session = wanted.front()->session;
    const auto others =
        std::stable_partition(wanted.begin(), wanted.end(),
                              [&](const auto& buffer) { return buffer->session == session; });
    ThrowIfError(DefineIn(*session, {wanted.begin(), others}), at);
    wanted.erase(wanted.begin(), others);
  }
}

std::shared_ptr<CloudBuffer> Upload(DType dtype, const std::vector<int64_t>& dims,
                                    std::string_view bytes, const At& at) {
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  auto buffer = std::make_shared<CloudBuffer>();
  buffer->handle = (*session)->NewHandle();
  buffer->dtype = dtype;
  buffer->dims = dims;
  ThrowIfError((*session)->Put(buffer->handle, dtype, dims, bytes), at);
  buffer->session = *std::move(session);
  return buffer;
}

}  // namespace outboard::internal
