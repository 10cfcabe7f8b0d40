// A sweep on disk: a folder in <data>/sweeps, named by the time of its start.
//
//   sweep.json      the plan; written once
//   trials.json     what is known of each trial; replaced as a whole, so that it is always complete
//   trial-3.log     what trial 3 has printed, all attempts
//   results.csv, results.jsonl
//   warm-up         the cost of the common start, once it is done
//   warm-up.log     the output of its program
//   runner          locked, with its process id, while a process runs the trials
//
// Threads: one owner at a time; one process may read while another writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/sweep/sweep_plan.h"
#include "cli/sweep/trial.h"

namespace outboard::cli {

class SweepFolder {
 public:
  // Makes a folder for a new sweep, with all its trials waiting.
  // Errors: UNAVAILABLE  the disk, with path and reason
  static absl::StatusOr<SweepFolder> Create(const SweepPlan& plan);
  // `id` as List returns it; empty: the newest.
  // Errors: NOT_FOUND; INVALID_ARGUMENT  the files are not a sweep's
  static absl::StatusOr<SweepFolder> Open(const std::string& id);
  // The ids, newest first.
  static std::vector<std::string> List();

  const std::string& id() const { return id_; }
  const std::string& path() const { return path_; }
  std::string LogOf(int trial) const;

  absl::StatusOr<SweepPlan> ReadPlan() const;
  // Replaces the plan: `resume` may raise --max-cost and --at-once.
  absl::Status WritePlan(const SweepPlan& plan) const;
  absl::StatusOr<std::vector<SweepTrial>> ReadTrials(const SweepPlan& plan) const;
  absl::Status WriteTrials(const std::vector<SweepTrial>& trials) const;
  // What the common start of all trials has cost, in micro-USD; none: it is not done.
  std::optional<int64_t> ReadWarmUp() const;
  absl::Status WriteWarmUp(int64_t cost_micro_usd) const;
  // Of its session, in the account.
  std::string warm_up_name() const { return "sweep-" + id_ + "-warm-up"; }
  // Replaces a file of the folder: after a crash it has the old bytes or the new ones.
  absl::Status Write(const std::string& name, std::string_view bytes) const;

  // Claims the sweep for the processes that have the lock's descriptor, which is returned and
  // closes on exec: this one, and those that it forks.
  // Errors: FAILED_PRECONDITION  another process runs it
  absl::StatusOr<int> Claim() const;
  // Writes down which of them runs it, for RunnerPid.
  absl::Status NoteRunner(int lock, int pid) const;
  // The process that runs it; none: nobody does.
  std::optional<int> RunnerPid() const;

 private:
  SweepFolder(std::string id, std::string path) : id_(std::move(id)), path_(std::move(path)) {}
  std::string id_, path_;
};

}  // namespace outboard::cli
