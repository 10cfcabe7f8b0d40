#include "compiler/program/spec_hopper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

// Of PTX: arrivals and bytes that a phase counts, registers that MAXREGISTERS may name.
constexpr int64_t kArrivalsMax = (1 << 20) - 1;
constexpr int64_t kPhaseBytesMax = (1 << 20) - 1;
constexpr int64_t kRegistersMin = 24, kRegistersMax = 240, kRegistersStep = 8;
constexpr int64_t kDimMax = int64_t{1} << 32;
constexpr int64_t kStrideMax = int64_t{1} << 40;

class HopperRules {
 public:
  explicit HopperRules(const Program& program)
      : program_(program), threads_(program.Extent(Grid::kThread)) {}

  std::string Broken(ValueId n) const {
    const Instruction& i = at(n);
    if (IsOfWarpgroup(i.code) && threads_ % kWarpgroupThreads != 0)
      return "in a block of no whole warpgroups";
    if (i.code == Code::kWarpSync && threads_ % kWarpThreads != 0)
      return "in a block of no whole warps";
    switch (i.code) {
      case Code::kMap: return Map(i);
      case Code::kMbInit:
        if (std::string broken = Barrier(i, 0, 2); !broken.empty()) return broken;
        return i.imm[0] < 1 || i.imm[0] > kArrivalsMax ? absl::StrCat("of ", i.imm[0], " arrivals")
                                                       : "";
      case Code::kMbExpect:
        if (std::string broken = Barrier(i, 0, 2); !broken.empty()) return broken;
        return i.imm[0] < 1 || i.imm[0] > kPhaseBytesMax ? absl::StrCat("of ", i.imm[0], " bytes")
                                                         : "";
      case Code::kMbArrive:
        if (std::string broken = Barrier(i, 0, i.src.size() == 3 ? 3 : 2); !broken.empty())
          return broken;
        return i.src.size() < 3 || IsIndex(i.src[2]) ? "" : "the rank is no i64";
      case Code::kMbWait:
        if (std::string broken = Barrier(i, 0, 3); !broken.empty()) return broken;
        return IsIndex(i.src[2]) ? "" : "the parity is no i64";
      case Code::kBoxLoad:
        if (i.src.size() < 5) return "has too few sources";
        if (std::string broken = Barrier(i, 2, i.src.size()); !broken.empty()) return broken;
        return Box(i, 4);
      case Code::kBoxStore: return i.src.size() < 3 ? "has too few sources" : Box(i, 2);
      case Code::kBoxWait:
        if (i.imm[1] != 0 && i.imm[1] != 1) return "is neither until read nor until done";
        return i.imm[0] < 0 ? "for a negative number" : Nothing(i);
      case Code::kClusterLoad: return Remote(i);
      case Code::kClusterSync:
      case Code::kBoxCommit:
      case Code::kProxyFence:
      case Code::kWarpSync:
      case Code::kWgCommit:
      case Code::kWgSync: return Nothing(i);
      case Code::kWgFence: return Accumulators(i);
      case Code::kWgWait: return i.imm[0] < 0 ? "for a negative number" : Accumulators(i);
      case Code::kWgmma: return Product(i);
      case Code::kMaxRegisters:
        if (i.imm[0] < kRegistersMin || i.imm[0] > kRegistersMax || i.imm[0] % kRegistersStep != 0)
          return absl::StrCat(i.imm[0], " registers");
        return i.imm[1] < 0 || i.imm[1] > 1 ? "neither raises nor lowers" : Nothing(i);
      default: return "no such instruction";
    }
  }

 private:
  const Instruction& at(ValueId value) const { return program_.code[value]; }
  bool IsAlloc(ValueId v, Space space) const {
    return at(v).code == Code::kAlloc && at(v).imm[0] == static_cast<int64_t>(space);
  }
  bool IsIndex(ValueId v) const {
    return at(v).dtype == DType::kI64 && at(v).lanes == 1 && HasValue(at(v).code);
  }
  static std::string Nothing(const Instruction& i) {
    return i.src.empty() ? "" : absl::StrCat("has ", i.src.size(), " sources, not 0");
  }

  std::string Barrier(const Instruction& i, size_t first, size_t sources) const {
    if (i.src.size() != sources)
      return absl::StrCat("has ", i.src.size(), " sources, not ", sources);
    if (!IsAlloc(i.src[first], Space::kBarriers)) return "of no barriers";
    return IsIndex(i.src[first + 1]) ? "" : "the barrier's index is no i64";
  }

  std::string Map(const Instruction& i) const {
    if (i.src.size() != 1 || at(i.src[0]).code != Code::kBuffer) return "of no buffer";
    if (i.imm[0] < 0 || i.imm[0] >= static_cast<int64_t>(program_.maps.size()))
      return "no such map";
    const MappedTensor& map = program_.maps[static_cast<size_t>(i.imm[0])];
    const Instruction& buffer = at(i.src[0]);
    using Element = MappedTensor::Element;
    const DType types[] = {DType::kF16, DType::kBF16, DType::kF32};
    const bool same = map.element == Element::kByte
                          ? IsFloatOf8(buffer.dtype)
                          : map.element < Element::kByte &&
                                types[static_cast<int>(map.element)] == buffer.dtype;
    if (!same || i.dtype != buffer.dtype)
      return "is of another type than its buffer";
    if (map.slot != buffer.imm[0]) return "is of another buffer";
    if (map.rank() < MappedTensor::kRankMin || map.rank() > MappedTensor::kRankMax ||
        map.box.size() != map.dims.size() || map.strides.size() + 1 != map.dims.size())
      return absl::StrCat("has ", map.rank(), " dimensions");
    for (int d = 0; d < map.rank(); ++d) {
      const auto axis = static_cast<size_t>(d);
      if (map.dims[axis] < 1 || map.dims[axis] > kDimMax || map.box[axis] < 1 ||
          map.box[axis] > MappedTensor::kBoxMax)
        return absl::StrCat("has a box of ", map.box[axis], " of ", map.dims[axis], " elements");
      if (d > 0 &&
          (map.strides[axis - 1] < map.element_bytes() || map.strides[axis - 1] >= kStrideMax ||
           map.strides[axis - 1] % MappedTensor::kStrideAlign != 0))
        return absl::StrCat("has a stride of ", map.strides[axis - 1], " bytes");
    }
    const int64_t row = map.box[0] * map.element_bytes();
    if (map.swizzled ? row != MappedTensor::kSwizzleBytes : row % MappedTensor::kStrideAlign != 0)
      return absl::StrCat("has rows of ", row, " bytes");
    return map.span_bytes() > buffer.imm[1] * ByteWidth(buffer.dtype)
               ? absl::StrCat("spans ", map.span_bytes(), " bytes of a smaller buffer")
               : "";
  }

  std::string Remote(const Instruction& i) const {
    if (i.src.size() != 3) return absl::StrCat("has ", i.src.size(), " sources, not 3");
    if (!IsAlloc(i.src[0], Space::kShared)) return "the first source is no memory of the block";
    if (at(i.src[0]).dtype != i.dtype || i.dtype != DType::kF32)
      return "is of another type than the memory, or not of f32";
    if (i.lanes != 1 && i.lanes != 2 && i.lanes != 4) return absl::StrCat(i.lanes, " lanes");
    return IsIndex(i.src[1]) && IsIndex(i.src[2]) ? "" : "the index or the rank is no i64";
  }

  // Source `map` and the coordinates after it; memory and index are the first two.
  std::string Box(const Instruction& i, size_t map) const {
    if (!IsAlloc(i.src[0], Space::kShared)) return "the first source is no memory of the block";
    if (!IsIndex(i.src[1])) return "the index is no i64";
    if (at(i.src[map]).code != Code::kMap) return "of no map";
    const MappedTensor& tensor = program_.maps[static_cast<size_t>(at(i.src[map]).imm[0])];
    if (at(i.src[map]).dtype != at(i.src[0]).dtype) return "between two types";
    if (i.src.size() != map + 1 + tensor.dims.size())
      return absl::StrCat(i.src.size() - map - 1, " coordinates of ", tensor.rank());
    for (size_t c = map + 1; c < i.src.size(); ++c)
      if (!IsIndex(i.src[c])) return "a coordinate is no i64";
    return WholePatterns(i.src[0]);
  }

  std::string WholePatterns(ValueId shared) const {
    return at(shared).imm[1] * ByteWidth(at(shared).dtype) % kSwizzleAlign != 0
               ? absl::StrCat("the memory is no multiple of ", kSwizzleAlign, " bytes")
               : "";
  }

  std::string Accumulators(const Instruction& i) const {
    if (i.src.empty()) return "has no accumulators";
    for (const ValueId s : i.src)
      if (!IsAlloc(s, Space::kPrivate) ||
          (at(s).dtype != DType::kF32 && at(s).dtype != DType::kU32))
        return "accumulators are private memory of f32, an operand's registers of u32";
    return "";
  }

  std::string Product(const Instruction& i) const {
    if (i.src.size() != 5) return absl::StrCat("has ", i.src.size(), " sources, not 5");
    const int64_t columns = i.imm[0];
    if (columns < 8 || columns > kWgmmaColumnsMax || columns % 8 != 0)
      return absl::StrCat(columns, " columns");
    if (!IsAlloc(i.src[0], Space::kPrivate) || at(i.src[0]).dtype != DType::kF32 ||
        at(i.src[0]).imm[1] != columns / 2)
      return absl::StrCat("accumulators are private memory of ", columns / 2, " f32");
    if (IsAlloc(i.src[1], Space::kPrivate)) return ProductOfRegisters(i);
    const DType type = at(i.src[1]).dtype;
    if (!IsFloatOf16(type) && type != DType::kF32 && !IsFloatOf8(type))
      return "of a type that it has no form for";
    if (i.imm[3] != 0 && i.imm[3] != 1) return "neither adds nor is alone";
    if (std::string broken = Operand(i, 1, type); !broken.empty()) return broken;
    // Two 8-bit floats may be of two types.
    const DType of_b = at(i.src[3]).dtype;
    return Operand(i, 3, AreMultiplied(type, of_b) ? of_b : type);
  }

  std::string Operand(const Instruction& i, size_t s, DType type) const {
    if (!IsAlloc(i.src[s], Space::kShared) || at(i.src[s]).dtype != type)
      return "operands are memory of the block, of one type";
    if (!IsIndex(i.src[s + 1])) return "an index is no i64";
    if (std::string broken = WholePatterns(i.src[s]); !broken.empty()) return broken;
    const int64_t leading = i.imm[s == 1 ? 1 : 2];
    if (leading < 0 || leading * ByteWidth(type) % kSwizzleAlign != 0)
      return absl::StrCat("a leading distance of ", leading);
    constexpr int kTurnedBytes = 2;
    if (leading != 0 && ByteWidth(type) != kTurnedBytes)
      return absl::StrCat("rows side by side, of ", ByteWidth(type), " bytes, not 2");
    return "";
  }

  // Of an a in registers.
  std::string ProductOfRegisters(const Instruction& i) const {
    const Instruction &a = at(i.src[1]), &index = at(i.src[2]);
    if (a.dtype != DType::kU32) return "of registers that are no u32";
    if (index.code != Code::kConst || index.dtype != DType::kI64 || index.imm[0] < 0 ||
        index.imm[0] % kWgmmaRegistersOfA != 0 || index.imm[0] + kWgmmaRegistersOfA > a.imm[1])
      return "its registers are not four at a constant place";
    if (i.imm[1] != 0) return "a leading distance of registers";
    if (i.imm[3] != 0 && i.imm[3] != 1) return "neither adds nor is alone";
    const DType type = at(i.src[3]).dtype;
    if (!IsFloatOf16(type) && type != DType::kF32)
      return "of registers, and of a type that it has no form for";
    return Operand(i, 3, type);
  }

  const Program& program_;
  const int64_t threads_;
};

}  // namespace

std::string BrokenHopperRule(const Program& program, ValueId n) {
  return HopperRules(program).Broken(n);
}

// Whether the groups that come before the thread of this number, `more` added, are whole.
bool GroupVariance::IsWholeGroups(ValueId value, int64_t more) const {
  const Instruction& i = program_.code[value];
  return i.code == Code::kConst && i.dtype == DType::kI64 && i.imm[0] > 0 &&
         i.imm[0] % threads_ == (threads_ - more) % threads_;
}

std::string ClusterRules::Broken(ValueId n) {
  const Instruction& i = program_.code[n];
  if (i.code == Code::kClusterSync) {
    met_ = true;
    reached_since_ = false;
  }
  const bool reaches = (i.code == Code::kBoxLoad && i.imm[0] != 0) ||
                       i.code == Code::kClusterLoad ||
                       (i.code == Code::kMbArrive && i.src.size() == 3);
  if (!reaches) return "";
  if (!met_) return "reaches another block before a CLUSTERSYNC";
  reached_since_ = true;
  if (i.code == Code::kBoxLoad && (i.imm[0] < 0 || i.imm[0] >> program_.cluster != 0))
    return absl::StrCat("ranks ", i.imm[0], " of ", program_.cluster, " blocks");
  return "";
}

std::string ClusterRules::BrokenAtEnd() const {
  const int64_t blocks = program_.cluster;
  if (blocks < 1 || blocks > kClusterBlocksMax || (blocks & (blocks - 1)) != 0)
    return absl::StrCat("a cluster of ", blocks, " blocks");
  if (program_.Extent(Grid::kBlock) % blocks != 0) return "the last cluster is not whole";
  return reached_since_ ? "no CLUSTERSYNC comes after what reaches another block" : "";
}

bool GroupVariance::Add(ValueId n) {
  const Instruction& i = program_.code[n];
  const auto is_thread = [&](ValueId v) {
    return program_.code[v].code == Code::kSpecial &&
           program_.code[v].imm[0] == static_cast<int64_t>(Grid::kThread);
  };
  bool varies =
      i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(Grid::kThread) && i.imm[1] > 1;
  for (const ValueId s : i.src) varies = varies || varies_[s];
  // Of groups of 128: thread / 128, thread < 128 and 127 < thread.
  if (i.code == Code::kAlu && (i.op == Op::kIDiv || i.op == Op::kCmpLt) && is_thread(i.src[0]) &&
      IsWholeGroups(i.src[1], 0))
    varies = false;
  if (i.code == Code::kAlu && i.op == Op::kCmpLt && is_thread(i.src[1]) &&
      IsWholeGroups(i.src[0], 1))
    varies = false;
  // What a thread reads from memory of its own may have been written by lanes apart; which
  // warpgroup variables hold is not followed further than this: they are stored where nothing
  // varies, or the interpreter reports it (Fault::kDivergence).
  return varies_[n] = varies;
}

}  // namespace outboard::program
