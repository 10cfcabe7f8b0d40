// The lines of one kernel in PTX, and its registers.
//
// Registers have a width and no type: PTX lets an instruction of any type use them, so that the
// bits of a float are an integer without an instruction between. There are as many as are asked
// for, and one may be assigned more than once: the driver's assembler allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace outboard::render {

enum class Width : uint8_t { kPred, k16, k32, k64 };
inline constexpr int kWidths = 4;
inline constexpr int kWordBytes = 4;  // of a register of 32 bits, which smaller numbers share
// As an instruction on bits of that width names them: "b32".
const char* BitsName(Width width);

// What an instruction reads or writes: a register or a constant.
struct PtxOperand {
  enum class Kind : uint8_t {
    kNone,
    kRegister,  // bits: its number
    kInteger,   // bits: its value, sign-extended
    kFloat,     // bits: as of a float of this width
  };
  Kind kind = Kind::kNone;
  Width width = Width::k32;
  uint64_t bits = 0;

  bool IsNone() const { return kind == Kind::kNone; }
  bool IsConstant() const { return kind == Kind::kInteger || kind == Kind::kFloat; }
  // Of a predicate.
  bool IsTrue() const { return IsConstant() && bits != 0; }
  bool IsFalse() const { return IsConstant() && bits == 0; }
  bool operator==(const PtxOperand&) const = default;
};

inline PtxOperand Integer(int64_t value, Width width = Width::k32) {
  return {PtxOperand::Kind::kInteger, width, static_cast<uint64_t>(value)};
}
// `value` as a float of 32 or 64 bits.
PtxOperand Float(double value, Width width = Width::k32);
// A constant as an instruction on bits takes it.
PtxOperand Bits(PtxOperand operand);

// The operand of a load or store: "[%rd3+16]".
struct Address {
  PtxOperand base;
  int64_t offset = 0;  // in bytes
};

// Adds a part of an instruction as it is written; `number` is text, too.
void Append(std::string& text, const PtxOperand& operand);
void Append(std::string& text, const Address& address);
inline void Append(std::string& text, const absl::AlphaNum& number) {
  absl::StrAppend(&text, number);
}
// All parts after each other.
template <typename... Parts>
std::string Joined(const Parts&... parts) {
  std::string text;
  (Append(text, parts), ...);
  return text;
}
// "{%r1, %r2}".
std::string ListOf(absl::Span<const PtxOperand> operands);

class PtxText {
 public:
  PtxOperand New(Width width) {
    return {PtxOperand::Kind::kRegister, width, ++counts_[static_cast<size_t>(width)]};
  }

  // The result of "op result, args...", in a new register.
  PtxOperand Value(absl::string_view op, Width width, std::initializer_list<PtxOperand> args) {
    const PtxOperand result = New(width);
    Set(op, result, args);
    return result;
  }
  // Writes the result to a given register; with a guard only where that predicate is true.
  void Set(absl::string_view op, const PtxOperand& result, std::initializer_list<PtxOperand> args,
           const PtxOperand& guard = {});
  PtxOperand Copied(const PtxOperand& value) {  // to a new register
    return Value(absl::StrCat("mov.", BitsName(value.width)), value.width, {value});
  }
  void Move(const PtxOperand& to, const PtxOperand& from, const PtxOperand& guard = {}) {
    Set(absl::StrCat("mov.", BitsName(to.width)), to, {from}, guard);
  }
  // An instruction as it is written, without its end: "bar.sync 0".
  template <typename... Parts>
  void Line(const Parts&... parts) {
    GuardedLine({}, parts...);
  }
  template <typename... Parts>
  void GuardedLine(const PtxOperand& guard, const Parts&... parts) {
    Guard(guard);
    (Append(lines_, parts), ...);
    lines_ += ";\n";
  }

  int NewLabel() { return ++labels_; }
  void PutLabel(int label) { absl::StrAppend(&lines_, "L", label, ":\n"); }
  void Pragma(absl::string_view what) { absl::StrAppend(&lines_, "\t.pragma \"", what, "\";\n"); }
  void Jump(int label) { Line("bra L", label); }
  void JumpIf(const PtxOperand& predicate, int label) { GuardedLine(predicate, "bra L", label); }
  void JumpUnless(const PtxOperand& predicate, int label) {
    lines_ += "\t@!";
    Append(lines_, predicate);
    absl::StrAppend(&lines_, " bra L", label, ";\n");
  }

  // The declarations of all registers, which come before the lines.
  std::string Declarations() const;
  const std::string& lines() const { return lines_; }

 private:
  void Guard(const PtxOperand& guard);

  std::string lines_;
  std::array<uint64_t, kWidths> counts_ = {};
  int labels_ = 0;
};

}  // namespace outboard::render
