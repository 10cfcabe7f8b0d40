// Overwrites what other processes have left on a GPU, since the driver promises nothing of it: all
// memory that is free, and the shared memory and registers of every multiprocessor. A process does
// so before its first kernel; it then reads nothing of the tenant before.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {

// Waits until all is overwritten. Memory that the process has already stays as it is.
// Errors: INTERNAL     the driver's
//         UNAVAILABLE  not every multiprocessor had a block of ours: somebody else's kernel runs
absl::Status Scrub(DriverContext& context, CUstream stream);

// The PTX of the kernel kScrubKernel, with parameters: address of two u32, which count blocks that
// began and those that waited for others in vain (0 at first), words of dynamic
// shared memory, blocks, looks at the count before a block gives up. For blocks of kScrubThreads
// threads.
inline constexpr char kScrubKernel[] = "outboard_scrub";
// A thread's share of the 65,536 registers is then 128: as many as it can fill.
inline constexpr unsigned kScrubThreads = 512;
std::string ScrubText();

}  // namespace outboard::cuda
