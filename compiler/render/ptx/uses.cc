// Which values are used, and until where. What an instruction takes in of another one, which then
// is perhaps not printed: a sum its product, an address the constants of its index.
#include <algorithm>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Rounding;

namespace {

// Whether a value may be a register of its source's. Arithmetic of floats is not.
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
    case Code::kBarrierInit:
    case Code::kBarrierExpect:
    case Code::kBarrierArrive:
    case Code::kBarrierWait:
    case Code::kBoxStore:
    case Code::kClusterLoad: return {1, {1}};
    case Code::kBoxLoad: return {2, {1, 3}};
    case Code::kGroupMma: return {2, {2, 4}};
    default: return {};
  }
}

}  // namespace

PtxPrinter::ValueId PtxPrinter::ProductIn(ValueId sum) const {
  const Instruction& i = at(sum);
  if (i.code != Code::kAlu || i.op != Op::kAdd ||
      i.imm[0] != static_cast<int64_t>(Rounding::kWithProduct) ||
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

std::pair<PtxPrinter::ValueId, int64_t> PtxPrinter::WithoutConstants(ValueId index) const {
  int64_t sum = 0;
  while (at(index).code == Code::kAlu && at(index).op == Op::kAdd &&
         at(at(index).src[1]).code == Code::kConst) {
    sum += at(at(index).src[1]).imm[0];
    index = at(index).src[0];
  }
  return {index, sum};
}

absl::InlinedVector<PtxPrinter::ValueId, 4> PtxPrinter::SourcesOf(ValueId n) const {
  const Instruction& i = at(n);
  if (const ValueId product = ProductIn(n); product >= 0)
    return {at(product).src[0], at(product).src[1], i.src[i.src[0] == product ? 1 : 0]};
  if (const ValueId range = RangeIn(n); range >= 0) return at(range).src;
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

// A value that only a branch uses is printed in it: who leaves the branch out does not compute it.
// One that is used first behind a loop is printed there: it takes no register while the loop runs.
void PtxPrinter::FindUses() {
  const auto count = static_cast<ValueId>(program_.code.size());
  last_uses_.assign(program_.code.size(), -1);
  std::vector<ValueId> parents(program_.code.size(), kOutside);  // of loops and branches
  std::vector<ValueId> scopes = {kOutside};
  for (ValueId n = 0; n < count; ++n) {
    const Code code = at(n).code;
    if (code == Code::kEnd || code == Code::kEndIf) scopes.pop_back();
    if (code != Code::kLoop && code != Code::kIf) continue;
    parents[static_cast<size_t>(n)] = scopes.back();
    scopes.push_back(n);
  }
  const auto parent = [&](ValueId scope) { return parents[static_cast<size_t>(scope)]; };
  constexpr ValueId kNowhere = -2;
  std::vector<ValueId> used_in(program_.code.size(), kNowhere);  // the scope around all uses
  std::vector<ValueId> first_uses(program_.code.size(), count);  // where they are printed
  absl::flat_hash_map<ValueId, std::vector<ValueId>> loops_in;   // their ends by scope, last first
  // The end of the last loop of that scope that comes between a value and its first use; -1: none.
  const auto loop_before_use = [&](ValueId n, ValueId scope) {
    for (const ValueId end : loops_in[scope])
      if (end <= first_uses[static_cast<size_t>(n)]) return end;
    return ValueId{-1};
  };
  std::vector<ValueId> open, ends;  // loops around an instruction, the outermost first
  for (auto n = count - 1; n >= 0; --n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd || i.code == Code::kEndIf) scopes.push_back(i.src[0]);
    if (i.code == Code::kLoop || i.code == Code::kIf) scopes.pop_back();
    if (i.code == Code::kEnd) {
      if (at(i.src[0]).imm[0] != 1) loops_in[parent(i.src[0])].push_back(n);
      open.push_back(i.src[0]);
      ends.push_back(n);
    } else if (i.code == Code::kLoop) {
      open.pop_back();
      ends.pop_back();
    }
    if (!IsUsed(n)) continue;
    ValueId scope = scopes.back(), place = n;
    if (program::IsPure(i.code) && i.code != Code::kBuffer && i.code != Code::kMap) {
      // Into branches, but into no loop.
      ValueId inner = used_in[static_cast<size_t>(n)];
      for (ValueId around = inner; around != scope; around = parent(around))
        if (at(around).code == Code::kLoop) inner = parent(around);
      if (inner != scope) {
        scope = place = inner;
        moved_to_[place].push_back(n);
      } else if (const ValueId end = loop_before_use(n, scope); end >= 0) {
        place = end;
        moved_to_[place].push_back(n);
      }
    }
    const ValueId own = PassesOn(i) ? std::max(place, last_uses_[static_cast<size_t>(n)]) : place;
    for (const ValueId source : SourcesOf(n)) {
      // What a loop uses it uses in its last pass, too.
      const auto loop = std::ranges::upper_bound(open, source);
      const ValueId last =
          loop == open.end() ? own : std::max(own, ends[static_cast<size_t>(loop - open.begin())]);
      ValueId& known = last_uses_[static_cast<size_t>(source)];
      known = std::max(known, last);
      ValueId& first = first_uses[static_cast<size_t>(source)];
      first = std::min(first, place);
      ValueId& around = used_in[static_cast<size_t>(source)];
      if (around == kNowhere) around = scope;
      for (ValueId other = scope; around != other;)
        (around > other ? around : other) = parent(std::max(around, other));
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
