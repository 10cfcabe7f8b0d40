#include "compiler/program/program.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <iterator>

#include "base/check.h"

namespace outboard::program {

std::string_view Name(Code code) {
  static constexpr std::string_view kNames[] = {
      "CONST", "VAR",      "SPECIAL",  "BUFFER",    "ALLOC",   "LOOP",  "END",
      "IF",    "ENDIF",    "ALU",      "CAST",      "BITCAST", "LANES", "LANE",
      "LOAD",  "STORE",    "BARRIER",  "COPY",      "COMMIT",  "WAIT",  "SHUFFLE",
      "MMA",   "LDMATRIX", "DOT",      "TILEZERO",  "TILELOAD", "TILESTORE", "TILEDOT",
      "MAP",   "MBINIT",   "MBEXPECT", "MBARRIVE",  "MBWAIT",  "BOXLOAD", "BOXSTORE",
      "BOXCOMMIT", "BOXWAIT", "PROXYFENCE", "WARPSYNC", "CLUSTERSYNC", "CLUSTERLOAD", "WGFENCE",
      "WGMMA", "WGCOMMIT", "WGWAIT", "WGSYNC", "MAXREGISTERS"};
  static_assert(std::size(kNames) == static_cast<size_t>(Code::kMaxRegisters) + 1);
  return kNames[static_cast<size_t>(code)];
}

bool HasValue(Code code) {
  switch (code) {
    case Code::kEnd:
    case Code::kIf:
    case Code::kEndIf:
    case Code::kStore:
    case Code::kBarrier:
    case Code::kCopy:
    case Code::kCommit:
    case Code::kWait:
    case Code::kTileZero:
    case Code::kTileLoad:
    case Code::kTileStore:
    case Code::kTileDot: return false;
    default: return !IsHopper(code) || code == Code::kMap || code == Code::kClusterLoad;
  }
}

bool IsPure(Code code) {
  switch (code) {
    case Code::kConst:
    case Code::kVar:
    case Code::kSpecial:
    case Code::kBuffer:
    case Code::kAlu:
    case Code::kCast:
    case Code::kBitcast:
    case Code::kLanes:
    case Code::kLane:
    case Code::kDot:
    case Code::kMap: return true;
    default: return false;
  }
}

absl::Span<const ValueId> ChangedMemories(const Instruction& i) {
  switch (i.code) {
    case Code::kTileStore: return absl::MakeConstSpan(i.src).subspan(1, 1);
    case Code::kWgmma: return absl::MakeConstSpan(i.src).subspan(0, 1);
    case Code::kWgFence:
    case Code::kWgWait: return i.src;
    default: return {};
  }
}

int64_t Program::Extent(Grid axis) const {
  for (const Instruction& i : code)
    if (i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(axis)) return i.imm[1];
  return 1;
}

int64_t Program::shared_bytes() const { return SharedOffset(static_cast<ValueId>(code.size())); }

// In the order of their instructions, aligned for the widest access. Where warpgroups work together
// memories are aligned to the pattern of the swizzle, whether they have it or not.
int64_t Program::SharedOffset(ValueId alloc) const {
  constexpr int64_t kWidestAccess = 16;
  const int64_t align =
      std::any_of(code.begin(), code.end(), [](const Instruction& i) { return IsHopper(i.code); })
          ? kSwizzleAlign
          : kWidestAccess;
  int64_t bytes = 0;
  for (ValueId n = 0; n < alloc; ++n) {
    const Instruction& i = code[n];
    if (i.code != Code::kAlloc) continue;
    const auto space = static_cast<Space>(i.imm[0]);
    if (space != Space::kShared && space != Space::kBarriers) continue;
    bytes += (i.imm[1] * ByteWidth(i.dtype) + align - 1) / align * align;
  }
  return bytes;
}

ValueId Program::FirstOfBlocks() const {
  const auto is_private = [&](ValueId memory) {
    return code[memory].code == Code::kAlloc &&
           code[memory].imm[0] == static_cast<int64_t>(Space::kPrivate);
  };
  ValueId scope = -1;
  int depth = 0;
  for (size_t n = 0; n < code.size(); ++n) {
    const Instruction& i = code[n];
    if (i.code == Code::kEnd || i.code == Code::kEndIf) --depth;
    if ((i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(Grid::kBlock)) ||
        (i.code == Code::kStore && !is_private(i.src[0])))
      return depth > 0 ? scope : static_cast<ValueId>(n);
    if ((i.code == Code::kLoop || i.code == Code::kIf) && depth++ == 0)
      scope = static_cast<ValueId>(n);
  }
  return static_cast<ValueId>(code.size());
}

bool Program::reads_vars() const {
  return std::any_of(code.begin(), code.end(),
                     [](const Instruction& i) { return i.code == Code::kVar; });
}

MatrixPlace MmaElement(MmaOperand operand, int packed, int thread, int lane) {
  const int group = thread / 4, member = thread % 4;
  const int number = lane / packed, in_register = member * packed + lane % packed;
  switch (operand) {
    case MmaOperand::kA:
      return {group + number % 2 * 8, in_register + number / 2 * 4 * packed};
    case MmaOperand::kB: return {in_register + number * 4 * packed, group};
    default: return {group + (lane / 2) * 8, member * 2 + lane % 2};
  }
}

MatrixPlace AmdElement(MatrixUnit unit, MmaOperand operand, int thread, int lane) {
  constexpr int kSide = 16;
  const int along = thread % kSide, group = thread / kSide;
  const bool wmma = unit == MatrixUnit::kWmma;
  // WMMA's second half of threads has the same operands as the first.
  const int step = wmma ? lane : AmdOperandLanes(unit) * group + lane;
  switch (operand) {
    case MmaOperand::kA: return {along, step};
    case MmaOperand::kB: return {step, along};
    default: return {wmma ? 2 * lane + group : AmdSumLanes(unit) * group + lane, along};
  }
}

MatrixPlace WgmmaElement(int thread, int element) {
  return {thread / 32 * 16 + thread % 32 / 4 + element / 2 % 2 * 8,
          element / 4 * 8 + thread % 4 * 2 + element % 2};
}

MatrixPlace WgmmaOfA(int thread, int element, int width) {
  const int packed = 4 / width, number = element / packed;
  return {thread / 32 * 16 + thread % 32 / 4 + number % 2 * 8,
          (thread % 4 + number / 2 * 4) * packed + element % packed};
}

int64_t WgmmaPlace(int64_t leading, int row, int k, int width) {
  const int wide = static_cast<int>(MappedTensor::kSwizzleBytes) / width;
  return leading == 0 ? int64_t{row} * wide + k
                      : row / wide * leading + int64_t{k} * wide + row % wide;
}

// Bits 4 to 6 of the address are changed by bits 7 to 9.
int64_t SwizzledPlace(int64_t element, int width) {
  const int64_t address = element * width;
  return (address ^ ((address >> 7 & 7) << 4)) / width;
}

bool ProgramBuilder::IsConst(ValueId value, int64_t* number) const {
  const Instruction& i = program_.code[value];
  if (i.code != Code::kConst || IsFloat(i.dtype)) return false;
  *number = i.imm[0];
  return true;
}

// Integers as docs/semantics.md has them, where that is easy to see.
ValueId ProgramBuilder::Folded(const Instruction& alu) {
  if (alu.src.size() < 2) return -1;
  if (alu.lanes > 1) return FoldedLanes(alu);
  const ValueId x = alu.src[0], y = alu.src[1];
  if (alu.op == Op::kWhere) {
    int64_t condition = 0;
    if (IsConst(x, &condition)) return alu.src[condition != 0 ? 1 : 2];
    return y == alu.src[2] ? y : -1;
  }
  const DType type = program_.code[x].dtype;
  if (type != DType::kI64 && type != DType::kBool) return -1;
  int64_t a = 0, b = 0;
  const bool left = IsConst(x, &a), right = IsConst(y, &b);
  const auto number = [&](int64_t value) {
    return Add({.code = Code::kConst, .dtype = alu.dtype, .imm = {value, 0, 0}});
  };
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  if (type == DType::kBool) {
    if (alu.op == Op::kAnd) {
      if (left) return a != 0 ? y : x;
      if (right) return b != 0 ? x : y;
    }
    if (alu.op == Op::kOr) {
      if (left) return a != 0 ? x : y;
      if (right) return b != 0 ? y : x;
    }
    return -1;
  }
  switch (alu.op) {
    case Op::kAdd:
      if (left && right) return number(static_cast<int64_t>(ua + ub));
      if (left && a == 0) return y;
      if (right && b == 0) return x;
      return -1;
    case Op::kMul:
      if (left && right) return number(static_cast<int64_t>(ua * ub));
      if ((left && a == 0) || (right && b == 1)) return x;
      if ((right && b == 0) || (left && a == 1)) return y;
      return -1;
    case Op::kIDiv:
      if (right && b == 1) return x;
      return left && right && b > 0 ? number(a / b) : -1;
    case Op::kMod:
      if (right && b == 1) return number(0);
      return left && right && b > 0 ? number(a % b) : -1;
    case Op::kCmpLt: return left && right ? number(a < b) : -1;
    case Op::kCmpEq: return left && right ? number(a == b) : -1;
    case Op::kCmpNe: return left && right ? number(a != b) : -1;
    default: return -1;
  }
}

// A vector of constants, where all of its sources are such.
ValueId ProgramBuilder::FoldedLanes(const Instruction& alu) {
  const auto lane_of = [&](ValueId vector, int lane) {
    const Instruction& i = at(vector);
    return i.code == Code::kLanes ? i.src[i.src.size() == 1 ? 0 : lane] : -1;
  };
  for (const ValueId s : alu.src)
    for (int lane = 0; lane < alu.lanes; ++lane)
      if (lane_of(s, lane) < 0 || at(lane_of(s, lane)).code != Code::kConst) return -1;
  Instruction vector{.code = Code::kLanes, .dtype = alu.dtype, .lanes = alu.lanes};
  for (int lane = 0; lane < alu.lanes; ++lane) {
    Instruction one = alu;
    one.lanes = 1;
    for (ValueId& s : one.src) s = lane_of(s, lane);
    const ValueId number = Folded(one);
    if (number < 0) return -1;
    vector.src.push_back(number);
  }
  if (std::all_of(vector.src.begin(), vector.src.end(),
                  [&](ValueId s) { return s == vector.src[0]; }))
    vector.src.resize(1);
  return Add(std::move(vector));
}

bool ProgramBuilder::IsReadOnly(ValueId memory) const {
  const Instruction& i = program_.code[memory];
  return i.code == Code::kBuffer && i.imm[0] < static_cast<int64_t>(read_only_.size()) &&
         read_only_[i.imm[0]];
}

ValueId ProgramBuilder::Add(Instruction instruction) {
  if (instruction.code == Code::kAlu)
    if (const ValueId folded = Folded(instruction); folded >= 0) return folded;
  const bool own = instruction.code == Code::kLoad && IsPrivate(instruction.src[0]);
  const bool pure = IsPure(instruction.code) || own ||
                    (instruction.code == Code::kLoad && IsReadOnly(instruction.src[0]));
  const auto number = static_cast<ValueId>(program_.code.size());
  if (pure) {
    const auto [it, is_new] = known_.try_emplace(instruction, number);
    if (!is_new) return it->second;
    if (!scopes_.empty()) scopes_.back().push_back(instruction);
    if (own) own_loads_.push_back(instruction);
  }
  // Inside a loop a later step's store may come before a load of the next one.
  if (instruction.code == Code::kLoop) Forget(-1);
  if (instruction.code == Code::kStore) Forget(instruction.src[0]);
  for (const ValueId memory : ChangedMemories(instruction)) Forget(memory);
  if (instruction.code == Code::kLoop || instruction.code == Code::kIf) scopes_.emplace_back();
  if (instruction.code == Code::kEnd || instruction.code == Code::kEndIf) Close();
  program_.code.push_back(std::move(instruction));
  return number;
}

bool ProgramBuilder::IsPrivate(ValueId memory) const {
  const Instruction& i = program_.code[memory];
  return i.code == Code::kAlloc && i.imm[0] == static_cast<int64_t>(Space::kPrivate);
}

void ProgramBuilder::Forget(ValueId memory) {
  std::erase_if(own_loads_, [&](const Instruction& load) {
    if (memory >= 0 && load.src[0] != memory) return false;
    known_.erase(load);
    return true;
  });
}

void ProgramBuilder::Close() {
  OB_CHECK(!scopes_.empty());
  for (const Instruction& i : scopes_.back()) known_.erase(i);
  scopes_.pop_back();
}

ValueId ProgramBuilder::Const(DType dtype, double value) {
  const int64_t bits = IsFloat(dtype) ? std::bit_cast<int64_t>(value) : static_cast<int64_t>(value);
  return Add({.code = Code::kConst, .dtype = dtype, .imm = {bits, 0, 0}});
}

ValueId ProgramBuilder::Int(int64_t value) {
  return Add({.code = Code::kConst, .dtype = DType::kI64, .imm = {value, 0, 0}});
}

ValueId ProgramBuilder::Alu(Op op, DType dtype, std::initializer_list<ValueId> src) {
  return Add(
      {.code = Code::kAlu, .op = op, .dtype = dtype, .lanes = at(*src.begin()).lanes, .src = src});
}

ValueId ProgramBuilder::Cast(ValueId x, DType dtype) {
  if (at(x).dtype == dtype) return x;
  return Add({.code = Code::kCast, .dtype = dtype, .lanes = at(x).lanes, .src = {x}});
}

ValueId ProgramBuilder::Splat(ValueId x, int lanes) {
  if (at(x).lanes == lanes) return x;
  return Add({.code = Code::kLanes, .dtype = at(x).dtype, .lanes = lanes, .src = {x}});
}

ValueId ProgramBuilder::Special(Grid axis, int64_t extent) {
  return Add({.code = Code::kSpecial,
              .dtype = DType::kI64,
              .imm = {static_cast<int64_t>(axis), extent, 0}});
}

ValueId ProgramBuilder::Buffer(DType dtype, int64_t slot, int64_t elements) {
  return Add({.code = Code::kBuffer, .dtype = dtype, .lanes = 0, .imm = {slot, elements, 0}});
}

ValueId ProgramBuilder::Alloc(Space space, DType dtype, int64_t elements) {
  return Add({.code = Code::kAlloc,
              .dtype = dtype,
              .lanes = 0,
              .imm = {static_cast<int64_t>(space), elements, 0}});
}

ValueId ProgramBuilder::Load(ValueId memory, ValueId index) {
  return Add({.code = Code::kLoad, .dtype = at(memory).dtype, .src = {memory, index}});
}

void ProgramBuilder::Store(ValueId memory, ValueId index, ValueId value) {
  Add({.code = Code::kStore, .lanes = at(value).lanes, .src = {memory, index, value}});
}

ValueId ProgramBuilder::Loop(int64_t extent, How how, int64_t lanes, ValueId limit) {
  Instruction loop{
      .code = Code::kLoop, .dtype = DType::kI64, .imm = {extent, static_cast<int64_t>(how), lanes}};
  if (limit >= 0) loop.src = {limit};
  return Add(std::move(loop));
}

void ProgramBuilder::End(ValueId loop) { Add({.code = Code::kEnd, .src = {loop}}); }
ValueId ProgramBuilder::If(ValueId condition) {
  return Add({.code = Code::kIf, .src = {condition}});
}
ValueId ProgramBuilder::IfRarely(ValueId condition) {
  return Add({.code = Code::kIf, .src = {condition}, .imm = {1, 0, 0}});
}
void ProgramBuilder::EndIf(ValueId branch) { Add({.code = Code::kEndIf, .src = {branch}}); }
void ProgramBuilder::Barrier() { Add({.code = Code::kBarrier}); }

ValueId ProgramBuilder::Map(ValueId buffer, MappedTensor map) {
  const auto number = static_cast<int64_t>(program_.maps.size());
  program_.maps.push_back(std::move(map));
  return Add({.code = Code::kMap,
              .dtype = at(buffer).dtype,
              .lanes = 0,
              .src = {buffer},
              .imm = {number, 0, 0}});
}

Program ProgramBuilder::Take(int buffer_count) {
  OB_CHECK(scopes_.empty());
  program_.buffer_count = buffer_count;
  return std::move(program_);
}

}  // namespace outboard::program
