// Arithmetic of the interpreter of programs: in every lane what the reference computes, for every
// operation, type and conversion; and the instructions that have no form in the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "compiler/program/interpret.h"
#include "compiler/program/interpret_lanes.h"
#include "compiler/program/interpret_plan.h"
#include "compiler/program/program.h"
#include "compiler/reference/alu.h"

namespace outboard::program {
namespace {

constexpr int kLaneCounts[] = {1, 16, 61};

// Values of the type, with its corners among them.
std::vector<int64_t> Some(DType dtype, int lanes, std::mt19937_64& random) {
  std::vector<int64_t> out(lanes);
  for (int64_t& lane : out) {
    const uint64_t bits = random();
    if (IsFloat(dtype)) {
      const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.5, 3e9, 1e-40};
      double value = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-60;
      if (bits % 3 == 0) value = special[random() % std::size(special)];
      lane = AsBits(RoundTo(dtype, value));
    } else {
      const int64_t corners[] = {0, 1, -1, 7, IntMin(dtype), IntMax(dtype)};
      lane = WrapTo(dtype, bits % 3 == 0 ? corners[random() % std::size(corners)]
                                         : static_cast<int64_t>(bits >> random() % 64));
    }
  }
  return out;
}

reference::LaneBlock ToBlock(DType dtype, const std::vector<int64_t>& lanes) {
  reference::LaneBlock block;
  block.Resize(dtype, static_cast<int64_t>(lanes.size()));
  for (size_t i = 0; i < lanes.size(); ++i)
    IsFloat(dtype) ? void(block.f[i] = AsFloat(lanes[i])) : void(block.i[i] = lanes[i]);
  return block;
}

// Equal bits, or both are NaN.
void ExpectSame(DType dtype, const std::vector<int64_t>& got, const reference::LaneBlock& want,
                const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!IsFloat(dtype)) {
      ASSERT_EQ(got[i], want.i[i]) << what << " lane " << i;
    } else if (!std::isnan(want.f[i]) || !std::isnan(AsFloat(got[i]))) {
      ASSERT_EQ(got[i], AsBits(want.f[i]))
          << what << " lane " << i << " got " << AsFloat(got[i]) << " want " << want.f[i];
    }
  }
}

std::vector<Op> OpsOf(DType dtype) {
  std::vector<Op> ops = {Op::kCmpLt, Op::kCmpNe, Op::kCmpEq};
  const auto more = [&](std::initializer_list<Op> list) { ops.insert(ops.end(), list); };
  if (!IsBool(dtype)) more({Op::kAdd, Op::kMul, Op::kMax, Op::kNeg});
  if (IsFloat(dtype))
    more({Op::kFDiv, Op::kSqrt, Op::kTrunc, Op::kExp, Op::kExp2, Op::kLog, Op::kLog2, Op::kSin,
          Op::kCos, Op::kTanh});
  if (!IsFloat(dtype)) more({Op::kAnd, Op::kOr, Op::kXor});
  if (IsInt(dtype)) more({Op::kIDiv, Op::kMod, Op::kShl, Op::kShr});
  if (dtype == DType::kU64) more({Op::kThreefry});
  return ops;
}

TEST(ProgramLanes, EveryOperationComputesWhatTheReferenceDoes) {
  std::mt19937_64 random(1);
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    for (const Op op : OpsOf(dtype))
      for (const int lanes : kLaneCounts)
        for (int round = 0; round < 20; ++round) {
          const std::vector<int64_t> a = Some(dtype, lanes, random), b = Some(dtype, lanes, random);
          const DType result = IsCompare(op) ? DType::kBool : dtype;
          std::vector<int64_t> got(lanes);
          FunctionOf(op, dtype)({op, dtype, result, static_cast<uint8_t>(lanes)}, a.data(),
                                b.data(), nullptr, got.data());
          reference::LaneBlock want;
          reference::AluTile(op, dtype, ToBlock(dtype, a), ToBlock(dtype, b), want);
          ExpectSame(result, got, want, std::string(Name(op)) + " of " + std::string(Name(dtype)));
          if (::testing::Test::HasFatalFailure()) return;
        }
  }
}

TEST(ProgramLanes, EveryConversionIsTheReferences) {
  std::mt19937_64 random(2);
  for (int from_code = 1; from_code < kDTypeCount; ++from_code)
    for (int to_code = 1; to_code < kDTypeCount; ++to_code)
      for (const int lanes : kLaneCounts) {
        const auto from = static_cast<DType>(from_code), to = static_cast<DType>(to_code);
        const std::vector<int64_t> in = Some(from, lanes, random);
        std::vector<int64_t> got(lanes);
        reference::LaneBlock want;
        CastLanes(from, to, in.data(), lanes, got.data());
        reference::CastTile(from, to, ToBlock(from, in), want);
        const std::string what = std::string(Name(from)) + " to " + std::string(Name(to));
        ExpectSame(to, got, want, "CAST " + what);
        if (ByteWidth(from) != ByteWidth(to) || IsBool(to) || IsBool(from)) continue;
        BitcastLanes(from, to, in.data(), lanes, got.data());
        reference::BitcastTile(from, to, ToBlock(from, in), want);
        ExpectSame(to, got, want, "BITCAST " + what);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(ProgramLanes, ElementsOfEveryTypeAreLoadedAsTheyAreStored) {
  std::mt19937_64 random(3);
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    const std::vector<int64_t> in = Some(dtype, 61, random);
    std::string bytes(61 * 8, '\1');
    StoreLanes(dtype, in.data(), 61, bytes.data());
    std::vector<int64_t> got(61);
    LoadLanes(dtype, bytes.data(), 61, got.data());
    ExpectSame(dtype, got, ToBlock(dtype, in), std::string(Name(dtype)));
    for (int lane = 0; lane < 61; ++lane) {
      const char* const at = bytes.data() + lane * ByteWidth(dtype);
      if (!IsFloat(dtype)) {
        EXPECT_EQ(LoadInt(dtype, at), in[lane]);
      }
    }
  }
}

// ---- instructions of x86's matrix units

using Buffers = std::vector<std::string>;

double A(int64_t row, int64_t k) { return static_cast<double>((row * 3 + k * 5) % 11 - 5); }
double B(int64_t k, int64_t column) { return static_cast<double>((k * 7 + column) % 9 - 4); }

// out[i] = 1 + a[2i] * b[2i] + a[2i + 1] * b[2i + 1], both of bf16.
TEST(ProgramLanes, PairwiseProductsOfTwoVectors) {
  constexpr int kPairs = 8;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kPairs);
  std::array<ValueId, 2> pairs;
  for (int side = 0; side < 2; ++side) {
    const ValueId memory = b.Buffer(DType::kBF16, side + 1, 2 * kPairs);
    const ValueId halves = b.Add({.code = Code::kLoad,
                                  .dtype = DType::kBF16,
                                  .lanes = 2 * kPairs,
                                  .src = {memory, b.Int(0)}});
    pairs[side] =
        b.Add({.code = Code::kBitcast, .dtype = DType::kU32, .lanes = kPairs, .src = {halves}});
  }
  const ValueId one = b.Splat(b.Const(DType::kF32, 1), kPairs);
  b.Store(out, b.Int(0),
          b.Add({.code = Code::kDot,
                 .dtype = DType::kF32,
                 .lanes = kPairs,
                 .src = {one, pairs[0], pairs[1]}}));
  Buffers buffers = {std::string(4 * kPairs, '\0'), std::string(4 * kPairs, '\0'),
                     std::string(4 * kPairs, '\0')};
  for (int i = 0; i < 2 * kPairs; ++i) {
    StoreFloat(DType::kBF16, A(i, 1), &buffers[1][2 * i]);
    StoreFloat(DType::kBF16, B(i, 2), &buffers[2][2 * i]);
  }
  const RunReport report = Interpret(b.Take(3), buffers, {});
  ASSERT_TRUE(report.ok()) << report.message;
  for (int i = 0; i < kPairs; ++i)
    EXPECT_EQ(LoadFloat(DType::kF32, &buffers[0][4 * i]),
              1 + A(2 * i, 1) * B(2 * i, 2) + A(2 * i + 1, 1) * B(2 * i + 1, 2));
}

struct TilesCase {
  const char* name;
  bool zeroed, loaded;
  int64_t elements;  // of the private memory of the right operand
  Fault fault;
};

// 16 x 32 by 32 x 16 of bf16, through private memory with rows that are 20 elements apart.
TEST(ProgramLanes, TilesMultiplyAndReportWhatTheyMustNotRead) {
  constexpr int64_t kStride = 20, kElements = 15 * kStride + kTileSide;
  constexpr TilesCase kCases[] = {
      {"all is well", true, true, kElements, Fault::kNone},
      {"sums that nothing has set", false, true, kElements, Fault::kUninitialised},
      {"an operand that nothing has loaded", true, false, kElements, Fault::kUninitialised},
      {"a row beyond the memory", true, true, kElements - 1, Fault::kOutOfRange},
  };
  for (const TilesCase& c : kCases) {
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, 256), left = b.Buffer(DType::kU32, 1, 256),
                  right = b.Buffer(DType::kU32, 2, 256);
    const auto tile = [&](DType dtype) { return b.Alloc(Space::kTile, dtype, 256); };
    const auto private_of = [&](DType dtype, int64_t elements) {
      return b.Alloc(Space::kPrivate, dtype, elements);
    };
    const ValueId sums = tile(DType::kF32), x = tile(DType::kU32), y = tile(DType::kU32);
    const auto rows = [&](ValueId to, ValueId to_stride, ValueId from, ValueId from_stride) {
      const ValueId row = b.Loop(16);
      const ValueId column = b.Loop(16);
      const auto place = [&](ValueId stride) {
        return b.Plus(b.Alu(Op::kMul, DType::kI64, {row, stride}), column);
      };
      // The last row stays out where it does not fit.
      const ValueId fits = b.If(b.Less(place(to_stride), b.Int(b.at(to).imm[1])));
      b.Store(to, place(to_stride), b.Load(from, place(from_stride)));
      b.EndIf(fits);
      b.End(column);
      b.End(row);
    };
    const ValueId packed = b.Int(16), apart = b.Int(kStride);
    if (c.zeroed) b.Add({.code = Code::kTileZero, .src = {sums}});
    const auto load = [&](ValueId to, ValueId from, int64_t elements) {
      const ValueId memory = private_of(DType::kU32, elements);
      rows(memory, apart, from, packed);
      b.Add({.code = Code::kTileLoad, .src = {to, memory, b.Int(0)}, .imm = {kStride, 0, 0}});
    };
    if (c.loaded) load(x, left, kElements);
    load(y, right, c.elements);
    b.Add({.code = Code::kTileDot, .src = {sums, x, y}});
    const ValueId result = private_of(DType::kF32, kElements);
    b.Add({.code = Code::kTileStore, .src = {sums, result, b.Int(0)}, .imm = {kStride, 0, 0}});
    rows(out, packed, result, apart);

    Buffers buffers = {std::string(1024, '\0'), std::string(1024, '\0'), std::string(1024, '\0')};
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 32; ++k) {
        StoreFloat(DType::kBF16, A(row, k), &buffers[1][2 * (row * 32 + k)]);
        StoreFloat(DType::kBF16, B(k, row), &buffers[2][2 * (k / 2 * 32 + row * 2 + k % 2)]);
      }
    const RunReport report = Interpret(b.Take(3), buffers, {});
    EXPECT_EQ(report.fault, c.fault) << c.name << ": " << report.message;
    if (c.fault != Fault::kNone) continue;
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column) {
        double sum = 0;
        for (int k = 0; k < 32; ++k) sum += A(row, k) * B(k, column);
        EXPECT_EQ(LoadFloat(DType::kF32, &buffers[0][4 * (row * 16 + column)]), sum)
            << row << " " << column;
      }
  }
}

}  // namespace
}  // namespace outboard::program
