// Switches machines by a command of the operator's: FILE cycle SERIAL, without a shell. What it
// talks to, a management controller or a switched outlet, is its business.
//
// Threads: any; waits for the command.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace outboard::gateway {

inline constexpr std::chrono::seconds kPowerHookWithin{30};

// Errors: INVALID_ARGUMENT   a serial number
//         UNAVAILABLE        the command cannot be started, or did not exit with 0: how
//         DEADLINE_EXCEEDED  it took longer than `within`, and was killed
absl::Status PowerCycle(const std::string& hook, const std::string& serial,
                        std::chrono::milliseconds within = kPowerHookWithin);

}  // namespace outboard::gateway
