// Divisions by a constant, without the terms that are a multiple of it:
//
//   (32 m + r) / 32 = m + r / 32      (32 m + r) % 32 = r % 32      for sums and r that are >= 0
//
// and r / 32 = 0, r % 32 = r where r < 32. In what is left, a rest between multiples of a part of
// the divisor changes no quotient:
//
//   (4 m + r) / 32 = m / 8            (4 m + r) % 32 = m % 8 * 4 + r        for r < 4
//
// It is linear in the counters of the loops more often, so that Vectorize finds accesses to
// consecutive elements in it. Products by matrix units have no such accesses and no register to
// spare: there the last form stays as it is. Of 16 bits, sums with a constant that are divided are
// written in one way, also where nothing else becomes of them,
//
//   2 + r and 10 + r modulo 8 are 2 + r and r + 2
//
// so that offsets of a matrix in the block's memory that are equal are one value. (In kernels with
// products of f32, of which some spill, the assembler spills more then.)
#include <algorithm>
#include <numeric>

#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/forms.h"

namespace outboard::program {
namespace {

class Divider : Copier {
 public:
  explicit Divider(const Program& program)
      : Copier(program),
        forms_(program),
        looks_between_(std::none_of(
            program.code.begin(), program.code.end(),
            [](const Instruction& i) { return i.code == Code::kMma || IsHopper(i.code); })),
        writes_one_form_(std::any_of(program.code.begin(), program.code.end(),
                                     [&](const Instruction& i) {
                                       return i.code == Code::kMma &&
                                              ByteWidth(program.code[i.src[0]].dtype) == 2;
                                     })) {}
  using Copier::Take;

  void Run() {
    for (ValueId n = 0; n < size(); ++n) {
      const Instruction& i = at(n);
      const bool division = i.code == Code::kAlu && i.dtype == DType::kI64 && i.lanes == 1 &&
                            (i.op == Op::kIDiv || i.op == Op::kMod);
      if (!division || !Simplify(n)) Copy(n);
    }
  }

 private:
  bool Simplify(ValueId n) {
    const Instruction& i = at(n);
    const Form &x = forms_.Of(i.src[0]), &y = forms_.Of(i.src[1]);
    const auto divisor = static_cast<int64_t>(y.constant);
    if (!y.terms.empty() || divisor <= 0) return false;
    if (forms_.Range(x).whole() || forms_.Range(x).min < 0) return false;
    const Division parts = Forms::Divide(x, divisor);
    const ValueInterval rest = forms_.Range(parts.rest);
    if (rest.min < 0) return false;
    const bool small = rest.max < divisor;
    Parts between{.number = parts.rest};
    if (!small && looks_between_) between = Between(parts.rest, divisor);
    const bool whole = parts.multiple.terms.empty() && parts.multiple.constant == 0;
    const bool is_in_form = !writes_one_form_ || x.constant == 0 || x.terms.size() < 2;
    if (!small && whole && between.size == 1 && is_in_form) return false;
    const int64_t size = between.size;
    if (i.op == Op::kMod) {
      made_[n] = small ? Sum(parts.rest)
                       : b_.Plus(b_.Times(b_.Modulo(Sum(between.number), divisor / size), size),
                                 Sum(between.rest));
    } else {
      made_[n] = small ? Sum(parts.multiple)
                       : b_.Plus(Sum(parts.multiple),
                                 b_.Divide(Sum(between.number), divisor / size));
    }
    return true;
  }

  // A form as number * size + rest, with a rest in [0, size).
  struct Parts {
    Form number, rest;
    int64_t size = 1;
  };

  // `size` divides the divisor; 1 where there is none, or the form may be negative.
  Parts Between(const Form& form, int64_t divisor) const {
    for (const Form::Term& term : form.terms) {
      const int64_t size = std::gcd(static_cast<int64_t>(term.factor), divisor);
      if (size < 2) continue;
      const Division parts = Forms::Divide(form, size);
      const ValueInterval number = forms_.Range(parts.multiple), rest = forms_.Range(parts.rest);
      if (!parts.rest.terms.empty() && !number.whole() && number.min >= 0 && rest.min >= 0 &&
          rest.max < size)
        return {.number = parts.multiple, .rest = parts.rest, .size = size};
    }
    return {.number = form};
  }

  ValueId Sum(const Form& form) {
    ValueId sum = b_.Int(static_cast<int64_t>(form.constant));
    for (const Form::Term& term : form.terms)
      sum = b_.Plus(b_.Times(made_[term.atom], static_cast<int64_t>(term.factor)), sum);
    return sum;
  }

  const Forms forms_;
  const bool looks_between_, writes_one_form_;
};

}  // namespace

Program SimplifyDivisions(const Program& program) {
  Divider pass(program);
  pass.Run();
  return pass.Take();
}

}  // namespace outboard::program
