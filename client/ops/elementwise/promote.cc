#include "client/ops/elementwise/promote.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace outboard {
namespace {

std::atomic<DType> default_float = DType::kF32;

DType SignedOfBytes(int bytes) {
  switch (bytes) {
    case 1: return DType::kI8;
    case 2: return DType::kI16;
    case 4: return DType::kI32;
    default: return DType::kI64;
  }
}

}  // namespace

bool HaveNoIntegerType(DType a, DType b) {
  const auto differ = [](DType u, DType s) { return u == DType::kU64 && IsInt(s) && IsSigned(s); };
  return differ(a, b) || differ(b, a);
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (IsBool(a)) return b;
  if (IsBool(b)) return a;
  if (IsFloat(a) != IsFloat(b)) return IsFloat(a) ? a : b;
  if (IsFloat(a)) {
    if (ByteWidth(a) == ByteWidth(b)) return ByteWidth(a) == 1 ? DType::kF16 : DType::kF32;
    return ByteWidth(a) > ByteWidth(b) ? a : b;
  }
  if (IsSigned(a) == IsSigned(b)) return ByteWidth(a) > ByteWidth(b) ? a : b;
  if (IsUnsigned(a)) std::swap(a, b);  // a is signed, b is not
  if (HaveNoIntegerType(a, b)) return DefaultFloat();
  return ByteWidth(a) > ByteWidth(b) ? a : SignedOfBytes(2 * ByteWidth(b));
}

DType SumType(DType dtype) {
  if (IsFloat(dtype) || ByteWidth(dtype) >= 4) return dtype;
  return IsUnsigned(dtype) ? DType::kU32 : DType::kI32;
}

DType AccumulateType(DType dtype) {
  return IsFloat(dtype) && ByteWidth(dtype) < 4 ? DType::kF32 : dtype;
}

DType FloatOf(DType dtype) { return IsFloat(dtype) ? dtype : DefaultFloat(); }

DType DefaultFloat() { return default_float.load(std::memory_order_relaxed); }

void SetDefaultFloat(DType dtype) { default_float.store(dtype, std::memory_order_relaxed); }

}  // namespace outboard
