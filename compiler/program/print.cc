#include <bit>

#include "absl/strings/str_cat.h"
#include "compiler/matrix_unit.h"
#include "compiler/program/program.h"

namespace outboard::program {
namespace {

std::string ArgumentsOf(const Instruction& i) {
  switch (i.code) {
    case Code::kConst:
      return IsFloat(i.dtype) ? absl::StrCat(" ", std::bit_cast<double>(i.imm[0]))
                              : absl::StrCat(" ", i.imm[0]);
    case Code::kVar: return absl::StrCat(" n", i.imm[0], " in ", i.imm[1], "..", i.imm[2]);
    case Code::kSpecial:
      return absl::StrCat(i.imm[0] == static_cast<int64_t>(Grid::kBlock) ? " block" : " thread",
                          " of ", i.imm[1]);
    case Code::kBuffer: return absl::StrCat(" slot ", i.imm[0], "[", i.imm[1], "]");
    case Code::kAlloc: {
      static constexpr std::string_view kSpaces[] = {"private", "shared", "tile", "barriers"};
      return absl::StrCat(" ", std::string(kSpaces[i.imm[0]]), "[", i.imm[1], "]");
    }
    case Code::kAlu:
      if (i.imm[0] == static_cast<int64_t>(Precision::kByUnit))
        return i.imm[1] == 0 ? " by unit" : " by unit, subnormal too";
      return i.imm[0] == 0 ? "" : " with product";
    case Code::kTileLoad:
    case Code::kTileStore: return absl::StrCat(" every ", i.imm[0]);
    case Code::kLoop: {
      std::string out = absl::StrCat(" ", i.imm[0]);
      if (i.imm[1] == static_cast<int64_t>(How::kUnroll)) out += " unroll";
      if (i.imm[1] == static_cast<int64_t>(How::kVector))
        absl::StrAppend(&out, " vector of ", i.imm[2]);
      return out;
    }
    case Code::kCopy:
      return absl::StrCat(" ", i.imm[0], i.imm[1] == 1 ? " aligned" : "",
                          i.imm[2] == 1 ? " swizzled" : "");
    case Code::kMma:
      if (i.imm[0] == static_cast<int64_t>(MatrixUnit::kMma)) return "";
      if (i.imm[0] == static_cast<int64_t>(MatrixUnit::kWmma)) return " WMMA";
      return i.imm[0] == static_cast<int64_t>(MatrixUnit::kMfma) ? " MFMA" : " second half";
    case Code::kLdmatrix:
      if (i.imm[0] == 0) return "";
      return i.imm[0] == 1 ? " transposed" : " swizzled";
    case Code::kIf: return i.imm[0] != 0 ? " rarely" : "";
    case Code::kLoad: return i.imm[0] != 0 ? absl::StrCat(" again ", i.imm[0]) : "";
    case Code::kLane:
    case Code::kShuffle:
    case Code::kWait:
    case Code::kMap:
    case Code::kMbInit:
    case Code::kMbExpect:
    case Code::kBoxWait:
    case Code::kWgWait: return absl::StrCat(" ", i.imm[0]);
    case Code::kWgmma:
      return absl::StrCat(" ", i.imm[0], " leading ", i.imm[1], " ", i.imm[2],
                          i.imm[3] != 0 ? " alone" : "");
    case Code::kMaxRegisters: return absl::StrCat(i.imm[1] != 0 ? " raise " : " lower ", i.imm[0]);
    default: return "";
  }
}

}  // namespace

std::string ToString(const Program& program, ValueId number) {
  const Instruction& i = program.code[number];
  std::string out;
  if (HasValue(i.code) || i.code == Code::kIf) out = absl::StrCat("%", number, " = ");
  absl::StrAppend(&out, i.code == Code::kAlu ? std::string(Name(i.op)) : std::string(Name(i.code)));
  if (HasValue(i.code)) absl::StrAppend(&out, " ", std::string(Name(i.dtype)));
  if (i.lanes > 1) absl::StrAppend(&out, "x", i.lanes);
  absl::StrAppend(&out, ArgumentsOf(i));
  for (const ValueId s : i.src) absl::StrAppend(&out, " %", s);
  return out;
}

std::string ToString(const Program& program) {
  std::string out;
  int depth = 0;
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Code code = program.code[n].code;
    if (code == Code::kEnd || code == Code::kEndIf) --depth;
    absl::StrAppend(&out, std::string(2 * depth, ' '), ToString(program, static_cast<ValueId>(n)),
                    "\n");
    if (code == Code::kLoop || code == Code::kIf) ++depth;
  }
  return out;
}

}  // namespace outboard::program
