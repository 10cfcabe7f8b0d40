// What DOT and TILEDOT (program.h) compute: x86's VDPBF16PS and TDPBF16PS, step by step as Intel's
// manuals describe them. Both round to nearest, and take and give subnormal numbers as zeros.
#pragma once

#include <cstdint>

namespace outboard::program {

// Returns c + a.high * b.high, rounded, + a.low * b.low, rounded: fused multiplications and
// additions of the two numbers of bf16 in `a` and `b`.
float AddPairProducts(float c, uint32_t a, uint32_t b);

// Adds to each c[i][j] the products of a[i][k] and b[k][j]: the low ones and the high ones in a sum
// of their own, k ascending, and then the sum of both. Each matrix is 16 x 16, row by row.
void AddTileProducts(float* c, const uint32_t* a, const uint32_t* b);

}  // namespace outboard::program
