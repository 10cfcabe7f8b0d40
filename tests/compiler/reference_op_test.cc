// Every operation on every type at its corners. What is expected is computed by C++'s own types, or
// written out.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

const DType kIntTypes[] = {DType::kI8,  DType::kU8,  DType::kI16, DType::kU16,
                           DType::kI32, DType::kU32, DType::kI64, DType::kU64};
const DType kFloatTypes[] = {DType::kF8E4M3, DType::kF8E5M2, DType::kF16,
                             DType::kBF16,   DType::kF32,    DType::kF64};

std::vector<DType> AllTypes() {
  std::vector<DType> all = {DType::kBool};
  all.insert(all.end(), std::begin(kIntTypes), std::end(kIntTypes));
  all.insert(all.end(), std::begin(kFloatTypes), std::end(kFloatTypes));
  return all;
}

std::vector<int64_t> IntCorners(DType dtype) {
  if (IsBool(dtype)) return {0, 1};
  std::vector<int64_t> values = {
      0, 1, 2, 3, 7, 8, 31, 33, 63, 64, 100, IntMax(dtype), IntMax(dtype) - 1};
  if (IsSigned(dtype))
    values.insert(values.end(), {-1, -2, -7, -100, IntMin(dtype), IntMin(dtype) + 1});
  if (dtype == DType::kU64) values.insert(values.end(), {-1, -2, IntMin(DType::kI64)});
  return values;
}

std::vector<double> FloatCorners(DType dtype) {
  std::vector<double> values;
  for (const double v : {0.0, 1.0, 0.5, 1.5, 2.0, 3.0, 7.25, 100.0, 447.0, 0.0078125, 1e-3, 6e-8,
                         1e-40, 65504.0, 3e38, 1e300, kInf})
    for (const double sign : {1.0, -1.0}) values.push_back(RoundTo(dtype, sign * v));
  values.push_back(kNaN);
  return values;
}

// All pairs of `values`, as two tensors.
template <typename T>
std::pair<std::vector<T>, std::vector<T>> Pairs(const std::vector<T>& values) {
  std::pair<std::vector<T>, std::vector<T>> pairs;
  for (const T a : values)
    for (const T b : values) {
      pairs.first.push_back(a);
      pairs.second.push_back(b);
    }
  return pairs;
}

HostTensor OfInts(DType dtype, const std::vector<int64_t>& values) {
  return Ints(dtype, {static_cast<int64_t>(values.size())}, values);
}
HostTensor OfFloats(DType dtype, const std::vector<double>& values) {
  return Floats(dtype, {static_cast<int64_t>(values.size())}, values);
}

const UOp* ParamLike(Graph& g, int64_t slot, const HostTensor& tensor) {
  return Param(g, slot, tensor.dtype, Shape(tensor.dims.begin(), tensor.dims.end()));
}

// The value of an i64 cell of `dtype` as a wide integer.
__int128 Wide(DType dtype, int64_t v) {
  return dtype == DType::kU64 ? static_cast<__int128>(static_cast<uint64_t>(v)) : v;
}

__int128 ExpectedInt(Op op, DType dtype, __int128 a, __int128 b) {
  const int width = 8 * ByteWidth(dtype);
  const bool beyond = b < 0 || b >= width;
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kMul:
      return static_cast<__int128>(static_cast<unsigned __int128>(a) *
                                   static_cast<unsigned __int128>(b));
    case Op::kIDiv: return b == 0 ? 0 : a / b;
    case Op::kMod: return b == 0 ? a : a % b;
    case Op::kMax: return a > b ? a : b;
    case Op::kAnd: return a & b;
    case Op::kOr: return a | b;
    case Op::kXor: return a ^ b;
    case Op::kShl:
      return beyond
                 ? 0
                 : static_cast<__int128>(static_cast<unsigned __int128>(a) << static_cast<int>(b));
    case Op::kShr: return beyond ? (a < 0 ? -1 : 0) : a >> static_cast<int>(b);
    case Op::kCmpLt: return a < b;
    case Op::kCmpNe: return a != b;
    default: return a == b;
  }
}

TEST(OpTable, IntegerBinary) {
  for (const DType dtype : kIntTypes) {
    const auto [a, b] = Pairs(IntCorners(dtype));
    const HostTensor inputs[] = {OfInts(dtype, a), OfInts(dtype, b)};
    for (const Op op : {Op::kAdd, Op::kMul, Op::kIDiv, Op::kMod, Op::kMax, Op::kAnd, Op::kOr,
                        Op::kXor, Op::kShl, Op::kShr, Op::kCmpLt, Op::kCmpNe, Op::kCmpEq}) {
      SCOPED_TRACE(std::string(Name(op)) + " " + std::string(Name(dtype)));
      const DType result = IsCompare(op) ? DType::kBool : dtype;
      std::vector<int64_t> expected;
      for (size_t i = 0; i < a.size(); ++i)
        expected.push_back(WrapTo(result, static_cast<int64_t>(ExpectedInt(
                                              op, dtype, Wide(dtype, a[i]), Wide(dtype, b[i])))));
      Graph g;
      ExpectValue(Alu(g, op, ParamLike(g, 0, inputs[0]), ParamLike(g, 1, inputs[1])), inputs,
                  OfInts(result, expected));
    }
  }
}

TEST(OpTable, IntegerNegAndBool) {
  for (const DType dtype : kIntTypes) {
    const HostTensor input = OfInts(dtype, IntCorners(dtype));
    std::vector<int64_t> expected;
    for (const int64_t v : IntCorners(dtype))
      expected.push_back(WrapTo(dtype, static_cast<int64_t>(-Wide(dtype, v))));
    Graph g;
    ExpectValue(Alu(g, Op::kNeg, ParamLike(g, 0, input)), std::span(&input, 1),
                OfInts(dtype, expected));
  }
  const HostTensor inputs[] = {OfInts(DType::kBool, {0, 0, 1, 1}),
                               OfInts(DType::kBool, {0, 1, 0, 1})};
  const std::pair<Op, std::vector<int64_t>> cases[] = {
      {Op::kAnd, {0, 0, 0, 1}},   {Op::kOr, {0, 1, 1, 1}},    {Op::kXor, {0, 1, 1, 0}},
      {Op::kCmpLt, {0, 1, 0, 0}}, {Op::kCmpNe, {0, 1, 1, 0}}, {Op::kCmpEq, {1, 0, 0, 1}},
  };
  for (const auto& [op, expected] : cases) {
    SCOPED_TRACE(std::string(Name(op)));
    Graph g;
    ExpectValue(Alu(g, op, ParamLike(g, 0, inputs[0]), ParamLike(g, 1, inputs[1])), inputs,
                OfInts(DType::kBool, expected));
  }
}

// The narrower types compute in float, as semantics.md allows; f32 and f64 in themselves.
double ExpectedFloat(Op op, DType dtype, double a, double b) {
  const auto of = [&](auto x, auto y) -> double {
    switch (op) {
      case Op::kAdd: return x + y;
      case Op::kMul: return x * y;
      case Op::kFDiv: return x / y;
      case Op::kNeg: return -x;
      case Op::kSqrt: return std::sqrt(x);
      case Op::kTrunc: return std::trunc(x);
      case Op::kMax:
        return std::isnan(x) || std::isnan(y) ? kNaN
               : x == y                       ? (std::signbit(x) ? y : x)
                                              : std::max(x, y);
      case Op::kCmpLt: return x < y;
      case Op::kCmpNe: return x != y;
      default: return x == y;
    }
  };
  if (dtype == DType::kF64) return of(a, b);
  return RoundTo(dtype, of(static_cast<float>(a), static_cast<float>(b)));
}

TEST(OpTable, FloatExact) {
  for (const DType dtype : kFloatTypes) {
    const auto [a, b] = Pairs(FloatCorners(dtype));
    const HostTensor inputs[] = {OfFloats(dtype, a), OfFloats(dtype, b)};
    for (const Op op : {Op::kAdd, Op::kMul, Op::kFDiv, Op::kMax, Op::kNeg, Op::kSqrt, Op::kTrunc,
                        Op::kCmpLt, Op::kCmpNe, Op::kCmpEq}) {
      SCOPED_TRACE(std::string(Name(op)) + " " + std::string(Name(dtype)));
      std::vector<double> expected;
      for (size_t i = 0; i < a.size(); ++i)
        expected.push_back(ExpectedFloat(op, dtype, a[i], b[i]));
      Graph g;
      const UOp* const x = ParamLike(g, 0, inputs[0]);
      const UOp* const node =
          IsUnary(op) ? Alu(g, op, x) : Alu(g, op, x, ParamLike(g, 1, inputs[1]));
      HostTensor tensor = OfFloats(dtype, expected);
      if (IsCompare(op))
        tensor = OfInts(DType::kBool, std::vector<int64_t>(expected.begin(), expected.end()));
      ExpectValue(node, std::span(inputs).first(IsUnary(op) ? 1 : 2), tensor);
    }
  }
}

TEST(OpTable, FloatApproximate) {
  static const std::pair<Op, double (*)(double)> kApproximate[] = {
      {Op::kExp, std::exp}, {Op::kExp2, std::exp2}, {Op::kLog, std::log},  {Op::kLog2, std::log2},
      {Op::kSin, std::sin}, {Op::kCos, std::cos},   {Op::kTanh, std::tanh}};
  const double unit[] = {0x1p-4, 0x1p-3, 0x1p-11, 0x1p-8, 0x1p-24, 0x1p-53};
  for (size_t t = 0; t < std::size(kFloatTypes); ++t) {
    const DType dtype = kFloatTypes[t];
    for (const auto& [op, exact] : kApproximate) {
      SCOPED_TRACE(std::string(Name(op)) + " " + std::string(Name(dtype)));
      for (const double v :
           {0.0, -0.0, 1.0, 2.0, 0.25, 3.5, -1.0, -3.25, 5.0, 8.0, kInf, -kInf, kNaN}) {
        const double x = RoundTo(dtype, v);
        const double y = exact(x);
        const HostTensor input = OfFloats(dtype, {x});
        Graph g;
        const HostTensor expected = OfFloats(dtype, {y});
        // An f8e4m3 "infinity" is a number like any other, and its sine is one too.
        ExpectValue(Alu(g, op, ParamLike(g, 0, input)), std::span(&input, 1), expected,
                    8 * unit[t]);
      }
    }
  }
}

TEST(OpTable, Where) {
  for (const DType dtype : AllTypes()) {
    SCOPED_TRACE(std::string(Name(dtype)));
    const auto value = [&](std::vector<double> v) {
      return IsFloat(dtype) ? OfFloats(dtype, v)
                            : OfInts(dtype, std::vector<int64_t>(v.begin(), v.end()));
    };
    const double odd = IsFloat(dtype) ? kNaN : 1;  // not chosen: must not matter
    const HostTensor inputs[] = {OfInts(DType::kBool, {1, 0, 1, 0}), value({1, odd, 0, odd}),
                                 value({odd, 0, odd, 1})};
    Graph g;
    ExpectValue(Where(g, ParamLike(g, 0, inputs[0]), ParamLike(g, 1, inputs[1]),
                      ParamLike(g, 2, inputs[2])),
                inputs, value({1, 0, 0, 1}));
  }
}

// A cast's value through long double, which holds every i64, u64 and double. Ends of ranges are
// compared there too.
std::vector<long double> CastOf(DType from, const HostTensor& input) {
  std::vector<long double> values;
  if (IsFloat(from)) {
    for (const double v : FloatsOf(input)) values.push_back(v);
  } else {
    for (const int64_t v : IntsOf(input)) values.push_back(static_cast<long double>(Wide(from, v)));
  }
  return values;
}

int64_t ExpectedToInt(DType from, DType to, long double v) {
  if (IsBool(to)) return v != 0;  // also of a NaN
  if (!IsFloat(from)) return WrapTo(to, static_cast<int64_t>(static_cast<__int128>(v)));
  if (std::isnan(v)) return 0;
  const long double low = IntMin(to),
                    high = to == DType::kU64 ? 18446744073709551615.0L : IntMax(to);
  if (v <= low) return IntMin(to);
  if (v >= high) return to == DType::kU64 ? -1 : IntMax(to);
  return static_cast<int64_t>(static_cast<__int128>(v));
}

TEST(OpTable, CastEveryTypeToEvery) {
  for (const DType from : AllTypes()) {
    std::vector<double> floats = FloatCorners(IsFloat(from) ? from : DType::kF64);
    floats.insert(floats.end(), {127.5, 128.5, -128.5, 255.9, 2147483648.0, 9.3e18, -9.3e18, 1.9e19,
                                 0x1p63, 0.1});
    std::vector<int64_t> ints = IntCorners(from);
    if (ByteWidth(from) == 8)  // halfway cases of f32 and f64, and just beyond
      ints.insert(ints.end(),
                  {(1 << 24) + 1, (1ll << 53) + 1, (1ll << 53) + 3, (1ll << 60) + (1ll << 36) + 1});
    const HostTensor input = IsFloat(from) ? OfFloats(from, floats) : OfInts(from, ints);
    for (const DType to : AllTypes()) {
      if (from == to) continue;
      SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
      const std::vector<long double> values = CastOf(from, input);
      std::vector<int64_t> as_ints;
      std::vector<double> as_floats;
      for (const long double v : values) {
        if (!IsFloat(to))
          as_ints.push_back(ExpectedToInt(from, to, v));
        else if (to == DType::kF64)
          as_floats.push_back(static_cast<double>(v));
        else
          as_floats.push_back(
              RoundTo(to, to == DType::kF32 ? static_cast<float>(v) : static_cast<double>(v)));
      }
      Graph g;
      ExpectValue(Cast(g, ParamLike(g, 0, input), to), std::span(&input, 1),
                  IsFloat(to) ? OfFloats(to, as_floats) : OfInts(to, as_ints));
    }
  }
}

TEST(OpTable, Bitcast) {
  for (const DType from : AllTypes()) {
    for (const DType to : AllTypes()) {
      if (from == to || ByteWidth(from) != ByteWidth(to) || IsBool(from) || IsBool(to)) continue;
      SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
      // Patterns that are numbers in every format, zeros and the largest of each included.
      HostTensor input{from, {5}, std::string(5 * ByteWidth(from), '\0')};
      for (int k = 0; k < 5; ++k)
        for (int byte = 0; byte < ByteWidth(from); ++byte)
          input.bytes[k * ByteWidth(from) + byte] =
              static_cast<char>(k == 4 ? 0x80 * (byte + 1 == ByteWidth(from)) : 0x11 * k);
      HostTensor expected = input;
      expected.dtype = to;
      Graph g;
      ExpectValue(Bitcast(g, ParamLike(g, 0, input), to), std::span(&input, 1), expected);
    }
  }
}

TEST(OpTable, ReduceEveryType) {
  for (const DType dtype : AllTypes()) {
    if (IsBool(dtype)) continue;
    SCOPED_TRACE(std::string(Name(dtype)));
    const auto value = [&](std::vector<int64_t> dims, std::vector<double> v) {
      return IsFloat(dtype) ? Floats(dtype, dims, v)
                            : Ints(dtype, dims, std::vector<int64_t>(v.begin(), v.end()));
    };
    const HostTensor input = value({2, 3}, {1, 2, 3, 2, 3, 2});
    const std::pair<Op, std::vector<double>> rows[] = {
        {Op::kAdd, {6, 7}}, {Op::kMul, {6, 12}}, {Op::kMax, {3, 3}}};
    for (const auto& [op, expected] : rows) {
      Graph g;
      ExpectValue(Reduce(g, op, ParamLike(g, 0, input), {1}), std::span(&input, 1),
                  value({2, 1}, expected));
    }
    Graph g;
    ExpectValue(Reduce(g, Op::kAdd, ParamLike(g, 0, input), {0}), std::span(&input, 1),
                value({1, 3}, {3, 5, 5}));
    ExpectValue(Reduce(g, Op::kAdd, ParamLike(g, 0, input), {0, 1}), std::span(&input, 1),
                value({1, 1}, {13}));

    const HostTensor empty = value({2, 0}, {});
    const UOp* const none = ParamLike(g, 0, empty);
    ExpectValue(Reduce(g, Op::kAdd, none, {1}), std::span(&empty, 1), value({2, 1}, {0, 0}));
    ExpectValue(Reduce(g, Op::kMul, none, {1}), std::span(&empty, 1), value({2, 1}, {1, 1}));
    ExpectValue(Reduce(g, Op::kMax, none, {1}), std::span(&empty, 1),
                IsFloat(dtype) ? Floats(dtype, {2, 1}, {-kInf, -kInf})
                               : Ints(dtype, {2, 1}, {IntMin(dtype), IntMin(dtype)}));
  }
}

TEST(OpTable, ReduceCorners) {
  Graph g;
  const HostTensor nan = Floats(DType::kF32, {3}, {1, kNaN, 2});
  ExpectValue(Reduce(g, Op::kMax, ParamLike(g, 0, nan), {0}), std::span(&nan, 1),
              Floats(DType::kF32, {1}, {kNaN}));
  const HostTensor low = Ints(DType::kI8, {3}, {-128, -5, -7});
  ExpectValue(Reduce(g, Op::kMax, ParamLike(g, 0, low), {0}), std::span(&low, 1),
              Ints(DType::kI8, {1}, {-5}));
  ExpectValue(Reduce(g, Op::kAdd, ParamLike(g, 0, low), {0}), std::span(&low, 1),
              Ints(DType::kI8, {1}, {116}));
  ExpectValue(Reduce(g, Op::kMul, ParamLike(g, 0, low), {0}), std::span(&low, 1),
              Ints(DType::kI8, {1}, {-128}));  // -4480 mod 256
  // An f16 sum keeps an f32 accumulator: 2048 + 1 + 1 is 2050, where rounding each step would stay
  // at 2048.
  const HostTensor half = Floats(DType::kF16, {3}, {2048, 1, 1});
  ExpectValue(Reduce(g, Op::kAdd, ParamLike(g, 0, half), {0}), std::span(&half, 1),
              Floats(DType::kF16, {1}, {2050}));
}

TEST(OpTable, ThreefryVectors) {
  const uint64_t counters[] = {0, ~uint64_t{0}, 0x85a308d3243f6a88};
  const uint64_t keys[] = {0, ~uint64_t{0}, 0x0370734413198a2e};
  const uint64_t words[] = {0x99ba4efe6b200159, 0xbb002be71cb996fc, 0x483df7a0c4923a9c};
  std::vector<int64_t> c, k, w;
  for (int i = 0; i < 3; ++i) {
    c.push_back(std::bit_cast<int64_t>(counters[i]));
    k.push_back(std::bit_cast<int64_t>(keys[i]));
    w.push_back(std::bit_cast<int64_t>(words[i]));
  }
  const HostTensor inputs[] = {OfInts(DType::kU64, c), OfInts(DType::kU64, k)};
  Graph g;
  ExpectValue(Alu(g, Op::kThreefry, ParamLike(g, 0, inputs[0]), ParamLike(g, 1, inputs[1])), inputs,
              OfInts(DType::kU64, w));
}

TEST(OpTable, MovementEveryType) {
  for (const DType dtype : AllTypes()) {
    SCOPED_TRACE(std::string(Name(dtype)));
    const auto value = [&](std::vector<int64_t> dims, std::vector<double> v) {
      for (double& x : v)
        if (IsBool(dtype)) x = x != 0 && static_cast<int>(x) % 2;
      return IsFloat(dtype) ? Floats(dtype, dims, v)
                            : Ints(dtype, dims, std::vector<int64_t>(v.begin(), v.end()));
    };
    const HostTensor input = value({2, 3}, {1, 2, 3, 4, 5, 6});
    const std::span<const HostTensor> in(&input, 1);
    Graph g;
    const UOp* const x = ParamLike(g, 0, input);
    ExpectValue(Reshape(g, x, Shape{3, 2}), in, value({3, 2}, {1, 2, 3, 4, 5, 6}));
    ExpectValue(Permute(g, x, {1, 0}), in, value({3, 2}, {1, 4, 2, 5, 3, 6}));
    ExpectValue(Flip(g, x, {1}), in, value({2, 3}, {3, 2, 1, 6, 5, 4}));
    ExpectValue(Flip(g, x, {0, 1}), in, value({2, 3}, {6, 5, 4, 3, 2, 1}));
    ExpectValue(Pad(g, x, Shape{1, 0, 0, 2}), in,
                value({3, 5}, {0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0}));
    ExpectValue(Shrink(g, x, Shape{1, 2, 0, 2}), in, value({1, 2}, {4, 5}));
    ExpectValue(Shrink(g, x, Shape{1, 1, 0, 2}), in, value({0, 2}, {}));
    ExpectValue(Expand(g, Reshape(g, x, Shape{2, 1, 3}), Shape{2, 2, 3}), in,
                value({2, 2, 3}, {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
    ExpectValue(g.MakeChecked(Op::kContiguous, DType::kVoid, {Permute(g, x, {1, 0})}), in,
                value({3, 2}, {1, 4, 2, 5, 3, 6}));
  }
}

TEST(OpTable, LeavesAndConstants) {
  Graph g;
  for (const DType dtype : kIntTypes)
    ExpectValue(Iota(g, dtype, 4), {}, Ints(dtype, {4}, {0, 1, 2, 3}));
  for (const DType dtype : AllTypes()) {
    const UOp* const c = ConstOf(g, dtype, 1);
    ExpectValue(Full(g, c, Shape{2, 1}), {},
                IsFloat(dtype) ? Floats(dtype, {2, 1}, {1, 1}) : Ints(dtype, {2, 1}, {1, 1}));
  }
  const Binding binding{0, 7};
  const HostTensor unused = Ints(DType::kI64, {}, {0});
  ExpectValue(Var(g, 0, 1, 9), std::span(&unused, 0), Ints(DType::kI64, {}, {7}), 0,
              std::span(&binding, 1));
}

}  // namespace
}  // namespace outboard::test
