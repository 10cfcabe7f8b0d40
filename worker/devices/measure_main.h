// The measuring process: `outboard measure-device CORES`, a child of the supervisor. It has the
// device to itself for a second or two, runs no tenant's work, and prints one line of figures
// (device_rates.h) on standard output.
#pragma once

#include <string>

namespace outboard::worker {

// `cores`: "0,2", the cores to run on; empty: as they are. The device is OUTBOARD_DEVICE's.
// Returns the exit code; says on standard error what went wrong.
int MeasureMain(const std::string& cores);

}  // namespace outboard::worker
