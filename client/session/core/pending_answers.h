// The answers that a program waits for: values of Runs and Fetches, in pieces, and outcomes of
// Saves.
//
// Every answer comes once: the first is it, others of the same are dropped. It is taken once.
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

namespace outboard::transport {

class PendingAnswers {
 public:
  // ---- values: (item, index)
  void Expect(uint64_t seq, uint32_t index);
  // True if it was the last missing piece of its value. Pieces of one value may come on two
  // streams, and so in any order. One beyond the value's end, or of an unknown dtype, fails what
  // its item owes with INTERNAL.
  bool OnValue(proto::Value& piece);
  // A new epoch: values that are not complete come again from the beginning.
  void Restart();
  bool Ready(uint64_t seq, uint32_t index) const;
  // Errors: FAILED_PRECONDITION  not asked for, or taken already
  absl::StatusOr<HostTensor> Take(uint64_t seq, uint32_t index);  // Ready only
  void Forget(uint64_t seq, uint32_t index);
  // Whether the value still has to come.
  bool Misses(uint64_t seq, uint32_t index) const { return incomplete_.contains({seq, index}); }
  bool misses_any() const { return !incomplete_.empty(); }
  // Every value of items below it has come; the largest number if all have.
  uint64_t first_incomplete_seq() const;

  // ---- saves
  void ExpectSaved(uint64_t seq);
  void OnSaved(const proto::Saved& saved);
  bool SavedReady(uint64_t seq) const;
  absl::StatusOr<Saved> TakeSaved(uint64_t seq);  // SavedReady only; errors as Take

  // ---- both
  void Fail(uint64_t seq, const absl::Status& status);  // what item `seq` still owes
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
  std::map<uint64_t, std::optional<absl::StatusOr<Saved>>> saves_;  // empty: under way
};

}  // namespace outboard::transport
