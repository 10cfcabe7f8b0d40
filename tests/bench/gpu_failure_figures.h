// Runs the tests of what goes wrong with GPUs (tests/e2e/gpu_failures_test.cc), on the driver of
// the tests: no GPU is needed.
#pragma once

namespace outboard::bench {

// cuda_failure_cases_ratio: the part of them that pass.
void GpuFailureFigures();

}  // namespace outboard::bench
