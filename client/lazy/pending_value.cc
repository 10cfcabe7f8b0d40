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

void Expect(CloudBuffer& buffer, uint64_t seq, uint32_t index) {
  buffer.fetched = std::make_shared<PendingValue>();
  buffer.fetched->session = buffer.session;
  buffer.fetched->seq = seq;
  buffer.fetched->index = index;
  buffer.fetched->dtype = buffer.dtype;
  buffer.fetched->dims = buffer.dims;
}

void Ask(std::span<const std::shared_ptr<CloudBuffer>> buffers, const At& at) {
  Define(buffers, at);
  std::vector<CloudBuffer*> missing;
  for (const std::shared_ptr<CloudBuffer>& buffer : buffers)
    if (buffer->fetched == nullptr &&
        std::find(missing.begin(), missing.end(), buffer.get()) == missing.end())
      missing.push_back(buffer.get());
  while (!missing.empty()) {  // once for each session: more than one only after a new session
    Session& session = *missing.front()->session;
    std::vector<CloudBuffer*> asked, later;
    std::vector<uint64_t> handles;
    for (CloudBuffer* const buffer : missing) {
      const bool now = buffer->session.get() == &session && asked.size() < wire::kRunHandlesMax;
      (now ? asked : later).push_back(buffer);
      if (now) handles.push_back(buffer->handle);
    }
    const absl::StatusOr<uint64_t> seq = session.Fetch(handles);
    ThrowIfError(seq.status(), at);
    for (uint32_t i = 0; i < asked.size(); ++i) Expect(*asked[i], *seq, i);
    missing = std::move(later);
  }
}

}  // namespace internal
}  // namespace outboard
