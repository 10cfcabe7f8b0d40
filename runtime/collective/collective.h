// Collectives between the ranks of a group: they move bytes and compute nothing.
//
// A mesh numbers its ranks with the last axis fastest. A transfer goes through a group: the ranks
// that differ in (rank / stride) % count alone; that number is a rank's place in it. All ranks of a
// group start the same transfers in the same order; groups are independent of each other.
//
// Start    only begins: the bytes that are sent must stay as they are, and those that are received
//          are undefined, until Wait for it returns.
// Wait     returns when this rank has what it receives and no partner needs its memory any more.
//          Each transfer is waited for once, in any order that is the same on all its ranks.
// Abort    ends everything for all ranks of the mesh, also of other groups: a Wait that is on its
//          way or comes later returns the cause. The first cause is the one that all get. When a
//          Wait has returned an error, or Abort has returned on this rank, no partner touches this
//          rank's memory any more.
// Epochs.  An epoch is one life of the group: after an abort the ranks get new Collectives with a
//          higher epoch. Bytes of another epoch are refused, so what a lost partner sent late goes
//          nowhere.
// Errors.  Start: INVALID_ARGUMENT for sizes or a group that do not fit. Both: UNAVAILABLE after an
//          abort, with the rank that aborted and its reason (AbortedRank). Ranks that started
//          different transfers are a bug of ours, which aborts.
// Threads. Start and Wait: one thread, the executor's. Abort and status: any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::collective {

// Who a rank is: what an executor is told when it joins a group.
struct Member {
  int64_t rank = 0;
  std::vector<int64_t> mesh;  // sizes of its axes; their product is the number of ranks
  uint64_t epoch = 0;         // the life of the group, counted from 1

  int64_t ranks() const {
    int64_t product = 1;
    for (const int64_t size : mesh) product *= size;
    return product;
  }
};

enum class TransferPattern {
  kAllGather,  // send: a block; receive: the blocks of all places, in order
  kAllToAll,   // send: a block for each place, in order; receive: the blocks from all places
  kBroadcast,  // send: a block, of which that of `root` is used; receive: that block
};
std::string ToString(TransferPattern pattern);

struct BlockTransfer {
  TransferPattern pattern = TransferPattern::kAllGather;
  int64_t count = 1;   // of the group
  int64_t stride = 1;  // likewise
  int64_t root = 0;    // place of the sender, for kBroadcast
  // Host memory, or the device's where the Collective takes that. The two do not overlap.
  std::span<const char> send;
  std::span<char> receive;

  int64_t block_bytes() const {
    const auto bytes = static_cast<int64_t>(send.size());
    return pattern == TransferPattern::kAllToAll ? bytes / count : bytes;
  }
};

// Checks sizes and group against the mesh.
// Errors: INVALID_ARGUMENT
absl::Status CheckTransfer(const Member& member, const BlockTransfer& transfer);

// Names a bucket that was started, until it has been waited for.
enum class TransferId : int64_t {};

class Collective {
 public:
  explicit Collective(Member member) : member_(std::move(member)) {}
  // Leaves the group: aborts what partners still wait for.
  virtual ~Collective() = default;

  const Member& member() const { return member_; }

  // Starts the transfers of a bucket together: one message to each partner where the transport can.
  // They have one pattern, one group and one root. Requires at least one.
  virtual absl::StatusOr<TransferId> Start(std::span<const BlockTransfer> bucket) = 0;
  virtual absl::Status Wait(TransferId id) = 0;
  virtual void Abort(const absl::Status& cause) = 0;
  // OK, or what ended the group. A rank of a group that has ended computes nothing more for it.
  virtual absl::Status status() const = 0;

  // Whether the memory of its transfers is that of the rank's device.
  virtual bool takes_device_memory() const { return false; }
  // What moves bytes of the host's memory between the same ranks: this, or what ends with it.
  virtual Collective& of_host() { return *this; }

 private:
  const Member member_;
};

// The status that all ranks get where `rank` aborted with `cause`.
absl::Status AbortedBy(int64_t rank, const absl::Status& cause);
// That rank; nothing, if `status` is none of AbortedBy.
std::optional<int64_t> AbortedRank(const absl::Status& status);

}  // namespace outboard::collective
