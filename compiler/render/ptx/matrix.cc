// Matrix units of a GPU (mma.sync, ldmatrix; PTX ISA, chapter 9.7) and what threads of a warp give
// each other.
//
// Numbers of 16 and 8 bits lie packed in registers of 32 bits. They stay so between the
// instructions that take them as they are: what else reads them takes them apart.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;

namespace {

constexpr int kSums = 4;      // a thread's of an MMA
constexpr int kMatrices = 4;  // of an LDMATRIX

// As mma names what it multiplies, and how many columns of a it takes at once.
struct UnitType {
  const char* name;
  int depth;
};
UnitType UnitTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"tf32", 8};
    case DType::kBF16: return {"bf16", 16};
    case DType::kF16: return {"f16", 16};
    case DType::kF8E4M3: return {"e4m3", 32};
    default: return {"e5m2", 32};
  }
}

}  // namespace

void PtxPrinter::FindTakenApart() {
  taken_apart_.assign(program_.code.size(), false);
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    if (IsOfPairs(n)) continue;
    for (size_t s = 0; s < i.src.size(); ++s) {
      const ValueId source = i.src[s];
      const int width = ByteWidth(at(source).dtype);
      if (width >= kWordBytes) continue;
      const bool is_fragment = i.code == Code::kMma && s < 2;
      const bool is_bits = i.code == Code::kBitcast && i.dtype == DType::kU32;
      const bool is_stored = i.code == Code::kStore && s == 2 && !IsPrivate(i.src[0]);
      if (!is_fragment && !is_bits && !is_stored) taken_apart_[static_cast<size_t>(source)] = true;
    }
  }
}

// The registers of the packed value `n`, and its lanes where anything takes these.
PtxPrinter::Values PtxPrinter::TakenApart(ValueId n, Values registers) {
  const Instruction& i = at(n);
  const int packed = kWordBytes / ByteWidth(i.dtype);
  Values out;
  if (packed == 1) return registers;
  for (int lane = 0; lane < i.lanes; ++lane)
    out.push_back(
        taken_apart_[static_cast<size_t>(n)]
            ? Unpacked(registers[static_cast<size_t>(lane / packed)], lane % packed, i.dtype)
            : PtxOperand());
  packed_[n] = std::move(registers);
  return out;
}

PtxOperand PtxPrinter::Packed(ValueId n, int lane) {
  const DType type = at(n).dtype;
  const int packed = program::MmaPacked(type);
  if (const auto it = packed_.find(n); it != packed_.end())
    return it->second[static_cast<size_t>(lane / packed)];
  return InRegister(packed == 1 ? Lane(n, lane) : PackedWord(n, lane, packed, type));
}

// mma.sync.m16n8k16, of f32 m16n8k8, of 8-bit floats m16n8k32: its fragments are MmaElement's.
PtxPrinter::Values PtxPrinter::MatrixProduct(ValueId n) {
  const Instruction& i = at(n);
  const DType type = at(i.src[0]).dtype;
  const auto [name, depth] = UnitTypeOf(type);
  const char* const of_b = UnitTypeOf(at(i.src[1]).dtype).name;
  const int packed = program::MmaPacked(type);
  const auto fragment = [&](ValueId operand, int first, int registers) {
    Values list;
    for (int r = 0; r < registers; ++r) list.push_back(Packed(operand, first + r * packed));
    return ListOf(list);
  };
  const std::string a = fragment(i.src[0], 0, 4);
  const std::string b = fragment(i.src[1], static_cast<int>(2 * packed * i.imm[0]), 2);
  Values sums, before;
  for (int lane = 0; lane < kSums; ++lane) before.push_back(InRegister(Lane(i.src[2], lane)));
  for (int lane = 0; lane < kSums; ++lane) sums.push_back(text_.New(Width::k32));
  text_.Line("mma.sync.aligned.m16n8k", depth, ".row.col.f32.", name, ".", of_b, ".f32 ",
             ListOf(sums), ", ", a, ", ", b, ", ", ListOf(before));
  return sums;
}

// cvt.rn.bf16x2.f32, or f16x2: what is rounded for MMA is there as it takes it.
PtxPrinter::Values PtxPrinter::NarrowToPairs(ValueId n) {
  const Instruction& i = at(n);
  const char* const op = i.dtype == DType::kBF16 ? "cvt.rn.bf16x2.f32" : "cvt.rn.f16x2.f32";
  Values pairs;
  for (int lane = 0; lane < i.lanes; lane += 2)
    pairs.push_back(text_.Value(
        op, Width::k32, {InRegister(Lane(i.src[0], lane + 1)), InRegister(Lane(i.src[0], lane))}));
  return TakenApart(n, std::move(pairs));
}

// Rounded once, which are the bits of the sum or product in f32 that is rounded to bf16.
bool PtxPrinter::IsOfPairs(ValueId n) const {
  const Instruction& i = at(n);
  return i.code == Code::kAlu && (i.op == Op::kAdd || i.op == Op::kMul) &&
         i.dtype == DType::kBF16 && i.lanes % 2 == 0 && absl::StartsWith(target_.arch, "sm_90");
}

PtxPrinter::Values PtxPrinter::ArithmeticOfPairs(ValueId n) {
  const Instruction& i = at(n);
  const char* const op = i.op == Op::kAdd ? "add.rn.bf16x2" : "mul.rn.bf16x2";
  Values pairs;
  for (int lane = 0; lane < i.lanes; lane += 2) {
    const auto pair = [&](ValueId source) {
      return InRegister(PackedWord(source, lane, 2, DType::kBF16));
    };
    const PtxOperand a = pair(i.src[0]), b = pair(i.src[1]);
    pairs.push_back(text_.Value(op, Width::k32, {a, b}));
  }
  return TakenApart(n, std::move(pairs));
}

PtxPrinter::Values PtxPrinter::LoadMatrices(ValueId n) {
  const Instruction& i = at(n);
  const Address address =
      i.imm[0] == 2 ? SwizzledAddress(i.src[0], i.src[1], 0) : AccessAddress(i.src[0], i.src[1]);
  Values registers;
  for (int matrix = 0; matrix < kMatrices; ++matrix) registers.push_back(text_.New(Width::k32));
  text_.Line("ldmatrix.sync.aligned.m8n8.x4", i.imm[0] == 1 ? ".trans" : "", ".shared.b16 ",
             ListOf(registers), ", ", address);
  return TakenApart(n, std::move(registers));
}

// By all threads of the warp, in pieces of 32 bits.
PtxPrinter::Values PtxPrinter::Shuffle(ValueId n) {
  const Instruction& i = at(n);
  const int64_t threads = std::min<int64_t>(program_.Extent(program::Grid::kThread), kWarpThreads);
  const int64_t members = (int64_t{1} << threads) - 1;
  const auto exchanged = [&](const PtxOperand& bits) {
    return text_.Value("shfl.sync.bfly.b32", Width::k32,
                       {bits, Integer(i.imm[0]), Integer(kWarpThreads - 1), Integer(members)});
  };
  if (IsBool(i.dtype)) {
    const PtxOperand bits = text_.Value("selp.b32", Width::k32,
                                        {Integer(1), Integer(0), InRegister(Lane(i.src[0], 0))});
    return {text_.Value("setp.ne.b32", Width::kPred, {exchanged(bits), Integer(0)})};
  }
  const PtxOperand value = InRegister(IsSmall(n) ? AsPrinted(i.src[0], 0) : Lane(i.src[0], 0));
  if (value.width != Width::k64) return {exchanged(value)};
  const PtxOperand low = text_.New(Width::k32), high = text_.New(Width::k32);
  text_.Line("mov.b64 ", ListOf({low, high}), ", ", value);
  const PtxOperand whole = text_.New(Width::k64);
  const PtxOperand other_low = exchanged(low), other_high = exchanged(high);
  text_.Line("mov.b64 ", whole, ", ", ListOf({other_low, other_high}));
  return {whole};
}

}  // namespace outboard::render
