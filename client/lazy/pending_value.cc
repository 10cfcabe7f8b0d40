#include "client/lazy/pending_value.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"
#include "wire/limits.h"

namespace outboard {
namespace internal {
namespace {

// What comes back must be what the graph says, whatever the other side does.
absl::Status CheckAnswer(const HostTensor& host, const PendingValue& wanted) {
  if (host.dtype == wanted.dtype && host.dims == wanted.dims &&
      static_cast<int64_t>(host.bytes.size()) == host.ElementCount() * ByteWidth(host.dtype))
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the cloud sent ", std::string(Name(host.dtype)), DimsToString(ToShape(host.dims)), " of ",
      host.bytes.size(), " bytes for a value that is ", std::string(Name(wanted.dtype)),
      DimsToString(ToShape(wanted.dims))));
}

}  // namespace

PendingValue::~PendingValue() {
  if (!has_come()) session->Forget(seq, index);
}

absl::StatusOr<HostTensor>& PendingValue::Wait() {
  if (!has_come()) {
    absl::StatusOr<HostTensor> host = session->Await(seq, index);
    interrupted = !host.ok() && !session->Ready(seq, index);
    answer = std::move(host);
    if (answer->ok())
      if (absl::Status status = CheckAnswer(**answer, *this); !status.ok())
        answer = std::move(status);
  }
  return *answer;
}

void Expect(CloudBuffer& storage, uint64_t seq, uint32_t index) {
  storage.fetched = std::make_shared<PendingValue>();
  storage.fetched->session = storage.session;
  storage.fetched->seq = seq;
  storage.fetched->index = index;
  storage.fetched->dtype = storage.dtype;
  storage.fetched->dims = storage.dims;
}

void Ask(std::span<const std::shared_ptr<CloudBuffer>> storages, const At& at) {
  Define(storages, at);
  std::vector<CloudBuffer*> missing;
  for (const std::shared_ptr<CloudBuffer>& storage : storages)
    if (storage->fetched == nullptr &&
        std::find(missing.begin(), missing.end(), storage.get()) == missing.end())
      missing.push_back(storage.get());
  while (!missing.empty()) {  // once for each session: more than one only after a new session
    Session& session = *missing.front()->session;
    std::vector<CloudBuffer*> asked, later;
    std::vector<uint64_t> handles;
    for (CloudBuffer* const storage : missing) {
      const bool now = storage->session.get() == &session && asked.size() < wire::kRunHandlesMax;
      (now ? asked : later).push_back(storage);
      if (now) handles.push_back(storage->handle);
    }
    const absl::StatusOr<uint64_t> seq = session.Fetch(handles);
    ThrowIfError(seq.status(), at);
    for (uint32_t i = 0; i < asked.size(); ++i) Expect(*asked[i], *seq, i);
    missing = std::move(later);
  }
}

}  // namespace internal
}  // namespace outboard
