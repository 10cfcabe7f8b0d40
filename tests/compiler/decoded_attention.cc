#include "tests/compiler/decoded_attention.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/harness.h"

namespace outboard::test {

DecodedGraph Decoded::Record(Graph& graph) const {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const auto input = [&](const Dims& dims) { return Tensor::zeros(dims, dtype).state_(); };
  const Tensor q = input({heads, group, width});
  Tensor k = input({heads, keys, width});
  Tensor v = input({heads, keys, width});
  Tensor visible = Tensor::arange(keys) % 3 > 0;
  if (length > 0 || length_least == 0) {
    const SymInt end = Variable("length", length_least, keys).bind(length);
    k = k.slice(1, 0, end);
    v = v.slice(1, 0, end);
    visible = visible.slice(0, 0, end);
  }
  Tensor scores = q.matmul(k.transpose(), DType::kF32) *
                  (1 / std::sqrt(static_cast<double>(width)));
  if (mask) scores = visible.where(scores, -std::numeric_limits<double>::infinity());
  realize(std::vector<Tensor>{scores.softmax().cast(dtype).matmul(v, DType::kF32)});
  const DecodedGraph recorded{ValueOrDie(DecodeGraph(graph, *session->last.graph)),
                              session->last.bindings};
  SetSession(nullptr);
  return recorded;
}

std::vector<HostTensor> RandomFloats(const UOp* sink) {
  std::mt19937 random(1);
  return FloatParams(sink, [&] { return static_cast<double>(random() % 33) / 8 - 2; });
}

}  // namespace outboard::test
