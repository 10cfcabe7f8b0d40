// Runs a schedule by walking its kernels' expressions element by element: slow, without LLVM, and
// with every load and store checked against its buffer. The reference for generated code. Loops
// stop at the ends of their ranges, and undefined elements hold garbage.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/schedule/schedule.h"

namespace outboard::test {

// Results in the order of the SINK that `schedule` was made for.
// Errors: OUT_OF_RANGE        a load or store outside of its buffer, with the kernel and the place
//         RESOURCE_EXHAUSTED  a kernel that would be walked for minutes
absl::StatusOr<std::vector<HostTensor>> EvaluateSchedule(const schedule::Schedule& schedule,
                                                         const UOp* sink,
                                                         std::span<const HostTensor> params,
                                                         std::span<const Binding> bindings = {});

}  // namespace outboard::test
