// K Runs of one graph as one: what one repetition leaves is what the next begins with.
//
// In repetition k = 0, 1 ... the VAR of the cursor is its binding + k * stride, and each carried
// input is what the output beside it was in the repetition before. A stacked output is one array
// with a leading axis of `count`; the others are as the last repetition leaves them. The bits are
// those of `count` Runs, one after another. Errors: INVALID_ARGUMENT    a repetition that cannot
// be: see CheckRepeat
//         RESOURCE_EXHAUSTED  too many repetitions, or no memory for the stacked outputs
//         else those of Engine::Run, with the repetition that failed, counted from 1
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

struct Repeat {
  struct Carry {
    int64_t output, input;  // places among the graph's results and PARAM slots
  };
  struct Cursor {
    int64_t slot, stride;
  };
  int64_t count = 1;
  std::vector<Carry> carry;
  std::vector<int64_t> stack;  // places among the results
  std::optional<Cursor> cursor;

  // The inputs that are carried, rising: those that a repetition may write over.
  std::vector<int64_t> CarriedInputs() const;
};

// Of a Run on the wire; nullopt where it is to be run once.
// Errors: as above, for what is wrong whatever the graph is
absl::StatusOr<std::optional<Repeat>> RepeatOf(const proto::Run& run);

// Whether `sink` can be repeated so: what is carried has the type and shape of the input that it
// becomes, the cursor's values are in its VAR's range from the first to the last, and no shape that
// is carried, stacked or read depends on it. Requires bindings that CheckInputs has found good.
absl::Status CheckRepeat(const UOp* sink, std::span<const Binding> bindings, const Repeat& repeat);

// Runs all repetitions by `run_one`, which is given the only reference to what is carried; `engine`
// has the memory of what is stacked. `on_repetition` is called after each. Requires a Repeat that
// CheckRepeat has found good.
using RunOne = std::function<absl::StatusOr<std::vector<DeviceArrayPtr>>(
    std::vector<DeviceArrayPtr> inputs, std::span<const Binding> bindings)>;
absl::StatusOr<std::vector<DeviceArrayPtr>> RunAll(Engine& engine, const UOp* sink,
                                                   std::vector<DeviceArrayPtr> inputs,
                                                   std::span<const Binding> bindings,
                                                   const Repeat& repeat, const RunOne& run_one,
                                                   const std::function<void()>& on_repetition);

}  // namespace outboard::worker
