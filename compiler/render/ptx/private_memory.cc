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

void PtxPrinter::FindChanges() {
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    for (const ValueId memory : program::ChangedMemories(i))
      changes_[memory].push_back({n, 0, INT64_MAX});
    if (i.code != Code::kStore || at(i.src[0]).code != Code::kAlloc) continue;
    const Instruction& index = at(i.src[1]);
    Change change{n, 0, INT64_MAX};
    if (index.code == Code::kConst && index.lanes == 1)
      change = {n, index.imm[0], index.imm[0] + at(i.src[2]).lanes - 1};
    changes_[i.src[0]].push_back(change);
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
    const PtxOperand index = Index(i.src[1], lane);
    PtxOperand value;
    if (index.IsConstant()) {
      // A lane that is off may be beyond the end.
      const auto element = static_cast<int64_t>(index.bits);
      const bool inside = element >= 0 && element < count;
      const PtxOperand held = inside ? elements[static_cast<size_t>(element)] : Const(i.dtype, 0);
      value = i.src.size() == 4 ? Select(Lane(i.src[2], lane), held, Lane(i.src[3], lane)) : held;
      if (inside && value == held && !StaysUntilUsed(n, element)) value = text_.Copied(value);
    } else {
      value = text_.Copied(elements[0]);
      const PtxOperand is_element = text_.New(Width::kPred);
      for (int64_t k = 1; k < count; ++k) {
        CompareIndex(is_element, index, k);
        text_.Move(value, elements[static_cast<size_t>(k)], is_element);
      }
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
    const PtxOperand index = Index(i.src[1], lane), value = Lane(i.src[2], lane);
    const PtxOperand mask = i.src.size() == 4 ? Lane(i.src[3], lane) : PtxOperand();
    if (mask.IsFalse()) continue;
    const PtxOperand guard = mask.IsConstant() ? PtxOperand() : mask;
    if (index.IsConstant()) {
      if (index.bits < elements.size()) text_.Move(elements[index.bits], value, guard);
      continue;
    }
    const PtxOperand is_element = text_.New(Width::kPred);
    for (size_t k = 0; k < elements.size(); ++k) {
      CompareIndex(is_element, index, static_cast<int64_t>(k));
      if (!guard.IsNone()) text_.Set("and.pred", is_element, {is_element, guard});
      text_.Move(elements[k], value, is_element);
    }
  }
}

void PtxPrinter::CompareIndex(const PtxOperand& predicate, const PtxOperand& index,
                              int64_t element) {
  text_.Set(index.width == Width::k64 ? "setp.eq.s64" : "setp.eq.s32", predicate,
            {index, Integer(element, index.width)});
}

}  // namespace outboard::render
