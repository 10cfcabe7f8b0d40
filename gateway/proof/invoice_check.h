// Checks an account's invoice without trusting who wrote it: computes every amount from price and
// time, the chain of hashes from the entries, and compares it with heads that were seen before.
//
// Finds: an entry that was changed, removed, added or moved after a head was signed, a cut end, a
// chain that was built anew, a charge that is not its price times its time, time that is charged
// twice or not in order, a price that changes within a lease, more time than the worker that served
// it has signed for, and a balance that is not the sum of the lines.
// No I/O. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/usage.h"
#include "gateway/ledger/use_state.h"
#include "proto/account.pb.h"
#include "wire/proof/signed_head.h"

namespace outboard::gateway {

struct PostedEntry;

// An entry on the wire, and back. DATA_LOSS: a field has no possible value.
void Fill(const PostedEntry& entry, proto::InvoiceEntry& out);
absl::StatusOr<PostedEntry> EntryFrom(const proto::InvoiceEntry& in);

struct InvoiceReport {
  int64_t entries = 0;
  Usage used;
  MicroUsd balance;
  int64_t leases = 0;            // leased devices
  int64_t leases_receipted = 0;  // of those, with a worker's receipt
  int64_t heads_seen = 0;        // that were compared
};

class InvoiceCheck {
 public:
  // `seen`: heads that this account's clients have kept, in any order.
  explicit InvoiceCheck(std::vector<proto::LedgerHead> seen);

  // The account's entries, oldest first, all of them; and its receipts, in any order.
  // Errors: DATA_LOSS  names the entry, and what is wrong
  absl::Status Add(const proto::InvoiceEntry& entry);
  absl::Status AddReceipt(const proto::Receipt& receipt);
  // `head`: the present one, that covers exactly the entries that were added.
  absl::StatusOr<InvoiceReport> Finish(const proto::LedgerHead& head);

 private:
  struct Leased {
    int64_t price = 0, granted_ms = 0, to_ms = 0;  // the price in micro-dollars an hour
    UseState use = UseState::kRun;
  };
  absl::Status CheckUse(const PostedEntry& entry);
  absl::Status CompareSeen();

  std::multimap<int64_t, proto::LedgerHead> seen_;  // by the account's entries
  signing::AccountChain chain_;
  int64_t charged_ = 0;  // the tenant that the charges are of; 0: there was none
  std::map<LeasedDevice, Leased> leased_;
  std::map<LeasedDevice, int64_t> usable_ms_;
  std::map<int64_t, MicroUsd> balances_;  // of each tenant in a line
  int64_t last_at_ms_ = 0;
  InvoiceReport report_;
};

}  // namespace outboard::gateway
