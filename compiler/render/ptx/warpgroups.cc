// Products of warpgroups (wgmma; PTX ISA, chapter 9.7). Accumulators, and an a that is in
// registers, are the registers of private memories, which nothing else moves.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;

namespace {

// Of a matrix descriptor (PTX ISA, "Matrix Descriptor Format"), whose units are 16 bytes.
constexpr int64_t kUnit = 16;
constexpr int kUnitShift = 4;
constexpr uint32_t kSwizzle128 = 1u << 30;                    // of the upper word
constexpr uint32_t kStride = program::kSwizzleAlign / kUnit;  // of eight rows
constexpr unsigned kLeadingShift = 16;

// As wgmma names what it multiplies.
const char* GroupTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF32: return "tf32";
    case DType::kF8E4M3: return "e4m3";
    default: return "e5m2";
  }
}

}  // namespace

// Constants are added to the descriptor, not to the address, and to all of its 64 bits: operands of
// the products of one stage then differ by one instruction (UIADD3.64). Addresses are below 2^18,
// so that nothing overflows its field.
PtxOperand PtxPrinter::MatrixDescriptor(ValueId memory, ValueId index, int64_t leading) {
  const int64_t width = ByteWidth(at(memory).dtype);
  const int64_t beyond = std::max<int64_t>(leading * width / kUnit, 1) << kLeadingShift;
  Address address = AddressOf(memory, index);
  const int64_t units = address.offset / kUnit;
  address.offset %= kUnit;
  const PtxOperand first =
      text_.Value("shr.u32", Width::k32, {InRegister(Plain(address)), Integer(kUnitShift)});
  const PtxOperand without = text_.New(Width::k64);
  text_.Line("mov.b64 ", without, ", ", ListOf({first, Integer(kSwizzle128 | kStride)}));
  return text_.Value("add.s64", Width::k64, {without, Integer(beyond + units, Width::k64)});
}

void PtxPrinter::GroupProduct(ValueId n) {
  const Instruction& i = at(n);
  const int64_t columns = i.imm[0];
  const DType operand = at(i.src[3]).dtype;  // a may be registers
  const char* const type = GroupTypeName(operand);
  const char* const of_a = IsPrivate(i.src[1]) ? type : GroupTypeName(at(i.src[1]).dtype);
  const int width = ByteWidth(operand);
  std::string a;
  const bool in_registers = IsPrivate(i.src[1]);
  if (in_registers) {
    a = ListOf(absl::MakeConstSpan(privates_.at(i.src[1]))
                   .subspan(static_cast<size_t>(at(i.src[2]).imm[0]), program::kWgmmaRegistersOfA));
  } else {
    a = Joined(MatrixDescriptor(i.src[1], i.src[2], i.imm[1]));
  }
  const PtxOperand b = MatrixDescriptor(i.src[3], i.src[4], i.imm[2]);
  // Whether the sums are added to is a predicate, here a constant.
  const PtxOperand adds = text_.New(Width::kPred);
  text_.Line(i.imm[3] != 0 ? "setp.ne.u32 " : "setp.eq.u32 ", adds, ", 0, 0");
  // Operands of 16 bits alone may lie by columns, so only these say whether they do; registers do
  // not.
  std::string transposed;
  if (width == 2)
    transposed = absl::StrCat(in_registers    ? ""
                          : i.imm[1] != 0 ? ", 1"
                                          : ", 0",
                          i.imm[2] != 0 ? ", 1" : ", 0");
  text_.Line("wgmma.mma_async.sync.aligned.m64n", columns, "k", program::WgmmaDepth(width), ".f32.",
             of_a, ".", type, " ", ListOf(privates_.at(i.src[0])), ", ", a, ", ", b, ", ", adds,
             ", 1, 1", transposed);
}

bool PtxPrinter::IsAccumulator(ValueId value) const {
  const Instruction& load = at(value);
  return load.code == Code::kLoad && load.lanes == 1 && accumulators_.contains(load.src[0]);
}

// Where a conversion to f16 reads an accumulator in a loop, ptxas 13.0 waits for each product
// ("serialized"), wherever the wait for them is. Behind a product by 1 it does not.
PtxOperand PtxPrinter::NotAccumulator(const PtxOperand& value) {
  return text_.Value("mul.rn.f32", Width::k32, {value, Float(1)});
}

}  // namespace outboard::render
