#include "client/nn/checkpoint.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/lazy_graph.h"

namespace outboard {

SaveFuture save_later(const std::string& name, const nn::StateDict& state, At at) {
  std::vector<Tensor> tensors;
  std::set<std::string> names;
  for (const auto& [entry, tensor] : state) {
    if (tensor.empty()) ThrowInvalid(at, absl::StrCat("save: ", entry, " is an empty tensor"));
    if (!names.insert(entry).second)
      ThrowInvalid(at, absl::StrCat("save: ", entry, " is there twice"));
    tensors.push_back(tensor);
  }
  realize(tensors, {}, at);
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  std::vector<std::shared_ptr<internal::CloudBuffer>> storages;
  for (const auto& [entry, tensor] : state) {
    storages.push_back(tensor.value()->storage);
    if (storages.back()->session != *session) {
      throw Error(absl::FailedPreconditionError(
                      absl::StrCat("save: ", entry, " is of a session that is over")),
                  at);
    }
  }
  internal::Define(storages, at);
  std::vector<session::SaveEntry> entries;
  for (size_t i = 0; i < state.size(); ++i)
    entries.push_back({state[i].first, storages[i]->handle});
  SaveFuture future;
  absl::StatusOr<uint64_t> seq = (*session)->Save(name, entries);
  ThrowIfError(seq.status(), at);
  future.session_ = *std::move(session);
  future.seq_ = *seq;
  return future;
}

SavedBytes SaveFuture::wait(At at) {
  if (session_ == nullptr)
    throw Error(absl::FailedPreconditionError("this save was waited for already"), at);
  const std::shared_ptr<Session> session = std::exchange(session_, nullptr);
  absl::StatusOr<session::Saved> saved = session->AwaitSaved(seq_);
  ThrowIfError(saved.status(), at);
  return {saved->total_bytes, saved->sent_bytes};
}

SavedBytes save(const std::string& name, const nn::StateDict& state, At at) {
  return save_later(name, state, at).wait(at);
}

nn::StateDict load(const std::string& name, At at) {
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  const absl::StatusOr<std::vector<session::StoredArray>> arrays = (*session)->Stored(name);
  ThrowIfError(arrays.status(), at);
  nn::StateDict state;
  for (const session::StoredArray& array : *arrays)
    state.emplace_back(array.name, Tensor::FromStored(*session, array, at));
  return state;
}

}  // namespace outboard
