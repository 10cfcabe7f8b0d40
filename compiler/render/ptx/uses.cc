// Which values are used, and until where. What an instruction takes in of another one, which then
// is perhaps not printed: a sum its product, an address the constants of its index.
#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Precision;
using program::ValueId;

namespace {

// Whether a value may be printed as the register of one of its sources. Arithmetic of floats never
// is.
bool PassesOn(const program::Instruction& i) {
  if (i.code == Code::kMma || i.code == Code::kShuffle) return false;
  return i.code != Code::kAlu || !IsFloat(i.dtype) || i.op == Op::kWhere;
}

// Which sources of an instruction are indices that become part of an address; each comes behind its
// memory.
struct IndexOperands {
  int count = 0;
  int places[2] = {};
  bool swizzled = false;
};
IndexOperands IndexOperandsOf(const program::Instruction& i) {
  switch (i.code) {
    case Code::kStore: return {1, {1}, i.imm[0] != 0};
    case Code::kLdmatrix: return {1, {1}, i.imm[0] == 2};
    case Code::kCopy:
      if (i.imm[2] != 0) return {1, {1}, true};
      return {2, {1, 3}};
    case Code::kLoad:
    case Code::kMbInit:
    case Code::kMbExpect:
    case Code::kMbArrive:
    case Code::kMbWait:
    case Code::kBoxStore:
    case Code::kClusterLoad: return {1, {1}};
    case Code::kBoxLoad: return {2, {1, 3}};
    case Code::kWgmma: return {2, {2, 4}};
    default: return {};
  }
}

constexpr ValueId kOutside = -1;  // of all scopes

// Which loop or branch each of them stands in.
class ScopeTree {
 public:
  explicit ScopeTree(const program::Program& program) : parents_(program.code.size(), kOutside) {
    std::vector<ValueId> open = {kOutside};
    for (size_t n = 0; n < program.code.size(); ++n) {
      const Code code = program.code[n].code;
      if (code == Code::kEnd || code == Code::kEndIf) open.pop_back();
      if (code != Code::kLoop && code != Code::kIf) continue;
      parents_[n] = open.back();
      open.push_back(static_cast<ValueId>(n));
    }
  }

  ValueId Parent(ValueId scope) const { return parents_[static_cast<size_t>(scope)]; }
  // The innermost scope around both.
  ValueId Common(ValueId a, ValueId b) const {
    // What begins later is further in, or in another scope.
    while (a != b) (a > b ? a : b) = Parent(std::max(a, b));
    return a;
  }
  // The innermost scope around `scope`, up to `outer`, with no loop between it and `outer`.
  ValueId OutsideOfLoops(ValueId scope, ValueId outer, const program::Program& program) const {
    for (ValueId around = scope; around != outer; around = Parent(around))
      if (program.code[static_cast<size_t>(around)].code == Code::kLoop) scope = Parent(around);
    return scope;
  }

 private:
  std::vector<ValueId> parents_;
};

// Where a value is printed: at its own instruction, at the begin of a branch, or behind a loop; and
// the scope of that.
struct Place {
  ValueId at = 0, scope = kOutside;
};

// Where values are printed, by where they are used. A value that only a branch uses is printed in
// it: who leaves the branch out does not compute it. One that is used first behind a loop is
// printed there: it takes no register while the loop runs.
class Places {
 public:
  explicit Places(size_t count)
      : used_in_(count, kNowhere), first_uses_(count, static_cast<ValueId>(count)) {}

  void AddLoop(ValueId scope, ValueId behind) { loops_in_[scope].push_back(behind); }
  void AddUse(ValueId value, const Place& place, const ScopeTree& tree) {
    const auto v = static_cast<size_t>(value);
    first_uses_[v] = std::min(first_uses_[v], place.at);
    used_in_[v] = used_in_[v] == kNowhere ? place.scope : tree.Common(used_in_[v], place.scope);
  }
  // Of a used value that stands in `scope`.
  Place Of(ValueId n, ValueId scope, const ScopeTree& tree, const program::Program& program) {
    const ValueId branch = tree.OutsideOfLoops(used_in_[static_cast<size_t>(n)], scope, program);
    if (branch != scope) return {branch, branch};
    for (const ValueId behind : loops_in_[scope])
      if (behind <= first_uses_[static_cast<size_t>(n)]) return {behind, scope};
    return {n, scope};
  }

 private:
  static constexpr ValueId kNowhere = -2;
  std::vector<ValueId> used_in_;     // the innermost scope around all uses
  std::vector<ValueId> first_uses_;  // where they are printed
  // Where values are printed behind loops, by the scope that these stand in; the last one first.
  absl::flat_hash_map<ValueId, std::vector<ValueId>> loops_in_;
};

// Where values are printed that are used behind a loop alone: at its end, or, where the last
// products of warpgroups are awaited there, behind them. The assembler may run products one by one
// (C7514) where there is arithmetic between the loop and that wait.
ValueId BehindLoop(const program::Program& program, ValueId end) {
  const auto next = static_cast<size_t>(end) + 1;
  const bool awaits = next < program.code.size() && program.code[next].code == Code::kWgWait;
  return awaits ? end + 1 : end;
}

}  // namespace

PtxPrinter::ValueId PtxPrinter::ProductIn(ValueId sum) const {
  const Instruction& i = at(sum);
  if (i.code != Code::kAlu || i.op != Op::kAdd ||
      i.imm[0] != static_cast<int64_t>(Precision::kWithProduct) ||
      (i.dtype != DType::kF32 && i.dtype != DType::kF64))
    return -1;
  for (const ValueId source : i.src)
    if (at(source).code == Code::kAlu && at(source).op == Op::kMul) return source;
  return -1;
}

PtxPrinter::ValueId PtxPrinter::RangeIn(ValueId both) const {
  const Instruction& i = at(both);
  if (i.code != Code::kAlu || i.op != Op::kAnd || !IsBool(i.dtype)) return -1;
  const auto is_below = [&](ValueId n) {
    return at(n).code == Code::kAlu && at(n).op == Op::kCmpLt && IsComputedSmall(n);
  };
  if (!is_below(i.src[0]) || !is_below(i.src[1])) return -1;
  for (size_t k = 0; k < 2; ++k) {
    const Instruction &least = at(i.src[k]), &most = at(i.src[1 - k]);
    const ValueBounds& below = bounds_[static_cast<size_t>(least.src[0])];
    if (least.src[1] == most.src[0] && below.min == -1 && below.max == -1 &&
        bounds_[static_cast<size_t>(most.src[1])].min >= 0)
      return i.src[1 - k];
  }
  return -1;
}

PtxPrinter::ClampParts PtxPrinter::ClampIn(ValueId where) const {
  const Instruction& i = at(where);
  if (i.code != Code::kAlu || i.op != Op::kWhere || i.dtype != DType::kF32) return {};
  const Instruction &compare = at(i.src[0]), &limit = at(i.src[1]);
  const Instruction& constant = limit.code == Code::kLanes ? at(limit.src[0]) : limit;
  const bool is_all = limit.code == Code::kConst || limit.src.size() == 1;
  if (compare.code != Code::kAlu || compare.op != Op::kCmpLt || compare.lanes != i.lanes ||
      constant.code != Code::kConst || !is_all ||
      !(std::abs(std::bit_cast<double>(constant.imm[0])) > 0))
    return {};
  const std::pair of(compare.src[0], compare.src[1]);
  if (of == std::pair(i.src[2], i.src[1])) return {i.src[2], i.src[1], true};
  if (of == std::pair(i.src[1], i.src[2])) return {i.src[2], i.src[1], false};
  return {};
}

bool PtxPrinter::IsDecided(ValueId n) const {
  const ValueBounds& bounds = bounds_[static_cast<size_t>(n)];
  return at(n).code == Code::kAlu && IsBool(at(n).dtype) && bounds.min == bounds.max;
}

std::pair<PtxPrinter::ValueId, int64_t> PtxPrinter::BelowConstant(ValueId n) const {
  constexpr std::pair<ValueId, int64_t> kNone{-1, 0};
  const Instruction& i = at(n);
  if (i.code != Code::kAlu || i.op != Op::kCmpLt || i.lanes != 1 ||
      at(i.src[1]).code != Code::kConst || !IsComputedSmall(n))
    return kNone;
  const auto [number, added] = WithoutConstants(i.src[0]);
  const int64_t limit = at(i.src[1]).imm[0] - added;
  const bool fits = limit >= INT32_MIN && limit <= INT32_MAX;
  return number != i.src[0] && IsSmall(number) && fits ? std::pair(number, limit) : kNone;
}

absl::InlinedVector<PtxPrinter::ValueId, 4> PtxPrinter::SourcesOf(ValueId n) const {
  const Instruction& i = at(n);
  if (const ValueId product = ProductIn(n); product >= 0)
    return {at(product).src[0], at(product).src[1], i.src[i.src[0] == product ? 1 : 0]};
  if (const ValueId range = RangeIn(n); range >= 0) return at(range).src;
  if (const ClampParts clamp = ClampIn(n); clamp.number >= 0) return {clamp.number, clamp.limit};
  if (IsWarpgroup(n) || IsDecided(n)) return {};
  if (const ValueId number = BelowConstant(n).first; number >= 0) return {number};
  absl::InlinedVector<ValueId, 4> sources = i.src;
  const IndexOperands indices = IndexOperandsOf(i);
  for (int k = 0; k < indices.count; ++k) {
    const auto place = static_cast<size_t>(indices.places[k]);
    const ValueId memory = i.src[place - 1], index = i.src[place];
    if (at(index).lanes > 1 || IsPrivate(memory)) continue;
    if (!indices.swizzled) {
      sources[place] = WithoutConstants(index).first;
      continue;
    }
    const SwizzledParts parts = PartsOf(index, ByteWidth(at(memory).dtype));
    sources[place] = memory;
    for (const auto* list : {&parts.whole, &parts.rows, &parts.pieces})
      sources.insert(sources.end(), list->begin(), list->end());
  }
  return sources;
}

// From the last instruction to the first one, so that all uses of a value are known when it is
// reached: first where it is printed, then from where to where that uses its sources.
void PtxPrinter::FindUses() {
  const auto count = static_cast<ValueId>(program_.code.size());
  last_uses_.assign(program_.code.size(), -1);
  const ScopeTree tree(program_);
  Places places(program_.code.size());
  std::vector<ValueId> scopes = {kOutside};
  std::vector<ValueId> open, ends;  // loops around an instruction, the outermost first
  for (auto n = count - 1; n >= 0; --n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd || i.code == Code::kEndIf) scopes.push_back(i.src[0]);
    if (i.code == Code::kLoop || i.code == Code::kIf) scopes.pop_back();
    if (i.code == Code::kEnd) {
      if (at(i.src[0]).imm[0] != 1) places.AddLoop(tree.Parent(i.src[0]), BehindLoop(program_, n));
      open.push_back(i.src[0]);
      ends.push_back(n);
    } else if (i.code == Code::kLoop) {
      open.pop_back();
      ends.pop_back();
    }
    if (!IsUsed(n)) continue;
    const bool moves = program::IsPure(i.code) && i.code != Code::kBuffer && i.code != Code::kMap;
    const Place place =
        moves ? places.Of(n, scopes.back(), tree, program_) : Place{n, scopes.back()};
    if (place.at != n) moved_to_[place.at].push_back(n);
    const ValueId own =
        PassesOn(i) ? std::max(place.at, last_uses_[static_cast<size_t>(n)]) : place.at;
    for (const ValueId source : SourcesOf(n)) {
      // What a loop uses it uses in its last pass, too.
      const auto loop = std::ranges::upper_bound(open, source);
      const ValueId last =
          loop == open.end() ? own : std::max(own, ends[static_cast<size_t>(loop - open.begin())]);
      ValueId& known = last_uses_[static_cast<size_t>(source)];
      known = std::max(known, last);
      places.AddUse(source, place, tree);
    }
  }
  for (auto& [place, values] : moved_to_) {
    std::ranges::reverse(values);
    for (const ValueId value : values) is_moved_[static_cast<size_t>(value)] = true;
  }
}

bool PtxPrinter::IsUsed(ValueId n) const {
  return !program::IsPure(at(n).code) || last_uses_[static_cast<size_t>(n)] >= 0;
}

}  // namespace outboard::render
