#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/product/product.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;

namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// Every head of x [..., heads, S, E] as often as `query` has more of them (Ainslie et al., 2023).
Tensor ForQueryHeads(const Tensor& x, const Tensor& query) {
  if (x.rank() < 3 || query.rank() < 3)
    ThrowInvalid("scaled_dot_product_attention: enable_gqa needs [..., heads, length, width]");
  const int64_t heads = x.shape(-3), wanted = query.shape(-3);
  if (heads < 1 || wanted % heads != 0)
    ThrowInvalid(absl::StrCat("scaled_dot_product_attention: ", heads, " heads for ", wanted,
                              " of the query"));
  if (heads == wanted) return x;
  const int64_t axis = x.rank() - 2;
  SymShape apart, joined;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i == axis) apart.emplace_back(wanted / heads);
    apart.push_back(x.size(i));
    joined.push_back(i == axis - 1 ? SymInt(wanted) : x.size(i));
  }
  return x.unsqueeze(axis).expand(apart).reshape(joined);
}

// Scores [..., L, S] of what query i must not see are -infinity: keys after i.
Tensor Causal(const Tensor& scores) {
  const NodeBuilder rec;
  const NodeExpr x = ExprOf(rec, scores);
  const NodeExpr i = Iota(rec, DType::kI32, x->shape, x->rank() - 2);
  const NodeExpr j = Iota(rec, DType::kI32, x->shape, x->rank() - 1);
  return TensorOf(Where(i < j, kUnseen, x));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& o, At at) {
  const CallSite site(at);
  const Tensor k = o.enable_gqa ? ForQueryHeads(key, query) : key;
  const Tensor v = o.enable_gqa ? ForQueryHeads(value, query) : value;
  if (IsBool(query.dtype())) ThrowInvalid("scaled_dot_product_attention: needs numbers, not bool");
  if (o.is_causal && !o.mask.empty())
    ThrowInvalid("scaled_dot_product_attention: a mask beside is_causal");
  const DType type = query.dtype();
  const DType both = Promote(type, key.dtype());
  const DType wide = FloatOf(both) == DType::kF64 ? DType::kF64 : DType::kF32;
  const double scale = 1 / std::sqrt(static_cast<double>(query.shape(-1)));
  Tensor scores = query.matmul(k.transpose(), wide) * scale;
  if (o.is_causal)
    scores = Causal(scores);
  else if (!o.mask.empty())
    scores = IsBool(o.mask.dtype()) ? o.mask.where(scores, kUnseen) : scores + o.mask;
  // The softmax is of f32 or f64; its weights are rounded before the product with the values.
  return scores.softmax().cast(FloatOf(type)).dropout(o.dropout_p).matmul(v);
}

// Gates i, f, g, o of Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al. (2000),
// in PyTorch's order.
LstmState lstm_cell(const Tensor& x, const LstmState& state, const LstmWeights& weights, At at) {
  const CallSite site(at);
  const int64_t rows = weights.hidden.shape(0), width = weights.hidden.shape(-1);
  if (rows != 4 * width)
    ThrowInvalid(absl::StrCat("lstm_cell: ", rows, " rows of hidden weights for ", width,
                              " of state, not four times as many"));
  if (IsBool(x.dtype())) ThrowInvalid("lstm_cell: needs numbers, not bool");
  const auto zeros = [&] { return Tensor::zeros({x.shape(0), width}, x.dtype()); };
  const Tensor hidden = state.hidden.empty() ? zeros() : state.hidden;
  const Tensor cell = state.cell.empty() ? zeros() : state.cell;
  const std::vector<Tensor> gates = (x.linear(weights.input.transpose(), weights.input_bias) +
                                     hidden.linear(weights.hidden.transpose(), weights.hidden_bias))
                                        .chunk(4, -1);
  const Tensor next = gates[1].sigmoid() * cell + gates[0].sigmoid() * gates[2].tanh();
  return {gates[3].sigmoid() * next.tanh(), next};
}

}  // namespace outboard
