// Which kernels a session's Runs have used: the sequence number from which each version of a kernel
// was in use. The order of a float sum follows from a kernel's Opts, so that a replay of the same
// Runs makes the same bits only with the same versions at the same numbers. Part of a session's
// state, as its values are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"
#include "worker/compile/kernel_id.h"

namespace outboard::worker {

struct KernelVersion {
  KernelId kernel;
  std::optional<std::string> opts;  // codegen::OptsToString; nullopt: what the heuristic chooses

  friend bool operator==(const KernelVersion&, const KernelVersion&) = default;
};

struct KernelUseRecord {
  uint64_t seq = 0;  // of the first Run that used it, or could have
  KernelVersion version;

  friend bool operator==(const KernelUseRecord&, const KernelUseRecord&) = default;
};

proto::KernelUse ToWire(const KernelUseRecord& entry);
// Errors: INVALID_ARGUMENT  a kernel's id of another length
absl::StatusOr<KernelUseRecord> KernelUseFromWire(const proto::KernelUse& entry);

class KernelUseLog {
 public:
  // `version` is in use from Run `seq` on, no lower than any noted before. What is in use already
  // adds nothing.
  // Errors: RESOURCE_EXHAUSTED  over kKernelUsesMax entries
  absl::Status Note(uint64_t seq, KernelVersion version);

  const std::vector<KernelUseRecord>& entries() const { return entries_; }

 private:
  std::vector<KernelUseRecord> entries_;                              // by seq
  absl::flat_hash_map<KernelId, std::optional<std::string>> in_use_;  // looked up, never walked
};

// A training program has some hundred kernels; this is for those that make new ones without end.
inline constexpr size_t kKernelUsesMax = size_t{1} << 20;

}  // namespace outboard::worker
