// What a worker keeps of the kernels of each account: compiled objects, and measurements. Accounts
// are kept apart, so that neither an answer nor its speed tells one what another has computed, and
// so that code which one account's kernels have damaged runs for nobody else.
//
//   <objects>/accounts/<account>/         compiled kernels (worker/compile/object_cache.h)
//   <folder of the store>/accounts/<account>/kernels.db     measurements
//   <folder of the store>/accounts/shared/kernels.db        of kernels without constants, of all
//                                                           accounts that share (tuning_key.h)
//
// <account> is the account's number and, before it, a part of the hash of the fleet's secret, since
// two gateways may number their accounts alike. A worker with one user (`outboard serve`) uses
// <objects> and the store themselves. All accounts' files together have a limit (account_disk.h).
//
// Nothing is opened here: the threads that serve executors do so (kernel_service.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "worker/compile/object_cache.h"
#include "worker/kernels/account_disk.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

// One account's files; each path is empty where nothing is kept.
struct AccountFiles {
  std::string owner;          // names the account; empty: the only user, or nobody
  std::string objects;        // a folder
  std::string tuning;         // a file
  std::string shared_tuning;  // a file; empty: the account does not share
  bool learns = false;        // makes files of measurements that are not there
  int64_t objects_bytes_max = kObjectCacheBytesMax;
  int64_t tuning_bytes_max = kTuningFileBytesMax;  // of each file
  std::shared_ptr<AccountDisk> disk = {};  // counts what is written; null: not counted

  bool operator==(const AccountFiles&) const = default;
};

// Opens an account's store, with what it shares.
//   Find: what the account has measured itself, unless others have searched a kernel without
//         constants more widely.
//   Add, Finish: also to what is shared, for kernels without constants.
// Returns nullptr where nothing is kept.
// Errors: UNAVAILABLE, RESOURCE_EXHAUSTED, DATA_LOSS  as TuningFile::Open
absl::StatusOr<std::unique_ptr<TuningStore>> OpenTuning(const AccountFiles& files,
                                                        HeldFolder::For what = HeldFolder::kUse);

struct AccountKernelsOptions {
  std::string store;          // KernelStorePath(); empty: no measurements
  std::string objects;        // OUTBOARD_OBJECT_CACHE; empty: no objects are kept
  std::string fleet_secret;   // whose accounts they are
  bool one_user = false;      // all accounts are one
  std::string hardware = {};  // class of the device that searches; empty: the machine's
  bool learns = false;        // as AccountFiles has it
  // Of all accounts' files together: OUTBOARD_OBJECT_CACHE_BYTES, OUTBOARD_KERNEL_STORE_BYTES. 0:
  // as much as eight accounts may have. No account has more than that, nor has the only user.
  int64_t objects_bytes_max = 0;
  int64_t store_bytes_max = 0;
};

// The options that the environment asks for, without the fleet and its users.
AccountKernelsOptions AccountKernelsFromEnvironment();

// Threads: any.
class AccountKernels {
 public:
  explicit AccountKernels(AccountKernelsOptions options);

  // Notes that the account has a session here. 0 is nobody's: nothing is kept for it.
  AccountFiles FilesOf(uint64_t account, bool shares);
  // False: no account has measurements, nor will have.
  bool tunes() const;

  // The right to search: one search on this machine at a time, since two would measure each other.
  struct SearchTurn {
    AccountFiles files;
    std::shared_ptr<void> lock;
  };
  // Returns the account whose kernels have cost the most without a finished search, of those that
  // had sessions here. Each account gets one turn a round. nullopt: none, or another process
  // searches.
  std::optional<SearchTurn> NextSearch(bool new_round);

 private:
  struct Account {
    uint64_t number;
    bool shares;
  };
  AccountFiles Locate(uint64_t account, bool shares) const;

  const AccountKernelsOptions options_;
  const std::string prefix_;           // of the accounts' folders
  std::shared_ptr<AccountDisk> disk_;  // null: there are no accounts, or nothing is kept
  std::mutex mutex_;
  std::deque<Account> recent_;    // the latest last
  std::set<uint64_t> had_turns_;  // in this round
};

}  // namespace outboard::worker
