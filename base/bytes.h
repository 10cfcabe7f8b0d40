// Sizes that people type: in flags, in variables of the environment, in a price file. One grammar
// for all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outboard {

// "512MB", "1.5 gib", "1000": a number, which may have decimals, and a unit in any case. kB, MB, GB
// are of 1000, as all that is printed; KiB, MiB, GiB of 1024. A part of a byte is cut off.
// Nothing: it is no such number, or 2^63 or more.
std::optional<uint64_t> ParseBytes(std::string_view text);

}  // namespace outboard
