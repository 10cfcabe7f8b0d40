#include "client/lazy/node_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/lazy/sym_expression.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/print.h"

namespace outboard::internal {

std::string DimsToString(ShapeView shape) { return ShapeToString(shape); }

Shape ToShape(const std::vector<int64_t>& dims) { return Shape(dims.begin(), dims.end()); }

NodeBuilder::NodeBuilder(const At& at) : site_(at), at_(CallSite::Or(at)) {
  LazyGraph::Renew(kUnrealisedNodesMax);
  lazy_graph_ = LazyGraph::Current();
}

const UOp* NodeBuilder::Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) const {
  absl::StatusOr<const UOp*> node = graph().Make(op, dtype, src, arg);
  if (!node.ok()) throw Error(node.status(), at_);
  lazy_graph_->Note(*node, at_);
  return *node;
}

const UOp* NodeBuilder::Const(DType dtype, double value) const {
  if (IsFloat(dtype))
    return Make(Op::kConst, dtype, {}, {std::bit_cast<int64_t>(RoundTo(dtype, value))});
  // 2^63 as a double is one past the largest int64_t.
  const double most = dtype == DType::kU64 ? 0x1p63 : static_cast<double>(IntMax(dtype));
  if (!(value >= static_cast<double>(IntMin(dtype)) && value <= most && value < 0x1p63) ||
      value != std::trunc(value))
    Invalid(absl::StrCat(value, " is no value of ", std::string(Name(dtype))));
  return ConstInt(dtype, static_cast<int64_t>(value));
}

const UOp* NodeBuilder::ConstInt(DType dtype, int64_t value) const {
  return Make(Op::kConst, dtype, {}, {value});
}

const UOp* NodeBuilder::FullLike(const UOp* like, double value) const {
  return Full(Const(like->dtype, value), like->shape);
}

const UOp* NodeBuilder::Full(const UOp* scalar, ShapeView shape) const {
  if (shape.empty()) return scalar;
  return Expand(Reshape(scalar, Shape(shape.size(), Dim(1))), shape);
}

const UOp* NodeBuilder::IotaAlong(DType dtype, ShapeView shape, int axis) const {
  Shape ones(shape.size(), Dim(1));
  ones[axis] = shape[axis];
  std::vector<int64_t> arg;
  std::vector<const UOp*> src;
  AppendDims(ShapeView(&shape[axis], 1), arg, src);
  return Expand(Reshape(Make(Op::kIota, dtype, src, arg), ones), shape);
}

const UOp* NodeBuilder::Not(const UOp* c) const {
  return Alu(Op::kCmpNe, c, Full(ConstInt(DType::kBool, 1), c->shape));
}

const UOp* NodeBuilder::Cast(const UOp* x, DType dtype) const {
  return x->dtype == dtype ? x : Make(Op::kCast, dtype, {x});
}

const UOp* NodeBuilder::Reshape(const UOp* x, ShapeView dims) const {
  if (x->shape == dims) return x;
  // A reshape of a reshape is one: keeps graphs small, and equal spellings equal.
  if (x->op == Op::kReshape) x = x->src[0];
  if (x->shape == dims) return x;
  std::vector<int64_t> arg;
  std::vector<const UOp*> src = {x};
  AppendDims(dims, arg, src);
  return Make(Op::kReshape, x->dtype, src, arg);
}

const UOp* NodeBuilder::Expand(const UOp* x, ShapeView dims) const {
  if (x->shape == dims) return x;
  std::vector<int64_t> arg;
  std::vector<const UOp*> src = {x};
  AppendDims(dims, arg, src);
  return Make(Op::kExpand, x->dtype, src, arg);
}

const UOp* NodeBuilder::Broadcast(const UOp* x, ShapeView dims) const {
  if (x->shape == dims) return x;
  if (x->shape.size() > dims.size())
    Invalid(absl::StrCat("the shape ", DimsToString(x->shape), " does not broadcast to ",
                         DimsToString(dims)));
  Shape ones(dims.size() - x->shape.size(), Dim(1));
  ones.insert(ones.end(), x->shape.begin(), x->shape.end());
  for (size_t i = 0; i < dims.size(); ++i)
    if (ones[i] != Dim(1) && ones[i] != dims[i])
      Invalid(absl::StrCat("the shape ", DimsToString(x->shape), " does not broadcast to ",
                           DimsToString(dims)));
  return Expand(Reshape(x, ones), dims);
}

const UOp* NodeBuilder::Permute(const UOp* x, absl::Span<const int64_t> axes) const {
  bool same = axes.size() == x->shape.size();
  for (size_t i = 0; same && i < axes.size(); ++i) same = axes[i] == static_cast<int64_t>(i);
  if (same) return x;
  return Make(Op::kPermute, x->dtype, {x}, axes);
}

const UOp* NodeBuilder::Pad(const UOp* x, ShapeView lo_hi) const {
  if (std::all_of(lo_hi.begin(), lo_hi.end(), [](const Dim& d) { return d == Dim(0); })) return x;
  std::vector<int64_t> arg;
  std::vector<const UOp*> src = {x};
  AppendDims(lo_hi, arg, src);
  return Make(Op::kPad, x->dtype, src, arg);
}

const UOp* NodeBuilder::Shrink(const UOp* x, ShapeView begin_end) const {
  bool whole = true;
  for (int i = 0; i < x->rank(); ++i)
    whole = whole && begin_end[2 * i] == Dim(0) && begin_end[2 * i + 1] == x->shape[i];
  if (whole) return x;
  std::vector<int64_t> arg;
  std::vector<const UOp*> src = {x};
  AppendDims(begin_end, arg, src);
  return Make(Op::kShrink, x->dtype, src, arg);
}

const UOp* NodeBuilder::Reduce(Op op, const UOp* x, std::vector<int64_t> axes) const {
  if (axes.empty()) return x;
  std::sort(axes.begin(), axes.end());
  axes.insert(axes.begin(), static_cast<int64_t>(op));
  return Make(Op::kReduce, x->dtype, {x}, axes);
}

const UOp* NodeBuilder::Squeeze(const UOp* x, const std::vector<int64_t>& axes) const {
  Shape dims;
  for (int i = 0; i < x->rank(); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) dims.push_back(x->shape[i]);
  return Reshape(x, dims);
}

Dim NodeBuilder::DimOf(const SymInt& size) const {
  const absl::StatusOr<Dim> dim = DimIn(graph(), size, [&](const BoundVariable& bound) {
    Bind({bound});
    return lazy_graph_->VarOf(bound, at_);
  });
  ThrowIfError(dim.status(), at_);
  if (!dim->is_const()) lazy_graph_->Note(dim->expression(), at_);
  return *dim;
}

Shape NodeBuilder::ShapeOf(const SymShape& sizes) const {
  Shape shape;
  for (const SymInt& size : sizes) shape.push_back(DimOf(size));
  return shape;
}

void NodeBuilder::Bind(const std::vector<BoundVariable>& bound) const {
  for (const BoundVariable& now : bound) {
    const auto known = std::find_if(bound_.begin(), bound_.end(), [&](const BoundVariable& b) {
      return b.variable.name() == now.variable.name();
    });
    if (known == bound_.end()) {
      bound_.push_back(now);
    } else if (known->variable != now.variable) {
      const auto range = [](const Variable& v) { return absl::StrCat(v.min(), "..", v.max()); };
      Invalid(absl::StrCat("variable ", now.variable.name(), " is of ", range(known->variable),
                           " and of ", range(now.variable), " in one computation"));
    } else if (known->value != now.value) {
      Invalid(absl::StrCat("variable ", now.variable.name(), " is bound to ", known->value,
                           " and to ", now.value));
    }
  }
}

SymInt NodeBuilder::SizeOf(const Dim& dim, const LazyGraph& lazy_graph) const {
  if (dim.is_const()) return dim.value();
  absl::flat_hash_map<const UOp*, SymInt> sizes;
  for (const UOp* node : PostOrder(dim.expression())) {
    const auto source = [&](int i) -> const SymInt& { return sizes.at(node->src[i]); };
    SymInt& size = sizes[node];
    switch (node->op) {
      case Op::kConst: size = node->int_value(); break;
      case Op::kVar: {
        const auto bound = std::ranges::find_if(bound_, [&](const BoundVariable& b) {
          return b.variable == lazy_graph.VariableOf(node);
        });
        if (bound == bound_.end())  // a tensor's variables are bound with it
          throw Error(absl::InternalError("a dimension has an unbound variable"), at_);
        size = bound->variable.bind(bound->value, at_);
        break;
      }
      case Op::kNeg: size = source(0) * -1; break;
      case Op::kAdd: size = source(0) + source(1); break;
      case Op::kMul: size = source(0) * source(1); break;
      case Op::kIDiv: size = source(0) / source(1); break;
      case Op::kMod: size = source(0) % source(1); break;
      default:
        throw Error(absl::InternalError("a dimension is not an arithmetic expression of variables"),
                    at_);
    }
  }
  return sizes.at(dim.expression());
}

const UOp* NodeBuilder::ScalarOf(const Dim& dim) const {
  return dim.is_const() ? ConstInt(DType::kI64, dim.value()) : dim.expression();
}

Dim NodeBuilder::Sum(const Dim& a, const Dim& b) const {
  const absl::StatusOr<Dim> sum = AddDims(graph(), a, b);
  if (!sum.ok()) throw Error(sum.status(), at_);
  return *sum;
}

Dim NodeBuilder::UpToMost(const Dim& dim) const {
  const absl::StatusOr<Dim> rest = SubtractDims(graph(), Dim(dim.max()), dim);
  ThrowIfError(rest.status(), at_);
  return *rest;
}

Dim NodeBuilder::Product(const Shape& dims) const {
  int64_t number = 1;
  const UOp* product = nullptr;
  for (const Dim& dim : dims) {
    if (!dim.is_const())
      product = product == nullptr ? dim.expression() : Mul(product, dim.expression());
    else if (__builtin_mul_overflow(number, dim.value(), &number))
      Invalid(absl::StrCat("the product of ", DimsToString(dims), " overflows"));
  }
  if (product == nullptr || number == 0) return Dim(number);
  return Dim(number == 1 ? product : Mul(product, ConstInt(DType::kI64, number)));
}

int64_t NodeBuilder::LengthOf(const UOp* x, int64_t axis) const {
  const Dim& dim = x->shape[axis];
  if (dim.is_const()) return dim.value();
  Invalid(absl::StrCat("dimension ", axis, " of ", DimsToString(x->shape),
                       " is of a variable where a number is needed"));
}

int64_t NodeBuilder::CountOf(ShapeView shape) const {
  if (IsStatic(shape)) return ElementCount(shape);
  Invalid(absl::StrCat("the shape ", DimsToString(shape),
                       " is of a variable where numbers are needed"));
}

int NodeBuilder::Axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    Invalid(absl::StrCat("axis ", axis, " is not one of a tensor of rank ", rank), Mistake::kIndex);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> NodeBuilder::Axes(const std::vector<int64_t>& axes, int rank) const {
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  if (axes.empty()) return all;
  // A scalar counts as a vector of one element, as in PyTorch.
  if (rank == 0) {
    for (const int64_t axis : axes) Axis(axis, 1);
    return all;
  }
  std::vector<int64_t> result;
  for (const int64_t axis : axes) result.push_back(Axis(axis, rank));
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    Invalid("an axis is given twice");
  return result;
}

Shape NodeBuilder::BroadcastShape(ShapeView a, ShapeView b, const char* what) const {
  const size_t rank = std::max(a.size(), b.size());
  Shape shape(rank, Dim(1));
  for (size_t i = 0; i < rank; ++i) {
    const Dim x = i + a.size() < rank ? Dim(1) : a[i + a.size() - rank];
    const Dim y = i + b.size() < rank ? Dim(1) : b[i + b.size() - rank];
    if (x != y && x != Dim(1) && y != Dim(1))
      Invalid(absl::StrCat(what, ": the shapes ", DimsToString(a), " and ", DimsToString(b),
                           " do not broadcast"),
              Mistake::kIndex);
    shape[i] = x == Dim(1) ? y : x;
  }
  return shape;
}

}  // namespace outboard::internal
