#include "compiler/program/bf16_products.h"

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/program/program.h"

namespace outboard::program {
namespace {

float Flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}
float Low(uint32_t pair) { return Flushed(std::bit_cast<float>(pair << 16)); }
float High(uint32_t pair) { return Flushed(std::bit_cast<float>(pair & 0xffff0000u)); }
float AddProduct(float sum, float a, float b) { return Flushed(std::fma(a, b, Flushed(sum))); }

}  // namespace

float AddPairProducts(float c, uint32_t a, uint32_t b) {
  return AddProduct(AddProduct(c, High(a), High(b)), Low(a), Low(b));
}

void AddTileProducts(float* c, const uint32_t* a, const uint32_t* b) {
  for (int64_t i = 0; i < kTileSide; ++i)
    for (int64_t j = 0; j < kTileSide; ++j) {
      float low = 0, high = 0;
      for (int64_t k = 0; k < kTileSide; ++k) {
        const uint32_t x = a[i * kTileSide + k], y = b[k * kTileSide + j];
        low = AddProduct(low, Low(x), Low(y));
        high = AddProduct(high, High(x), High(y));
      }
      float& sum = c[i * kTileSide + j];
      sum = Flushed(Flushed(sum) + Flushed(low + high));
    }
}

}  // namespace outboard::program
