#include "compiler/render/gpu_support.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace outboard::render {

using program::Code;
using program::Instruction;
using program::Precision;
using program::Space;

namespace {

// Elements of a private memory, and all selects among such elements of one program: beyond these
// there are not enough registers anyway (255 a thread), and compiling takes long.
constexpr int64_t kElementsMax = 512;
constexpr int64_t kSelectsMax = 1 << 16;

// By the unit of NVIDIA's GPUs.
bool IsByUnit(const Instruction& i) {
  return i.code == Code::kAlu && i.imm[0] == static_cast<int64_t>(Precision::kByUnit);
}

}  // namespace

bool IsPrivateAlloc(const Instruction& instruction) {
  return instruction.code == Code::kAlloc &&
         instruction.imm[0] == static_cast<int64_t>(Space::kPrivate);
}

absl::Status CheckForGpu(const program::Program& program, const Target& target) {
  const auto at = [&](program::ValueId n) -> const Instruction& {
    return program.code[static_cast<size_t>(n)];
  };
  const auto none_for = [&](const std::string& what) {
    return absl::UnimplementedError(absl::StrCat(target.arch, " has no form for ", what));
  };
  int64_t selects = 0;
  for (const Instruction& i : program.code) {
    if (i.dtype == DType::kF64 && !target.fp64) return none_for("f64");
    switch (i.code) {
      case Code::kAlu:
        if (IsByUnit(i) ? target.kind != TargetKind::kCuda : IsTranscendental(i.op))
          return none_for(
              absl::StrCat(std::string(Name(i.op)), " of ", std::string(Name(i.dtype))));
        break;
      case Code::kAlloc:
        if (i.imm[0] == static_cast<int64_t>(Space::kTile)) return none_for("tiles");
        if (IsPrivateAlloc(i) && i.imm[1] > kElementsMax)
          return none_for(absl::StrCat("private memory of ", i.imm[1], " elements; at most ",
                                       kElementsMax, " become registers"));
        break;
      case Code::kLoad:
      case Code::kStore: {
        const Instruction& memory = at(i.src[0]);
        if (!IsPrivateAlloc(memory) || at(i.src[1]).code == Code::kConst) break;
        selects += memory.imm[1] * (i.code == Code::kLoad ? i.lanes : at(i.src[2]).lanes);
        if (selects > kSelectsMax)
          return none_for(absl::StrCat("private memory whose elements are selected ", selects,
                                       " times; at most ", kSelectsMax));
        break;
      }
      case Code::kDot:
      case Code::kTileZero:
      case Code::kTileLoad:
      case Code::kTileStore:
      case Code::kTileDot: return none_for(std::string(Name(i.code)));
      default: break;
    }
  }
  return absl::OkStatus();
}

}  // namespace outboard::render
