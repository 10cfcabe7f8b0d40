#include "compiler/ir/spec/node_rules.h"

#include <vector>

#include "base/check.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec/walks.h"

namespace outboard::spec {
namespace {

// The TUPLE that a tuple-valued node stands for, through calls; nullptr where it is none or too
// far. Without the limit a deep chain of calls, each taken apart often, would cost its square.
const UOp* TupleOf(const UOp* node) {
  for (int calls = 0; node->op == Op::kCall && calls < limits::kTupleCallsMax; ++calls)
    node = node->src[0]->src[0];
  return node->op == Op::kTuple ? node : nullptr;
}

}  // namespace

Result CheckFunction(const Node& n) {
  const UOp* const body = n.src[0];
  if (body->op == Op::kFunction || body->op == Op::kSink ||
      (body->dtype == DType::kVoid && body->op != Op::kTuple && body->op != Op::kCall))
    return Broken(n.op, "the body must be a value or a TUPLE");
  for (size_t i = 1; i < n.src.size(); ++i)
    if (n.src[i]->op != Op::kParam || n.src[i]->arg[0] != static_cast<int64_t>(i) - 1)
      return Broken(n.op, "source ", i, " must be the PARAM of slot ", i - 1);
  const std::vector<const UOp*> inside = PostOrder(body, /*into_functions=*/false);
  int64_t steps = std::ssize(inside);
  for (const UOp* node : inside) steps += std::ssize(node->src);
  OB_RETURN_IF_ERROR(TakeSteps(n.graph, steps, "bodies of FUNCTIONs"));
  for (const UOp* node : inside) {
    if (node->op == Op::kBuffer)
      return Broken(n.op, "the body reads a BUFFER; pass it as an argument");
    if (node->op != Op::kParam) continue;
    const auto slot = static_cast<size_t>(node->arg[0]);
    if (slot + 1 >= n.src.size() || n.src[slot + 1] != node)
      return Broken(n.op, "the body reads a PARAM of slot ", slot,
                    " that is not among the parameters");
  }
  return Inferred{};
}

Result CheckCall(const Node& n) {
  const UOp& function = *n.src[0];
  if (function.op != Op::kFunction) return Broken(n.op, "the first source must be a FUNCTION");
  if (n.src.size() != function.src.size())
    return Broken(n.op, "the function takes ", function.src.size() - 1, " arguments, not ",
                  n.src.size() - 1);
  for (size_t i = 1; i < n.src.size(); ++i) {
    const UOp &given = *n.src[i], &wanted = *function.src[i];
    if (given.dtype != wanted.dtype || given.shape != wanted.shape)
      return Broken(n.op, "argument ", i - 1, " is ", Str(given.dtype), Str(given.shape), ", not ",
                    Str(wanted.dtype), Str(wanted.shape));
  }
  return Typed(function.src[0]->dtype, function.src[0]->shape);
}

Result CheckTuple(const Node& n) {
  if (n.op == Op::kTuple) {
    for (const UOp* s : n.src)
      if (s->dtype == DType::kVoid) return Broken(n.op, "holds values only");
    return Inferred{};
  }
  const UOp* const tuple = TupleOf(n.src[0]);
  if (tuple == nullptr)
    return Broken(n.op, "the source is no tuple, or one through over ", limits::kTupleCallsMax,
                  " calls");
  if (n.arg.size() != 1 || n.arg[0] < 0 || n.arg[0] >= static_cast<int64_t>(tuple->src.size()))
    return Broken(n.op, "index out of range for ", tuple->src.size(), " values");
  const UOp& value = *tuple->src[n.arg[0]];
  return Typed(value.dtype, value.shape);
}

}  // namespace outboard::spec
