// Stores measurements of kernels on this machine: every list of Opts that was tried, and its time.
//
// TuningFile is an SQLite file, which supervisors read and write: one for each account
// (worker/kernels/account_kernels.h). Processes that run tenants' kernels ask their supervisor
// (worker/kernels/kernel_client.h). A store holds decisions, never code: the worst that a wrong or
// forged entry can do is to be refused by ApplyOpts or to be slow. Each trial is written as soon as
// it is measured, so that a stopped search can continue.
//
// Errors of every call, besides its own: those of storage/sqlite.h (UNAVAILABLE,
// RESOURCE_EXHAUSTED, DATA_LOSS). A worker without a store still works. Threads: any; calls are
// serialised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "compiler/search/trial.h"

namespace outboard::storage {
class Database;
}
namespace outboard::proto {
class Trial;
class TunedKernel;
}  // namespace outboard::proto

namespace outboard::worker {

// Returns the path of this user's store: $OUTBOARD_KERNEL_STORE, else kernels.db in CacheFolder
// (base/environment.h). Returns "", which means no store, if the variable is set but empty, or
// there is no home folder.
std::string KernelStorePath();

// Identifies what a measured time is valid for.
struct TuningKey {
  std::string kernel;      // CanonicalKernel (tuning_key.h), 32 bytes
  int search_version = 0;  // of the space of Opts
  std::string hardware;    // Target::Fingerprint (compiler/target.h)
  // The encoding that `kernel` is the id of, which says whether others may share what is measured
  // of it; empty: not known, and so not shared. Not part of the entry's identity.
  std::string canonical = {};
};

// The measurements of one kernel.
struct Tuning {
  TuningKey key;
  std::string name;  // for people
  int width = 0;     // of the widest finished search; 0: none
  // At least one, in the order of measurement; the first is the baseline.
  std::vector<search::Trial> trials;

  // Returns the fastest verified trial, the first of equal ones; nullptr if there is none.
  const search::Trial* best() const;
};

// A kernel that Runs have used, and its cost: the input of a search in idle time (search_main.h).
struct Demand {
  TuningKey key;
  std::string name;      // for people
  std::string encoding;  // CanonicalKernel (tuning_key.h), of which key.kernel is the id
  int64_t cost_us = 0;   // device time of all its Runs since the last AddCosts
};

class TuningStore {
 public:
  virtual ~TuningStore() = default;

  // Returns std::nullopt if there is no entry.
  virtual absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key) = 0;
  // Finds several, in the order of `keys`: over a socket in one message.
  virtual absl::StatusOr<std::vector<std::optional<Tuning>>> FindAll(
      std::span<const TuningKey> keys);
  // Adds a trial of the kernel; replaces an earlier trial of the same Opts.
  // Errors: RESOURCE_EXHAUSTED  the kernel has kTrialsMax trials
  virtual absl::Status Add(const TuningKey& key, const std::string& name,
                           const search::Trial& trial) = 0;
  // Records that a search of this width is complete.
  virtual absl::Status Finish(const TuningKey& key, int width) = 0;

  // Adds to the accumulated costs of kernels. Skips kernels whose encoding is over
  // kDemandBytesMax.
  virtual absl::Status AddCosts(std::span<const Demand> demands) = 0;
  // Returns the costliest kernel without a finished search of this width or a wider one; cost_us is
  // its total.
  virtual absl::StatusOr<std::optional<Demand>> Costliest(int search_version,
                                                          const std::string& hardware,
                                                          int width) = 0;
};

// A search of width 4 makes a hundred to five hundred; all of one kernel's travel in one message.
inline constexpr int kTrialsMax = 4096;
inline constexpr size_t kDemandBytesMax = size_t{64} << 10;
// Of one file: a search of a hundred trials takes about 10 KiB.
inline constexpr int64_t kTuningFileBytesMax = int64_t{64} << 20;

class TuningFile final : public TuningStore {
 public:
  // Opens the file at `path`. Replaces a damaged file by an empty one, since the store is a cache.
  // A file that is nearly full loses the kernels that were not used for the longest; to be found,
  // to get a trial and to cost something are uses.
  static absl::StatusOr<std::unique_ptr<TuningFile>> Open(const std::string& path,
                                                          int64_t bytes_max = kTuningFileBytesMax);
  ~TuningFile() override;

  absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key) override;
  absl::Status Add(const TuningKey& key, const std::string& name,
                   const search::Trial& trial) override;
  absl::Status Finish(const TuningKey& key, int width) override;
  absl::Status AddCosts(std::span<const Demand> demands) override;
  absl::StatusOr<std::optional<Demand>> Costliest(int search_version, const std::string& hardware,
                                                  int width) override;

  // Returns all entries, ordered by name, then key.
  absl::StatusOr<std::vector<Tuning>> List();
  // Removes every entry whose kernel id begins with `prefix` (hex; "" for all). Returns the number
  // removed.
  absl::StatusOr<int64_t> Remove(const std::string& prefix);

 private:
  TuningFile(std::unique_ptr<storage::Database> db, int64_t pages_max, int64_t opening);
  absl::StatusOr<std::vector<Tuning>> Read(const TuningKey* key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Within a transaction that writes: the row of a kernel, made if it is new and marked as used.
  absl::StatusOr<int64_t> RowOf(const TuningKey& key, const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MarkFound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t pages_max_;
  // Openings of the file are numbered: the clock by which kernels are the least recently used.
  const int64_t opening_;
  absl::Mutex mutex_;
  std::vector<int64_t> found_ ABSL_GUARDED_BY(mutex_);  // rows to be marked as used
  std::unique_ptr<storage::Database> db_ ABSL_GUARDED_BY(mutex_);
};

// For messages: a trial as its Opts' text and numbers.
// Errors: INVALID_ARGUMENT  Opts that cannot be read, or a time that cannot be
absl::StatusOr<search::Trial> TrialFromWire(const proto::Trial& trial);
void TrialToWire(const search::Trial& trial, proto::Trial& message);
absl::StatusOr<Tuning> TuningFromWire(const proto::TunedKernel& message);
void TuningToWire(const Tuning& tuning, proto::TunedKernel& message);

// Text format of `outboard cache export` and `import`: one entry per line, proto/tuning.proto as
// JSON.
absl::StatusOr<std::string> TuningToLine(const Tuning& tuning);
// Errors: INVALID_ARGUMENT  a malformed line, or one without a trial
absl::StatusOr<Tuning> TuningFromLine(const std::string& line);

}  // namespace outboard::worker
