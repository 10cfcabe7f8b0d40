// Elements of matrices in registers and shared memory, as mma and wgmma read them.
#pragma once

#include <cstdint>

#include "tests/gpu/text/module.h"

namespace outboard::ptx {

double ElementOf(Type type, uint64_t bits);
bool KnownElement(Type type);
uint64_t SumBits(Type type, double sum, bool saturate);

}  // namespace outboard::ptx
