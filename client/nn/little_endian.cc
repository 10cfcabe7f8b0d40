#include "client/nn/little_endian.h"

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"

namespace outboard::nn {

Tensor FromLittleEndian(const Tensor& bytes, DType dtype, At at) {
  const CallSite site(at);
  const int width = ByteWidth(dtype);
  Dims dims = bytes.shape();
  if (bytes.dtype() != DType::kU8 || dims.empty() || width == 0 || dims.back() % width != 0)
    ThrowInvalid(absl::StrCat("bytes are u8, and a multiple of ", width, " along the last axis"));
  if (dtype == DType::kBool) return bytes != 0;
  if (width == 1) return bytes.bitcast(dtype);
  dims.back() /= width;
  dims.push_back(width);
  const Tensor apart = bytes.reshape(dims);
  const DType bits = width == 2 ? DType::kU16 : width == 4 ? DType::kU32 : DType::kU64;
  Tensor number;
  for (int i = 0; i < width; ++i) {
    const Tensor byte = apart.slice(-1, i, i + 1).squeeze(-1).cast(bits);
    number = i == 0 ? byte : number | (byte << 8 * i);
  }
  return number.bitcast(dtype);
}

}  // namespace outboard::nn
