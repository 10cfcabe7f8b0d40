// The snapshots of a session on several devices: all ranks take one of the same item, or there is
// none. Two halves:
//
//   SnapshotAsks   of an epoch: when the ranks are told to take one, and of which item
//                  (TakeSnapshot in cloud.proto, which goes to all of them between the same two
//                  items). The next is asked for when each rank has kept its part of the last, or
//                  has said that it will not.
//   SnapshotParts  of a placement: what the ranks have kept. The parts of one item are the snapshot
//                  once all are there; those of an earlier item are of no use then.
//
// An interval has passed, or the client's room for what is not in a snapshot is half full, or
// somebody waits for the session's memory: then one is due (as in
// worker/session/snapshot_schedule.h).
//
// No I/O. Times: milliseconds of any monotonic clock. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/merkle.h"

namespace outboard::gateway {

class SnapshotAsks {
 public:
  static constexpr int64_t kRetryMs = 1000;  // where somebody waits, and a rank has missed one

  // `ranks`: 2 to wire::kSessionDevicesMax.
  explicit SnapshotAsks(uint32_t ranks) : ranks_(ranks) {}

  // An epoch begins, whose ranks know of nothing that was asked before. 0: none are taken.
  void Begin(uint32_t interval_ms, int64_t now_ms);
  // An item, or a piece of one, went to the ranks.
  void Sent(uint64_t seq, uint64_t put_bytes);
  void RequestNow() { requested_ = true; }
  struct Ask {
    uint64_t seq = 0, number = 0;
  };
  // What to send to all ranks now, behind the item that was sent last. `from_seq`: the last item
  // that a rank had applied as the epoch began; of none before it is a snapshot possible.
  std::optional<Ask> Due(int64_t now_ms, uint64_t from_seq);

  void Missed(uint32_t rank, uint64_t number);
  void PartKept(uint32_t rank, uint64_t seq);
  void Durable(uint64_t seq);
  uint64_t durable_seq() const { return durable_seq_; }

 private:
  bool IsUrgent() const;
  void Settle(uint32_t rank);

  const uint32_t ranks_;
  uint32_t interval_ms_ = 0;
  int64_t next_ms_ = 0, retry_ms_ = 0;
  bool requested_ = false;
  uint64_t sent_seq_ = 0, sent_put_bytes_ = 0;  // of the session
  uint64_t durable_seq_ = 0, durable_put_bytes_ = 0;
  Ask asked_;                       // the last; number 0: none in this epoch
  uint64_t asked_put_bytes_ = 0;    // that were sent before it
  uint64_t settled_ = 0;            // ranks that have kept or missed it, a bit for each
  bool is_open_ = false;            // not all have
};

class SnapshotParts {
 public:
  explicit SnapshotParts(uint32_t ranks) : ranks_(ranks) {}

  // Adds a rank's part, a manifest. Returns true if all parts of this item are there now.
  bool Add(uint32_t rank, uint64_t seq, const wire::Hash& manifest);
  // Of the item that was complete last, by rank.
  const std::vector<wire::Hash>& whole() const { return whole_; }

 private:
  // Items with some parts. A rank that has kept nothing of an item is not asked for a later one
  // before it has said so, but its word may be late.
  static constexpr size_t kItemsMax = 2;

  const uint32_t ranks_;
  std::map<uint64_t, std::map<uint32_t, wire::Hash>> parts_;  // by item and rank
  std::vector<wire::Hash> whole_;
  uint64_t whole_seq_ = 0;
};

// The root of a session's snapshot: those of its parts, one behind the other.
std::string RootOfParts(const std::vector<wire::Hash>& parts);
// The parts of it; nothing: it is not that of so many ranks.
std::optional<std::vector<wire::Hash>> PartsOfRoot(std::string_view root, uint32_t ranks);
// That of `rank`; of a session on one device the whole. Empty: there is none.
std::string PartOfRoot(std::string_view root, uint32_t rank, uint32_t ranks);

}  // namespace outboard::gateway
