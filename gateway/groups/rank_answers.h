// Merges the answers of a session's ranks into those of one session, for its client.
//
//   Opened       when all ranks have sent theirs: the least applied item, rank 0's device
//   Done         the least item that all ranks have applied; the work of all ranks together
//   values       rank 0's, as they come; no other rank sends any
//   Failed       of each item the first one; of a Fetch or Save rank 0's
//   spans        rank 0's
//   kernel uses, durable_seq   none: each rank has its own, which the relay keeps for its successor
//   Saved, Need, Kept  rank 0's
//
// All ranks apply the same items. If a Run or Put failed on some ranks and not on others, what they
// hold has parted, and the session ends.
//
// No I/O. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

class RankAnswers {
 public:
  // `ranks`: 2 to wire::kSessionDevicesMax.
  explicit RankAnswers(uint32_t ranks) : ranks_(ranks) {}

  // A new epoch: every rank opens again.
  void Restart();
  bool all_opened() const { return opened_ == ranks_.size(); }
  // Once all have opened: the last item that any had applied by then, and whether it was that of
  // all.
  uint64_t most_opened() const;
  bool opened_alike() const;
  uint64_t least_done() const { return LeastDone(); }
  // What was last said to be done, and the work of all ranks until then.
  proto::Done last_done() const;

  // Replaces the items of `frame`, which came from `rank`, by those for the client; there may be
  // none. Before all ranks have opened, items are retained and come with the last Opened.
  // `sent_seq`: the last item that was sent to the ranks.
  // Errors: INTERNAL  ranks disagree on whether an item failed (item, ranks, the failure)
  absl::Status Merge(uint32_t rank, uint64_t sent_seq, proto::ServerFrame& frame);
  // The client has all answers to items up to this one, and ranks send them no more.
  void Acknowledged(uint64_t through_seq);
  // True if a rank has said, since the last call, that it applied what was not sent to it.
  bool TakeLie() { return std::exchange(lied_, false); }

 private:
  using Items = google::protobuf::RepeatedPtrField<proto::ServerItem>;
  struct Rank {
    bool opened = false;
    uint64_t opened_seq = 0;  // that it had applied when it opened
    uint64_t done_seq = 0;
    uint64_t device_time_us = 0, kernels = 0, operations = 0, bytes_accessed = 0;
  };
  struct Failure {
    uint64_t ranks = 0;  // a bit for each
    uint32_t rank = 0;   // the first
    std::string message;
  };

  void OnOpened(uint32_t rank, proto::Opened& opened);
  bool OnDone(uint32_t rank, uint64_t sent_seq, proto::Done& done);  // true: to the client
  bool OnFailed(uint32_t rank, const proto::Failed& failed);         // the same
  absl::Status CheckFailures();
  uint64_t LeastDone() const;
  void AddWork(proto::Done& done) const;

  std::vector<Rank> ranks_;
  size_t opened_ = 0;
  uint64_t told_seq_ = 0;     // the last Done that went to the client
  uint64_t checked_seq_ = 0;  // ranks agree about the items up to this one
  bool told_end_ = false;     // a Failed of the session
  bool lied_ = false;
  Items held_;                            // until all have opened
  std::map<uint64_t, Failure> failures_;  // by item, until all ranks are done with it
  std::set<uint64_t> failed_;             // items whose failure went to the client in this epoch
};

}  // namespace outboard::gateway
