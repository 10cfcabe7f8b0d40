#include "tests/compiler/packed_weights.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "client/nn/ggml.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/host_tensor.h"
#include "tests/client/fake_session.h"

namespace outboard::test {

namespace {

constexpr int64_t kBlock = 32;  // weights that share a scale

}  // namespace

int64_t PackedProduct::WeightBytes() const {
  switch (weights) {
    case Weights::kBf16: return columns * terms * 2;
    case Weights::kInt8: return columns * terms;
    case Weights::kQ8: return columns * terms / kBlock * 34;
    case Weights::kQ4: return columns * terms / kBlock * 18;
    case Weights::kU32: return columns * terms / 2;
  }
  return 0;
}

int64_t PackedProduct::BytesOfSums() const {
  constexpr int64_t kParts = 4;
  return columns * 4 * std::max(rows * kParts, terms / kBlock);
}

const UOp* PackedProduct::Record(Graph& graph) const {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const Tensor x = Tensor::zeros({rows, terms}, DType::kBF16).state_();
  Tensor w;
  switch (weights) {
    case Weights::kBf16: w = Tensor::zeros({columns, terms}, DType::kBF16).state_(); break;
    case Weights::kInt8:
      w = Tensor::zeros({columns, terms}, DType::kI8).state_().cast(DType::kF32) *
          Tensor::zeros({columns, 1}).state_();
      break;
    case Weights::kQ8:
    case Weights::kQ4: {
      const int64_t bytes = WeightBytes() * kBlock / (columns * terms);  // of a block
      w = nn::dequantize(Tensor::zeros({WeightBytes() / bytes, bytes}, DType::kU8).state_(),
                         weights == Weights::kQ8 ? files::GgmlType::kQ8_0 : files::GgmlType::kQ4_0)
              .reshape({columns, terms});
      break;
    }
    case Weights::kU32: {
      const Tensor words = Tensor::zeros({columns, terms / 8, 1}, DType::kU32).state_();
      const Tensor bits = Tensor::arange(8).cast(DType::kU32) * Arg(4);
      w = (((words >> bits) & Arg(15)).cast(DType::kF32) - Arg(8)).reshape({columns, terms}) *
          Tensor::zeros({columns, 1}).state_();
      break;
    }
  }
  realize(std::vector<Tensor>{x.cast(w.dtype()).matmul(w.transpose(), DType::kF32)});
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

std::string PackedProduct::RandomBytes(const UOp* param, std::mt19937& random) const {
  const HostTensor shape{param->dtype, StaticDims(param->shape), {}};
  std::string bytes(static_cast<size_t>(shape.ElementCount() * ByteWidth(param->dtype)), '\0');
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    char* const at = bytes.data() + i * ByteWidth(param->dtype);
    if (IsFloat(param->dtype))
      StoreFloat(param->dtype, static_cast<double>(random() % 17) / 8 - 1, at);
    else
      for (int byte = 0; byte < ByteWidth(param->dtype); ++byte)
        at[byte] = static_cast<char>(random());
  }
  if (param->dtype == DType::kU8) {
    const int64_t block = weights == Weights::kQ8 ? 34 : 18;
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(block))
      StoreFloat(DType::kF16, 0.125, bytes.data() + at);
  }
  return bytes;
}

}  // namespace outboard::test
