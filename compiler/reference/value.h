// Values during an evaluation by the reference interpreter: stored in memory, or computed on
// demand, within a budget of work and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/reference/alu.h"

namespace outboard::reference {

// Counts the work and memory of an evaluation against its limits.
class Budget {
 public:
  Budget(int64_t work_max, int64_t bytes_max) : work_max_(work_max), bytes_max_(bytes_max) {}

  // Errors: RESOURCE_EXHAUSTED naming `node` and the limit.
  absl::Status Work(const UOp* node, int64_t elements, int64_t operations_each);
  absl::Status Take(const UOp* node, int64_t elements, int64_t bytes_each);
  void GiveBack(int64_t bytes) { bytes_ -= bytes; }

 private:
  int64_t work_max_, bytes_max_;
  __int128 work_ = 0;
  int64_t bytes_ = 0;
};

// Elements stored in memory; returns its bytes to the budget when the last value that refers to it
// is destroyed.
struct RetainedValue {
  LaneBlock elements;
  int64_t bytes = 0;
  Budget* budget = nullptr;

  ~RetainedValue() { budget->GiveBack(bytes); }
};

struct Value;
using ValueRef = std::shared_ptr<const Value>;

// The value of a node, with dimensions that are numbers. One of: elements in memory (`kept`), a
// tensor of the caller
// (`host`), the values of a TUPLE (`sources`), or what Pull computes from `node` and `sources`.
struct Value {
  const UOp* node = nullptr;
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
  std::vector<int64_t> numbers;  // the arguments of node with numbers for its symbolic dimensions;
                                 // of a VAR its value
  std::vector<ValueRef> sources;
  std::shared_ptr<const RetainedValue> kept;
  const HostTensor* host = nullptr;
  int64_t cone = 1;  // nodes that Pull runs through, as a tree

  bool in_memory() const { return kept != nullptr || host != nullptr; }
  int64_t count() const;
};

int64_t Product(std::span<const int64_t> dims);

// Computes the elements of `value` at row-major `positions`, at most kTile of them.
void Pull(const Value& value, std::span<const int64_t> positions, LaneBlock& out);

// Room for the elements of `value`, which the caller fills.  Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<RetainedValue>> MakeKept(const Value& value, Budget& budget);

// All elements of `value`, in memory.  Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<const RetainedValue>> Keep(const Value& value, Budget& budget);

// The elements of a REDUCE (value.node) over value.sources[0].  Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<const RetainedValue>> KeepReduce(const Value& value, Budget& budget);

// Row-major bytes.  Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<HostTensor> ToHost(const Value& value, Budget& budget);

}  // namespace outboard::reference
