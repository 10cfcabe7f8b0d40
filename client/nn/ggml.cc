#include "client/nn/ggml.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/nn/iq_grids.h"
#include "client/nn/little_endian.h"

namespace outboard::nn {
namespace {

using files::GgmlType;

// A tensor with what the formulas of the formats are made of. Shapes begin with the count of
// blocks.
struct Term {
  Tensor tensor;

  Term Reshape(const SymShape& sizes) const { return {tensor.reshape(sizes)}; }
  Term Cast(DType dtype) const { return {tensor.cast(dtype)}; }
  Term Float() const { return Cast(DType::kF32); }
  // Bytes [begin, begin + count) of each block.
  Term Bytes(int64_t begin, int64_t count) const { return {tensor.slice(1, begin, begin + count)}; }
  Term As(DType dtype) const { return {FromLittleEndian(tensor, dtype)}; }
  // The f16 at byte `begin` of each block: [count, 1].
  Term Half(int64_t begin) const { return Bytes(begin, 2).As(DType::kF16).Float(); }
  // A new axis of the `count` fields of `width` bits that each number consists of, the low ones
  // first.
  Term Fields(int64_t axis, int64_t count, int64_t width) const {
    Dims places(static_cast<size_t>(tensor.rank() + 1), 1);
    places[static_cast<size_t>(axis)] = count;
    const Tensor shifts = Tensor::arange(0, count * width, width, tensor.dtype()).reshape(places);
    return {(tensor.unsqueeze(axis) >> shifts) & ((int64_t{1} << width) - 1)};
  }
  // table[this]: another axis at the end for what an entry consists of.
  Term In(const Tensor& table) const { return {table.take(Cast(DType::kI32).tensor)}; }
};

// What stands beside a Term: another one, or a number. For parameters only.
class Operand {
 public:
  Operand(const Term& term) : arg_(term.tensor) {}  // NOLINT
  template <typename T>
  requires std::is_arithmetic_v<T> Operand(T number) : arg_(number) {}  // NOLINT

  const Arg& arg() const { return arg_; }

 private:
  Arg arg_;
};

Term operator+(const Term& a, const Operand& b) { return {a.tensor + b.arg()}; }
Term operator-(const Term& a, const Operand& b) { return {a.tensor - b.arg()}; }
Term operator*(const Term& a, const Operand& b) { return {a.tensor * b.arg()}; }
Term operator&(const Term& a, const Operand& b) { return {a.tensor & b.arg()}; }
Term operator|(const Term& a, const Operand& b) { return {a.tensor | b.arg()}; }
Term operator^(const Term& a, const Operand& b) { return {a.tensor ^ b.arg()}; }
Term operator<<(const Term& a, const Operand& b) { return {a.tensor << b.arg()}; }
Term operator>>(const Term& a, const Operand& b) { return {a.tensor >> b.arg()}; }

Term Joined(const Term& a, const Term& b) { return {Tensor::cat({a.tensor, b.tensor}, 1)}; }

// ---- blocks of 32 elements: the first 16 are the low halves of bytes ----------------------------

Term Nibbles(const Term& bytes, int64_t n) { return bytes.Fields(1, 2, 4).Reshape({n, 32}); }

// Four bits of `nibbles`, and the fifth of each element from four bytes.
Term FiveBits(const Term& nibbles, const Term& fifth, int64_t n) {
  return Nibbles(nibbles, n) | fifth.Fields(2, 8, 1).Reshape({n, 32}) << 4;
}

Term Q4_0(const Term& b, int64_t n) { return (Nibbles(b.Bytes(2, 16), n).Float() - 8) * b.Half(0); }

Term Q4_1(const Term& b, int64_t n) {
  return Nibbles(b.Bytes(4, 16), n).Float() * b.Half(0) + b.Half(2);
}

Term Q5_0(const Term& b, int64_t n) {
  return (FiveBits(b.Bytes(6, 16), b.Bytes(2, 4), n).Float() - 16) * b.Half(0);
}

Term Q5_1(const Term& b, int64_t n) {
  return FiveBits(b.Bytes(8, 16), b.Bytes(4, 4), n).Float() * b.Half(0) + b.Half(2);
}

Term Q8_0(const Term& b) { return b.Bytes(2, 32).As(DType::kI8).Float() * b.Half(0); }

// The sixteen levels of IQ4_NL and IQ4_XS, closer to each other near zero. They are shifted out of
// words rather than loaded from a table, as MXFP4's are: a load for each weight would touch more of
// memory than the weight itself.
Term UnevenLevels(const Term& codes) {
  constexpr int8_t kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
  const auto word = [&](int first) {
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i)
      bytes |= uint32_t{static_cast<uint8_t>(kLevels[first + i])} << 8 * i;
    return Tensor::full({}, bytes, DType::kU32);
  };
  const Term code = codes.Cast(DType::kU32);
  const Tensor negative = (code.tensor < 4).where(word(0), word(4));
  const Tensor positive = (code.tensor < 12).where(word(8), word(12));
  const Term four = {(code.tensor < 8).where(negative, positive)};
  return (four >> ((code & 3) << 3)).Cast(DType::kI8).Float();
}

Term Iq4Nl(const Term& b, int64_t n) {
  return UnevenLevels(Nibbles(b.Bytes(2, 16), n)) * b.Half(0);
}

// Floats of 4 bits (E2M1): 0, 1, 2, 3, 4, 6, 8, 12, doubled to be whole, and a sign.
Term DoubledE2M1(const Term& codes) {
  const Term code = codes.Cast(DType::kU32);
  const Term magnitudes = {Tensor::full({}, 0xC864'3210, DType::kU32)};
  const Term magnitude = ((magnitudes >> ((code & 7) << 2)) & 15).Cast(DType::kI32);
  return Term{(code.tensor < 8).where(magnitude.tensor, -magnitude.tensor)}.Float();
}

// With one exponent: half of 2^(e - 127).
Term Mxfp4(const Term& b, int64_t n) {
  const Term e = b.Bytes(0, 1).Cast(DType::kU32);
  const Tensor subnormal = 0x00200000 << e.tensor;
  const Tensor bits = (e.tensor < 2).where(subnormal, ((e - 1) << 23).tensor);
  return DoubledE2M1(Nibbles(b.Bytes(1, 16), n)) * Term{bits.bitcast(DType::kF32)};
}

// ---- blocks of 256 elements with a scale for each 16 or 32 of them
// --------------------------------

// Elements of `width` bits: bytes [128 * width / 8 * 2] in two halves, whose fields are 32 elements
// each.
Term TwoBits(const Term& bytes, int64_t n) { return bytes.Reshape({n, 2, 32}).Fields(2, 4, 2); }

Term Q2_K(const Term& b, int64_t n) {
  const Term scales = b.Bytes(0, 16), q = TwoBits(b.Bytes(16, 64), n).Reshape({n, 16, 16});
  const Term scale = b.Half(80) * (scales & 15).Float(), least = b.Half(82) * (scales >> 4).Float();
  return scale.Reshape({n, 16, 1}) * q.Float() - least.Reshape({n, 16, 1});
}

Term Q3_K(const Term& b, int64_t n) {
  const Term third = b.Bytes(0, 32).Fields(1, 8, 1).Reshape({n, 2, 4, 32});
  const Term q = (TwoBits(b.Bytes(32, 64), n) | third << 2).Reshape({n, 16, 16});
  const Term low = b.Bytes(96, 8).Fields(1, 2, 4).Reshape({n, 16});
  const Term high = b.Bytes(104, 4).Fields(1, 4, 2).Reshape({n, 16});
  const Term scale = b.Half(108) * ((low | high << 4).Float() - 32);
  return scale.Reshape({n, 16, 1}) * (q.Float() - 4);
}

// Q4_K and Q5_K: elements `q` [n, 8, 32], and for each 32 a scale and a least value of 6 bits, in
// 12 bytes.
Term ScaledAboveLeast(const Term& b, const Term& q, int64_t n) {
  const Term first = b.Bytes(4, 4), second = b.Bytes(8, 4), third = b.Bytes(12, 4);
  const Term scale = Joined(first & 63, (third & 15) | (first >> 6) << 4).Float() * b.Half(0);
  const Term least = Joined(second & 63, third >> 4 | (second >> 6) << 4).Float() * b.Half(2);
  return scale.Reshape({n, 8, 1}) * q.Float() - least.Reshape({n, 8, 1});
}

Term FourBits(const Term& bytes, int64_t n) {
  return bytes.Reshape({n, 4, 32}).Fields(2, 2, 4).Reshape({n, 8, 32});
}

Term Q4_K(const Term& b, int64_t n) {
  return ScaledAboveLeast(b, FourBits(b.Bytes(16, 128), n), n);
}

Term Q5_K(const Term& b, int64_t n) {
  const Term fifth = b.Bytes(16, 32).Fields(1, 8, 1);
  return ScaledAboveLeast(b, FourBits(b.Bytes(48, 128), n) | fifth << 4, n);
}

Term Q6_K(const Term& b, int64_t n) {
  const Term low = b.Bytes(0, 128).Reshape({n, 2, 64}).Fields(2, 2, 4).Reshape({n, 2, 4, 32});
  const Term q = (low | TwoBits(b.Bytes(128, 64), n) << 4).Reshape({n, 16, 16});
  const Term scale = b.Half(208) * b.Bytes(192, 16).As(DType::kI8).Float();
  return scale.Reshape({n, 16, 1}) * (q.Float() - 32);
}

Term Iq4Xs(const Term& b, int64_t n) {
  const Term low = b.Bytes(4, 4).Fields(2, 2, 4).Reshape({n, 8});
  const Term high = b.Bytes(2, 2).Fields(2, 4, 2).Reshape({n, 8});
  const Term scale = b.Half(0) * ((low | high << 4).Float() - 32);
  const Term q = b.Bytes(8, 128).Reshape({n, 8, 16}).Fields(2, 2, 4).Reshape({n, 8, 32});
  return scale.Reshape({n, 8, 1}) * UnevenLevels(q);
}

// ---- a bit or a ternary digit an element
// ------------------------------------------------------------

Term Q1_0(const Term& b, int64_t n) {
  const Term bits = b.Bytes(2, 16).Fields(2, 8, 1).Reshape({n, 128}).Cast(DType::kF16);
  return (bits * 2 - 1) * b.Bytes(0, 2).As(DType::kF16);
}

// `count` ternary digits of each byte, which holds them as a fraction of 256: the first are those
// of all bytes.
Term Digits(const Term& bytes, int64_t count, int64_t n) {
  const auto m = bytes.tensor.shape(1);
  std::vector<uint8_t> powers = {1, 3, 9, 27, 81};
  powers.resize(static_cast<size_t>(count));
  const Term factors = {Tensor::from<uint8_t>(powers, {count, 1})};
  const Term fractions = bytes.Reshape({n, 1, m}) * factors;  // modulo 256
  return (fractions.Cast(DType::kU16) * 3 >> 8).Reshape({n, count * m});
}

Term Tq1_0(const Term& b, int64_t n) {
  const Term digits = Joined(Joined(Digits(b.Bytes(0, 32), 5, n), Digits(b.Bytes(32, 16), 5, n)),
                             Digits(b.Bytes(48, 4), 4, n));
  return (digits.Float() - 1) * b.Half(52);
}

Term Tq2_0(const Term& b, int64_t n) {
  return (TwoBits(b.Bytes(0, 64), n).Reshape({n, 256}).Float() - 1) * b.Half(64);
}

// ---- elements by the codebooks of iq_grids.h
// ------------------------------------------------------------

// -1 where a bit is set, along a new last axis.
Term SignsOfBits(const Term& bytes) {
  const Term bits = bytes.Fields(bytes.tensor.rank(), 8, 1);
  return bits.Float() * -2 + 1;
}

// Of seven bits: the eighth makes the count of signs even.
Term SignsOfSeven(const Term& seven) {
  const Term four = seven ^ seven >> 4, two = four ^ four >> 2, parity = (two ^ two >> 1) & 1;
  return SignsOfBits(seven | parity << 7);
}

// A nibble a scale, the low ones first.
Term NibbleScales(const Term& bytes, int64_t n) {
  const int64_t count = 2 * bytes.tensor.shape(1);
  return bytes.Fields(2, 2, 4).Reshape({n, count}).Float();
}

Term Iq2Xxs(const Term& b, int64_t n) {
  const Term parts = b.Bytes(2, 64).Reshape({n * 8, 8});
  const Term word = parts.Bytes(4, 4).As(DType::kU32);  // [n * 8, 1]
  const Term signs = SignsOfSeven(word.Fields(2, 4, 7).Reshape({n, 8, 4}));
  const Term scale = b.Half(0) * ((word >> 28).Reshape({n, 8}).Float() + 0.5) * 0.25;
  const Term grid = parts.Bytes(0, 4).Reshape({n, 8, 4}).In(GridIq2Xxs());
  return scale.Reshape({n, 8, 1, 1}) * grid * signs;
}

Term Iq2Xs(const Term& b, int64_t n) {
  const Term codes = b.Bytes(2, 64).As(DType::kU16).Reshape({n, 16, 2});
  const Term scale = b.Half(0) * (NibbleScales(b.Bytes(66, 8), n) + 0.5) * 0.25;
  return scale.Reshape({n, 16, 1, 1}) * (codes & 511).In(GridIq2Xs()) * SignsOfSeven(codes >> 9);
}

Term Iq2S(const Term& b, int64_t n) {
  const Term high = b.Bytes(66, 8).Fields(2, 4, 2).Reshape({n, 32}).Cast(DType::kU16);
  const Term codes = (b.Bytes(2, 32).Cast(DType::kU16) | high << 8).Reshape({n, 16, 2});
  const Term scale = b.Half(0) * (NibbleScales(b.Bytes(74, 8), n) + 0.5) * 0.25;
  const Term signs = SignsOfBits(b.Bytes(34, 32).Reshape({n, 16, 2}));
  return scale.Reshape({n, 16, 1, 1}) * codes.In(GridIq2S()) * signs;
}

Term Iq3Xxs(const Term& b, int64_t n) {
  const Term words = b.Bytes(66, 32).As(DType::kU32);  // [n, 8]
  const Term scale = b.Half(0) * ((words >> 28).Float() + 0.5) * 0.5;
  const Term grid = b.Bytes(2, 64).In(GridIq3Xxs()).Reshape({n, 8, 4, 8});
  return scale.Reshape({n, 8, 1, 1}) * grid * SignsOfSeven(words.Fields(2, 4, 7));
}

Term Iq3S(const Term& b, int64_t n) {
  const Term high = b.Bytes(66, 8).Fields(2, 8, 1).Reshape({n, 64}).Cast(DType::kU16);
  const Term codes = b.Bytes(2, 64).Cast(DType::kU16) | high << 8;
  const Term scale = b.Half(0) * (NibbleScales(b.Bytes(106, 4), n) * 2 + 1);
  const Term signs = SignsOfBits(b.Bytes(74, 32).Reshape({n, 8, 4}));
  return scale.Reshape({n, 8, 1, 1}) * codes.In(GridIq3S()).Reshape({n, 8, 4, 8}) * signs;
}

// 1/8 above or below the codebook's -1, 0 and 1.
Term Shifted(const Term& grid, const Term& is_below) {
  return grid + (is_below.Float() * -0.25 + 0.125);
}

Term Iq1S(const Term& b, int64_t n) {
  const Term heads = b.Bytes(34, 16).As(DType::kU16);  // [n, 8]
  const Term scale = b.Half(0) * ((heads >> 12 & 7).Float() * 2 + 1);
  const Term codes = b.Bytes(2, 32).Reshape({n, 8, 4}).Cast(DType::kU16) | heads.Fields(2, 4, 3)
                                                                               << 8;
  return scale.Reshape({n, 8, 1, 1}) *
         Shifted(codes.In(GridIq1S()), (heads >> 15).Reshape({n, 8, 1, 1}));
}

Term Iq1M(const Term& b, int64_t n) {
  const Term words =
      b.Bytes(48, 8).As(DType::kU16);  // [n, 4]: four scales of 3 bits, and a quarter of the f16
  Term half = words.Bytes(0, 1) >> 12;
  for (int i = 1; i < 4; ++i) half = half | words.Bytes(i, 1) >> 12 << 4 * i;
  const Term d = Term{half.tensor.bitcast(DType::kF16)}.Float();
  const Term scale = d * (words.Fields(2, 4, 3).Reshape({n, 16}).Float() * 2 + 1);
  const Term heads = b.Bytes(32, 16).Fields(2, 2, 4).Cast(DType::kU16);  // [n, 16, 2]
  const Term codes = b.Bytes(0, 32).Reshape({n, 16, 2}).Cast(DType::kU16) | (heads & 7) << 8;
  return scale.Reshape({n, 16, 1, 1}) *
         Shifted(codes.In(GridIq1S()), (heads >> 3).Reshape({n, 16, 2, 1}));
}

Term Elements(const Term& b, GgmlType type, int64_t n) {
  switch (type) {
    case GgmlType::kQ4_0: return Q4_0(b, n);
    case GgmlType::kQ4_1: return Q4_1(b, n);
    case GgmlType::kQ5_0: return Q5_0(b, n);
    case GgmlType::kQ5_1: return Q5_1(b, n);
    case GgmlType::kQ8_0: return Q8_0(b);
    case GgmlType::kQ2_K: return Q2_K(b, n);
    case GgmlType::kQ3_K: return Q3_K(b, n);
    case GgmlType::kQ4_K: return Q4_K(b, n);
    case GgmlType::kQ5_K: return Q5_K(b, n);
    case GgmlType::kQ6_K: return Q6_K(b, n);
    case GgmlType::kIq2Xxs: return Iq2Xxs(b, n);
    case GgmlType::kIq2Xs: return Iq2Xs(b, n);
    case GgmlType::kIq3Xxs: return Iq3Xxs(b, n);
    case GgmlType::kIq1S: return Iq1S(b, n);
    case GgmlType::kIq4Nl: return Iq4Nl(b, n);
    case GgmlType::kIq3S: return Iq3S(b, n);
    case GgmlType::kIq2S: return Iq2S(b, n);
    case GgmlType::kIq4Xs: return Iq4Xs(b, n);
    case GgmlType::kIq1M: return Iq1M(b, n);
    case GgmlType::kTq1_0: return Tq1_0(b, n);
    case GgmlType::kTq2_0: return Tq2_0(b, n);
    case GgmlType::kMxfp4: return Mxfp4(b, n);
    case GgmlType::kQ1_0: return Q1_0(b, n);
    default: return b.As(files::FindGgmlLayout(static_cast<uint32_t>(type))->plain);
  }
}

}  // namespace

Tensor dequantize(const Tensor& blocks, GgmlType type, At at) {
  const CallSite site(at);
  const files::GgmlLayout* const layout = files::FindGgmlLayout(static_cast<uint32_t>(type));
  const Dims dims = blocks.shape();
  if (layout == nullptr || blocks.dtype() != DType::kU8 || dims.size() != 2 ||
      dims[1] != layout->block_bytes)
    ThrowInvalid("dequantize: blocks are u8 [count, bytes of a block of the type]");
  return Elements({blocks}, type, dims[0]).tensor.reshape({dims[0] * layout->block_elements});
}

}  // namespace outboard::nn
