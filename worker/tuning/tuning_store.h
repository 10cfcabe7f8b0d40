// What this machine has learnt about kernels: every choice of Opts that was measured, and how long
// it took.
//
// One SQLite file, used at once by all that this user runs on the machine: executors of all
// workers, searches. It holds decisions, never code: an entry that is wrong or was tampered with is
// refused by ApplyOpts or is slow, and no more. Each trial is written as it is made, so that a
// search that was stopped goes on where it was.
//
// Errors of every call, besides its own: those of storage/sqlite.h (UNAVAILABLE,
// RESOURCE_EXHAUSTED, DATA_LOSS). A worker goes on without its store. Threads: any; calls take
// turns.
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

// Where the workers of this machine keep theirs: $OUTBOARD_KERNEL_STORE, else kernels.db in
// CacheFolder (environment.h). Empty, for "keep none", where the variable is set and empty, or
// there is no home.
std::string KernelStorePath();

// What a measured time is valid for.
struct TuningKey {
  std::string kernel;      // CanonicalKernel (tuning_key.h), 32 bytes
  int search_version = 0;  // of the space of Opts
  std::string hardware;    // Target::Fingerprint (compiler/target.h)
};

// What is known of a kernel.
struct Tuning {
  TuningKey key;
  std::string name;  // for people
  int width = 0;     // of the widest search that was finished; 0: none
  // One at least, in the order in which they were made; the first is the baseline.
  std::vector<search::Trial> trials;

  // The fastest verified trial; of equal ones the first. nullptr where there is none.
  const search::Trial* best() const;
};

// A kernel that Runs have used: what a search in idle time (search_main.h) begins with.
struct Demand {
  TuningKey key;
  std::string name;      // for people
  std::string encoding;  // CanonicalKernel (tuning_key.h), of which key.kernel is the id
  int64_t cost_us = 0;   // of the device, in all its Runs since they were told last
};

class TuningStore {
 public:
  // A file that is damaged is removed and begun anew: it is a cache.
  static absl::StatusOr<std::unique_ptr<TuningStore>> Open(const std::string& path);
  ~TuningStore();

  // Nothing of it known: std::nullopt.
  absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key);
  // Adds to what is known of the kernel; a trial of the same Opts is replaced.
  absl::Status Add(const TuningKey& key, const std::string& name, const search::Trial& trial);
  // A search of this width has tried all that it would.
  absl::Status Finish(const TuningKey& key, int width);

  // Adds to what is known of the kernels' costs. One whose encoding is over 64 KiB is left out.
  absl::Status AddCosts(std::span<const Demand> demands);
  // The kernel that has cost the most of those that no search of this width, or a wider one, is
  // finished for; cost_us is all of it.
  absl::StatusOr<std::optional<Demand>> Costliest(int search_version, const std::string& hardware,
                                                  int width);

  // By name, then key.
  absl::StatusOr<std::vector<Tuning>> List();
  // Every entry whose kernel id begins with `prefix` (hex); all of them where it is empty. The
  // number removed.
  absl::StatusOr<int64_t> Remove(const std::string& prefix);

 private:
  explicit TuningStore(std::unique_ptr<storage::Database> db);
  absl::StatusOr<std::vector<Tuning>> Read(const TuningKey* key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_GUARDED_BY(mutex_);
};

// Files of entries (`outboard cache export`, `import`): a line each, proto/tuning.proto as JSON.
absl::StatusOr<std::string> TuningToLine(const Tuning& tuning);
// Errors: INVALID_ARGUMENT  not such a line, or one without a trial
absl::StatusOr<Tuning> TuningFromLine(const std::string& line);

}  // namespace outboard::worker
