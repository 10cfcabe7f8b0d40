// The answers that a program waits for: values of Runs and Fetches, received in pieces, and
// outcomes of Saves.
//
// Each answer is taken once. The first one received counts; duplicates are dropped.
// Threads: one owner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/request.h"
#include "compiler/ir/host_tensor.h"
#include "proto/cloud.pb.h"

namespace outboard::session {

class PendingAnswers {
 public:
  // ---- values: (item, index)
  void Expect(uint64_t seq, uint32_t index);
  // Returns true if this was the last missing piece of its value. Pieces of one value may arrive on
  // two streams, and therefore in any order. A piece past the value's end, or of an unknown dtype,
  // fails all open answers of its item with INTERNAL.
  bool OnValue(proto::Value& piece);
  // Starts a new epoch: incomplete values are received again from the beginning.
  void Restart();
  bool Ready(uint64_t seq, uint32_t index) const;
  // Errors: FAILED_PRECONDITION  not expected, or already taken
  absl::StatusOr<HostTensor> Take(uint64_t seq, uint32_t index);  // Ready only
  void Forget(uint64_t seq, uint32_t index);
  // True if the value is expected and not complete.
  bool Misses(uint64_t seq, uint32_t index) const { return incomplete_.contains({seq, index}); }
  bool misses_any() const { return !incomplete_.empty(); }
  // All values of items below this number are complete; the largest number if all are.
  uint64_t first_incomplete_seq() const;

  // ---- saves
  void ExpectSaved(uint64_t seq);
  void OnSaved(const proto::Saved& saved);
  bool SavedReady(uint64_t seq) const;
  bool saves_any() const;  // in flight
  absl::StatusOr<Saved> TakeSaved(uint64_t seq);  // SavedReady only; errors as Take

  // ---- both
  void Fail(uint64_t seq, const absl::Status& status);  // all open answers of item `seq`
  void FailAll(const absl::Status& status);

 private:
  using Key = std::pair<uint64_t, uint32_t>;
  struct Slot {
    HostTensor value;
    std::map<uint64_t, std::string> ahead;  // by offset, beyond value.bytes
    uint64_t total_bytes = 0;
    bool complete = false;
    bool forgotten = false;
    absl::Status status;
  };

  std::map<Key, Slot> slots_;
  std::set<Key> incomplete_;
  std::map<uint64_t, std::optional<absl::StatusOr<Saved>>> saves_;  // empty: in flight
};

}  // namespace outboard::session
