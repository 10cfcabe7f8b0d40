// What a device reaches, measured when a gateway asks for it (Measure in proto/fleet.proto): a
// product of two matrices of float32, and reading and writing an array that is larger than caches.
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

// Runs `command`, the measuring process, with `environment` ("NAME=value") added and on these cores
// (empty: all), and reads what it prints.
// Errors: UNAVAILABLE        it cannot be started, or ended without figures; says how
//         DEADLINE_EXCEEDED  it took longer than `within`, and was killed
absl::StatusOr<proto::DeviceRates> MeasureDevice(const std::vector<std::string>& command,
                                                 const std::vector<std::string>& environment,
                                                 const std::vector<int>& cores,
                                                 std::chrono::milliseconds within = kMeasureWithin);

// The line of figures that the process prints, and that is read.
std::string RatesLine(const proto::DeviceRates& rates);
absl::StatusOr<proto::DeviceRates> RatesFromLine(const std::string& line);

}  // namespace outboard::worker
