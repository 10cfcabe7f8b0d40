// Lists the functions that compiled code may call: mathematics and block copies that a code
// generator falls back to, and outboard_scratch and outboard_tiles (compiler/compiled_kernel.h).
#pragma once

#include <string_view>

namespace outboard::cpu {

// Returns the address of `name` in this process, or nullptr if kernels may not call it. That
// includes outboard_tiles if the system does not let this process use tile registers.
void* AllowedSymbol(std::string_view name);

}  // namespace outboard::cpu
