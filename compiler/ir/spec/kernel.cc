#include "compiler/ir/spec/node_rules.h"

#include "base/check.h"

namespace outboard::spec {

Result CheckKernelNode(const Node& n) {
  switch (n.op) {
    case Op::kIndex:
      if (n.src[0]->op != Op::kGlobal || n.src[1]->dtype != DType::kI64)
        return Broken(n.op, "needs a GLOBAL and an i64");
      return Typed(n.src[0]->dtype, {});
    case Op::kLoad:
      if (n.src[0]->op != Op::kIndex) return Broken(n.op, "needs an INDEX");
      if (n.src.size() == 2) return Broken(n.op, "a gated load needs an alternative");
      if (n.src.size() == 3 &&
          (n.src[1]->dtype != DType::kBool || n.src[2]->dtype != n.src[0]->dtype))
        return Broken(n.op, "the gate must be bool, the alternative of the element type");
      return Typed(n.src[0]->dtype, {});
    case Op::kStore:
      if (n.src[0]->op != Op::kIndex || n.src[1]->dtype != n.src[0]->dtype)
        return Broken(n.op, "needs an INDEX and a value of its type");
      if (n.src.size() == 3 && n.src[2]->dtype != DType::kBool)
        return Broken(n.op, "the gate must be bool");
      if (!n.arg.empty() && (n.arg.size() != 1 || n.arg[0] != 1 || n.src.size() != 2 ||
                             n.src[1]->dtype != DType::kF32))
        return Broken(n.op, "of sums has the argument 1, a value of f32 and no gate");
      return Inferred{};
    default:  // kReduceLoop
      if (n.arg.size() != 1) return Broken(n.op, "needs an operation");
      OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], n.src[0]->dtype));
      for (size_t i = 1; i < n.src.size(); ++i)
        if (n.src[i]->op != Op::kRange ||
            n.src[i]->arg[2] != static_cast<int64_t>(RangeKind::kReduce))
          return Broken(n.op, "source ", i, " must be a RANGE of kind reduce");
      return Typed(n.src[0]->dtype, {});
  }
}

}  // namespace outboard::spec
