#include "client/lazy/provenance.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/core/failure.h"

namespace outboard::internal {

void Provenance::Remember(uint64_t seq, const At& at, std::shared_ptr<const Lines> lines) {
  const std::lock_guard lock(mutex_);
  // Threads that share an engine may come here in another order than that of their Runs.
  auto place = runs_.end();
  while (place != runs_.begin() && std::prev(place)->seq > seq) --place;
  runs_.insert(place, {seq, ++steps_, at, std::move(lines)});
  if (runs_.size() > kRunsRememberedMax) runs_.pop_front();
}

absl::Status Provenance::Explain(const absl::Status& status) const {
  const std::optional<transport::Failure> failure = transport::FailureOf(status);
  if (!failure || failure->seq == 0) return status;
  const std::lock_guard lock(mutex_);
  const auto run =
      std::lower_bound(runs_.begin(), runs_.end(), failure->seq,
                       [](const Run& candidate, uint64_t seq) { return candidate.seq < seq; });
  if (run == runs_.end() || run->seq != failure->seq) return status;
  std::string message =
      absl::StrCat(status.message(), "; in step ", run->step, ", sent at ", LineOf(run->at));
  // The index comes from the other side.
  if (failure->node && *failure->node < run->lines->size())
    absl::StrAppend(&message, ", by what is written at ", LineOf((*run->lines)[*failure->node]));
  transport::Failure said = *failure;
  said.seq = 0;  // explained: once is enough
  return transport::WithFailure(absl::Status(status.code(), message), said);
}

}  // namespace outboard::internal
