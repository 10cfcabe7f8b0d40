// The functions that compiled code may call: mathematics and block copies that a code generator
// falls back to, and outboard_scratch and outboard_tiles (compiler/compiled_kernel.h).
#pragma once

#include <string_view>

namespace outboard::cpu {

// Its address in this process, or nullptr where kernels may not call `name`: outboard_tiles, where
// the system does not let this process use them.
void* AllowedSymbol(std::string_view name);

}  // namespace outboard::cpu
