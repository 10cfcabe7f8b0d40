// ldmatrix, stmatrix and mma.sync: matrices that lie across the registers of a warp.
//
// A product's sum (of wgmma, too) is computed in double over all of k and rounded once: PTX leaves
// the order and the rounding of intermediate sums open. Of tf32 and the 8-bit floats, for whose
// digits programs care, it is as coarse as on any device: each term is cut off at the last place
// that the largest one has in f32; of 8-bit floats, at the last of 14 digits, as on sm_90. Integer
// products are exact, modulo 2^32 or saturated.
#include "tests/gpu/ptx/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

double ElementOf(Type type, uint64_t bits) {
  switch (type) {
    case Type::kF16: return HalfToFloat(static_cast<uint16_t>(bits));
    case Type::kBf16: return BfloatToFloat(static_cast<uint16_t>(bits));
    // The lower 13 bits of a tf32 operand are ignored.
    case Type::kTf32: return std::bit_cast<float>(static_cast<uint32_t>(bits) & ~0x1fffu);
    case Type::kE4m3: return Decode(static_cast<uint32_t>(bits & 0xff), kE4m3Format);
    case Type::kE5m2: return Decode(static_cast<uint32_t>(bits & 0xff), kE5m2Format);
    case Type::kS8: return static_cast<int8_t>(bits);
    case Type::kU8: return static_cast<uint8_t>(bits);
    case Type::kF32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case Type::kF64: return std::bit_cast<double>(bits);
    case Type::kS32: return static_cast<int32_t>(bits);
    default: return 0;
  }
}
bool KnownElement(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kTf32 || type == Type::kE4m3 ||
         type == Type::kE5m2 || type == Type::kS8 || type == Type::kU8 || type == Type::kF64;
}
uint64_t SumBits(Type type, double sum, bool saturate) {
  switch (type) {
    case Type::kF32: {
      const float value = static_cast<float>(sum);
      return std::isnan(value) ? kNanF32 : std::bit_cast<uint32_t>(value);
    }
    case Type::kF64: return std::bit_cast<uint64_t>(sum);
    case Type::kF16: return Encode(sum, kHalfFormat);
    case Type::kS32: {
      // Exact in double: at most 256 products of 16 bits and a 32-bit number.
      if (saturate) sum = std::fmin(std::fmax(sum, -2147483648.0), 2147483647.0);
      return static_cast<uint32_t>(static_cast<int64_t>(sum));
    }
    default: return 0;
  }
}

void Execution::LoadMatrix(Warp* warp, const Instruction& in, uint32_t mask) {
  const int32_t* list = function_.operands.data() + in.list;
  uint64_t addresses[32] = {};
  for (int k = 0; k < in.mode; ++k) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * k + row;
      const uint64_t address =
          (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
      addresses[lane] = address;
      Place place;
      if (!Resolve(warp, lane, in, in.space == Space::kGeneric ? Space::kGeneric : Space::kShared,
                   address, 16, 16, &place))
        return;
      // Any lane may get the bytes: what was ordered for the lane with the address has to be for
      // all.
      ReadBytes(LaneActor(warp, lane), in, place, matrix[row], 16);
      if (!status_.ok()) return;
    }
    for (int lane = 0; lane < 32; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const int r = lane / 4, c = 2 * (lane % 4);
      const uint32_t low = in.transposed ? matrix[c][r] : matrix[r][c];
      const uint32_t high = in.transposed ? matrix[c + 1][r] : matrix[r][c + 1];
      warp->row(list[k])[lane] = high << 16 | low;
    }
  }
  if (counting_) CountShared(addresses, in.mode == 4 ? ~0u : (1u << (8 * in.mode)) - 1, 16);
}

void Execution::StoreMatrix(Warp* warp, const Instruction& in, uint32_t mask) {
  const int32_t* list = function_.operands.data() + in.list;
  uint64_t addresses[32] = {};
  for (int k = 0; k < in.mode; ++k) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int r = lane / 4, c = 2 * (lane % 4);
      const uint32_t value = static_cast<uint32_t>(warp->row(list[k])[lane]);
      (in.transposed ? matrix[c][r] : matrix[r][c]) = static_cast<uint16_t>(value);
      (in.transposed ? matrix[c + 1][r] : matrix[r][c + 1]) = static_cast<uint16_t>(value >> 16);
    }
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * k + row;
      const uint64_t address =
          (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
      addresses[lane] = address;
      Place place;
      if (!Resolve(warp, lane, in, in.space == Space::kGeneric ? Space::kGeneric : Space::kShared,
                   address, 16, 16, &place))
        return;
      WriteBytes(LaneActor(warp, lane), in, place, matrix[row], 16);
      if (!status_.ok()) return;
    }
  }
  if (counting_) CountShared(addresses, in.mode == 4 ? ~0u : (1u << (8 * in.mode)) - 1, 16);
}

namespace {

// The exponent of a finite number other than 0.
int ExponentOf(double value) {
  const int biased = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff);
  return biased != 0 ? biased - 1023 : std::ilogb(value);
}

double PowerOfTwo(int exponent) {  // of a normal number
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// Cuts all terms off at the last of the digits of the largest, and then their sum, to f32. What is
// left of the terms are integers of that last place, of at most `digits` digits.
double CutTogether(std::span<const double> terms, int digits) {
  constexpr int kLeast = -149, kResultDigits = 24;
  double largest = 0;
  bool finite = true;
  for (const double term : terms) {
    finite = finite && std::fabs(term) <= std::numeric_limits<double>::max();
    largest = std::max(largest, std::fabs(term));
  }
  if (!finite) return std::accumulate(terms.begin(), terms.end(), 0.0);
  if (largest == 0) return 0;
  const int last = std::max(ExponentOf(largest) + 1 - digits, kLeast);
  const double scale = PowerOfTwo(-last);
  int64_t sum = 0;
  for (const double term : terms) sum += static_cast<int64_t>(term * scale);
  const auto magnitude = static_cast<uint64_t>(std::abs(sum));
  const int more =
      std::max(0, static_cast<int>(std::bit_width(magnitude)) - kResultDigits);
  const double result = static_cast<double>(magnitude >> more << more) * PowerOfTwo(last);
  return std::copysign(result < 0x1p128 ? result : HUGE_VAL, sum < 0 ? -1.0 : 1.0);
}

// Whether SumOf adds one term after the other.
bool IsPlainSum(Type type) {
  return type != Type::kTf32 && type != Type::kE4m3 && type != Type::kE5m2;
}

}  // namespace

double SumOf(Type type, std::span<const double> terms) {
  switch (type) {
    case Type::kTf32: return CutTogether(terms, 24);
    case Type::kE4m3:
    case Type::kE5m2: return CutTogether(terms, 14);
    default: return std::accumulate(terms.begin(), terms.end(), 0.0);
  }
}

namespace {

// Fragments (PTX ISA, "Matrix Fragments for mma"): lane / 4 is the row of A, C and D and the column
// of B; the other index counts, within a register of `per` elements, from (lane % 4) * per;
// registers step by 8 rows first (A), then by 4 * per along k.
struct Fragments {
  int per;  // elements of a 32-bit register along k
};

}  // namespace

void Execution::Mma(Warp* warp, const Instruction& in) {
  const MatrixShape& shape = function_.shapes[in.shape];
  if (!KnownElement(shape.a) || !KnownElement(shape.b)) {
    return Fail(absl::UnimplementedError(
        absl::StrCat("PTX line ", in.line, ": mma of this type is not known")));
  }
  const int32_t* d = function_.operands.data() + in.list;
  const int32_t* a = d + shape.d_count;
  const int32_t* b = a + shape.a_count;
  const int32_t* c = b + shape.b_count;
  const int element_bits = shape.a == Type::kTf32 ? 32 : 8 * BytesOf(shape.a);
  const Fragments f{element_bits == 64 ? 1 : 32 / element_bits};
  const int rows_high = shape.m / 8;  // 2, or 1 for m8
  constexpr int kColumns = 8;  // of every mma
  double left[16][64], right[64][kColumns] = {}, sum[16][kColumns] = {};
  if (shape.k > 64) return Fail(absl::UnimplementedError("mma with k above 64"));
  for (double* row : left) std::fill_n(row, shape.k, 0.0);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < shape.a_count; ++i) {
      const uint64_t bits = warp->row(a[i])[lane];
      for (int e = 0; e < f.per; ++e)
        left[lane / 4 + 8 * (i % rows_high)][(lane % 4) * f.per + e + 4 * f.per * (i / rows_high)] =
            ElementOf(shape.a, bits >> (element_bits == 64 ? 0 : element_bits * e));
    }
    for (int i = 0; i < shape.b_count; ++i) {
      const uint64_t bits = warp->row(b[i])[lane];
      for (int e = 0; e < f.per; ++e)
        right[(lane % 4) * f.per + e + 4 * f.per * i][lane / 4] =
            ElementOf(shape.b, bits >> (element_bits == 64 ? 0 : element_bits * e));
    }
    // C and D: pairs of columns, registers step by 8 rows. f16 holds a pair in a register.
    for (int i = 0; i < shape.m * shape.n / 32; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      sum[row][column] = shape.c == Type::kF16
                             ? ElementOf(shape.c, warp->row(c[i / 2])[lane] >> (16 * (i % 2)))
                             : ElementOf(shape.c, warp->row(c[i])[lane]);
    }
  }
  for (int row = 0; row < shape.m; ++row) {
    if (IsPlainSum(shape.a)) {
      // As SumOf adds, all columns side by side.
      double sums[kColumns];
      for (int column = 0; column < kColumns; ++column) sums[column] = 0.0 + sum[row][column];
      for (int k = 0; k < shape.k; ++k)
        for (int column = 0; column < kColumns; ++column)
          sums[column] += left[row][k] * right[k][column];
      std::copy_n(sums, kColumns, sum[row]);
      continue;
    }
    for (int column = 0; column < shape.n; ++column) {
      double terms[1 + 64];
      terms[0] = sum[row][column];
      for (int k = 0; k < shape.k; ++k) terms[1 + k] = left[row][k] * right[k][column];
      sum[row][column] = SumOf(shape.a, {terms, static_cast<size_t>(1 + shape.k)});
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < shape.m * shape.n / 32; ++i) {
      const uint64_t bits =
          SumBits(shape.d, sum[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2], in.sat);
      if (shape.d != Type::kF16) {
        warp->row(d[i])[lane] = bits;
      } else {
        uint64_t& pair = warp->row(d[i / 2])[lane];
        pair = i % 2 == 0 ? bits : (pair & 0xffff) | bits << 16;
      }
    }
  }
  if (counting_) ++machine_->counters_.products;
}

}  // namespace outboard::ptx
