// Nodes that may enrol, have enrolled, or wait to be let in; and the claims that are made for them.
// In the accounts file, which holds the claims' hashes.
//
//   claim:  MakeClaim --> open --SpendClaim--> used         open --15 minutes--> expired
//           open --MakeClaim for the same serial--> gone    used, expired --a day--> gone
//   node:   Expect --> expected --Enrolled--> enrolled, expected no more
//           waiting --Approve, Enrolled--> enrolled
//           any --Remove--> gone
//
// Threads: any; a mutex inside; several processes may use one file. Calls read or write the disk.
// Errors: those of storage::Database; INVALID_ARGUMENT  a serial number (CheckNodeSerial)
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/accounts/accounts.h"
#include "gateway/ledger/ids.h"
#include "proto/fleet.pb.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

inline constexpr int64_t kClaimLifeMs = 15 * 60'000;
// Nodes that wait to be let in, of all serial numbers and of one: whoever reaches the port can ask.
inline constexpr int64_t kNodesWaitingMax = 4096, kKeysWaitingPerSerialMax = 4;
// And from one address, or one /64 of IPv6: more than a shelf of machines behind one.
inline constexpr int64_t kNodesWaitingPerAddressMax = 256;
inline constexpr size_t kNodeFactsBytesMax = 4096;
inline constexpr int kNodeListsMax = 64;  // network devices, accelerators

// Errors: INVALID_ARGUMENT  names the field and its limit
absl::Status CheckNodeFacts(const proto::NodeFacts& facts);

enum class NodeState { kExpected, kWaiting, kApproved, kEnrolled };  // kApproved: may enrol
const char* ToString(NodeState state);

struct NodeRow {
  std::string serial;
  NodeState state = NodeState::kExpected;
  bool is_expected = false;     // whatever its key: Expect. Set by Find
  std::string key_id = {};      // that enrolled, or waits; "": none yet
  proto::NodeFacts facts = {};  // as it said last; empty: it has not asked yet
  std::string address = {};     // where it asked from
  WallTime since = {};          // since when it is in this state
  WallTime asked = {};          // last; 0: never
};

class NodeRegistry {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<NodeRegistry>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // ---- for operators

  // A new claim for one boot of this node; it is not shown again. Earlier ones that are open end.
  absl::StatusOr<Secret> MakeClaim(std::string_view serial, WallTime now);
  // The boot server may make a claim for this node, once, within 15 minutes.
  absl::Status OfferClaim(std::string_view serial, WallTime now);
  // Whether it may; taken by the call.
  absl::StatusOr<bool> TakeOffer(std::string_view serial, WallTime now);
  // The next node of this serial number is let in, whatever its key; once.
  absl::Status Expect(std::string_view serial, WallTime now);
  // Lets in the key that waits under this serial number, or the one that begins with `key`.
  // Errors: NOT_FOUND            none waits
  //         FAILED_PRECONDITION  several do: which they are
  absl::Status Approve(std::string_view serial, std::string_view key, WallTime now);
  absl::StatusOr<std::vector<NodeRow>> List();  // by serial number; a node that waits besides too
  // NOT_FOUND: none is expected, waits or has enrolled under this serial number.
  absl::Status Remove(std::string_view serial);

  // ---- for the gateway

  // Good also for the key that it was spent on, whose answer may have been lost.
  // Errors: PERMISSION_DENIED  with a word of node_words.h
  absl::Status CheckClaim(std::string_view claim, std::string_view serial, std::string_view key_id,
                          WallTime now);
  // The same, and takes it for good.
  absl::Status SpendClaim(std::string_view claim, std::string_view serial, std::string_view key_id,
                          WallTime now);
  // The node of this serial number, unless it only waits. NOT_FOUND: there is none.
  absl::StatusOr<NodeRow> Find(std::string_view serial);
  absl::StatusOr<bool> IsApproved(std::string_view serial, std::string_view key_id);
  // Errors: RESOURCE_EXHAUSTED  too_many_wait, of all or of its address
  absl::Status NoteWaiting(const NodeRow& node, WallTime now);
  absl::Status Enrolled(const NodeRow& node, WallTime now);

 private:
  explicit NodeRegistry(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  absl::Status CheckClaimLocked(std::string_view claim, std::string_view serial,
                                std::string_view key_id, WallTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
