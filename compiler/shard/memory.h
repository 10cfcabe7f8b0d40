// What a Run takes of one device's memory, estimated from the plan of its graph.
//
// Inputs, results and every value that passes from one kernel to another are counted: sums, values
// that a transfer brings, results of calls, CONTIGUOUS. Any other value, that of a gather included
// (ir/sums/gather.h), counts as computed inside the kernel that reads it, so its own inputs stay in
// memory until then; of a sum that a gather adds up (FrameNodes::is_stored) only the
// gather's own result counts. The executor's plan is exact, and refuses what does not fit before
// anything runs. Threads: pure.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace outboard::shard {

// Values in the order in which they are made. Of a FUNCTION's body one trace for all of its calls.
class MemoryTrace {
 public:
  struct Value {
    double bytes = 0;   // 0: computed where it is read
    double within = 0;  // beside it while it is made: the body of a call
    std::vector<int> sources = {};
  };
  // What a stored value takes at most, and at least, where a VAR says how long it is.
  struct Bytes {
    double most = 0, least = 0;
  };
  // An input, which is there from the start; until the end, unless it is donated.
  int AddInput(Bytes bytes, bool donated);
  // Returns the value's number.
  int Add(Value value);
  // A result: it is stored, in `bytes`, until the end. One that is computed where it is read takes
  // the place of a donated input of its size that is read no more.
  void Keep(int value, Bytes bytes);

  double stored_bytes(int value) const { return entries_[value].value.bytes; }
  double peak_bytes() const;
  // Of inputs that stay and of results, at least: what no order of kernels could do without.
  double kept_bytes() const { return kept_bytes_; }

 private:
  struct Entry {
    Value value;
    bool is_input = false, stays = false, replaces = false;
  };
  std::vector<Entry> entries_;
  double kept_bytes_ = 0;
};

}  // namespace outboard::shard
