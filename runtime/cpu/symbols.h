// The functions that compiled code may call: mathematics and block copies that a code generator
// falls back to, and outboard_scratch (compiler/codegen/compiled_kernel.h).
#pragma once

#include <string_view>

namespace outboard::cpu {

// Its address in this process, or nullptr where kernels may not call `name`.
void* AllowedSymbol(std::string_view name);

}  // namespace outboard::cpu
