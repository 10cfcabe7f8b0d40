#include "client/ops/product/attention.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"

namespace outboard {

using internal::NodeBuilder;

namespace {

// Every head of x [..., heads, S, E] as often as `query` has more of them.
Tensor ForQueryHeads(const Tensor& x, const Tensor& query, const At& at) {
  if (x.rank(at) < 3 || query.rank(at) < 3)
    ThrowInvalid(at, "scaled_dot_product_attention: enable_gqa needs [..., heads, length, width]");
  const int64_t heads = x.shape(-3, at), wanted = query.shape(-3, at);
  if (heads < 1 || wanted % heads != 0)
    ThrowInvalid(at, absl::StrCat("scaled_dot_product_attention: ", heads, " heads for ", wanted,
                                  " of the query"));
  if (heads == wanted) return x;
  const int64_t axis = x.rank(at) - 2;
  SymShape apart, joined;
  for (int64_t i = 0; i < x.rank(at); ++i) {
    if (i == axis) apart.emplace_back(wanted / heads);
    apart.push_back(x.size(i, at));
    joined.push_back(i == axis - 1 ? SymInt(wanted) : x.size(i, at));
  }
  return x.unsqueeze(axis, at).expand(apart, at).reshape(joined, at);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& o, At at) {
  const Tensor k = o.enable_gqa ? ForQueryHeads(key, query, at) : key;
  const Tensor v = o.enable_gqa ? ForQueryHeads(value, query, at) : value;
  if (IsBool(query.dtype(at)))
    ThrowInvalid(at, "scaled_dot_product_attention: needs numbers, not bool");
  if (o.is_causal && !o.mask.empty())
    ThrowInvalid(at, "scaled_dot_product_attention: a mask beside is_causal");
  const DType type = query.dtype(at);
  const std::optional<DType> both = Promote(type, key.dtype(at));
  const DType wide = both && FloatOf(*both) == DType::kF64 ? DType::kF64 : DType::kF32;
  const double scale = 1 / std::sqrt(static_cast<double>(query.shape(-1, at)));
  const Tensor scores =
      Arg(query.matmul(Arg(k.transpose(-2, -1, at), at), wide), at) * Arg(scale, at);
  const double unseen = -std::numeric_limits<double>::infinity();
  Tensor masked = scores;
  if (o.is_causal) {
    const NodeBuilder rec(at);
    const UOp* const x = scores.NodeIn(rec);
    const UOp* const later =
        rec.Alu(Op::kCmpLt, rec.IotaAlong(DType::kI32, x->shape, x->rank() - 2),
                rec.IotaAlong(DType::kI32, x->shape, x->rank() - 1));
    masked = Tensor::FromNode(rec, rec.Where(later, rec.FullLike(x, unseen), x));
  } else if (!o.mask.empty()) {
    masked = IsBool(o.mask.dtype(at)) ? o.mask.where(Arg(scores, at), Arg(unseen, at))
                                      : Arg(scores, at) + Arg(o.mask, at);
  }
  const Tensor weights = masked.cast(FloatOf(type), at).softmax(-1, at).dropout(o.dropout_p, at);
  return weights.matmul(Arg(v, at));
}

}  // namespace outboard
