#include "worker/tuning/idle_watch.h"

#include <algorithm>

namespace outboard::worker {

void IdleWatch::Sent(const std::string& session, uint64_t seq, Time now) {
  Session& at = sessions_[session];
  const bool was_busy = at.sent > at.applied;
  at.sent = std::max(at.sent, seq);
  busy_ += !was_busy && at.sent > at.applied;
  last_ = now;
}

void IdleWatch::Applied(const std::string& session, uint64_t through_seq, Time now) {
  Session& at = sessions_[session];
  const bool was_busy = at.sent > at.applied;
  at.applied = std::max(at.applied, through_seq);
  busy_ -= was_busy && at.sent <= at.applied;
  last_ = now;
}

void IdleWatch::Ended(const std::string& session, Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  busy_ -= found->second.sent > found->second.applied;
  sessions_.erase(found);
  last_ = now;
}

std::optional<IdleWatch::Time> IdleWatch::IdleFrom() const {
  if (busy_ > 0) return std::nullopt;
  return last_ + quiet_;
}

}  // namespace outboard::worker
