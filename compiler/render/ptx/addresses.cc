// Addresses of elements, put together from outer loops to inner ones: what a loop does not change
// of an address is one value in it, to which what changes is added.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "compiler/program/passes/accesses.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::ValueId;

int PtxPrinter::LoopsAround(ValueId value) const {
  return static_cast<int>(std::ranges::count_if(loops_, [&](ValueId loop) {
    return loop <= value && (at(loop).imm[0] != 1 || !at(loop).src.empty());
  }));
}

std::vector<PtxPrinter::ValueId> PtxPrinter::TermsOf(ValueId index, SumsOf sums) const {
  std::vector<ValueId> terms, open = {index};
  const int inner = LoopsAround(index);
  for (int steps = 0; !open.empty(); ++steps) {
    if (steps == kTermStepsMax) return {index};
    const ValueId term = open.back();
    open.pop_back();
    const Instruction& i = at(term);
    const bool is_sum = i.code == Code::kAlu && i.op == Op::kAdd;
    if (is_sum && (sums == SumsOf::kAllLoops || LoopsAround(term) == inner)) {
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
  // only take registers, and a pointer takes two.
  if (at(memory).code != Code::kBuffer || is_short_of_registers_) return at_once();
  std::vector<ValueId> terms = TermsOf(index, SumsOf::kInnermostLoop);
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

namespace {

// IFs of one scope that follow each other with nothing but pure instructions between them, and what
// is loaded and stored inside of them.
struct Neighbours {
  struct Wanted {
    ValueId first = 0, last = 0;    // IFs
    std::vector<ValueId> accesses;  // LOADs and STOREs
  };
  ValueId branch = -1;  // the one that is open around the scope
  absl::btree_map<std::pair<ValueId, ValueId>, Wanted> wanted;  // by memory and index
};

}  // namespace

// As the ends of products have them: a branch for each sum that may lie beyond the result.
void PtxPrinter::FindSharedAddresses() {
  const auto count = static_cast<ValueId>(program_.code.size());
  // A loop in a branch keeps out of its registers what it does not need.
  const std::vector<bool> of_accesses = program::BranchesOfAccesses(program_);
  std::vector<Neighbours> scopes(1);
  const auto close = [&](Neighbours& scope) {
    for (auto& [key, wanted] : scope.wanted) {
      if (wanted.first == wanted.last) continue;
      std::vector<ValueId>& before = shared_addresses_[wanted.first];
      before.insert(before.end(), wanted.accesses.begin(), wanted.accesses.end());
    }
    scope.wanted.clear();
  };
  for (ValueId n = 0; n < count; ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kEnd || i.code == Code::kEndIf) {
      close(scopes.back());
      scopes.pop_back();
    }
    const bool opens = i.code == Code::kIf || i.code == Code::kLoop;
    const bool is_access = i.code == Code::kLoad || i.code == Code::kStore;
    if (opens ? !of_accesses[static_cast<size_t>(n)]
              : !is_access && !program::IsPure(i.code) && i.code != Code::kEndIf)
      close(scopes.back());
    if (opens) scopes.push_back({.branch = n, .wanted = {}});
    if (!is_access || !IsUsed(n) || at(i.src[0]).code != Code::kBuffer || at(i.src[1]).lanes > 1)
      continue;
    const std::pair key(i.src[0], WithoutConstants(i.src[1]).first);
    for (size_t depth = scopes.size() - 1; depth > 0; --depth) {
      const ValueId branch = scopes[depth].branch;
      if (!of_accesses[static_cast<size_t>(branch)]) break;
      Neighbours::Wanted& wanted = scopes[depth - 1].wanted[key];
      if (wanted.accesses.empty()) wanted.first = branch;
      wanted.last = branch;
      wanted.accesses.push_back(n);
    }
  }
  close(scopes.back());
}

// An index that several of them use is printed before the first one (Places).
void PtxPrinter::ShareAddresses(ValueId branch) {
  const auto accesses = shared_addresses_.find(branch);
  if (accesses == shared_addresses_.end()) return;
  for (const ValueId access : accesses->second) AddressOf(at(access).src[0], at(access).src[1]);
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
