#include "client/session/session.h"

#include <utility>

#include "client/session/remote_session.h"

namespace outboard::transport {

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() {
  // A fork's child has none of the threads that its destruction would wait for.
  if (!impl_->here()) static_cast<void>(impl_.release());
}
absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const SessionOptions& options) {
  // gRPC itself does not survive a fork either, whoever uses it.
  static const Birthplace first_connect;
  if (!first_connect.here()) return ForkedError();
  const trace::Scope scope(options.trace, "connect");
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Dial(); !status.ok()) return status;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectLink(std::unique_ptr<Link> link,
                                                              const SessionOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Open(std::move(link)); !status.ok()) return status;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

uint64_t Session::NewHandle() { return impl_->NewHandle(); }
absl::Status Session::Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          std::string_view bytes) {
  return impl_->Traced("put", [&] { return impl_->Put(handle, dtype, dims, bytes); });
}
absl::Status Session::AwaitRoom() {
  if (!impl_->here()) return ForkedError();
  return impl_->AwaitRoom();
}
absl::StatusOr<uint64_t> Session::Run(const RunRequest& request) {
  return impl_->Traced("run", [&] { return impl_->Run(request); });
}
absl::StatusOr<wire::Uploaded> Session::Upload(
    std::span<const wire::BlobSource> sources,
    const std::function<void(const wire::TransferProgress&)>& progress) {
  if (!impl_->here()) return ForkedError();
  return impl_->Upload(sources, progress);
}
absl::Status Session::PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                              uint64_t total_bytes, std::string_view root) {
  return impl_->Traced("put",
                       [&] { return impl_->PutBlob(handle, dtype, dims, total_bytes, root); });
}
absl::StatusOr<uint64_t> Session::Fetch(std::span<const uint64_t> handles) {
  return impl_->Traced("fetch", [&] { return impl_->Fetch(handles); });
}
absl::StatusOr<uint64_t> Session::Save(std::string_view name, std::span<const SaveEntry> entries) {
  return impl_->Traced("save", [&] { return impl_->Save(name, entries); });
}
absl::StatusOr<Saved> Session::AwaitSaved(uint64_t seq) {
  return impl_->Traced(
      "wait for save", [&] { return impl_->AwaitSaved(seq); }, seq);
}
absl::StatusOr<std::vector<StoredArray>> Session::Stored(const std::string& name) {
  return impl_->Traced("ask the store", [&] { return impl_->Stored(name); });
}
void Session::Release(uint64_t handle) {
  if (impl_->here()) impl_->Release(handle);
}
absl::StatusOr<Value> Session::Await(uint64_t seq, uint32_t index) {
  return impl_->Traced(
      "wait for value", [&] { return impl_->Await(seq, index); }, seq);
}
bool Session::Ready(uint64_t seq, uint32_t index) const {
  return !impl_->here() || impl_->Ready(seq, index);
}
void Session::Forget(uint64_t seq, uint32_t index) {
  if (impl_->here()) impl_->Forget(seq, index);
}
absl::Status Session::Sync() {
  return impl_->Traced("wait for all", [&] { return impl_->Sync(); });
}
absl::Status Session::status() const { return impl_->here() ? impl_->status() : ForkedError(); }
Stats Session::stats() const { return impl_->here() ? impl_->stats() : Stats(); }
absl::Status Session::Close() { return impl_->here() ? impl_->Close() : absl::OkStatus(); }

}  // namespace outboard::transport
