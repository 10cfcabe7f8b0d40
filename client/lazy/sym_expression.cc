#include "client/lazy/sym_expression.h"

#include "base/check.h"
#include "compiler/ir/dims.h"

namespace outboard::internal {

absl::StatusOr<Dim> DimIn(
    Graph& graph, const SymInt& size,
    const std::function<absl::StatusOr<const UOp*>(const BoundVariable&)>& var_of) {
  if (size.is_number()) return Dim(size.value());
  const SymExpression& e = *size.expression();
  if (e.variable) {
    OB_ASSIGN_OR_RETURN(const UOp* const var, var_of(*e.variable));
    return Dim(var);
  }
  OB_ASSIGN_OR_RETURN(const Dim a, DimIn(graph, e.a, var_of));
  OB_ASSIGN_OR_RETURN(const Dim b, DimIn(graph, e.b, var_of));
  if (e.op == Op::kAdd) return AddDims(graph, a, b);
  const auto node = [&](const Dim& dim) -> absl::StatusOr<const UOp*> {
    if (!dim.is_const()) return dim.expression();
    return graph.Make(Op::kConst, DType::kI64, {}, {dim.value()});
  };
  OB_ASSIGN_OR_RETURN(const UOp* const x, node(a));
  if (e.op == Op::kMul && b == Dim(-1)) {
    OB_ASSIGN_OR_RETURN(const UOp* const negated, graph.Make(Op::kNeg, DType::kI64, {x}));
    return Dim(negated);
  }
  OB_ASSIGN_OR_RETURN(const UOp* const y, node(b));
  const bool number_first = e.op == Op::kMul && a.is_const();
  OB_ASSIGN_OR_RETURN(const UOp* const result,
                      graph.Make(e.op, DType::kI64, {number_first ? y : x, number_first ? x : y}));
  return Dim(result);
}

std::vector<BoundVariable> VariablesIn(const SymInt& size) {
  std::vector<BoundVariable> variables;
  std::vector<const SymInt*> open = {&size};
  while (!open.empty()) {
    const SymExpression* const e = open.back()->expression();
    open.pop_back();
    if (e == nullptr) continue;
    if (e->variable) {
      variables.push_back(*e->variable);
    } else {
      open.push_back(&e->b);
      open.push_back(&e->a);
    }
  }
  return variables;
}

SymInt Rebound(const SymInt& size, std::span<const BoundVariable> bound) {
  if (size.is_number()) return size;
  const SymExpression& e = *size.expression();
  if (!e.variable) {
    const SymInt a = Rebound(e.a, bound), b = Rebound(e.b, bound);
    switch (e.op) {
      case Op::kAdd: return a + b;
      case Op::kMul: return a * b;
      case Op::kIDiv: return a / b;
      default: return a % b;
    }
  }
  for (const BoundVariable& now : bound)
    if (now.variable == e.variable->variable) return SymInt::Of(now.value, {now});
  return size;
}

bool SameForm(const SymInt& a, const SymInt& b) {
  if (a.is_number() || b.is_number())
    return a.is_number() && b.is_number() && a.value() == b.value();
  const SymExpression &x = *a.expression(), &y = *b.expression();
  if (x.variable || y.variable)
    return x.variable && y.variable && x.variable->variable == y.variable->variable;
  return x.op == y.op && SameForm(x.a, y.a) && SameForm(x.b, y.b);
}

}  // namespace outboard::internal
