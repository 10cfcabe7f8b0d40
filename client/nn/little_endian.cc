#include "client/nn/little_endian.h"

#include "absl/strings/str_cat.h"

namespace outboard::nn {

Tensor FromLittleEndian(const Tensor& bytes, DType dtype, At at) {
  const int width = ByteWidth(dtype);
  Dims dims = bytes.shape(at);
  if (bytes.dtype(at) != DType::kU8 || dims.empty() || width == 0 || dims.back() % width != 0)
    ThrowInvalid(at,
                 absl::StrCat("bytes are u8, and a multiple of ", width, " along the last axis"));
  if (dtype == DType::kBool) return Arg(bytes, at) != Arg(0, at);
  if (width == 1) return bytes.bitcast(dtype, at);
  dims.back() /= width;
  dims.push_back(width);
  const Tensor apart = bytes.reshape(dims, at);
  const DType bits = width == 2 ? DType::kU16 : width == 4 ? DType::kU32 : DType::kU64;
  Tensor number;
  for (int i = 0; i < width; ++i) {
    const Tensor byte = apart.slice(-1, i, i + 1, at).squeeze(-1, at).cast(bits, at);
    number = i == 0 ? byte : Arg(number, at) | Arg(Arg(byte, at) << Arg(8 * i, at), at);
  }
  return number.bitcast(dtype, at);
}

}  // namespace outboard::nn
