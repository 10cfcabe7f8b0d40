// Products of matrices.
#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::Operands;

Tensor Tensor::matmul(const Arg& other, std::optional<DType> dtype) const {
  const NodeBuilder rec(other.at());
  if (!other.is_tensor()) rec.Invalid("matmul: needs two tensors");
  const Operands x = internal::SameType(rec, *this, other);
  const int rank_a = x.a->rank(), rank_b = x.b->rank();
  if (rank_a == 0 || rank_b == 0) rec.Invalid("matmul: a scalar has no rows");
  if (IsBool(x.a->dtype)) {  // whether any product is true
    const Tensor a = FromNode(rec, x.a).cast(DType::kI32);
    const Tensor b = FromNode(rec, x.b).cast(DType::kI32);
    return a.matmul(b).cast(dtype.value_or(DType::kBool));
  }
  // Vectors become a row and a column.
  Shape a(x.a->shape.begin(), x.a->shape.end()), b(x.b->shape.begin(), x.b->shape.end());
  if (rank_a == 1) a.insert(a.begin(), Dim(1));
  if (rank_b == 1) b.emplace_back(1);
  const Dim n = a[a.size() - 2], k = a.back(), m = b.back();
  if (b[b.size() - 2] != k)
    rec.Invalid(absl::StrCat("matmul: the shapes ", DimsToString(x.a->shape), " and ",
                             DimsToString(x.b->shape), " do not fit"));
  const Shape batch = rec.BroadcastShape(ShapeView(a).subspan(0, a.size() - 2),
                                         ShapeView(b).subspan(0, b.size() - 2), "matmul");
  // [..., n, 1, k] * [..., 1, m, k]
  Shape left(a.begin(), a.end() - 1), right(b.begin(), b.end() - 2), full = batch;
  left.insert(left.end(), {Dim(1), k});
  right.insert(right.end(), {Dim(1), m, k});
  full.insert(full.end(), {n, m, k});
  std::vector<int64_t> turn;
  for (size_t i = 0; i + 2 < b.size(); ++i) turn.push_back(static_cast<int64_t>(i));
  turn.push_back(static_cast<int64_t>(b.size()) - 1);
  turn.push_back(static_cast<int64_t>(b.size()) - 2);
  const UOp* const columns = rec.Permute(rec.Reshape(x.b, b), turn);
  const UOp* const y = internal::SumOfProducts(rec, rec.Broadcast(rec.Reshape(x.a, left), full),
                                               rec.Broadcast(rec.Reshape(columns, right), full),
                                               {static_cast<int64_t>(full.size()) - 1}, dtype);
  Shape result = batch;
  if (rank_a > 1) result.push_back(n);
  if (rank_b > 1) result.push_back(m);
  return FromNode(rec, rec.Reshape(y, result));
}

Tensor Tensor::dot(const Arg& other, std::optional<DType> dtype) const {
  return matmul(other, dtype);
}

Tensor Tensor::linear(const Tensor& weight, const Tensor& bias, At at) const {
  const CallSite site(at);
  const Tensor y = weight.rank() == 1 ? *this * weight : matmul(weight);
  return bias.empty() ? y : y + bias;
}

}  // namespace outboard
