// Addresses of elements, put together from outer loops to inner ones: what a loop does not change
// of an address is one value in it, to which what changes is added.
#include <algorithm>
#include <vector>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;

int PtxPrinter::LoopsAround(ValueId value) const {
  return static_cast<int>(std::ranges::count_if(loops_, [&](ValueId loop) {
    return loop <= value && (at(loop).imm[0] != 1 || !at(loop).src.empty());
  }));
}

// What is added to make `index`, as far as the innermost loop computes it: `index` alone where that
// takes more than kTermStepsMax steps.
std::vector<PtxPrinter::ValueId> PtxPrinter::TermsOf(ValueId index) const {
  std::vector<ValueId> terms, open = {index};
  const int inner = LoopsAround(index);
  for (int steps = 0; !open.empty(); ++steps) {
    if (steps == kTermStepsMax) return {index};
    const ValueId term = open.back();
    open.pop_back();
    const Instruction& i = at(term);
    if (i.code == Code::kAlu && i.op == Op::kAdd && LoopsAround(term) == inner) {
      open.insert(open.end(), i.src.begin(), i.src.end());
    } else {
      terms.push_back(term);
    }
  }
  std::ranges::sort(terms);
  return terms;
}

Address PtxPrinter::ElementAddress(ValueId memory, ValueId index) {
  const AddressKey key{memory, index, 0};
  if (const auto known = addresses_.find(key); known != addresses_.end()) return known->second;
  known_addresses_.push_back(key);
  const int64_t width = ByteWidth(at(memory).dtype);
  const auto found = [&](const Address& address) { return addresses_[key] = address; };
  const auto at_once = [&] {
    return found(Behind(BaseOf(memory), AsPrinted(index, 0), width, MayBeNegative(index)));
  };
  // In memory of the block one instruction adds a whole index: a value for each loop around would
  // only take registers.
  if (at(memory).code != Code::kBuffer) return at_once();
  std::vector<ValueId> terms = TermsOf(index);
  int64_t constant = 0;
  std::erase_if(terms, [&](ValueId term) {
    if (at(term).code != Code::kConst) return false;
    constant += at(term).imm[0];
    return true;
  });
  const int inner = LoopsAround(index);
  const auto first_inner =
      std::ranges::find_if(terms, [&](ValueId term) { return LoopsAround(term) == inner; });
  if (first_inner == terms.begin() || first_inner == terms.end()) return at_once();
  const auto count = static_cast<size_t>(first_inner - terms.begin());
  const absl::Span<const ValueId> all = terms;
  const TermSum before = SumOf(all.first(count)), after = SumOf(all.subspan(count));
  if (!before.fits || !after.fits) return at_once();
  const auto behind = [&](const Address& base, absl::Span<const ValueId> added, bool has_sign) {
    PtxOperand sum = Integer(0);
    for (const ValueId term : added) sum = Plus(sum, AsPrinted(term, 0));
    return Behind(base, sum, width, has_sign);
  };
  const Address outer = count == 1 ? ElementAddress(memory, terms.front())
                                   : behind(BaseOf(memory), all.first(count), before.is_signed);
  Address address = behind(outer, all.subspan(count), after.is_signed);
  address.offset += constant * width;
  return found(address);
}

// Sums of some of an index's terms must fit in a register as the whole does.
PtxPrinter::TermSum PtxPrinter::SumOf(absl::Span<const ValueId> terms) const {
  int64_t min = 0, max = 0;
  for (const ValueId term : terms) {
    if (!IsSmall(term)) return {};
    min += bounds_[static_cast<size_t>(term)].min;
    max += bounds_[static_cast<size_t>(term)].max;
  }
  return {min >= INT32_MIN && max <= INT32_MAX, min < 0};
}

// An instruction has room for 24 bits, with a sign. What is beyond is added before, as a multiple
// that accesses near each other share. No memory of the block is that large: its addresses lead
// there from outside, and wrap as 32 bits do.
Address PtxPrinter::NearAddress(ValueId memory, ValueId index, Address address) {
  constexpr int64_t kRoom = int64_t{1} << 23;
  if (address.offset >= -kRoom && address.offset < kRoom) return address;
  if (address.base.width == Width::k32)
    return {Plus(address.base, Integer(static_cast<int32_t>(address.offset))), 0};
  const int64_t far = (address.offset + kRoom / 2) & ~(kRoom - 1);
  const auto [known, is_new] = addresses_.try_emplace({memory, index, far});
  if (is_new) {
    known->second.base =
        text_.Value("add.s64", Width::k64, {InRegister(address.base), Integer(far, Width::k64)});
    known_addresses_.push_back({memory, index, far});
  }
  return {known->second.base, address.offset - far};
}

}  // namespace outboard::render
