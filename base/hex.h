// Converts between bytes and lower-case hexadecimal digits, two per byte.
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace outboard {

std::string ToHex(std::string_view bytes);

// False if `hex` is not exactly 2 * out.size() lower-case digits; `out` is undefined then.
bool FromHex(std::string_view hex, std::span<uint8_t> out);

}  // namespace outboard
