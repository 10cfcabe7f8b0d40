// The audit: everything that the ledger holds, computed anew, and compared with what was signed at
// the audit before.
//
// The gateway audits at its start and every hour; `outboard audit` does so on demand. What was
// verified last is signed into a file beside the books, so that a ledger that was written anew as a
// whole, or put back to an older state, is found too.
//
// Threads: Audit any; an Auditor has one of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/receipt_rows.h"
#include "wire/proof/signing_key.h"

namespace outboard::gateway {

// The gateway's key, which signs heads; in its data folder, for its owner alone.
std::string LedgerKeyPath(const std::string& data_folder);

struct AuditReport {
  VerifyReport ledger;
  int64_t receipts = 0;         // leased devices with one; each signature was checked
  int64_t verified_before = 0;  // entries that the audit before had verified, and are still those
  // Findings of workers, kShortfallsShown at most: no fault of the books, and no reason to close a
  // gateway, or any machine of an account's own could.
  std::vector<ReceiptShortfall> shortfalls;
};
inline constexpr size_t kShortfallsShown = 1000;

// By worker: the beginning of its receipt key in hex, as devices are named by.
struct WorkerShortfall {
  std::string worker;
  int64_t devices = 0;  // leased ones
  int64_t charged_ms = 0, signed_ms = 0;
};
std::vector<WorkerShortfall> ByWorker(const std::vector<ReceiptShortfall>& shortfalls);

// Others may write meanwhile. Reads the whole accounts file.
// Errors: DATA_LOSS  says what does not verify; otherwise those of Ledger and of SigningKey::Open
absl::StatusOr<AuditReport> Audit(const std::string& data_folder, const std::string& accounts_path);

class Auditor {
 public:
  // Audits at once, and again `every`; calls `found` with each result, on its thread.
  using Found = std::function<void(const absl::StatusOr<AuditReport>&)>;
  Auditor(std::function<absl::StatusOr<AuditReport>()> audit, Found found,
          std::chrono::milliseconds every);
  ~Auditor();  // waits for the audit that runs
  // False: the first audit takes longer than `limit`.
  bool AwaitFirst(std::chrono::milliseconds limit);

 private:
  void Work();

  const std::function<absl::StatusOr<AuditReport>()> audit_;
  const Found found_;
  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, has_first_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
