// What is the same for all forms: their kernels, inputs and comparison.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/gpu/checks/instruction_forms.h"

namespace outboard::ptx {
namespace {

struct Register {
  const char* name;
  const char* type;  // of loads and stores
  int bytes;
};
Register RegisterOf(char letter) {
  switch (letter) {
    case 'h': return {"%h", "u16", 2};
    case 'd': return {"%d", "u64", 8};
    case 'f':
    case 'n': return {"%f", "f32", 4};
    case 'g': return {"%g", "f64", 8};
    default: return {"%r", "u32", 4};
  }
}
// The types of all four arrays.
std::string AllTypes(const InstructionForm& form) {
  std::string types = form.types;
  types.resize(4, 'r');
  return types;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 2 + 88172645463325253ull) {}
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

// Ordinary, small and extreme values, and any bits.
template <class T>
T Float(Draw& draw, int i) {
  constexpr T kSpecial[] = {0,
                            -T{0},
                            1,
                            -1,
                            std::numeric_limits<T>::infinity(),
                            -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::max(),
                            std::numeric_limits<T>::min(),
                            std::numeric_limits<T>::denorm_min(),
                            std::numeric_limits<T>::quiet_NaN(),
                            T(0.5),
                            T(2.5),
                            T(-2.5),
                            T(255.5),
                            T(3.4e10),
                            T(-129)};
  const uint64_t bits = draw.Next();
  if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
  if (i % 3 == 1)
    return static_cast<T>(static_cast<double>(static_cast<int64_t>(bits) >> 40) / 65536);
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
uint64_t Whole(Draw& draw, int i) {
  constexpr uint64_t kSpecial[] = {
      0,          1,          ~0ull,     0x7fffffff, 0x80000000,
      2,          31,         32,        33,         64,
      0x7fff,     0x8000,     0x80,      0x7f,       0x7fffffffffffffff,
      1ull << 63, 0x3c003c00, 0x3f803f80};
  const uint64_t bits = draw.Next();
  if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
  return i % 3 == 1 ? bits % 64 : bits;
}

void Append(std::string& bytes, const void* value, int count) {
  bytes.append(static_cast<const char*>(value), static_cast<size_t>(count));
}

template <class T>
T At(const std::string& bytes, int i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof value, sizeof value);
  return value;
}

bool BothNan16(uint16_t x, uint16_t y, Defined defined) {
  const int infinity = defined == Defined::kHalves ? 0x7c00 : 0x7f80;
  return (x & 0x7fff) > infinity && (y & 0x7fff) > infinity;
}

template <class T>
bool SameNumber(T x, T y) {
  return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof x) == 0;
}

bool Same(const InstructionForm& form, const std::string& one, const std::string& other, int i) {
  const int bytes = RegisterOf(form.types[0]).bytes;
  const size_t at = static_cast<size_t>(i * bytes);
  const bool equal =
      std::memcmp(one.data() + at, other.data() + at, static_cast<size_t>(bytes)) == 0;
  if (equal || form.defined == Defined::kBits) return equal;
  if (form.defined == Defined::kHalves || form.defined == Defined::kBfloats) {
    for (int h = i * bytes / 2; h < (i + 1) * bytes / 2; ++h) {
      const auto x = At<uint16_t>(one, h), y = At<uint16_t>(other, h);
      if (x != y && !BothNan16(x, y, form.defined)) return false;
    }
    return true;
  }
  if (form.defined == Defined::kNumber)
    return bytes == 8 ? SameNumber(At<double>(one, i), At<double>(other, i))
                      : SameNumber(At<float>(one, i), At<float>(other, i));
  const double x = At<float>(one, i), y = At<float>(other, i);
  const double bound = form.defined == Defined::kCoarse ? 0x1p-10 : 0x1p-20;
  const double scale =
      form.defined == Defined::kAbsolute ? 1 : std::max(std::fabs(x), std::fabs(y));
  return std::fabs(x - y) <= bound * scale;
}

std::string Hex(const std::string& bytes, int i, int count) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i * count), static_cast<size_t>(count));
  return absl::StrCat("0x", absl::Hex(value));
}

}  // namespace

std::string FormHeader() {
  return ".version 8.4\n.target sm_90a\n.address_size 64\n.shared .align 128 .b8 tiles[8192];\n";
}

std::string FormKernel(const InstructionForm& form, const std::string& name) {
  const std::string types = AllTypes(form);
  std::string text =
      absl::StrCat(".visible .entry ", name,
                   "(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n",
                   ".maxntid ", kFormBlockThreads, ", 1, 1\n{\n",
                   ".reg .pred %p<9>;\n.reg .b16 %h<99>;\n.reg .b32 %r<99>;\n.reg .f32 %f<110>;\n",
                   ".reg .b64 %d<99>;\n.reg .f64 %g<20>;\n",
                   "mov.u32 %r91, %ctaid.x;\nmov.u32 %r92, %tid.x;\nmad.lo.u32 %r90, %r91, ",
                   kFormBlockThreads, ", %r92;\n");
  for (int i = 0; i < 4; ++i)
    absl::StrAppend(&text, "ld.param.u64 %d9", i, ", [p", i, "];\nmul.wide.u32 %d95, %r90, ",
                    RegisterOf(types[static_cast<size_t>(i)]).bytes, ";\nadd.u64 %d9", i, ", %d9",
                    i, ", %d95;\n");
  for (int i = 1; i < 4; ++i) {
    const Register reg = RegisterOf(types[static_cast<size_t>(i)]);
    absl::StrAppend(&text, "ld.global.", reg.type, " ", reg.name, i, ", [%d9", i, "];\n");
  }
  const auto named = [&](int i, int number) {
    return absl::StrCat(RegisterOf(types[static_cast<size_t>(i)]).name, number);
  };
  absl::StrAppend(&text, absl::StrReplaceAll(form.text, {{"$d", named(0, 10)},
                                                         {"$a", named(1, 1)},
                                                         {"$b", named(2, 2)},
                                                         {"$c", named(3, 3)}}));
  return absl::StrCat(text, "\nst.global.", RegisterOf(types[0]).type, " [%d90], ", named(0, 10),
                      ";\nret;\n}\n");
}

std::vector<std::string> FormInputs(const InstructionForm& form, uint64_t seed) {
  const std::string types = AllTypes(form);
  Draw draw(seed);
  std::vector<std::string> arrays(4);
  arrays[0].assign(static_cast<size_t>(kFormThreads * RegisterOf(types[0]).bytes), '\x5a');
  // Each array's kind of value changes at a pace of its own, so that every pair of kinds meets.
  for (int i = 0; i < kFormThreads; ++i)
    for (int array = 1, kind = i; array < 4; ++array, kind /= 3) {
      const char letter = types[static_cast<size_t>(array)];
      std::string& bytes = arrays[static_cast<size_t>(array)];
      if (letter == 'f') {
        const auto value = Float<float>(draw, kind);
        Append(bytes, &value, 4);
      } else if (letter == 'g') {
        const auto value = Float<double>(draw, kind);
        Append(bytes, &value, 8);
      } else if (letter == 'n') {
        const auto value = 0.25f + static_cast<float>(draw.Next() >> 40) * 0x1p-23f;
        Append(bytes, &value, 4);
      } else {
        const uint64_t value = Whole(draw, kind);
        Append(bytes, &value, RegisterOf(letter).bytes);
      }
    }
  return arrays;
}

std::string FormDifference(const InstructionForm& form, const std::string& one,
                           const std::string& other) {
  if (one.size() != other.size()) return "results of other sizes";
  const int bytes = RegisterOf(form.types[0]).bytes;
  for (int i = 0; i < kFormThreads; ++i)
    if (!Same(form, one, other, i))
      return absl::StrCat(form.text, " in thread ", i, ": ", Hex(one, i, bytes), " and ",
                          Hex(other, i, bytes));
  return "";
}

}  // namespace outboard::ptx
