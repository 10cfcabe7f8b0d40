// Values of a kernel's nodes that have been computed at the current point, by the scope of the
// program (a loop or a branch) in which they stand: where that ends they are known no longer.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/program/program.h"

namespace outboard::program {

class ValueScopes {
 public:
  void Open() { scopes_.emplace_back(); }
  // Forgets what was set since the innermost scope was opened.
  void Close() {
    for (const UOp* node : scopes_.back()) values_.erase(node);
    scopes_.pop_back();
  }

  bool Knows(const UOp* node) const { return values_.contains(node); }
  ValueId Of(const UOp* node) const { return values_.at(node); }  // which is known
  // Until the innermost scope is closed; outside of all scopes, for good.
  void Set(const UOp* node, ValueId value) {
    values_[node] = value;
    if (!scopes_.empty()) scopes_.back().push_back(node);
  }

 private:
  absl::flat_hash_map<const UOp*, ValueId> values_;
  std::vector<std::vector<const UOp*>> scopes_;  // the nodes that were set in each
};

}  // namespace outboard::program
