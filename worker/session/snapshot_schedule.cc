#include "worker/session/snapshot_schedule.h"

#include <algorithm>

#include "wire/limits.h"

namespace outboard::worker {

void SnapshotSchedule::Applied(const proto::ClientItem& item) {
  applied_seq_ = std::max(applied_seq_, item.seq());
  applied_put_bytes_ += item.put().data().size();
}

bool SnapshotSchedule::Full() const {
  return applied_seq_ - durable_seq_ >= wire::kNotDurableItemsMax ||
         applied_put_bytes_ - durable_put_bytes_ >= wire::kNotDurableBytesMax;
}

bool SnapshotSchedule::Due(int64_t now_ms) {
  if (interval_ms_ == 0) return false;
  if (!next_ms_) next_ms_ = now_ms + interval_ms_;
  if (under_way_ || applied_seq_ == durable_seq_) return false;
  return now_ms >= *next_ms_ || (IsUrgent() && now_ms >= retry_ms_);
}

void SnapshotSchedule::Begun(int64_t now_ms) {
  under_way_ = true;
  answers_request_ = requested_;
  begun_seq_ = applied_seq_;
  begun_put_bytes_ = applied_put_bytes_;
  next_ms_ = now_ms + interval_ms_;
}

void SnapshotSchedule::Stored(bool stored, int64_t now_ms) {
  under_way_ = false;
  if (stored) {
    durable_seq_ = begun_seq_;
    durable_put_bytes_ = begun_put_bytes_;
    if (answers_request_ || applied_seq_ == durable_seq_) requested_ = false;
  } else {
    retry_ms_ = now_ms + kRetryMs;
  }
}

std::optional<int64_t> SnapshotSchedule::wake_ms() const {
  if (interval_ms_ == 0 || under_way_ || applied_seq_ == durable_seq_ || !next_ms_)
    return std::nullopt;
  return IsUrgent() ? std::min(*next_ms_, retry_ms_) : *next_ms_;
}

}  // namespace outboard::worker
