#include "compiler/render/ptx/ptx_text.h"

#include <bit>

namespace outboard::render {
namespace {

struct RegisterClass {
  const char *type, *name;
};
constexpr RegisterClass kClasses[kWidths] = {
    {".pred", "%p"}, {".b16", "%rs"}, {".b32", "%r"}, {".b64", "%rd"}};

const RegisterClass& ClassOf(Width width) { return kClasses[static_cast<size_t>(width)]; }

}  // namespace

const char* BitsName(Width width) {
  switch (width) {
    case Width::kPred: return "pred";
    case Width::k16: return "b16";
    case Width::k32: return "b32";
    case Width::k64: return "b64";
  }
  return "";
}

void Append(std::string& text, const PtxOperand& operand) {
  const uint64_t bits = operand.bits;
  switch (operand.kind) {
    case PtxOperand::Kind::kNone: text += '_'; return;
    case PtxOperand::Kind::kRegister:
      absl::StrAppend(&text, ClassOf(operand.width).name, bits);
      return;
    case PtxOperand::Kind::kInteger: absl::StrAppend(&text, static_cast<int64_t>(bits)); return;
    case PtxOperand::Kind::kFloat:
      if (operand.width == Width::k64) {
        absl::StrAppend(&text, "0d", absl::Hex(bits, absl::kZeroPad16));
      } else {
        absl::StrAppend(&text, "0f", absl::Hex(bits, absl::kZeroPad8));
      }
      return;
  }
}

void Append(std::string& text, const Address& address) {
  text += '[';
  Append(text, address.base);
  if (address.offset != 0) absl::StrAppend(&text, "+", address.offset);
  text += ']';
}

std::string ListOf(absl::Span<const PtxOperand> operands) {
  std::string text = "{";
  for (const PtxOperand& operand : operands) {
    if (text.size() > 1) text += ", ";
    Append(text, operand);
  }
  text += '}';
  return text;
}

PtxOperand Float(double value, Width width) {
  const uint64_t bits = width == Width::k64 ? std::bit_cast<uint64_t>(value)
                                            : std::bit_cast<uint32_t>(static_cast<float>(value));
  return {PtxOperand::Kind::kFloat, width, bits};
}

PtxOperand Bits(PtxOperand operand) {
  if (operand.kind != PtxOperand::Kind::kFloat) return operand;
  operand.kind = PtxOperand::Kind::kInteger;
  if (operand.width == Width::k32)
    operand.bits = static_cast<uint64_t>(int64_t{static_cast<int32_t>(operand.bits)});
  return operand;
}

void PtxText::Guard(const PtxOperand& guard) {
  lines_ += '\t';
  if (guard.IsNone()) return;
  lines_ += '@';
  Append(lines_, guard);
  lines_ += ' ';
}

void PtxText::Set(absl::string_view op, const PtxOperand& result,
                  std::initializer_list<PtxOperand> args, const PtxOperand& guard) {
  Guard(guard);
  absl::StrAppend(&lines_, op, " ");
  Append(lines_, result);
  for (const PtxOperand& arg : args) {
    lines_ += ", ";
    Append(lines_, arg);
  }
  lines_ += ";\n";
}

std::string PtxText::Declarations() const {
  std::string text;
  for (size_t width = 0; width < kWidths; ++width)
    if (counts_[width] > 0)
      absl::StrAppend(&text, "\t.reg ", kClasses[width].type, " ", kClasses[width].name, "<",
                      counts_[width] + 1, ">;\n");
  return text;
}

}  // namespace outboard::render
