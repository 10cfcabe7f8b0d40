// Private memory: a register for each element.
//
// What is loaded is the element's register itself where it stays as it is until the value was used
// for the last time; else it is copied.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;

namespace {

const char* MoveOf(Width width) {
  return width == Width::kPred ? "mov.pred" : width == Width::k64 ? "mov.b64" : "mov.b32";
}

// Whether a value may be its source's register, or be computed anew from its sources where it is
// used (a product that a sum takes in, the constant of an index). Arithmetic of floats is not.
bool PassesOn(const program::Instruction& i) {
  if (i.code == Code::kMma || i.code == Code::kShuffle) return false;
  return i.code != Code::kAlu || !IsFloat(i.dtype) || i.op == Op::kMul || i.op == Op::kWhere;
}

}  // namespace

void PtxPrinter::FindChanges() {
  const auto count = static_cast<ValueId>(program_.code.size());
  std::vector<ValueId> ends(program_.code.size(), -1);  // of loops
  for (ValueId n = 0; n < count; ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd) ends[static_cast<size_t>(i.src[0])] = n;
    for (const ValueId memory : program::ChangedMemories(i))
      changes_[memory].push_back({n, 0, INT64_MAX});
    if (i.code != Code::kStore || at(i.src[0]).code != Code::kAlloc) continue;
    const Instruction& index = at(i.src[1]);
    Change change{n, 0, INT64_MAX};
    if (index.code == Code::kConst && index.lanes == 1)
      change = {n, index.imm[0], index.imm[0] + at(i.src[2]).lanes - 1};
    changes_[i.src[0]].push_back(change);
  }
  last_uses_.assign(program_.code.size(), -1);
  std::vector<ValueId> open;  // loops around an instruction
  for (ValueId n = count - 1; n >= 0; --n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd) open.push_back(i.src[0]);
    if (i.code == Code::kLoop) open.pop_back();
    const ValueId own = PassesOn(i) ? std::max(n, last_uses_[static_cast<size_t>(n)]) : n;
    for (const ValueId source : i.src) {
      // What a loop uses it uses in its last pass, too.
      ValueId last = own;
      for (const ValueId loop : open) {
        if (loop <= source) continue;
        last = std::max(last, ends[static_cast<size_t>(loop)]);
        break;
      }
      ValueId& known = last_uses_[static_cast<size_t>(source)];
      known = std::max(known, last);
    }
  }
}

bool PtxPrinter::StaysUntilUsed(ValueId load, int64_t element) const {
  const auto found = changes_.find(at(load).src[0]);
  if (found == changes_.end()) return true;
  const std::vector<Change>& changes = found->second;
  const ValueId last = last_uses_[static_cast<size_t>(load)];
  for (auto change = std::ranges::upper_bound(changes, load, {}, &Change::at);
       change != changes.end() && change->at <= last; ++change) {
    // A change that is the last use itself has read before it writes, if it is of one element.
    if (change->at == last && change->first == change->last) continue;
    if (change->first <= element && element <= change->last) return false;
  }
  return true;
}

PtxPrinter::Values PtxPrinter::LoadPrivate(ValueId n) {
  const Instruction& i = at(n);
  const Elements& elements = privates_.at(i.src[0]);
  const auto count = static_cast<int64_t>(elements.size());
  Values out;
  for (int lane = 0; lane < i.lanes; ++lane) {
    const Operand index = Index(i.src[1], lane);
    Operand value;
    if (index.IsConstant()) {
      // A lane that is off may be beyond the end.
      const auto element = static_cast<int64_t>(index.bits);
      const bool inside = element >= 0 && element < count;
      const Operand held =
          inside ? elements[static_cast<size_t>(element)] : Const(i.dtype, 0);
      value = i.src.size() == 4 ? Select(Lane(i.src[2], lane), held, Lane(i.src[3], lane)) : held;
      if (inside && value == held && !StaysUntilUsed(n, element))
        value = text_.Value(MoveOf(value.width), value.width, {value});
    } else {
      value = elements[0];
      for (int64_t k = 1; k < count; ++k)
        value = Select(IsElement(index, k), elements[static_cast<size_t>(k)], value);
      if (count == 1) value = text_.Value(MoveOf(value.width), value.width, {value});
      if (i.src.size() == 4) value = Select(Lane(i.src[2], lane), value, Lane(i.src[3], lane));
    }
    out.push_back(value);
  }
  return out;
}

void PtxPrinter::StorePrivate(ValueId n) {
  const Instruction& i = at(n);
  const Elements& elements = privates_.at(i.src[0]);
  for (int lane = 0; lane < at(i.src[2]).lanes; ++lane) {
    const Operand index = Index(i.src[1], lane), value = Lane(i.src[2], lane);
    const Operand mask = i.src.size() == 4 ? Lane(i.src[3], lane) : Integer(1, Width::kPred);
    for (int64_t k = 0; k < static_cast<int64_t>(elements.size()); ++k) {
      if (index.IsConstant() && static_cast<int64_t>(index.bits) != k) continue;
      const Operand here =
          index.IsConstant() ? mask : Logic(Op::kAnd, IsElement(index, k), mask);
      if (here.IsConstant() && here.bits == 0) continue;
      const Operand& element = elements[static_cast<size_t>(k)];
      text_.Set(MoveOf(element.width), element, {value},
                here.IsConstant() ? Operand() : here);
    }
  }
}

Operand PtxPrinter::IsElement(const Operand& index, int64_t element) {
  return text_.Value(index.width == Width::k64 ? "setp.eq.s64" : "setp.eq.s32", Width::kPred,
                     {index, Integer(element, index.width)});
}

}  // namespace outboard::render
