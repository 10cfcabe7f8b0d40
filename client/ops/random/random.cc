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
#include <limits>
#include <numbers>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/call_site.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/realize.h"
#include "client/lazy/thread_state.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/index/index.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;
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
NodeExpr Bits(const NodeBuilder& rec, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) rec.Invalid(absl::StrCat("a dimension of ", dim));
    if (__builtin_mul_overflow(count, dim, &count)) rec.Invalid("so many random numbers overflow");
  }
  ThreadState& state = internal::RandomState(rec.at());
  const auto node = [&](const std::shared_ptr<internal::TensorState>& value) {
    return NodeExpr(rec, internal::NodeOfValue(value, rec.lazy_graph(), rec.at()));
  };
  const Shape shape = {Dim(count)};
  const NodeExpr counter = node(state.random_counter), key = node(state.random_key);
  const NodeExpr places = Iota(rec, DType::kU64, shape, 0) + counter.Expand(shape);
  internal::AssignNode(state.random_counter, rec, counter + static_cast<double>(count));
  return places.Binary(Op::kThreefry, key.Expand(shape));
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
NodeExpr Uniform(const NodeExpr& bits, DType dtype) {
  const int digits = Digits(dtype);
  const NodeExpr top =
      dtype == DType::kF64 ? bits >> (64 - digits) : bits.Cast(DType::kU32) >> (32 - digits);
  return top.Cast(dtype) * std::ldexp(1.0, -digits);
}

void CheckFloat(DType dtype) {
  if (!IsFloat(dtype))
    ThrowInvalid(absl::StrCat("random numbers of ", std::string(Name(dtype)), ": use randint"));
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
  CheckFloat(dtype);
  return TensorOf(Uniform(Bits(rec, dims), dtype).Reshape(ToShape(dims)));
}

Tensor Tensor::uniform(const Dims& dims, double low, double high, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckFloat(dtype);
  // 2u - 1 is exact, so that only one rounding is left where the range is symmetric, whether or not
  // a backend fuses the multiplication with the addition.
  const NodeExpr centred = Uniform(Bits(rec, dims), dtype) * 2 - 1;
  NodeExpr y = centred * ((high - low) / 2);
  if (low + high != 0) y = y + (low + high) / 2;
  return TensorOf(y.Reshape(ToShape(dims)));
}

// sqrt(-2 log(u)) sin(angle) (Box and Muller, 1958): the high word gives u of (0, 1], the low one
// the angle.
Tensor Tensor::randn(const Dims& dims, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckFloat(dtype);
  const DType wide = AccumulateType(dtype);
  const NodeExpr bits = Bits(rec, dims);
  const NodeExpr high = (bits >> 32).Cast(DType::kU32) >> 8, low = bits.Cast(DType::kU32) >> 8;
  const double unit = std::ldexp(1.0, -24);
  const NodeExpr u = (high.Cast(wide) + 1) * unit;
  const NodeExpr angle = low.Cast(wide) * (unit * 2 * std::numbers::pi);
  const NodeExpr y = Sqrt(Log(u) * -2) * Sin(angle);
  return TensorOf(y.Cast(dtype).Reshape(ToShape(dims)));
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
  const NodeExpr word = Bits(rec, dims).Cast(DType::kU32).Cast(DType::kU64);
  NodeExpr y = ((word * static_cast<double>(range)) >> 32).Cast(dtype);
  // The range may be wider than the type has positive numbers: the sum wraps to the right value.
  if (low != 0) y = y + y.FullInt(low);
  return TensorOf(y.Reshape(ToShape(dims)));
}

Tensor normal(const Dims& dims, double mean, double std, DType dtype, At at) {
  const CallSite site(at);
  if (std < 0) ThrowInvalid(absl::StrCat("normal: std is ", std));
  return Tensor::randn(dims, dtype) * std + mean;
}

namespace {

// The product of dims[first] and those after it, at least 1.
double CountFrom(const Dims& dims, size_t first) {
  double count = 1;
  for (size_t i = first; i < dims.size(); ++i) count *= static_cast<double>(dims[i]);
  return std::max(count, 1.0);
}

// The product of all but the first dimension.
double FanIn(const Dims& dims, const char* what) {
  if (dims.empty()) ThrowInvalid(absl::StrCat(what, ": a scalar has no fan-in"));
  return CountFrom(dims, 1);
}

}  // namespace

Tensor scaled_uniform(const Dims& dims, DType dtype, At at) {
  const double bound = 1 / std::sqrt(CountFrom(dims, 0));
  return Tensor::uniform(dims, -bound, bound, dtype, at);
}

// Glorot and Bengio (2010).
Tensor glorot_uniform(const Dims& dims, DType dtype, At at) {
  const CallSite site(at);
  const double fan_in = FanIn(dims, "glorot_uniform");
  const double bound = std::sqrt(6 / (static_cast<double>(dims[0]) + fan_in));
  return Tensor::uniform(dims, -bound, bound, dtype);
}

// He et al. (2015), as the next.
Tensor kaiming_normal(const Dims& dims, double a, DType dtype, At at) {
  const CallSite site(at);
  const double fan_in = FanIn(dims, "kaiming_normal");
  return normal(dims, 0, std::sqrt(2 / ((1 + a * a) * fan_in)), dtype);
}

Tensor Tensor::kaiming_uniform(const Dims& dims, double a, DType dtype, At at) {
  const CallSite site(at);
  const double fan_in = FanIn(dims, "kaiming_uniform");
  const double bound = std::sqrt(6 / ((1 + a * a) * fan_in));
  return uniform(dims, -bound, bound, dtype);
}

namespace {

// How many of the running shares lie at or below a number of [0, 1): the last share is 1, above all
// of them.
Tensor WithReplacement(const Tensor& weights, int64_t samples) {
  const int64_t rows = weights.shape(0), n = weights.shape(1);
  const Tensor running = weights.cumsum(1);
  const Tensor shares = running / running.slice(1, n - 1, n);
  return (Tensor::rand({rows, samples, 1}) >= shares.unsqueeze(1)).sum(2);
}

// The largest log(u) / weight, u of (0, 1] (Efraimidis and Spirakis, 2006). What has no weight
// comes last.
Tensor WithoutReplacement(const Tensor& weights, int64_t samples) {
  const Tensor key = (1 - Tensor::rand(weights.shape())).log() / weights;
  const double never = -std::numeric_limits<double>::infinity();
  return topk((weights > 0).where(key, never), samples, 1).indices;
}

}  // namespace

Tensor randperm(int64_t n, DType dtype, At at) {
  const CallSite site(at);
  return argsort(Tensor::rand({n}), 0).cast(dtype);
}

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, At at) {
  const CallSite site(at);
  const int rank = weights.rank();
  if (rank < 1 || rank > 2)
    ThrowInvalid(absl::StrCat("multinomial: weights of rank ", rank, ", not 1 or 2"),
                 Mistake::kCheck);
  const int64_t n = weights.shape(-1);
  if (samples < 1 || (!replacement && samples > n))
    ThrowInvalid(absl::StrCat("multinomial: ", samples, " samples of ", n), Mistake::kCheck);
  const Tensor table = (rank == 1 ? weights.unsqueeze(0) : weights).cast(DType::kF32);
  const Tensor places = replacement || samples == 1 ? WithReplacement(table, samples)
                                                    : WithoutReplacement(table, samples);
  return rank == 1 ? places.squeeze(0) : places;
}

}  // namespace outboard
