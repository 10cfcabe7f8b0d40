// Receipts of workers in the accounts file: the last one of each leased device, and which physical
// device each one is.
//
//   RR1 only the worker whose device a lease names can write a receipt for it
//   RR2 a later number never counts less than an earlier one
//   RR3 a number is used once: the same number with other content is a conflict
//
// Threads: any; blocks on the disk. Errors of every call: those of Ledger's (ledger.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/ledger/ids.h"
#include "proto/fleet.pb.h"
#include "storage/sqlite.h"
#include "storage/table_owner.h"

namespace outboard::gateway {

// Charges and receipts of a running lease are each written every 5 s, not in the same moment; and
// the gateway counts until it hears of an end, the worker until it is told of it.
inline constexpr int64_t kReceiptSlackMs = 10'000;

// A leased device that is charged for more time than its worker signed for.
struct ReceiptShortfall {
  LeasedDevice device;
  std::string physical_device;  // its name is its worker's key and a number
  int64_t charged_ms = 0, signed_ms = 0;
  bool operator==(const ReceiptShortfall&) const = default;
};

class ReceiptRows : public storage::TableOwner {
 public:
  static absl::StatusOr<std::unique_ptr<ReceiptRows>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // Which physical devices a lease has, by their places in the session; before its row is written.
  // Idempotent; the last names count, since a lease whose row a crash prevented was no worker's.
  absl::Status NameDevices(const LeaseId& lease, std::span<const std::string> physical_devices);

  // Keeps receipts, which have been checked (wire/proof/receipt.h), in one transaction; says of
  // each what became of it, in their order. OK: it is kept, or a later one is. ABORTED: a conflict
  // (RR2, RR3). PERMISSION_DENIED: RR1.
  absl::StatusOr<std::vector<absl::Status>> Keep(std::span<const proto::Receipt> receipts);

  // The last receipt of each device of the lease, by place.
  absl::StatusOr<std::vector<proto::Receipt>> Of(const LeaseId& lease);

  // DATA_LOSS: a receipt is not what its worker signed. What is charged is not compared here: a
  // worker that signs too little could close the gateway (`outboard invoice --verify` compares).
  // Returns how many leased devices have a receipt.
  absl::StatusOr<int64_t> Verify();

  // Those that fall short of what the ledger in the same file has by more than kReceiptSlackMs, by
  // device, `most` at most. Of entries that were moved to a month's file nothing is known here.
  absl::StatusOr<std::vector<ReceiptShortfall>> Shortfalls(size_t most);

 private:
  explicit ReceiptRows(std::unique_ptr<storage::Database> db) : TableOwner(std::move(db)) {}
};

}  // namespace outboard::gateway
