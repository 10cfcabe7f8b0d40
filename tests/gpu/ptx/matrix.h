// Elements of matrices in registers and shared memory, as mma and wgmma read them.
#pragma once

#include <cstdint>
#include <span>

#include "tests/gpu/text/module.h"

namespace outboard::ptx {

double ElementOf(Type type, uint64_t bits);
bool KnownElement(Type type);
// The sum of an instruction's products, and of what they are added to, of elements of `type`: as
// coarse as on any device (matrix.cc).
double SumOf(Type type, std::span<const double> terms);
uint64_t SumBits(Type type, double sum, bool saturate);

}  // namespace outboard::ptx
