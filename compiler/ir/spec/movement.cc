#include "compiler/ir/spec/node_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/spec/walks.h"

namespace outboard::spec {
namespace {

// A product of numbers and expressions, for comparing element counts: the expressions must match
// one by one.
struct Product {
  __int128 number = 1;
  std::vector<const UOp*> factors;
  int64_t steps = 0;  // that it took to find them

  bool Multiply(const Dim& dim) {
    const DimFactors of_dim = FactorsOf(dim);
    steps += of_dim.steps;
    factors.insert(factors.end(), of_dim.expressions.begin(), of_dim.expressions.end());
    number *= of_dim.number;
    return number <= (__int128{1} << 62);
  }
  void Sort() {
    std::sort(factors.begin(), factors.end(),
              [](const UOp* a, const UOp* b) { return a->index < b->index; });
  }
};

Result CheckReshape(const Node& n, Shape dims) {
  OB_RETURN_IF_ERROR(CheckShape(n.op, dims));  // first: the products below must not overflow
  Product before, after;
  bool fits = true;
  for (const Dim& dim : n.src[0]->shape) fits = fits && before.Multiply(dim);
  for (const Dim& dim : dims) fits = fits && after.Multiply(dim);
  OB_RETURN_IF_ERROR(TakeSteps(n.graph, before.steps + after.steps, "products of dimensions"));
  before.Sort();
  after.Sort();
  if (!fits || before.number != after.number || before.factors != after.factors)
    return Broken(n.op, "cannot turn ", Str(n.src[0]->shape), " into ", Str(dims),
                  ": other element counts");
  return Inferred{n.src[0]->dtype, std::move(dims)};
}

}  // namespace

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

}  // namespace outboard::spec
