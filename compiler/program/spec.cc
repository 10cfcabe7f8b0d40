#include "compiler/program/spec.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/program/spec_hopper.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kExtentMax = int64_t{1} << 48;
constexpr int64_t kThreadsMax = 1024;
constexpr int64_t kPrivateElementsMax = 1 << 19;  // as many f32 as limits::kLocalBytesMax holds

class Checker {
 public:
  Checker(const Program& program, Phase phase)
      : program_(program),
        phase_(phase),
        threads_(program.Extent(Grid::kThread)),
        in_groups_(program, kWarpgroupThreads),
        in_warps_(program, kWarpThreads),
        clusters_(program) {}

  // The rule that is broken and where; empty where none is.
  std::string Run(ValueId* where) {
    const auto count = static_cast<ValueId>(program_.code.size());
    visible_.assign(count, false);
    varies_.assign(count, false);
    for (ValueId n = 0; n < count; ++n) {
      *where = n;
      std::string broken = Sources(n);
      if (broken.empty()) broken = Types(program_.code[n]);
      if (broken.empty() && IsHopper(program_.code[n].code)) broken = BrokenHopperRule(program_, n);
      if (broken.empty()) broken = Place(n);
      if (!broken.empty()) return broken;
    }
    *where = count - 1;
    if (!open_.empty()) return "a scope is not closed";
    return clusters_.BrokenAtEnd();
  }

 private:
  struct Scope {
    ValueId opener;
    bool varies;           // whether threads may take it differently
    bool varies_in_group;  // whether threads of one warpgroup may
    bool varies_in_warp;
    std::vector<ValueId> values;
  };

  const Instruction& at(ValueId value) const { return program_.code[value]; }

  std::string Sources(ValueId n) const {
    const Instruction& i = at(n);
    for (const ValueId s : i.src) {
      if (s < 0 || s >= n) return absl::StrCat("source %", s, " does not come before it");
      if (!visible_[s]) return absl::StrCat("source %", s, " is no value of an open scope");
    }
    return "";
  }

  bool IsValue(ValueId v, DType dtype, int lanes) const {
    return at(v).dtype == dtype && at(v).lanes == lanes && HasValue(at(v).code);
  }
  bool IsAlloc(ValueId v, Space space) const {
    return at(v).code == Code::kAlloc && at(v).imm[0] == static_cast<int64_t>(space);
  }
  bool IsMemory(ValueId v) const {
    return at(v).code == Code::kBuffer ||
           (at(v).code == Code::kAlloc && !IsAlloc(v, Space::kTile) &&
            !IsAlloc(v, Space::kBarriers));
  }
  bool IsShared(ValueId v) const { return IsAlloc(v, Space::kShared); }
  bool IsTile(ValueId v, DType dtype) const {
    return IsAlloc(v, Space::kTile) && at(v).dtype == dtype;
  }

  std::string Count(const Instruction& i, size_t least, size_t most) const {
    if (i.src.size() < least || i.src.size() > most)
      return absl::StrCat("has ", i.src.size(), " sources, not ", least,
                          least == most ? "" : absl::StrCat(" to ", most));
    return "";
  }

  bool IsOne(ValueId v) const {
    return at(v).code == Code::kConst && IsFloat(at(v).dtype) &&
           at(v).imm[0] == std::bit_cast<int64_t>(1.0);
  }

  std::string Index(ValueId memory, ValueId index, int lanes) const {
    if (!IsMemory(memory)) return "the first source is no memory";
    if (at(index).dtype != DType::kI64) return "the index is no i64";
    if (at(index).lanes != 1 && at(index).lanes != lanes)
      return absl::StrCat("the index has ", at(index).lanes, " lanes, not ", lanes);
    return "";
  }

  std::string Arithmetic(const Instruction& i) const {
    if (!IsAlu(i.op)) return "is no arithmetic";
    const auto precision = static_cast<Precision>(i.imm[0]);
    if (precision == Precision::kByUnit) {
      const bool inverts = i.op == Op::kFDiv && i.src.size() == 2 && IsOne(i.src[0]);
      if ((i.op != Op::kExp2 && !inverts) || i.dtype != DType::kF32)
        return "is by a unit, but no EXP2 of f32, and no inverse";
      if (i.imm[1] != 0 && (i.imm[1] != 1 || i.op != Op::kExp2))
        return "is by a unit in no way that there is";
    } else if (precision != Precision::kEach &&
               (i.op != Op::kAdd || !IsFloat(i.dtype) || precision != Precision::kWithProduct)) {
      return "is rounded with a product, but adds no floats";
    }
    const size_t count = IsUnary(i.op) ? 1 : IsBinary(i.op) ? 2 : 3;
    if (std::string broken = Count(i, count, count); !broken.empty()) return broken;
    for (const ValueId s : i.src)
      if (at(s).lanes != i.lanes)
        return absl::StrCat("source %", s, " has ", at(s).lanes, " lanes, not ", i.lanes);
    size_t first = 0;
    if (i.op == Op::kWhere) {
      if (!IsBool(at(i.src[0]).dtype)) return "the condition is no bool";
      first = 1;
    }
    const DType operand = at(i.src[first]).dtype;
    for (size_t s = first; s < i.src.size(); ++s)
      if (at(i.src[s]).dtype != operand) return "operands of two types";
    const DType result = IsCompare(i.op) ? DType::kBool : operand;
    if (i.dtype != result) return absl::StrCat("is no ", std::string(Name(result)));
    switch (i.op) {
      case Op::kFDiv:
      case Op::kSqrt:
      case Op::kTrunc: return IsFloat(operand) ? "" : "of integers";
      case Op::kIDiv:
      case Op::kMod:
      case Op::kShl:
      case Op::kShr: return IsInt(operand) ? "" : absl::StrCat("of ", std::string(Name(operand)));
      case Op::kAnd:
      case Op::kOr:
      case Op::kXor: return IsFloat(operand) ? "of floats" : "";
      case Op::kThreefry: return operand == DType::kU64 ? "" : "of another type than u64";
      case Op::kMulAcc:
        return operand == DType::kF32 || operand == DType::kF64
                   ? ""
                   : absl::StrCat("of ", std::string(Name(operand)), ", neither f32 nor f64");
      default: return IsTranscendental(i.op) && !IsFloat(operand) ? "of integers" : "";
    }
  }

  std::string MatrixProduct(const Instruction& i) const {
    const DType dtype = at(i.src[0]).dtype;
    if (i.imm[0] == static_cast<int64_t>(MatrixUnit::kWmma) ||
        i.imm[0] == static_cast<int64_t>(MatrixUnit::kMfma)) {
      const auto unit = static_cast<MatrixUnit>(i.imm[0]);
      const int operand = AmdOperandLanes(unit), sums = AmdSumLanes(unit);
      if (!IsFloatOf16(dtype))
        return "of a type that AMD has no form for";
      if (!IsValue(i.src[0], dtype, operand) || !IsValue(i.src[1], dtype, operand) ||
          !IsValue(i.src[2], DType::kF32, sums) || i.dtype != DType::kF32 || i.lanes != sums)
        return "operands of other types";
      return threads_ % ThreadsOf(unit) != 0 ? "in a block of no whole groups" : "";
    }
    switch (dtype) {
      case DType::kBF16:
      case DType::kF16:
      case DType::kF32:
      case DType::kF8E4M3:
      case DType::kF8E5M2: break;
      default: return "of a type that it has no form for";
    }
    // Two 8-bit floats may be of two types.
    const DType of_b = at(i.src[1]).dtype;
    if (!AreMultiplied(dtype, of_b)) return "operands of other types";
    const int one = 2 * MmaPacked(dtype), lanes = at(i.src[1]).lanes;  // of a matrix of b
    if (!IsValue(i.src[0], dtype, 2 * one) || !IsValue(i.src[2], DType::kF32, 4) ||
        !IsValue(i.src[1], of_b, lanes == 2 * one ? lanes : one) || i.dtype != DType::kF32 ||
        i.lanes != 4)
      return "operands of other types";
    if (i.imm[0] < 0 || i.imm[0] >= lanes / one) return "no such half";
    return threads_ % kWarpThreads != 0 ? "in a block of no whole groups" : "";
  }

  std::string Types(const Instruction& i) const {
    const bool memory = i.code == Code::kBuffer || i.code == Code::kAlloc || i.code == Code::kMap;
    if (i.lanes < (memory ? 0 : 1) || i.lanes > (memory ? 0 : kLanesMax))
      return absl::StrCat(i.lanes, " lanes");
    if (HasValue(i.code) != (i.dtype != DType::kVoid)) return "has a wrong kind of type";
    const auto counted = [&](size_t least, size_t most) { return Count(i, least, most); };
    switch (i.code) {
      case Code::kConst:
        if (i.lanes != 1) return "is no scalar";
        if (IsInt(i.dtype) && i.dtype != DType::kU64 && WrapTo(i.dtype, i.imm[0]) != i.imm[0])
          return "is no number of its type";
        return counted(0, 0);
      case Code::kVar:
        return i.dtype != DType::kI64 || i.lanes != 1 || i.imm[1] > i.imm[2] ? "is no VAR"
                                                                             : counted(0, 0);
      case Code::kSpecial:
        if (i.dtype != DType::kI64 || i.lanes != 1 || i.imm[0] < 0 || i.imm[0] > 1)
          return "is no SPECIAL";
        if (i.imm[1] < 1 || i.imm[1] > (i.imm[0] == 1 ? kThreadsMax : kExtentMax))
          return absl::StrCat("extent ", i.imm[1]);
        if (program_.Extent(static_cast<Grid>(i.imm[0])) != i.imm[1]) return "two extents";
        return counted(0, 0);
      case Code::kBuffer:
        if (i.imm[0] < 0 || i.imm[0] >= program_.buffer_count) return "slot out of range";
        return i.imm[1] < 0 ? "a negative length" : counted(0, 0);
      case Code::kAlloc:
        if (i.imm[0] < 0 || i.imm[0] > 3) return "no such space";
        if (i.imm[0] == static_cast<int64_t>(Space::kBarriers) && i.dtype != DType::kU64)
          return "barriers are u64";
        if (i.imm[0] == static_cast<int64_t>(Space::kTile))
          return i.imm[1] != kTileSide * kTileSide ||
                         (i.dtype != DType::kF32 && i.dtype != DType::kU32)
                     ? "is no tile of f32 or u32"
                     : counted(0, 0);
        if (i.imm[1] < 1 || i.imm[1] > kPrivateElementsMax)
          return absl::StrCat(i.imm[1], " elements");
        return counted(0, 0);
      case Code::kLoop:
        if (i.dtype != DType::kI64 || i.lanes != 1) return "the counter is no i64";
        if (i.imm[0] < 0 || i.imm[0] > kExtentMax) return absl::StrCat("extent ", i.imm[0]);
        if (phase_ == Phase::kFinal && i.imm[1] != 0) return "is still to be expanded";
        if (i.src.size() == 1 && !IsValue(i.src[0], DType::kI64, 1)) return "the limit is no i64";
        return counted(0, 1);
      case Code::kEnd:
      case Code::kEndIf: return counted(1, 1);
      case Code::kIf:
        if (i.src.size() == 1 && !IsValue(i.src[0], DType::kBool, 1)) return "of no scalar bool";
        if (i.imm[0] != 0 && i.imm[0] != 1) return absl::StrCat("rarely is ", i.imm[0]);
        return counted(1, 1);
      case Code::kAlu: return Arithmetic(i);
      case Code::kCast:
      case Code::kBitcast:
        if (i.src.size() != 1) return counted(1, 1);
        if (i.code == Code::kCast)
          return at(i.src[0]).lanes != i.lanes ? "changes the number of lanes" : "";
        return ByteWidth(i.dtype) * i.lanes != ByteWidth(at(i.src[0]).dtype) * at(i.src[0]).lanes
                   ? "changes the width"
                   : "";
      case Code::kLanes:
        if (i.src.size() != 1 && i.src.size() != static_cast<size_t>(i.lanes))
          return absl::StrCat(i.src.size(), " sources for ", i.lanes, " lanes");
        for (const ValueId s : i.src)
          if (!IsValue(s, i.dtype, 1)) return absl::StrCat("source %", s, " is no such scalar");
        return "";
      case Code::kLane:
        if (i.src.size() != 1) return counted(1, 1);
        if (i.lanes != 1 || at(i.src[0]).dtype != i.dtype) return "is no such scalar";
        return i.imm[0] < 0 || i.imm[0] >= at(i.src[0]).lanes ? "no such lane" : "";
      case Code::kLoad: {
        if (i.src.size() != 2 && i.src.size() != 4) return "has a mask or has none: 2 or 4 sources";
        if (std::string broken = Index(i.src[0], i.src[1], i.lanes); !broken.empty()) return broken;
        if (at(i.src[0]).dtype != i.dtype) return "is of another type than the memory";
        if (i.imm[0] != 0 && at(i.src[0]).code != Code::kBuffer) return "loads no buffer again";
        if (i.src.size() == 2) return "";
        if (!IsValue(i.src[2], DType::kBool, i.lanes)) return "the mask has other lanes";
        return IsValue(i.src[3], i.dtype, i.lanes) ? "" : "what it is otherwise has another type";
      }
      case Code::kStore: {
        if (std::string broken = counted(3, 4); !broken.empty()) return broken;
        if (std::string broken = Index(i.src[0], i.src[1], i.lanes); !broken.empty()) return broken;
        if (!IsValue(i.src[2], at(i.src[0]).dtype, i.lanes)) return "the value has another type";
        if (i.imm[0] != 0 &&
            (!IsShared(i.src[0]) || i.imm[0] != 1 ||
             at(i.src[0]).imm[1] * ByteWidth(at(i.src[0]).dtype) % kSwizzleAlign != 0))
          return "is swizzled in memory of no whole patterns";
        if (i.lanes > 1 && i.src.size() == 4 && !IsValue(i.src[3], DType::kBool, i.lanes))
          return "the mask has other lanes";
        return i.src.size() == 4 && !IsValue(i.src[3], DType::kBool, i.lanes)
                   ? "the mask is no bool"
                   : "";
      }
      case Code::kCopy:
        if (i.src.size() < 4 || i.src.size() > 5) return counted(4, 5);
        if (!IsShared(i.src[0]) || at(i.src[2]).code != Code::kBuffer)
          return "copies from a buffer to memory of the block, and nothing else";
        if (at(i.src[0]).dtype != at(i.src[2]).dtype) return "between two types";
        if (!IsValue(i.src[1], DType::kI64, 1) || !IsValue(i.src[3], DType::kI64, 1))
          return "an index is no i64";
        if (i.src.size() == 5 && !IsValue(i.src[4], DType::kBool, 1)) return "the mask is no bool";
        if (i.imm[1] != 0 && i.imm[1] != 1) return "is neither aligned nor not";
        if (i.imm[2] != 0) {
          const int64_t width = ByteWidth(at(i.src[0]).dtype);
          constexpr int64_t kTogether = 16;  // bytes that a swizzle keeps together
          if (i.imm[2] != 1 || at(i.src[0]).imm[1] * width % kSwizzleAlign != 0)
            return "is swizzled in memory of no whole patterns";
          if (i.imm[0] < 1 || kTogether % (i.imm[0] * width) != 0 ||
              (i.imm[0] > 1 && i.imm[1] != 1))
            return "is swizzled, but no aligned part of 16 bytes";
        }
        return i.imm[0] < 1 ? "of nothing" : "";
      case Code::kBarrier:
      case Code::kCommit: return counted(0, 0);
      case Code::kWait: return i.imm[0] < 0 ? "for a negative number" : counted(0, 0);
      case Code::kShuffle:
        if (i.src.size() != 1) return counted(1, 1);
        if (!IsValue(i.src[0], i.dtype, 1) || i.lanes != 1) return "is no such scalar";
        if (i.imm[0] < 1 || i.imm[0] >= std::min<int64_t>(threads_, kWarpThreads) ||
            (i.imm[0] & (i.imm[0] - 1)) != 0)
          return absl::StrCat("bit ", i.imm[0], " of a thread's number");
        return (threads_ & (threads_ - 1)) != 0 && threads_ % kWarpThreads != 0
                   ? "in a block of no whole groups"
                   : "";
      case Code::kMma:
        if (i.src.size() != 3) return counted(3, 3);
        return MatrixProduct(i);
      case Code::kLdmatrix:
        if (i.src.size() != 2) return counted(2, 2);
        if (!IsShared(i.src[0])) return "of no memory of the block";
        if (!IsValue(i.src[1], DType::kI64, 1)) return "the index is no i64";
        if (i.dtype != at(i.src[0]).dtype || ByteWidth(i.dtype) > 4 ||
            i.lanes != 4 * MmaPacked(i.dtype))
          return "is not 16 bytes of the memory's type";
        if (i.imm[0] == 1 && ByteWidth(i.dtype) != 2) return "is transposed, but not of 16 bits";
        if (i.imm[0] < 0 || i.imm[0] > 2) return "is neither transposed, swizzled, nor plain";
        if (i.imm[0] == 2 && at(i.src[0]).imm[1] * ByteWidth(i.dtype) % kSwizzleAlign != 0)
          return "is swizzled in memory of no whole patterns";
        if (threads_ % kWarpThreads != 0) return "in a block of no whole groups";
        return "";
      case Code::kDot:
        if (i.src.size() != 3) return counted(3, 3);
        if (i.dtype != DType::kF32 || !IsValue(i.src[0], DType::kF32, i.lanes) ||
            !IsValue(i.src[1], DType::kU32, i.lanes) || !IsValue(i.src[2], DType::kU32, i.lanes))
          return "operands of other types";
        return "";
      case Code::kTileZero:
        if (i.src.size() != 1) return counted(1, 1);
        return IsAlloc(i.src[0], Space::kTile) ? "" : "of no tile";
      case Code::kTileLoad:
      case Code::kTileStore:
        if (i.src.size() != 3) return counted(3, 3);
        if (!IsAlloc(i.src[0], Space::kTile)) return "of no tile";
        if (!IsAlloc(i.src[1], Space::kPrivate)) return "the memory is not private";
        if (at(i.src[0]).dtype != at(i.src[1]).dtype) return "is of another type than the memory";
        if (!IsValue(i.src[2], DType::kI64, 1)) return "the index is no i64";
        return i.imm[0] < kTileSide ? "its rows overlap" : "";
      case Code::kTileDot:
        if (i.src.size() != 3) return counted(3, 3);
        if (!IsTile(i.src[0], DType::kF32) || !IsTile(i.src[1], DType::kU32) ||
            !IsTile(i.src[2], DType::kU32))
          return "operands of other types";
        return "";
      default: return "";  // of sm_90a: BrokenHopperRule
    }
    return "no such instruction";
  }

  std::string Place(ValueId n) {
    const Instruction& i = at(n);
    bool varies = i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(Grid::kThread);
    for (const ValueId s : i.src) varies = varies || varies_[s];
    if (i.code == Code::kLoad && at(i.src[0]).code == Code::kAlloc && !IsShared(i.src[0]))
      varies = threads_ > 1;
    const bool varies_in_group = in_groups_.Add(n), varies_in_warp = in_warps_.Add(n);
    if (i.code == Code::kEnd || i.code == Code::kEndIf) {
      const Code opener = i.code == Code::kEnd ? Code::kLoop : Code::kIf;
      if (at(i.src[0]).code != opener) return "closes something else";
      if (open_.empty() || open_.back().opener != i.src[0])
        return "closes a scope that is not the last";
      for (const ValueId v : open_.back().values) visible_[v] = false;
      open_.pop_back();
      return "";
    }
    if (i.code == Code::kAlloc && i.imm[0] != static_cast<int64_t>(Space::kPrivate) &&
        !open_.empty())
      return IsAlloc(n, Space::kTile) ? "a tile in a scope" : "memory of a block in a scope";
    if (IsAlloc(n, Space::kTile) && ++tiles_ > kTilesMax)
      return absl::StrCat("over ", kTilesMax, " tiles");
    // Whole warpgroups are whole warps.
    const bool by_warps = (i.code == Code::kLdmatrix || i.code == Code::kShuffle) &&
                          threads_ % kWarpgroupThreads == 0;
    if (i.code == Code::kBarrier || i.code == Code::kMma || i.code == Code::kShuffle ||
        i.code == Code::kLdmatrix)
      for (const Scope& scope : open_)
        if (scope.varies && (!by_warps || scope.varies_in_group))
          return absl::StrCat("in a scope that threads may enter apart: %", scope.opener);
    if (i.code == Code::kWarpSync)
      for (const Scope& scope : open_)
        if (scope.varies_in_warp)
          return absl::StrCat("in a scope that a warp may enter apart: %", scope.opener);
    if (IsOfWarpgroup(i.code) || i.code == Code::kClusterSync)
      for (const Scope& scope : open_)
        if (scope.varies_in_group)
          return absl::StrCat("in a scope that a warpgroup may enter apart: %", scope.opener);
    if (std::string broken = clusters_.Broken(n); !broken.empty()) return broken;
    varies_[n] = varies;
    if (i.code == Code::kLoop || i.code == Code::kIf)
      open_.push_back({n, varies, varies_in_group, varies_in_warp, {}});
    // The end of a scope names its opener, which is to be seen up to there.
    if (HasValue(i.code) || i.code == Code::kIf) {
      visible_[n] = true;
      if (!open_.empty()) open_.back().values.push_back(n);
    }
    return "";
  }

  const Program& program_;
  Phase phase_;
  int64_t threads_;
  GroupVariance in_groups_, in_warps_;
  ClusterRules clusters_;
  int tiles_ = 0;
  std::vector<bool> visible_, varies_;
  std::vector<Scope> open_;
};

}  // namespace

absl::Status CheckProgram(const Program& program, std::string_view pass, Phase phase) {
  ValueId where = -1;
  const std::string broken = Checker(program, phase).Run(&where);
  if (broken.empty()) return absl::OkStatus();
  const std::string at = where >= 0 ? ToString(program, where) : "";
  const std::string_view name = where < 0 ? ""
                                : program.code[where].code == Code::kAlu
                                    ? Name(program.code[where].op)
                                    : Name(program.code[where].code);
  return absl::InternalError(absl::StrCat("program: after pass \"", std::string(pass), "\", ",
                                          std::string(name), " at ", where, ": ", broken, ": ",
                                          at));
}

}  // namespace outboard::program
