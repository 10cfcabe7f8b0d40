#include "compiler/ir/spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec/node_rules.h"

namespace outboard {
namespace {

using spec::Broken;
using spec::Node;
using spec::Str;
using spec::Typed;

// What takes none must have none, or one computation would have many spellings.
bool TakesArguments(Op op) {
  if (IsAlu(op)) return op == Op::kExp2;
  switch (op) {
    case Op::kCast:
    case Op::kBitcast:
    case Op::kContiguous:
    case Op::kDetach:
    case Op::kAssign:
    case Op::kFunction:
    case Op::kCall:
    case Op::kTuple:
    case Op::kIndex:
    case Op::kLoad: return false;
    default: return true;
  }
}

spec::Result Infer(const Node& n) {
  if (!n.arg.empty() && !TakesArguments(n.op))
    return Broken(n.op, "takes no arguments, not ", n.arg.size());
  if (IsMovement(n.op)) return spec::CheckMovement(n);
  if (IsAlu(n.op)) return spec::CheckAlu(n);
  switch (n.op) {
    case Op::kParam:
    case Op::kBuffer:
    case Op::kConst:
    case Op::kVar:
    case Op::kIota:
    case Op::kGlobal:
    case Op::kRange: return spec::CheckLeaf(n);
    case Op::kCast:
    case Op::kBitcast: return spec::CheckCast(n);
    case Op::kReduce: return spec::CheckReduce(n);
    case Op::kContiguous:
    case Op::kDetach:
      if (n.src[0]->dtype == DType::kVoid) return Broken(n.op, "the source is no value");
      return Typed(n.src[0]->dtype, n.src[0]->shape);
    case Op::kAssign:
      if (n.src[0]->dtype != n.src[1]->dtype || n.src[0]->shape != n.src[1]->shape ||
          n.src[0]->dtype == DType::kVoid)
        return Broken(n.op, "assigns ", Str(n.src[1]->dtype), Str(n.src[1]->shape), " to ",
                      Str(n.src[0]->dtype), Str(n.src[0]->shape));
      return Typed(n.src[1]->dtype, n.src[1]->shape);
    case Op::kFunction: return spec::CheckFunction(n);
    case Op::kCall: return spec::CheckCall(n);
    case Op::kTuple:
    case Op::kGetTuple: return spec::CheckTuple(n);
    case Op::kLayout: return spec::CheckLayout(n);
    case Op::kUnshard:
    case Op::kReduceScatter:
    case Op::kAllReduce:
    case Op::kAllToAll:
    case Op::kCopy: return spec::CheckCollective(n);
    case Op::kSink:
      for (const UOp* s : n.src)
        if (s->dtype == DType::kVoid && s->op != Op::kStore)
          return Broken(n.op, "holds values or stores only");
      if (n.arg.size() > 3 || (n.arg.size() == 2 && n.arg[1] != 1) ||
          (n.arg.size() == 3 && ((n.arg[1] != 0 && n.arg[1] != 1) || n.arg[2] < 1)) ||
          (n.arg.size() == 1 && n.arg[0] < limits::kCopiesMin) ||
          (!n.arg.empty() && (n.arg[0] < 1 || n.arg[0] > limits::kCopiesMax)))
        return Broken(n.op, "has at most a number of copies to ", limits::kCopiesMax,
                      ", 1, and a set of slots");
      return Inferred{};
    default: return spec::CheckKernelNode(n);
  }
}

}  // namespace

absl::StatusOr<Inferred> CheckNode(Graph& graph, Op op, DType dtype, Sources src,
                                   absl::Span<const int64_t> arg) {
  const OpInfo& info = InfoOf(op);
  if (info.level == Level::kNone)
    return absl::InvalidArgumentError(
        absl::StrCat("operation code ", static_cast<int>(op), " is unknown"));
  if (static_cast<int>(dtype) >= kDTypeCount)
    return Broken(op, "type code ", static_cast<int>(dtype), " is unknown");
  if (static_cast<int64_t>(arg.size()) > limits::kArgsMax)
    return Broken(op, arg.size(), " arguments are over the limit of ", limits::kArgsMax);
  if (graph.node_count() >= limits::kGraphNodesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("the graph has over ", limits::kGraphNodesMax, " nodes"));

  int64_t symbolic = 0;
  if (info.has_dims) symbolic = std::count(arg.begin(), arg.end(), kSymbolicDim);
  const int64_t own = static_cast<int64_t>(src.size()) - symbolic;
  const int64_t most = info.max_sources < 0 ? limits::kVariadicSourcesMax : info.max_sources;
  if (own < info.min_sources || own > most)
    return Broken(op, "takes ", static_cast<int>(info.min_sources), " to ", most, " sources, not ",
                  own);
  if (info.max_sources >= 0 && !info.has_dims && own > limits::kSourcesMax)
    return Broken(op, "too many sources");

  const Node node{graph, op, dtype, src.subspan(0, own), src.subspan(own), arg};
  OB_ASSIGN_OR_RETURN(Inferred inferred, Infer(node));
  if (dtype != DType::kVoid && dtype != inferred.dtype)
    return Broken(op, "is of ", Str(inferred.dtype), ", not ", Str(dtype));
  OB_RETURN_IF_ERROR(spec::CheckShape(op, inferred.shape));
  return inferred;
}

}  // namespace outboard
