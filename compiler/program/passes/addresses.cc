// Indices in the form in which an address is computed: sums that begin with the terms of the
// outermost scope and end with a constant,
//
//   ((terms of the outermost scope + terms of the next) + ... terms of the innermost) + constant
//
// so that Hoist leaves the terms of a loop's own counter inside of it and nothing else, and so that
// accesses that differ by a constant, as the copies of an unrolled loop do, share all but their
// last addition. A printer adds each summand to a pointer where it is known. Equal sums are equal
// instructions: the terms of a scope are in the order of their atoms.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/forms.h"
#include "compiler/program/passes/placement.h"

namespace outboard::program {
namespace {

class AddressMaker : Copier {
 public:
  explicit AddressMaker(const Program& program)
      : Copier(program), forms_(program), placement_(program) {}
  using Copier::Take;

  void Run() {
    for (ValueId n = 0; n < size(); ++n) {
      const Instruction& i = at(n);
      Instruction out = WithNewSources(n);
      switch (i.code) {
        case Code::kCopy: out.src[3] = IndexOf(i.src[3]); [[fallthrough]];
        case Code::kLoad:
        case Code::kStore:
        case Code::kLdmatrix:
        case Code::kTileLoad:
        case Code::kTileStore: out.src[1] = IndexOf(i.src[1]); break;
        default: break;
      }
      made_[n] = b_.Add(std::move(out));
    }
  }

 private:
  ValueId IndexOf(ValueId n) {
    const Instruction& i = at(n);
    if (i.lanes == 1) return Rebuilt(n);
    // A scalar in all lanes, plus what differs.
    if (i.code != Code::kAlu || i.op != Op::kAdd || forms_.IsOpaque(n)) return made_[n];
    const Instruction& all = at(i.src[0]);
    if (all.code != Code::kLanes || all.src.size() != 1) return made_[n];
    return b_.Alu(Op::kAdd, DType::kI64, {b_.Splat(Rebuilt(all.src[0]), i.lanes), made_[i.src[1]]});
  }

  ValueId Rebuilt(ValueId n) {
    Form form = forms_.Of(n);
    if (form.terms.size() == 1 && form.terms[0].atom == n) return made_[n];
    // The terms of a scope lie side by side, in the order of their atoms.
    std::stable_sort(form.terms.begin(), form.terms.end(),
                     [&](const Form::Term& a, const Form::Term& b) {
                       return placement_.depth[a.atom] < placement_.depth[b.atom];
                     });
    ValueId sum = b_.Int(0);
    for (size_t first = 0, end = 0; first < form.terms.size(); first = end) {
      ValueId of_scope = b_.Int(0);
      const int depth = placement_.depth[form.terms[first].atom];
      for (; end < form.terms.size() && placement_.depth[form.terms[end].atom] == depth; ++end)
        of_scope = b_.Plus(of_scope, b_.Times(made_[form.terms[end].atom],
                                              static_cast<int64_t>(form.terms[end].factor)));
      sum = b_.Plus(sum, of_scope);
    }
    return b_.Plus(sum, b_.Int(static_cast<int64_t>(form.constant)));
  }

  const Forms forms_;
  const Placement placement_;
};

}  // namespace

Program AddressForm(const Program& program) {
  AddressMaker pass(program);
  pass.Run();
  return pass.Take();
}

}  // namespace outboard::program
