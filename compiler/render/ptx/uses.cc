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
  absl::InlinedVector<ValueId, 4> sources = i.src;
  if ((i.code == Code::kLoad || i.code == Code::kStore) && at(i.src[1]).lanes == 1 &&
      !IsPrivate(i.src[0]) && !(i.code == Code::kStore && i.imm[0] != 0))
    sources[1] = WithoutConstants(i.src[1]).first;
  return sources;
}

void PtxPrinter::FindUses() {
  last_uses_.assign(program_.code.size(), -1);
  std::vector<ValueId> open, ends;  // loops around an instruction, the outermost first
  for (auto n = static_cast<ValueId>(program_.code.size()) - 1; n >= 0; --n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd) {
      open.push_back(i.src[0]);
      ends.push_back(n);
    } else if (i.code == Code::kLoop) {
      open.pop_back();
      ends.pop_back();
    }
    if (!IsUsed(n)) continue;
    const ValueId own = PassesOn(i) ? std::max(n, last_uses_[static_cast<size_t>(n)]) : n;
    for (const ValueId source : SourcesOf(n)) {
      // What a loop uses it uses in its last pass, too.
      const auto loop = std::ranges::upper_bound(open, source);
      const ValueId last =
          loop == open.end() ? own : std::max(own, ends[static_cast<size_t>(loop - open.begin())]);
      ValueId& known = last_uses_[static_cast<size_t>(source)];
      known = std::max(known, last);
    }
  }
}

bool PtxPrinter::IsUsed(ValueId n) const {
  return !program::IsPure(at(n).code) || last_uses_[static_cast<size_t>(n)] >= 0;
}

}  // namespace outboard::render
