// Amounts that people type in units of which we count millionths: US dollars. Never a float, in
// which 0.1 is another number.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard {

// Reads "2", "0.50" or "1.234567": digits with at most six decimals, without a sign. Returns
// millionths.
// Errors: INVALID_ARGUMENT  not such a number
//         OUT_OF_RANGE      2^63 millionths or more
absl::StatusOr<int64_t> ParseMicros(std::string_view text);

}  // namespace outboard
