// Random numbers: Threefry-2x32 (Salmon et al., 2011) over a counter that is state in the cloud.
//
// Element i of a call is THREEFRY(counter + i, key); then the counter goes on by the number of
// elements. Integers and uniform floats use only exact steps, so they are the same bits everywhere;
// randn is as exact as LOG2, SIN and SQRT.
#include "client/ops/random/random.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/thread_state.h"
#include "client/ops/elementwise/promote.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::NodeBuilder;
using internal::ThreadState;
using internal::ToShape;

namespace {

uint64_t FirstSeed(const At& at) {
  const char* const text = std::getenv("SEED");
  if (text == nullptr || *text == '\0') return std::random_device()();
  uint64_t seed;
  if (!absl::SimpleAtoi(text, &seed))
    ThrowInvalid(at, absl::StrCat("SEED is ", text, ", which is no unsigned integer"));
  return seed;
}

std::shared_ptr<internal::TensorState> UploadWord(uint64_t word, const At& at) {
  char bytes[8];
  std::memcpy(bytes, &word, sizeof(word));
  auto value = std::make_shared<internal::TensorState>();
  value->SetStorage(internal::Upload(DType::kU64, {1}, {bytes, sizeof(bytes)}, at));
  return value;
}

}  // namespace

// The key and the counter, of the current session.
ThreadState& internal::RandomState(const At& at) {
  ThreadState& state = ThreadState::Get();
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  if (!state.seed) state.seed = FirstSeed(at);
  if (state.random_key == nullptr || state.random_session != *session) {
    state.random_key = UploadWord(*state.seed, at);
    state.random_counter = UploadWord(0, at);
    state.random_session = *std::move(session);
  }
  return state;
}

namespace {

// One u64 of random bits for each element of `dims`, as a flat node; moves the counter on.
const UOp* Bits(const NodeBuilder& rec, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) rec.Invalid(absl::StrCat("a dimension of ", dim));
    if (__builtin_mul_overflow(count, dim, &count)) rec.Invalid("so many random numbers overflow");
  }
  ThreadState& state = internal::RandomState(rec.at());
  const Shape shape = {Dim(count)};
  const UOp* const counter = internal::NodeOfValue(state.random_counter, rec.recording(), rec.at());
  const UOp* const key = internal::NodeOfValue(state.random_key, rec.recording(), rec.at());
  const UOp* const places =
      rec.Add(rec.IotaAlong(DType::kU64, shape, 0), rec.Expand(counter, shape));
  const UOp* const bits = rec.Alu(Op::kThreefry, places, rec.Expand(key, shape));
  const UOp* const next = rec.Add(counter, rec.FullLike(counter, static_cast<double>(count)));
  internal::AssignNode(state.random_counter, rec, next);
  return bits;
}

const UOp* ShiftRight(const NodeBuilder& rec, const UOp* x, int bits) {
  return bits == 0 ? x : rec.Alu(Op::kShr, x, rec.FullLike(x, bits));
}

// Digits of a float's significand: k / 2^digits is exact for k < 2^digits.
int Digits(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 53;
    case DType::kF32: return 24;
    case DType::kF16: return 11;
    case DType::kBF16: return 8;
    case DType::kF8E4M3: return 4;
    default: return 3;
  }
}

// [0, 1) from the low word of each element (from all 64 bits for f64).
const UOp* Uniform(const NodeBuilder& rec, const UOp* bits, DType dtype) {
  const int digits = Digits(dtype);
  const UOp* word = bits;
  if (dtype != DType::kF64) word = rec.Cast(bits, DType::kU32);
  const UOp* const top = ShiftRight(rec, word, (dtype == DType::kF64 ? 64 : 32) - digits);
  return rec.Scale(rec.Cast(top, dtype), std::ldexp(1.0, -digits));
}

void CheckFloat(const NodeBuilder& rec, DType dtype) {
  if (!IsFloat(dtype))
    rec.Invalid(absl::StrCat("random numbers of ", std::string(Name(dtype)), ": use randint"));
}

}  // namespace

void Tensor::manual_seed(uint64_t seed, At at) {
  if (const auto* step = internal::StepObserver::Current(); step != nullptr)
    step->Refuse(at, "manual_seed within the step would seed only its recording");
  ThreadState& state = ThreadState::Get();
  state.seed = seed;
  state.random_key = state.random_counter = nullptr;
  state.random_session = nullptr;
}

Tensor Tensor::rand(const Dims& dims, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckFloat(rec, dtype);
  return FromNode(rec, rec.Reshape(Uniform(rec, Bits(rec, dims), dtype), ToShape(dims)));
}

Tensor Tensor::uniform(const Dims& dims, double low, double high, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckFloat(rec, dtype);
  const UOp* const u = Uniform(rec, Bits(rec, dims), dtype);
  // 2u - 1 is exact, so that only one rounding is left where the range is symmetric, whether or not
  // a backend fuses the multiplication with the addition.
  const UOp* const centred = rec.Add(rec.Scale(u, 2), rec.FullLike(u, -1));
  const UOp* y = rec.Scale(centred, (high - low) / 2);
  if (low + high != 0) y = rec.Add(y, rec.FullLike(y, (low + high) / 2));
  return FromNode(rec, rec.Reshape(y, ToShape(dims)));
}

Tensor Tensor::randn(const Dims& dims, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckFloat(rec, dtype);
  // Box and Muller: the high word gives the radius, from (0, 1]; the low word the angle.
  const DType wide = AccumulateType(dtype);
  const UOp* const bits = Bits(rec, dims);
  const UOp* const high = ShiftRight(rec, rec.Cast(ShiftRight(rec, bits, 32), DType::kU32), 8);
  const UOp* const low = ShiftRight(rec, rec.Cast(bits, DType::kU32), 8);
  const double unit = std::ldexp(1.0, -24);
  const UOp* const high_float = rec.Cast(high, wide);
  const UOp* const u = rec.Scale(rec.Add(high_float, rec.FullLike(high_float, 1)), unit);
  const UOp* const angle = rec.Scale(rec.Cast(low, wide), unit * 2 * std::numbers::pi);
  const UOp* const radius = rec.Alu(Op::kSqrt, rec.Scale(rec.Alu(Op::kLog, u), -2));
  const UOp* const y = rec.Mul(radius, rec.Alu(Op::kSin, angle));
  return FromNode(rec, rec.Reshape(rec.Cast(y, dtype), ToShape(dims)));
}

Tensor Tensor::randint(const Dims& dims, int64_t low, int64_t high, At at) {
  return outboard::randint(dims, low, high, DType::kI32, at);
}

Tensor randint(const Dims& dims, int64_t low, int64_t high, DType dtype, At at) {
  const NodeBuilder rec(at);
  if (!IsInt(dtype))
    rec.Invalid(absl::StrCat("randint: of integers, not ", std::string(Name(dtype))));
  int64_t range;
  if (low >= high || low < IntMin(dtype) || high - 1 > IntMax(dtype) ||
      __builtin_sub_overflow(high, low, &range) || range > int64_t{1} << 32)
    rec.Invalid(absl::StrCat("randint: ", low, " to ", high, " is empty, beyond ",
                             std::string(Name(dtype)), " or more than 2^32 numbers"));
  // The high half of word * range: each value has the same share but for one part in 2^32.
  const UOp* const word = rec.Cast(rec.Cast(Bits(rec, dims), DType::kU32), DType::kU64);
  const UOp* const scaled = ShiftRight(rec, rec.Scale(word, static_cast<double>(range)), 32);
  const UOp* y = rec.Cast(scaled, dtype);
  // The range may be wider than the type has positive numbers: the sum wraps to the right value.
  if (low != 0) y = rec.Add(y, rec.Full(rec.ConstInt(dtype, low), y->shape));
  return Tensor::FromNode(rec, rec.Reshape(y, ToShape(dims)));
}

Tensor normal(const Dims& dims, double mean, double std, DType dtype, At at) {
  if (std < 0) ThrowInvalid(at, absl::StrCat("normal: std is ", std));
  const Tensor y = Arg(Tensor::randn(dims, dtype, at), at) * Arg(std, at);
  return Arg(y, at) + Arg(mean, at);
}

namespace {

// The product of dims[first] and those after it, at least 1.
double CountFrom(const Dims& dims, size_t first) {
  double count = 1;
  for (size_t i = first; i < dims.size(); ++i) count *= static_cast<double>(dims[i]);
  return std::max(count, 1.0);
}

}  // namespace

Tensor scaled_uniform(const Dims& dims, DType dtype, At at) {
  const double bound = 1 / std::sqrt(CountFrom(dims, 0));
  return Tensor::uniform(dims, -bound, bound, dtype, at);
}

Tensor glorot_uniform(const Dims& dims, DType dtype, At at) {
  if (dims.empty()) ThrowInvalid(at, "glorot_uniform: a scalar has no fan-in");
  const double bound = std::sqrt(6 / (static_cast<double>(dims[0]) + CountFrom(dims, 1)));
  return Tensor::uniform(dims, -bound, bound, dtype, at);
}

Tensor kaiming_normal(const Dims& dims, double a, DType dtype, At at) {
  if (dims.empty()) ThrowInvalid(at, "kaiming_normal: a scalar has no fan-in");
  return normal(dims, 0, std::sqrt(2 / ((1 + a * a) * CountFrom(dims, 1))), dtype, at);
}

Tensor Tensor::kaiming_uniform(const Dims& dims, double a, DType dtype, At at) {
  if (dims.empty()) ThrowInvalid(at, "kaiming_uniform: a scalar has no fan-in");
  const double bound = std::sqrt(6 / ((1 + a * a) * CountFrom(dims, 1)));
  return uniform(dims, -bound, bound, dtype, at);
}

}  // namespace outboard
