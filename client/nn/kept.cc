#include "client/nn/kept.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/lazy_graph.h"
#include "client/lazy/thread_state.h"
#include "client/session/current_session.h"
#include "compiler/ir/limits.h"

namespace outboard {
namespace {

std::atomic<uint64_t> next_kept_id{1};

// A handle has one owner, however often its tensor is asked for.
std::shared_ptr<internal::CloudBuffer> KeptBuffer(const std::shared_ptr<Session>& session,
                                                const session::KeptArray& array, const At& at) {
  using Key = std::pair<const Session*, uint64_t>;
  static std::mutex mutex;
  static auto* const known = new std::map<Key, std::weak_ptr<internal::CloudBuffer>>;
  const std::lock_guard lock(mutex);
  std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<internal::CloudBuffer>& place = (*known)[{session.get(), array.handle}];
  if (std::shared_ptr<internal::CloudBuffer> there = place.lock(); there != nullptr) return there;
  __int128 bytes = ByteWidth(array.dtype);
  for (const int64_t dim : array.dims) {
    if (dim >= 0) bytes *= dim;
    if (dim < 0 || bytes > limits::kStoredBytesMax)
      throw Error(absl::DataLossError(absl::StrCat("the kept tensor ", array.name,
                                                   " has a shape that cannot be")),
                  at);
  }
  auto storage = std::make_shared<internal::CloudBuffer>();
  storage->session = session;
  storage->handle = array.handle;
  storage->dtype = array.dtype;
  storage->dims = array.dims;
  place = storage;
  return storage;
}

}  // namespace

void keep(const nn::StateDict& state, At at) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : state) {
    if (tensor.empty()) ThrowInvalid(at, absl::StrCat("keep: ", name, " is an empty tensor"));
    tensors.push_back(tensor);
  }
  if (!tensors.empty()) realize(tensors, {}, at);
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  std::vector<std::shared_ptr<internal::CloudBuffer>> storages;
  for (const auto& [name, tensor] : state) {
    storages.push_back(tensor.value()->storage);
    if (storages.back()->session != *session)
      throw Error(absl::FailedPreconditionError(
                      absl::StrCat("keep: ", name, " belongs to another session")),
                  at);
  }
  internal::Define(storages, at);
  std::vector<session::KeepEntry> entries;
  for (size_t i = 0; i < state.size(); ++i)
    entries.push_back({state[i].first, next_kept_id++, storages[i]->handle});
  ThrowIfError((*session)->Keep(entries), at);
  for (size_t i = 0; i < state.size(); ++i) {
    const std::shared_ptr<internal::TensorState>& value = tensors[i].value();
    value->kept_ids.clear();
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const std::shared_ptr<internal::TensorState>& value = tensors[i].value();
    value->kept_ids.push_back(entries[i].id);
    // Whatever is assigned to it is an output of a Run, which says that the name goes over.
    internal::ThreadState::Get().AddState(value);
  }
}

nn::StateDict kept(At at) {
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  // A fork may wait long for its device, and here the wait can be interrupted.
  if (const absl::Status waits = (*session)->AwaitWindow();
      !waits.ok() && (*session)->status().ok())
    throw Error(waits, at);
  nn::StateDict state;
  for (const session::KeptArray& array : (*session)->Kept()) {
    if (!array.status.ok())
      throw Error(absl::Status(array.status.code(), absl::StrCat("the kept tensor ", array.name,
                                                                 ": ", array.status.message())),
                  at);
    state.emplace_back(array.name, Tensor::FromStorage(KeptBuffer(*session, array, at)));
  }
  return state;
}

}  // namespace outboard
