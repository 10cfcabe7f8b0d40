// Which draft stores each value, and which drafts another one therefore waits for.
// Not thread-safe. Drafts are named by their index in a list of the caller's.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/collective/kernel_order.h"
#include "compiler/schedule/fuse/draft.h"

namespace outboard::schedule {

class Makers {
 public:
  // `sent`: what transfers bring (collective/cut.h); it must outlive this.
  explicit Makers(const SentBefore& sent) : sent_(sent) {}

  // Notes that `draft` stores the value of the tensor node.
  void Set(const UOp* node, size_t draft) { made_by_[node] = draft; }
  // The draft that stores it; nullopt: an input.
  std::optional<size_t> Of(const UOp* node) const;

  // What `draft` waits for, makers and senders apart.
  KernelNeeds NeedsOf(const Draft& draft) const;
  // The same, makers first.
  std::vector<size_t> AwaitedBy(const Draft& draft) const;
  // Of `drafts` those that make something for another draft that `guest` waits for, or for a
  // transfer to `guest`: one that `guest` became part of would wait for itself.
  std::vector<bool> MadeBefore(const Draft& guest, const std::vector<Draft>& drafts) const;

 private:
  const SentBefore& sent_;
  absl::flat_hash_map<const UOp*, size_t> made_by_;
};

}  // namespace outboard::schedule
