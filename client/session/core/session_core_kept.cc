// The part of SessionCore that is about arrays with names, and state that another client made.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/core/outgoing_items.h"
#include "client/session/core/session_core.h"
#include "compiler/ir/limits.h"
#include "wire/status_code.h"

namespace outboard::session {

absl::StatusOr<uint64_t> SessionCore::Keep(std::span<const KeepEntry> entries) {
  if (opened_.protocol() == 0)
    return absl::FailedPreconditionError("names for arrays before the session is open");
  if (!opened_.keeps())
    return absl::UnimplementedError("this worker is of an older version and keeps no names");
  absl::StatusOr<proto::ClientItem> item = KeepItem(entries);
  if (!item.ok()) return item.status();
  std::vector<std::pair<uint64_t, uint64_t>> handles;
  for (const KeepEntry& entry : entries) handles.emplace_back(entry.id, entry.handle);
  const std::vector<uint64_t> ended = kept_handles_.Set(handles);
  FlushReleases();
  releases_ = ended;
  return Add(*std::move(item), {}).seq;
}

// What another client made is there up to this item, and nothing of it is this one's to send again.
void SessionCore::BeginAt(uint64_t seq) {
  resend_buffer_.BeginAfter(seq);
  done_seq_ = acked_seq_ = seq;
}

std::vector<KeptArray> SessionCore::TakeKept() {
  std::vector<KeptArray> taken = kept_;
  for (KeptArray& array : taken)
    if (array.status.ok() && !kept_handles_.Take(array.handle))
      array.status = absl::FailedPreconditionError("it has another name or value since");
  return taken;
}

void SessionCore::OnKept(const proto::Kept& kept) {
  if (!is_new_client_) return;  // this one has them
  for (const proto::Kept::Entry& entry : kept.entries()) {
    KeptArray array{entry.name(),
                    entry.handle(),
                    static_cast<DType>(entry.dtype()),
                    {entry.dims().begin(), entry.dims().end()},
                    {}};
    if (entry.dtype() == 0)
      array.status = absl::Status(wire::CodeFromWire(entry.code()), entry.message());
    else if (entry.dtype() >= kDTypeCount || entry.dims_size() > limits::kRankMax)
      return End(absl::InternalError(absl::StrCat("a kept array cannot be: ", entry.name())));
    kept_.push_back(std::move(array));
    if (kept_.size() > wire::kRunHandlesMax)
      return End(absl::InternalError("more names of kept arrays than a session has"));
  }
  if (!kept.is_last()) return;
  // Until this program names arrays itself. Ids that no RunRequest has.
  std::vector<std::pair<uint64_t, uint64_t>> handles;
  for (size_t i = 0; i < kept_.size(); ++i)
    handles.emplace_back(uint64_t{1} << 63 | i, kept_[i].handle);
  kept_handles_.Set(handles);
  for (const KeptArray& array : kept_) kept_handles_.Release(array.handle);  // until TakeKept
  first_handle_ = std::max<uint64_t>(1, kept.next_handle());
  is_new_client_ = false;
}

}  // namespace outboard::session
