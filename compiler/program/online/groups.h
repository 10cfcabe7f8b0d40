// Online kernels by warpgroups of sm_90a (plan.h): whether the tensor memory accelerator can copy
// a kernel's matrices, and what a tile of warpgroups takes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/program/online/plan.h"
#include "compiler/target.h"

namespace outboard::program {

// Columns of a matrix that lie side by side in shared memory: a row of a swizzle.
inline constexpr int64_t kOnlineBoxColumns = MappedTensor::kSwizzleBytes / 2;
// Registers of a thread that multiplies, and of one that copies, where two warpgroups multiply: of
// 65,536 three warpgroups have 168 each at first. Where one multiplies, each has 255.
inline constexpr int64_t kOnlineConsumerRegisters = 232, kOnlineProducerRegisters = 40;

// Returns the view of a matrix of which boxes of its rows, or steps, by 64 columns are copied: its
// dimensions are columns and rows, then those of the batch, the last range of which comes first.
// Errors: UNIMPLEMENTED names what keeps it from being one.
absl::StatusOr<MappedTensor> OnlineViewOf(const OnlinePlan& plan, const OnlineMatrix& matrix);

// Returns OK where a block of this target can run a tile of warpgroups. Errors: INVALID_ARGUMENT
// and UNIMPLEMENTED, with the condition that the tile or kernel misses; RESOURCE_EXHAUSTED, with
// what a block has too little of.
absl::Status CheckOnlineGroups(const OnlinePlan& plan, const OnlineTile& tile,
                               const Target& target);

}  // namespace outboard::program
