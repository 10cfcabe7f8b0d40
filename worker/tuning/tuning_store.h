// Stores measurements of kernels on this machine: every list of Opts that was tried, and its time.
//
// One SQLite file, shared by all processes of this user on the machine: executors of all workers,
// searches. It holds decisions, never code: the worst that a wrong or forged entry can do is to be
// refused by ApplyOpts or to be slow. Each trial is written as soon as it is measured, so that a
// stopped search can continue.
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
class TunedKernel;
}

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
  // Opens the file at `path`. Replaces a damaged file by an empty one, since the store is a cache.
  static absl::StatusOr<std::unique_ptr<TuningStore>> Open(const std::string& path);
  ~TuningStore();

  // Returns std::nullopt if there is no entry.
  absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key);
  // Adds a trial of the kernel; replaces an earlier trial of the same Opts.
  absl::Status Add(const TuningKey& key, const std::string& name, const search::Trial& trial);
  // Records that a search of this width is complete.
  absl::Status Finish(const TuningKey& key, int width);

  // Adds to the accumulated costs of kernels. Skips kernels whose encoding is over 64 KiB.
  absl::Status AddCosts(std::span<const Demand> demands);
  // Returns the costliest kernel without a finished search of this width or a wider one; cost_us is
  // its total.
  absl::StatusOr<std::optional<Demand>> Costliest(int search_version, const std::string& hardware,
                                                  int width);

  // Returns all entries, ordered by name, then key.
  absl::StatusOr<std::vector<Tuning>> List();
  // Removes every entry whose kernel id begins with `prefix` (hex; "" for all). Returns the number
  // removed.
  absl::StatusOr<int64_t> Remove(const std::string& prefix);

 private:
  explicit TuningStore(std::unique_ptr<storage::Database> db);
  absl::StatusOr<std::vector<Tuning>> Read(const TuningKey* key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_GUARDED_BY(mutex_);
};

// Text format of `outboard cache export` and `import`: one entry per line, proto/tuning.proto as
// JSON.
absl::StatusOr<std::string> TuningToLine(const Tuning& tuning);
// Errors: INVALID_ARGUMENT  a malformed line, or one without a trial
absl::StatusOr<Tuning> TuningFromLine(const std::string& line);

}  // namespace outboard::worker
