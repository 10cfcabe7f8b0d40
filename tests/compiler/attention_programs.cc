#include "tests/compiler/attention_programs.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/harness.h"

namespace outboard::test {

const UOp* AttentionGraph(Graph& graph, const AttentionShape& shape) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const auto input = [](const Dims& dims, DType dtype = DType::kF32) {
    return Tensor::zeros(dims, dtype).state_();
  };
  const auto leaf = [&](int64_t rows) {
    return Tensor::zeros({shape.batch, shape.heads, rows, shape.width}, shape.dtype)
        .requires_grad_();
  };
  const Tensor q = leaf(shape.queries), k = leaf(shape.keys), v = leaf(shape.keys);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.width));
  Tensor scores = q.matmul(k.transpose()).cast(DType::kF32) * scale;
  if (shape.bias) scores = scores + input({shape.queries, shape.keys});
  if (shape.causal) {
    const Tensor later =
        Tensor::arange(shape.keys) > Tensor::arange(shape.queries).reshape({shape.queries, 1});
    scores = later.where(-kInfinity, scores);
  }
  if (shape.band > 0) {
    const Tensor query = Tensor::arange(shape.queries).reshape({shape.queries, 1});
    const Tensor key = Tensor::arange(shape.keys);
    const Tensor seen = (key <= query) & (key > query - shape.band);
    scores = seen.where(scores, -kInfinity);
  }
  const Tensor out = scores.softmax().cast(shape.dtype).matmul(v);
  std::vector<Tensor> results = {out};
  if (shape.backward)
    for (const Tensor& gradient : out.gradient({q, k, v}, input(out.shape(), shape.dtype)))
      results.push_back(gradient);
  realize(results);
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

}  // namespace outboard::test
