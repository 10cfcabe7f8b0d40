#include "compiler/program/passes/forms.h"

#include <algorithm>

namespace outboard::program {
namespace {

using Wide = __int128;

// A sum of more terms is an atom: an index has one for each loop.
constexpr size_t kTermsMax = 16;
// So many products of this size do not leave a Wide.
constexpr Wide kFarOut = Wide{1} << 100;

ValueInterval OfType(DType dtype) {
  if (IsBool(dtype)) return {0, 1};
  if (!IsInt(dtype) || dtype == DType::kU64) return {};
  return {IntMin(dtype), IntMax(dtype)};
}

ValueInterval Within(Wide min, Wide max, DType dtype) {
  const ValueInterval type = OfType(dtype);
  if (dtype == DType::kU64 || min < type.min || max > type.max) return type;
  return {static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

ValueInterval Hull(ValueInterval a, ValueInterval b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

ValueInterval OfQuotient(Op op, ValueInterval x, ValueInterval y, DType dtype) {
  if (y.min <= 0) return OfType(dtype);
  if (op == Op::kMod) {  // the sign of x, and no further from 0 than x
    ValueInterval out = {std::min<int64_t>(x.min, 0), std::max<int64_t>(x.max, 0)};
    out.min = std::max(out.min, 1 - y.max);
    out.max = std::min(out.max, y.max - 1);
    return out;
  }
  const int64_t ends[] = {x.min / y.min, x.min / y.max, x.max / y.min, x.max / y.max};
  return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
}

ValueInterval OfAlu(const Instruction& i, const Program& program,
                    const std::vector<ValueInterval>& known) {
  const auto of = [&](int s) { return known[i.src[s]]; };
  const DType dtype = i.dtype;
  if (IsCompare(i.op) || !IsInt(dtype) || dtype == DType::kU64) return OfType(dtype);
  switch (i.op) {
    case Op::kAdd: return Within(Wide{of(0).min} + of(1).min, Wide{of(0).max} + of(1).max, dtype);
    case Op::kNeg: return Within(-Wide{of(0).max}, -Wide{of(0).min}, dtype);
    case Op::kMul: {
      const Wide ends[] = {Wide{of(0).min} * of(1).min, Wide{of(0).min} * of(1).max,
                           Wide{of(0).max} * of(1).min, Wide{of(0).max} * of(1).max};
      return Within(*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4), dtype);
    }
    case Op::kIDiv:
    case Op::kMod: return OfQuotient(i.op, of(0), of(1), dtype);
    case Op::kMax: return {std::max(of(0).min, of(1).min), std::max(of(0).max, of(1).max)};
    case Op::kWhere: return Hull(of(1), of(2));
    case Op::kAnd:
      if (of(0).min < 0 && of(1).min < 0) return OfType(dtype);
      return {0, of(0).min < 0   ? of(1).max
                 : of(1).min < 0 ? of(0).max
                                 : std::min(of(0).max, of(1).max)};
    default: return OfType(dtype);
  }
}

}  // namespace

std::vector<ValueInterval> IntervalsOf(const Program& program) {
  std::vector<ValueInterval> known(program.code.size());
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Instruction& i = program.code[n];
    ValueInterval& out = known[n];
    switch (i.code) {
      case Code::kConst:
        out = OfType(i.dtype);
        if (IsBool(i.dtype) || (IsInt(i.dtype) && i.dtype != DType::kU64))
          out = {i.imm[0], i.imm[0]};
        break;
      case Code::kVar: out = {i.imm[1], i.imm[2]}; break;
      case Code::kSpecial: out = {0, i.imm[1] - 1}; break;
      case Code::kLoop: out = {0, std::max<int64_t>(i.imm[0] - 1, 0)}; break;
      case Code::kLane: out = known[i.src[0]]; break;
      case Code::kLanes:
        out = known[i.src[0]];
        for (const ValueId s : i.src) out = Hull(out, known[s]);
        break;
      case Code::kCast: {
        const DType from = program.code[i.src[0]].dtype;
        out = OfType(i.dtype);
        if (IsInt(i.dtype) && (IsBool(from) || (IsInt(from) && from != DType::kU64)))
          out = Within(known[i.src[0]].min, known[i.src[0]].max, i.dtype);
        break;
      }
      case Code::kAlu: out = OfAlu(i, program, known); break;
      default:
        if (HasValue(i.code) && i.lanes > 0) out = OfType(i.dtype);
        break;
    }
  }
  return known;
}

Form AddScaled(const Form& a, const Form& b, uint64_t factor) {
  Form sum;
  sum.constant = a.constant + factor * b.constant;
  auto i = a.terms.begin();
  auto j = b.terms.begin();
  while (i != a.terms.end() || j != b.terms.end()) {
    Form::Term next;
    if (j == b.terms.end() || (i != a.terms.end() && i->atom < j->atom)) {
      next = *i++;
    } else if (i == a.terms.end() || j->atom < i->atom) {
      next = {j->atom, factor * j->factor};
      ++j;
    } else {
      next = {i->atom, i->factor + factor * j->factor};
      ++i, ++j;
    }
    if (next.factor != 0) sum.terms.push_back(next);
  }
  return sum;
}

Forms::Forms(const Program& program)
    : program_(program),
      intervals_(IntervalsOf(program)),
      opaque_(program.code.size(), false),
      forms_(program.code.size()) {
  for (const Instruction& i : program.code)
    if (i.code == Code::kAlu && IsCompare(i.op))
      for (const ValueId s : i.src) {
        const Instruction& compared = program.code[s];
        if (compared.dtype != DType::kI64 || !intervals_[s].whole()) continue;
        opaque_[s] = true;
        // Of a vector, its scalars are compared.
        for (const ValueId source : compared.src)
          for (const ValueId lane : program.code[source].src)
            if (program.code[source].code == Code::kLanes) opaque_[lane] = true;
        if (compared.code == Code::kLanes)
          for (const ValueId lane : compared.src) opaque_[lane] = true;
      }
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Instruction& i = program.code[n];
    if (HasValue(i.code) && i.dtype == DType::kI64 && i.lanes == 1)
      forms_[n] = Compute(static_cast<ValueId>(n));
  }
}

Form Forms::Compute(ValueId n) const {
  const Instruction& i = program_.code[n];
  const Form itself{0, {{n, 1}}};
  if (i.code == Code::kConst) return {static_cast<uint64_t>(i.imm[0]), {}};
  if (i.code != Code::kAlu || opaque_[n]) return itself;
  Form out;
  switch (i.op) {
    case Op::kAdd: out = AddScaled(forms_[i.src[0]], forms_[i.src[1]], 1); break;
    case Op::kNeg: out = AddScaled({}, forms_[i.src[0]], ~uint64_t{0}); break;
    case Op::kMul: {
      const Form &a = forms_[i.src[0]], &b = forms_[i.src[1]];
      if (b.terms.empty()) {
        out = AddScaled({}, a, b.constant);
      } else if (a.terms.empty()) {
        out = AddScaled({}, b, a.constant);
      } else {
        return itself;
      }
      break;
    }
    case Op::kIDiv:
    case Op::kMod: {
      // (divisor * m + r) / divisor is m + r / divisor, where the first is no negative number.
      const Form &x = forms_[i.src[0]], &y = forms_[i.src[1]];
      const auto divisor = static_cast<int64_t>(y.constant);
      if (!y.terms.empty() || divisor <= 0 || Range(x).whole() || Range(x).min < 0) return itself;
      Division parts = Divide(x, divisor);
      const ValueInterval rest = Range(parts.rest);
      if (rest.min < 0 || rest.max >= divisor) return itself;
      out = i.op == Op::kIDiv ? std::move(parts.multiple) : std::move(parts.rest);
      break;
    }
    default: return itself;
  }
  return out.terms.size() <= kTermsMax ? out : itself;
}

ValueInterval Forms::Range(const Form& form) const {
  Wide min = static_cast<int64_t>(form.constant), max = min;
  for (const Form::Term& term : form.terms) {
    const Wide factor = static_cast<int64_t>(term.factor);
    const ValueInterval atom = intervals_[term.atom];
    const Wide a = factor * atom.min, b = factor * atom.max;
    if (std::max(a < 0 ? -a : a, b < 0 ? -b : b) > kFarOut) return {};
    min += std::min(a, b);
    max += std::max(a, b);
  }
  return Within(min, max, DType::kI64);
}

Division Forms::Divide(const Form& form, int64_t divisor) {
  Division out;
  const auto constant = static_cast<int64_t>(form.constant);
  out.multiple.constant = static_cast<uint64_t>(FloorDivide(constant, divisor));
  out.rest.constant = static_cast<uint64_t>(FloorModulo(constant, divisor));
  for (const Form::Term& term : form.terms) {
    const auto factor = static_cast<int64_t>(term.factor);
    if (factor % divisor == 0) {
      out.multiple.terms.push_back({term.atom, static_cast<uint64_t>(factor / divisor)});
    } else {
      out.rest.terms.push_back(term);
    }
  }
  return out;
}

}  // namespace outboard::program
