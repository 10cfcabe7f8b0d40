// The measuring process: `outboard measure-device CORES [test | test-alone]`, a child of the
// supervisor. It has the device to itself for a second or two, runs no tenant's work, and prints
// one line of figures, or of a fault, on standard output (device_rates.h).
#pragma once

#include <string>

namespace outboard::worker {

// `cores`: "0,2", the cores to run on; empty: as they are. The device is OUTBOARD_DEVICE's.
// `what`: empty, "test" (the join test before it) or "test-alone" (of the figures the bandwidth).
// Returns the exit code, kExitFaulty where the test failed; says on standard error what went wrong.
int MeasureMain(const std::string& cores, const std::string& what = "");

}  // namespace outboard::worker
