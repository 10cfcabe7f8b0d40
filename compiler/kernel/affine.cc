#include "compiler/kernel/affine.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/optimize/limits.h"

namespace outboard::codegen {
namespace {

Affine Scaled(const Affine& a, uint64_t factor) {
  Affine out{a.constant * factor, {}};
  for (const auto& [term, coefficient] : a.terms)
    if (coefficient * factor != 0) out.terms.emplace_back(term, coefficient * factor);
  return out;
}

Affine Sum(const Affine& a, const Affine& b) {
  Affine out{a.constant + b.constant, {}};
  auto i = a.terms.begin(), j = b.terms.begin();
  while (i != a.terms.end() || j != b.terms.end()) {
    if (j == b.terms.end() || (i != a.terms.end() && i->first->index < j->first->index)) {
      out.terms.push_back(*i++);
    } else if (i == a.terms.end() || j->first->index < i->first->index) {
      out.terms.push_back(*j++);
    } else {
      const uint64_t coefficient = i->second + j->second;
      if (coefficient != 0) out.terms.emplace_back(i->first, coefficient);
      ++i, ++j;
    }
  }
  return out;
}

}  // namespace

uint64_t Affine::CoefficientOf(const UOp* term) const {
  for (const auto& [t, coefficient] : terms)
    if (t == term) return coefficient;
  return 0;
}

bool IsAffineOp(const UOp* node) {
  if (node->dtype != DType::kI64) return false;
  switch (node->op) {
    case Op::kConst:
    case Op::kRange:
    case Op::kAdd:
    case Op::kNeg: return true;
    case Op::kMul: return node->src[0]->is_const() || node->src[1]->is_const();
    case Op::kShl:
      return node->src[1]->is_const() && node->src[1]->int_value() >= 0 &&
             node->src[1]->int_value() < 64;
    default: return false;
  }
}

Affine AffineForms::Make(const UOp* node) const {
  const auto source = [&](int i) -> const Affine& { return forms_.at(node->src[i]); };
  Affine form;
  switch (IsAffineOp(node) ? node->op : Op::kWhere) {
    case Op::kConst: return Affine{static_cast<uint64_t>(node->int_value()), {}};
    case Op::kAdd: form = Sum(source(0), source(1)); break;
    case Op::kNeg: form = Scaled(source(0), ~uint64_t{0}); break;
    case Op::kMul: {
      const int constant = node->src[1]->is_const() ? 1 : 0;
      form = Scaled(source(1 - constant), static_cast<uint64_t>(node->src[constant]->int_value()));
      break;
    }
    case Op::kShl: form = Scaled(source(0), uint64_t{1} << node->src[1]->int_value()); break;
    default: return Affine{0, {{node, 1}}};
  }
  if (static_cast<int64_t>(form.terms.size()) > limits::kAffineTermsMax)
    return Affine{0, {{node, 1}}};
  return form;
}

const Affine& AffineForms::Of(const UOp* node) {
  OB_CHECK(node->dtype == DType::kI64);
  std::vector<const UOp*> stack = {node};
  while (!stack.empty()) {
    const UOp* const top = stack.back();
    if (forms_.contains(top)) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    if (IsAffineOp(top))
      for (const UOp* source : top->src)
        if (!forms_.contains(source)) stack.push_back(source);
    if (stack.size() != before) continue;
    Affine form = Make(top);
    forms_.emplace(top, std::move(form));
    stack.pop_back();
  }
  return forms_.at(node);
}

}  // namespace outboard::codegen
