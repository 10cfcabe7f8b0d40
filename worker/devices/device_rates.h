// What a device reaches: a product of two matrices of float32, and reading an array that is larger
// than caches (beside a test, whose figure is only logged, one of 16 MiB). It is measured when a
// gateway asks for it (Measure in proto/fleet.proto), of GPUs also when their worker starts.
//
// It is measured in a process of its own (measure_main.h), with the cores and the environment that
// sessions of the device get, by kernels that are compiled as theirs are. A worker's word: it finds
// machines that are slow, shared or not what they were bought as; nobody proves by it that he does
// not lie.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"

namespace outboard::worker {

// Two sizes of each are compiled and run, which takes a second or two.
inline constexpr std::chrono::seconds kMeasureWithin{60};

// Of all GPUs of a worker that starts, side by side. What does not answer by then has no figures.
inline constexpr std::chrono::seconds kMeasureAtStartWithin{20};
// Whether a worker measures its GPUs when it starts: OUTBOARD_MEASURE, 1 or 0; where that is unset
// those of the machine's own driver. One that OUTBOARD_CUDA_DRIVER names may be a test's, which
// takes minutes for the products.
bool MeasuresGpusAtStart();

// What the measuring process does besides (join_test.h): the join test before it measures, or the
// test and a bandwidth alone, whose `gflops` are then 0.
inline constexpr char kTestAndRates[] = "test", kTestAlone[] = "test-alone";
inline constexpr int kExitFaulty = 3;  // its device failed the test
inline constexpr std::chrono::seconds kTestWithin{180};

// Runs `command`, the measuring process, with `environment` ("NAME=value") added and on these cores
// (empty: all), and reads what it prints. `what`: empty, kTestAndRates or kTestAlone.
// Errors: UNAVAILABLE          it cannot be started, or ended without figures; says how
//         DEADLINE_EXCEEDED    it took longer than `within`, and was killed
//         FAILED_PRECONDITION  the device failed the test: what was wrong
absl::StatusOr<proto::DeviceRates> MeasureDevice(const std::vector<std::string>& command,
                                                 const std::vector<std::string>& environment,
                                                 const std::vector<int>& cores,
                                                 std::chrono::milliseconds within = kMeasureWithin,
                                                 const std::string& what = "");

// The line of figures that the process prints, and that is read.
std::string RatesLine(const proto::DeviceRates& rates);
// `without_gflops`: they may be 0.
absl::StatusOr<proto::DeviceRates> RatesFromLine(const std::string& line,
                                                 bool without_gflops = false);
std::string FaultLine(const std::string& fault);

}  // namespace outboard::worker
