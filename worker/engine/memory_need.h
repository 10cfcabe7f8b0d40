// What a Run takes of the device's memory, added up before it begins, so that one that has no room
// fails before anything is launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/uop.h"
#include "runtime/device.h"
#include "worker/engine/engine.h"
#include "worker/engine/plans/execution_plan.h"

namespace outboard::worker {

class MemoryNeed {
 public:
  // The array of this result. `dims` stay as they are until CheckOn.
  void Add(size_t result, DType dtype, std::span<const int64_t> dims, int64_t bytes);
  // Of the kernels, together.
  void AddTemporaries(int64_t bytes);

  int64_t bytes() const { return bytes_; }

  // OK if the device has that much beside what is in use.
  // Errors: RESOURCE_EXHAUSTED  the need, what is free, and the largest arrays
  absl::Status CheckOn(const runtime::Device& device) const;

 private:
  struct Array {
    size_t result;
    DType dtype;
    std::span<const int64_t> dims;
    int64_t bytes;
  };
  std::vector<Array> arrays_;
  int64_t bytes_ = 0, temporaries_ = 0;
};

// The dimensions of each result of `sink`. Errors: as DimsAt
absl::StatusOr<std::vector<std::vector<int64_t>>> ResultDims(const UOp* sink,
                                                             std::span<const Binding> bindings);

// Whether a result goes into the memory of input `over` (Schedule::over): nobody else holds it.
bool IsOverwritten(const std::vector<DeviceArrayPtr>& inputs, int over);

// Whether the device has room for a Run of `plan`, whose results have `dims_of`. Where it has not,
// `make_room` (Engine::SetMakeRoom) is called, and it looks again. Allocates nothing.
// Errors: RESOURCE_EXHAUSTED, about the result that needs the most
absl::Status CheckRoom(const ExecutionPlan& plan, const UOp* sink,
                       const std::vector<std::vector<int64_t>>& dims_of,
                       const std::vector<DeviceArrayPtr>& inputs, const runtime::Device& device,
                       const std::function<void()>& make_room);

}  // namespace outboard::worker
