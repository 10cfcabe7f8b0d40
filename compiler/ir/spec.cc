#include "compiler/ir/spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard {
namespace {

template <typename... Parts>
absl::Status Broken(Op op, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(Name(op).data(), Name(op).size()), ": ", parts...));
}

std::string Str(DType dtype) { return std::string(Name(dtype)); }
std::string Str(ShapeView shape) { return ShapeToString(shape); }

// ---- dimensions
// -------------------------------------------------------------------------------------------------

// A product of numbers and expressions, for comparing element counts: the expressions must match
// one by one.
struct Product {
  __int128 number = 1;
  std::vector<const UOp*> factors;

  bool Multiply(const Dim& dim) {
    const DimFactors of_dim = FactorsOf(dim);
    factors.insert(factors.end(), of_dim.expressions.begin(), of_dim.expressions.end());
    number *= of_dim.number;
    return number <= (__int128{1} << 62);
  }
  void Sort() {
    std::sort(factors.begin(), factors.end(),
              [](const UOp* a, const UOp* b) { return a->index < b->index; });
  }
};

absl::Status CheckShape(Op op, ShapeView shape) {
  if (static_cast<int64_t>(shape.size()) > limits::kRankMax)
    return Broken(op, "rank ", shape.size(), " is over the limit of ", limits::kRankMax);
  __int128 elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].min() < 0)
      return Broken(op, "dimension ", i, " of ", Str(shape), " can be negative");
    if (shape[i].max() > limits::kDimMax)
      return Broken(op, "dimension ", i, " of ", Str(shape), " is over the limit of ",
                    limits::kDimMax);
    elements *= std::max<int64_t>(shape[i].max(), 1);
    if (elements >= limits::kVirtualElementsMax)
      return Broken(op, "the shape ", Str(shape), " has 2^62 elements or more");
  }
  return absl::OkStatus();
}

// Reads `count` dimensions from arg[begin...]; symbolic ones take the next of `extra`.
absl::StatusOr<Shape> ReadDims(Op op, absl::Span<const int64_t> arg, size_t begin, Sources extra) {
  Shape dims;
  size_t next = 0;
  for (size_t i = begin; i < arg.size(); ++i) {
    if (arg[i] != kSymbolicDim) {
      dims.emplace_back(arg[i]);
      continue;
    }
    if (next >= extra.size()) return Broken(op, "a symbolic dimension has no source");
    const UOp* const expression = extra[next++];
    if (expression->dtype != DType::kI64 || !expression->shape.empty())
      return Broken(op, "a symbolic dimension must be an i64 scalar");
    if (expression->is_const())
      return Broken(op, "a dimension that is a number must be written as one");
    if (!expression->of_vars) return Broken(op, "a dimension may depend on VARs only, not on data");
    dims.push_back(Dim(expression));
  }
  if (next != extra.size()) return Broken(op, "has ", extra.size() - next, " sources too many");
  return dims;
}

// ---- single operations
// ----------------------------------------------------------------------------------------------

struct Node {
  Graph& graph;
  Op op;
  DType dtype;
  Sources src;    // the operation's own
  Sources extra;  // of symbolic dimensions
  absl::Span<const int64_t> arg;
};

using Result = absl::StatusOr<Inferred>;

Result Typed(DType dtype, ShapeView shape) {
  return Inferred{dtype, Shape(shape.begin(), shape.end())};
}

Result CheckLeaf(const Node& n) {
  switch (n.op) {
    case Op::kParam:
    case Op::kBuffer: {
      if (n.arg.empty()) return Broken(n.op, "needs a slot");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs an element type");
      if (n.op == Op::kParam && (n.arg[0] < 0 || n.arg[0] >= limits::kParamSlotMax))
        return Broken(n.op, "slot ", n.arg[0], " is not in 0..", limits::kParamSlotMax - 1);
      OB_ASSIGN_OR_RETURN(Shape shape, ReadDims(n.op, n.arg, 1, n.extra));
      OB_RETURN_IF_ERROR(CheckShape(n.op, shape));
      __int128 bytes = ByteWidth(n.dtype);
      for (const Dim& dim : shape) bytes *= dim.max();
      if (bytes > limits::kStoredBytesMax)
        return Broken(n.op, "the shape ", Str(shape), " of ", Str(n.dtype),
                      " is over the limit of ", limits::kStoredBytesMax, " stored bytes");
      return Inferred{n.dtype, std::move(shape)};
    }
    case Op::kConst: {
      if (n.arg.size() != 1) return Broken(n.op, "needs one value");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs a type");
      if (IsFloat(n.dtype)) {
        const double value = std::bit_cast<double>(n.arg[0]);
        if (std::bit_cast<int64_t>(RoundTo(n.dtype, value)) != n.arg[0])
          return Broken(n.op, "the value is not one of ", Str(n.dtype),
                        " or is not the canonical NaN");
      } else if (n.dtype != DType::kU64 &&
                 (n.arg[0] < IntMin(n.dtype) || n.arg[0] > IntMax(n.dtype))) {
        return Broken(n.op, n.arg[0], " is out of range for ", Str(n.dtype));
      }
      return Typed(n.dtype, {});
    }
    case Op::kVar:
      if (n.arg.size() != 3) return Broken(n.op, "needs slot, min and max");
      if (n.arg[0] < 0 || n.arg[0] > limits::kRankSlot)
        return Broken(n.op, "slot ", n.arg[0], " is not in 0..", limits::kVarSlotMax - 1);
      if (n.arg[0] == limits::kRankSlot &&
          (n.arg[1] != 0 || n.arg[2] < 0 || n.arg[2] >= limits::kRanksMax))
        return Broken(n.op, "slot ", n.arg[0], " is the rank, whose range is 0 to at most ",
                      limits::kRanksMax - 1, ", not ", n.arg[1], "..", n.arg[2]);
      if (n.arg[1] > n.arg[2] || n.arg[1] < -limits::kDimMax || n.arg[2] > limits::kDimMax)
        return Broken(n.op, "the range ", n.arg[1], "..", n.arg[2], " is empty or too wide");
      if (n.dtype != DType::kVoid && n.dtype != DType::kI64) return Broken(n.op, "is of i64");
      return Typed(DType::kI64, {});
    case Op::kIota: {
      if (n.arg.size() != 1) return Broken(n.op, "needs one length");
      if (!IsInt(n.dtype)) return Broken(n.op, "needs an integer type, not ", Str(n.dtype));
      OB_ASSIGN_OR_RETURN(Shape shape, ReadDims(n.op, n.arg, 0, n.extra));
      OB_RETURN_IF_ERROR(CheckShape(n.op, shape));
      if (shape[0].max() - 1 > IntMax(n.dtype))
        return Broken(n.op, "a length of ", shape[0].max(), " does not fit ", Str(n.dtype));
      return Inferred{n.dtype, std::move(shape)};
    }
    case Op::kGlobal:
      if (n.arg.size() != 2 || n.arg[0] < 0 || n.arg[1] < 0)
        return Broken(n.op, "needs slot and elements");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs an element type");
      return Typed(n.dtype, {});
    default:  // kRange
      if (n.arg.size() != 3) return Broken(n.op, "needs id, extent and kind");
      if (n.arg[1] < 0 || n.arg[1] > limits::kVirtualElementsMax)
        return Broken(n.op, "extent ", n.arg[1]);
      if (n.arg[2] < 0 || n.arg[2] > 2) return Broken(n.op, "kind ", n.arg[2]);
      if (!n.src.empty() && (n.src[0]->dtype != DType::kI64 || !n.src[0]->of_vars))
        return Broken(n.op, "the end must be an i64 scalar of VARs");
      return Typed(DType::kI64, {});
  }
}

Result CheckReshape(const Node& n, Shape dims) {
  OB_RETURN_IF_ERROR(CheckShape(n.op, dims));  // first: the products below must not overflow
  Product before, after;
  bool fits = true;
  for (const Dim& dim : n.src[0]->shape) fits = fits && before.Multiply(dim);
  for (const Dim& dim : dims) fits = fits && after.Multiply(dim);
  before.Sort();
  after.Sort();
  if (!fits || before.number != after.number || before.factors != after.factors)
    return Broken(n.op, "cannot turn ", Str(n.src[0]->shape), " into ", Str(dims),
                  ": other element counts");
  return Inferred{n.src[0]->dtype, std::move(dims)};
}

absl::Status CheckAxes(const Node& n, absl::Span<const int64_t> axes, int rank) {
  uint32_t seen = 0;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis >= rank) return Broken(n.op, "axis ", axis, " is not one of rank ", rank);
    if (seen >> axis & 1) return Broken(n.op, "axis ", axis, " is given twice");
    seen |= 1u << axis;
  }
  return absl::OkStatus();
}

Result CheckMovement(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid) return Broken(n.op, "the source is no value");
  OB_ASSIGN_OR_RETURN(Shape dims, ReadDims(n.op, n.arg, 0, n.extra));
  switch (n.op) {
    case Op::kReshape: return CheckReshape(n, std::move(dims));
    case Op::kExpand: {
      if (dims.size() != x.shape.size())
        return Broken(n.op, "needs ", x.rank(), " dimensions for ", Str(x.shape), ", has ",
                      dims.size());
      for (size_t i = 0; i < dims.size(); ++i)
        if (dims[i] != x.shape[i] && x.shape[i] != Dim(1))
          return Broken(n.op, "dimension ", i, " of ", Str(x.shape),
                        " is not 1 and cannot become that of ", Str(dims));
      return Inferred{x.dtype, std::move(dims)};
    }
    case Op::kPermute: {
      if (n.arg.size() != x.shape.size())
        return Broken(n.op, "needs ", x.rank(), " axes, has ", n.arg.size());
      OB_RETURN_IF_ERROR(CheckAxes(n, n.arg, x.rank()));
      Shape shape;
      for (const int64_t axis : n.arg) shape.push_back(x.shape[axis]);
      return Inferred{x.dtype, std::move(shape)};
    }
    case Op::kFlip:
      OB_RETURN_IF_ERROR(CheckAxes(n, n.arg, x.rank()));
      return Typed(x.dtype, x.shape);
    case Op::kPad:
    case Op::kShrink: {
      if (dims.size() != 2 * x.shape.size())
        return Broken(n.op, "needs two numbers for each of ", x.rank(), " dimensions, has ",
                      dims.size());
      Shape shape;
      for (int i = 0; i < x.rank(); ++i) {
        const Dim &first = dims[2 * i], &second = dims[2 * i + 1];
        if (first.min() < 0 || second.min() < 0)
          return Broken(n.op, "a negative number at dimension ", i);
        if (n.op == Op::kPad) {
          OB_ASSIGN_OR_RETURN(Dim sum, AddDims(n.graph, x.shape[i], first));
          OB_ASSIGN_OR_RETURN(sum, AddDims(n.graph, sum, second));
          shape.push_back(sum);
        } else {
          OB_ASSIGN_OR_RETURN(const bool begins, AtMost(n.graph, first, second));
          OB_ASSIGN_OR_RETURN(const bool ends, AtMost(n.graph, second, x.shape[i]));
          if (!begins || !ends)
            return Broken(n.op, "begin and end of dimension ", i, " do not lie in ", Str(x.shape));
          OB_ASSIGN_OR_RETURN(const Dim length, SubtractDims(n.graph, second, first));
          shape.push_back(length);
        }
      }
      return Inferred{x.dtype, std::move(shape)};
    }
    default: return Broken(n.op, "is no movement");
  }
}

Result CheckAlu(const Node& n) {
  const bool where = n.op == Op::kWhere;
  const UOp& first = *n.src[where ? 1 : 0];
  const DType t = first.dtype;
  if (t == DType::kVoid) return Broken(n.op, "a source is no value");
  if (where && n.src[0]->dtype != DType::kBool)
    return Broken(n.op, "the condition is ", Str(n.src[0]->dtype), ", not bool");
  for (size_t i = where ? 1 : 0; i < n.src.size(); ++i)
    if (n.src[i]->dtype != t)
      return Broken(n.op, "sources of types ", Str(t), " and ", Str(n.src[i]->dtype));
  for (const UOp* s : n.src)
    if (s->shape != first.shape)
      return Broken(n.op, "sources of shapes ", Str(first.shape), " and ", Str(s->shape));
  const auto wants = [&](bool ok, const char* what) {
    return ok ? absl::OkStatus() : Broken(n.op, "needs ", what, ", not ", Str(t));
  };
  switch (n.op) {
    case Op::kExp2:
    case Op::kLog2:
    case Op::kSin:
    case Op::kSqrt:
    case Op::kTrunc:
    case Op::kExp:
    case Op::kLog:
    case Op::kCos:
    case Op::kTanh:
    case Op::kFDiv: OB_RETURN_IF_ERROR(wants(IsFloat(t), "floats")); break;
    case Op::kNeg:
    case Op::kAdd:
    case Op::kMul:
    case Op::kMax:
    case Op::kMulAcc: OB_RETURN_IF_ERROR(wants(!IsBool(t), "numbers")); break;
    case Op::kIDiv:
    case Op::kMod:
    case Op::kShl:
    case Op::kShr: OB_RETURN_IF_ERROR(wants(IsInt(t), "integers")); break;
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: OB_RETURN_IF_ERROR(wants(!IsFloat(t), "integers or bool")); break;
    case Op::kThreefry: OB_RETURN_IF_ERROR(wants(t == DType::kU64, "u64")); break;
    default: break;
  }
  return Typed(IsCompare(n.op) ? DType::kBool : t, first.shape);
}

absl::Status CheckReducer(const Node& n, int64_t code, DType dtype) {
  if (code < 0 || code >= kOpCodeMax || !IsReducer(static_cast<Op>(code)))
    return Broken(n.op, "the operation must be ADD, MUL or MAX");
  if (IsBool(dtype) || dtype == DType::kVoid)
    return Broken(n.op, "needs numbers, not ", Str(dtype));
  return absl::OkStatus();
}

Result CheckReduce(const Node& n) {
  const UOp& x = *n.src[0];
  if (n.arg.empty()) return Broken(n.op, "needs an operation");
  OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype));
  OB_RETURN_IF_ERROR(CheckAxes(n, n.arg.subspan(1), x.rank()));
  if (!std::is_sorted(n.arg.begin() + 1, n.arg.end())) return Broken(n.op, "axes must ascend");
  Shape shape(x.shape.begin(), x.shape.end());
  for (const int64_t axis : n.arg.subspan(1)) shape[axis] = Dim(1);
  return Inferred{x.dtype, std::move(shape)};
}

Result CheckCast(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid || n.dtype == DType::kVoid) return Broken(n.op, "is between values");
  if (n.op == Op::kBitcast &&
      (ByteWidth(x.dtype) != ByteWidth(n.dtype) || IsBool(x.dtype) || IsBool(n.dtype)))
    return Broken(n.op, "between ", Str(x.dtype), " and ", Str(n.dtype), ", which differ in width");
  return Typed(n.dtype, x.shape);
}

// ---- functions ----------------------------------------------------------------------------------

Result CheckFunction(const Node& n) {
  const UOp* const body = n.src[0];
  if (body->op == Op::kFunction || body->op == Op::kSink ||
      (body->dtype == DType::kVoid && body->op != Op::kTuple && body->op != Op::kCall))
    return Broken(n.op, "the body must be a value or a TUPLE");
  for (size_t i = 1; i < n.src.size(); ++i)
    if (n.src[i]->op != Op::kParam || n.src[i]->arg[0] != static_cast<int64_t>(i) - 1)
      return Broken(n.op, "source ", i, " must be the PARAM of slot ", i - 1);
  const std::vector<const UOp*> inside = PostOrder(body, /*into_functions=*/false);
  n.graph.function_walk_budget -= static_cast<int64_t>(inside.size());
  if (n.graph.function_walk_budget < 0)
    return absl::ResourceExhaustedError(absl::StrCat("FUNCTION: bodies of one graph have over ",
                                                     limits::kFunctionWalkNodesMax,
                                                     " nodes together"));
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

// The TUPLE that a tuple-valued node stands for, through calls; nullptr where it is none or too
// far. Without the limit a deep chain of calls, each taken apart often, would cost its square.
const UOp* TupleOf(const UOp* node) {
  for (int calls = 0; node->op == Op::kCall && calls < limits::kTupleCallsMax; ++calls)
    node = node->src[0]->src[0];
  return node->op == Op::kTuple ? node : nullptr;
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

// ---- devices
// -------------------------------------------------------------------------------------------------

Result CheckLayout(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid) return Broken(n.op, "the source is no value");
  if (n.arg.size() != 2) return Broken(n.op, "needs a mesh axis and a dimension");
  if (n.arg[0] < -1 || n.arg[0] >= limits::kMeshAxesMax)
    return Broken(n.op, "mesh axis ", n.arg[0], " is not in -1..", limits::kMeshAxesMax - 1);
  if (n.arg[1] < -1 || n.arg[1] >= x.rank())
    return Broken(n.op, "dimension ", n.arg[1], " is not one of rank ", x.rank());
  return Typed(x.dtype, x.shape);
}

// A dimension of a collective, which must be a number: parts on other devices are as long.
absl::StatusOr<int64_t> CutLength(const Node& n, int64_t dim) {
  const UOp& x = *n.src[0];
  if (dim < 0 || dim >= x.rank())
    return Broken(n.op, "dimension ", dim, " is not one of rank ", x.rank());
  if (!x.shape[dim].is_const())
    return Broken(n.op, "dimension ", dim, " of ", Str(x.shape), " must have a fixed length");
  return x.shape[dim].value();
}

absl::Status CheckDivides(const Node& n, int64_t dim, int64_t length, int64_t count) {
  if (length % count == 0) return absl::OkStatus();
  return Broken(n.op, "dimension ", dim, " of length ", length, " does not divide over ", count);
}

Result CheckCollective(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid) return Broken(n.op, "the source is no value");
  const bool two = n.op == Op::kReduceScatter || n.op == Op::kAllToAll;
  if (n.arg.size() != (two ? 4 : 3))
    return Broken(n.op, "needs ", two ? 4 : 3, " numbers, not ", n.arg.size());
  const int64_t count = n.arg[n.arg.size() - 2], stride = n.arg[n.arg.size() - 1];
  if (count < 1 || count > limits::kRanksMax || stride < 1 || stride > limits::kRanksMax)
    return Broken(n.op, "a group of ", count, " ranks with stride ", stride, " is not in 1..",
                  limits::kRanksMax);
  Shape shape(x.shape.begin(), x.shape.end());
  switch (n.op) {
    case Op::kUnshard: {
      OB_ASSIGN_OR_RETURN(const int64_t length, CutLength(n, n.arg[0]));
      shape[n.arg[0]] = Dim(length * count);  // fits: both are far below 2^32
      break;
    }
    case Op::kReduceScatter: {
      OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype));
      OB_ASSIGN_OR_RETURN(const int64_t length, CutLength(n, n.arg[1]));
      OB_RETURN_IF_ERROR(CheckDivides(n, n.arg[1], length, count));
      shape[n.arg[1]] = Dim(length / count);
      break;
    }
    case Op::kAllReduce: OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype)); break;
    case Op::kAllToAll: {
      OB_ASSIGN_OR_RETURN(const int64_t cut, CutLength(n, n.arg[0]));
      OB_ASSIGN_OR_RETURN(const int64_t join, CutLength(n, n.arg[1]));
      OB_RETURN_IF_ERROR(CheckDivides(n, n.arg[0], cut, count));
      if (n.arg[0] != n.arg[1]) {
        shape[n.arg[0]] = Dim(cut / count);
        shape[n.arg[1]] = Dim(join * count);
      }
      break;
    }
    default:  // kCopy
      if (n.arg[0] < 0 || n.arg[0] >= count)
        return Broken(n.op, "root ", n.arg[0], " is not in 0..", count - 1);
  }
  return Inferred{x.dtype, std::move(shape)};
}

// ---- kernels ------------------------------------------------------------------------------------

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

// What takes none must have none, or one computation would have many spellings.
bool TakesArguments(Op op) {
  if (IsAlu(op)) return false;
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

Result Infer(const Node& n) {
  if (!n.arg.empty() && !TakesArguments(n.op))
    return Broken(n.op, "takes no arguments, not ", n.arg.size());
  if (IsMovement(n.op)) return CheckMovement(n);
  if (IsAlu(n.op)) return CheckAlu(n);
  switch (n.op) {
    case Op::kParam:
    case Op::kBuffer:
    case Op::kConst:
    case Op::kVar:
    case Op::kIota:
    case Op::kGlobal:
    case Op::kRange: return CheckLeaf(n);
    case Op::kCast:
    case Op::kBitcast: return CheckCast(n);
    case Op::kReduce: return CheckReduce(n);
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
    case Op::kFunction: return CheckFunction(n);
    case Op::kCall: return CheckCall(n);
    case Op::kTuple:
    case Op::kGetTuple: return CheckTuple(n);
    case Op::kLayout: return CheckLayout(n);
    case Op::kUnshard:
    case Op::kReduceScatter:
    case Op::kAllReduce:
    case Op::kAllToAll:
    case Op::kCopy: return CheckCollective(n);
    case Op::kSink:
      for (const UOp* s : n.src)
        if (s->dtype == DType::kVoid && s->op != Op::kStore)
          return Broken(n.op, "holds values or stores only");
      if (n.arg.size() > 2 || (n.arg.size() == 2 && n.arg[1] != 1) ||
          (n.arg.size() == 1 && n.arg[0] < limits::kCopiesMin) ||
          (!n.arg.empty() && (n.arg[0] < 1 || n.arg[0] > limits::kCopiesMax)))
        return Broken(n.op, "has at most a number of copies to ", limits::kCopiesMax, ", and 1");
      return Inferred{};
    default: return CheckKernelNode(n);
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
  OB_RETURN_IF_ERROR(CheckShape(op, inferred.shape));
  return inferred;
}

}  // namespace outboard
