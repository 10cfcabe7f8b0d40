// The id of a kernel: SHA-256 of the canonical encoding (compiler/ir/encoding.h) of its own graph,
// which is of the kernel level. Many graphs of tensors, each with a GraphId, may need one kernel.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"

namespace outboard::worker {

class KernelId {
 public:
  KernelId() = default;
  explicit KernelId(const GraphId& of_kernel) : hash_(of_kernel) {}
  // Errors: INVALID_ARGUMENT for any other length than that of a hash
  static absl::StatusOr<KernelId> FromBytes(std::string_view bytes) {
    OB_ASSIGN_OR_RETURN(const GraphId hash, GraphIdFromBytes(bytes));
    return KernelId(hash);
  }

  std::string ToBytes() const { return hash_.ToBytes(); }
  const GraphId& hash() const { return hash_; }

  friend bool operator==(const KernelId&, const KernelId&) = default;
  friend auto operator<=>(const KernelId&, const KernelId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const KernelId& id) {
    return H::combine(std::move(h), id.hash_);
  }

 private:
  GraphId hash_;
};

}  // namespace outboard::worker
