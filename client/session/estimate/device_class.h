// Asks a gateway for its classes of devices: rates, prices, and whether nobody has measured the
// rates (gateway/prices/rates_on_paper.h).
//
// Blocks for a round trip, kClassesWithin at most. Errors: those of the gateway; UNAVAILABLE where
// nobody answers; UNIMPLEMENTED of a gateway that is too old to say.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/estimate/estimate.h"
#include "client/session/protection.h"

namespace outboard::session {

inline constexpr std::chrono::seconds kClassesWithin{10};
inline constexpr int kClassesMax = 1000;  // that a gateway may name

// One class without a name where the gateway has no price file.
absl::StatusOr<std::vector<DeviceClass>> ClassesOf(const std::string& target,
                                                   const std::string& key,
                                                   const Protection& protection);

}  // namespace outboard::session
