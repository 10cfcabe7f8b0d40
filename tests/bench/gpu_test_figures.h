// Figures of the tests that run on the PTX machine. They are run by ctest, one after the other, for
// some minutes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outboard::bench {

// cuda_operators_ratio, cuda_random_kernels, cuda_reports, cuda_planted_faults_found.
void GpuTestFigures();

struct TestsOnDevice {
  int64_t ran = 0, passed = 0;  // those that skip themselves by name count in neither
  std::string failed;  // names, and programs that were not there or ended without a word
};

// The programs of the tests below; scripts/bundle takes them to machines with a GPU.
std::vector<std::string> DeviceTestPrograms();

// The same tests of operators, graphs, engine and device on the CUDA device that is there, program
// by program. The programs are in this build's tests/, or in the folder OUTBOARD_TESTS_FOLDER.
// `only`: one of them, for tests.
TestsOnDevice RunTestsOnDevice(const std::string& only = "");

struct SanitizerRuns {
  int64_t errors = 0;  // of memory, and races in shared memory
  // Why that is not all of them: a tool did not end well, or the tests did not pass on the device.
  // Empty: it is.
  std::string lacks;
};
// device_test under the four tools of NVIDIA's compute-sanitizer: the program that
// OUTBOARD_COMPUTE_SANITIZER names, else the one in PATH or in /usr/local/cuda/bin.
SanitizerRuns RunTestsUnderSanitizer();

}  // namespace outboard::bench
