#include "client/session/core/provenance.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/core/failure.h"

namespace outboard::transport {

void Provenance::Remember(uint64_t seq, std::shared_ptr<const RunOrigin> origin) {
  ++steps_;
  if (origin == nullptr) return;
  runs_.push_back({seq, steps_, std::move(origin)});
  if (runs_.size() > kRunsRememberedMax) runs_.pop_front();
}

absl::Status Provenance::Explain(const absl::Status& status) const {
  const std::optional<Failure> failure = FailureOf(status);
  if (!failure || failure->seq == 0) return status;
  const auto run =
      std::lower_bound(runs_.begin(), runs_.end(), failure->seq,
                       [](const Run& candidate, uint64_t seq) { return candidate.seq < seq; });
  if (run == runs_.end() || run->seq != failure->seq) return status;
  std::string message =
      absl::StrCat(status.message(), "; in step ", run->step, ", sent at ", run->origin->SentAt());
  if (failure->node)
    if (const std::string line = run->origin->WrittenAt(*failure->node); !line.empty())
      absl::StrAppend(&message, ", by what is written at ", line);
  Failure said = *failure;
  said.seq = 0;  // explained: once is enough
  return WithFailure(absl::Status(status.code(), message), said);
}

}  // namespace outboard::transport
