// Decides when to take a snapshot of a session: at intervals, and when too much work would have to
// be replayed if the worker died.
//
// A snapshot is due when something was applied that no snapshot holds, none is under way, and
//   the interval since the last one was begun has passed, or
//   wire::kNotDurableItemsMax items are not durable, or wire::kNotDurableBytesMax bytes of Puts,
//   or one was requested.
// The client keeps what is not durable, with room for twice that (proto/cloud.proto, Recovery): it
// goes on while a snapshot is being stored. One that failed is tried again after an interval; after
// kRetryMs where somebody waits for it: a limit is passed, or it was requested.
// A rank of several is told when, and of which item: none is ever due.
// Times: milliseconds of any monotonic clock. Threads: one.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/cloud.pb.h"

namespace outboard::worker {

class SnapshotSchedule {
 public:
  static constexpr int64_t kRetryMs = 1000;

  void SetInterval(uint32_t interval_ms) { interval_ms_ = interval_ms; }  // 0: no snapshots
  void SetWhenTold() { interval_ms_ = 0, is_told_ = true; }
  bool takes_snapshots() const { return interval_ms_ > 0 || is_told_; }
  // The session starts from a snapshot that includes items up to `seq`.
  void Restored(uint64_t seq) { applied_seq_ = durable_seq_ = seq; }
  void Applied(const proto::ClientItem& item);
  // Of what is applied by now. Without an interval it has no effect.
  void RequestNow() { requested_ = applied_seq_ != durable_seq_; }

  bool Due(int64_t now_ms);
  void Begun(int64_t now_ms);
  void Stored(bool stored, int64_t now_ms);

  // Returns when the result of Due may change if no item is applied; nullopt: never.
  std::optional<int64_t> wake_ms() const;
  uint64_t durable_seq() const { return durable_seq_; }

 private:
  bool Full() const;
  bool IsUrgent() const { return requested_ || Full(); }

  uint32_t interval_ms_ = 0;
  bool is_told_ = false;
  std::optional<int64_t> next_ms_;  // from when the interval is over; nullopt: it has not begun
  int64_t retry_ms_ = 0;            // not before, also if urgent
  bool under_way_ = false;
  bool requested_ = false, answers_request_ = false;  // the latter: the one under way
  uint64_t applied_seq_ = 0, applied_put_bytes_ = 0;
  uint64_t begun_seq_ = 0, begun_put_bytes_ = 0;  // what the one under way holds
  uint64_t durable_seq_ = 0, durable_put_bytes_ = 0;
};

}  // namespace outboard::worker
