// A tensor map as our driver encodes it and the machine's TMA decodes it: 128 opaque bytes to everybody else.
// NVIDIA's layout is not public.
#pragma once

#include <cstdint>

namespace outboard::ptx {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x4d415054;
  uint32_t magic = kMagic;
  uint8_t type = 0;        // CUtensorMapDataType
  uint8_t rank = 0;
  uint8_t interleave = 0;
  uint8_t swizzle = 0;     // 0 none, 1: 32 bytes, 2: 64 bytes, 3: 128 bytes
  uint64_t address = 0;
  uint64_t dims[5] = {};
  uint64_t strides[4] = {};   // bytes, from the second dimension on
  uint16_t box[5] = {};
  uint8_t element_strides[5] = {};
  uint8_t nan_fill = 0;
  uint8_t element_bytes = 0;
  uint8_t padding[23] = {};
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace outboard::ptx
