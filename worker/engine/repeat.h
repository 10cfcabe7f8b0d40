// Executes one graph several times, as one Run: carried outputs of a repetition are inputs of the
// next.
//
// In repetition k = 0, 1 ... the VAR of the cursor is its binding + k * stride, and each carried
// input is the paired output of the previous repetition. A stacked output is one array with a
// leading axis of `count`; the others are those of the last repetition. The bits are those of
// `count` Runs, one after another.
// Errors: INVALID_ARGUMENT    an impossible repetition: see CheckRepeat
//         RESOURCE_EXHAUSTED  too many repetitions, or no memory for the stacked outputs
//         else those of Engine::Execute, with the repetition that failed, counted from 1
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
    int64_t output, input;  // index of a result of the graph, and a PARAM slot
  };
  struct Cursor {
    int64_t slot, stride;
  };
  int64_t count = 1;
  std::vector<Carry> carry;
  std::vector<int64_t> stack;  // indices of results
  std::optional<Cursor> cursor;

  // Returns the slots of carried inputs, ascending: those that a repetition may overwrite.
  std::vector<int64_t> CarriedInputs() const;
};

// Decodes the repetition of a Run on the wire; nullopt if it runs once.
// Errors: as above, for mistakes that do not depend on the graph
absl::StatusOr<std::optional<Repeat>> RepeatOf(const proto::Run& run);

// Checks that `sink` can be repeated like this: each carried output has the type and shape of its
// input, all values of the cursor are in the range of its VAR, and no shape that is carried,
// stacked or read depends on the cursor. Requires bindings that passed CheckInputs.
absl::Status CheckRepeat(const UOp* sink, std::span<const Binding> bindings, const Repeat& repeat);

// Executes all repetitions by `execute_once`, which gets the only reference to carried arrays;
// `engine` allocates the stacked outputs. Calls `on_repetition` after each repetition. Requires a
// Repeat that passed CheckRepeat.
using ExecuteOnce = std::function<absl::StatusOr<std::vector<DeviceArrayPtr>>(
    std::vector<DeviceArrayPtr> inputs, std::span<const Binding> bindings)>;
absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteAll(Engine& engine, const UOp* sink,
                                                       std::vector<DeviceArrayPtr> inputs,
                                                       std::span<const Binding> bindings,
                                                       const Repeat& repeat,
                                                       const ExecuteOnce& execute_once,
                                                       const std::function<void()>& on_repetition);

}  // namespace outboard::worker
