#include "tests/compiler/packed_weights.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "client/files/ggml_type.h"
#include "client/nn/ggml.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/host_tensor.h"
#include "tests/client/fake_session.h"

namespace outboard::test {

namespace {

constexpr int64_t kBlock = 32;  // weights that share a scale

// A type of GGUF files, with where a block of it has scales (f16) or exponents (u8).
struct Blocks {
  files::GgmlType type;
  std::vector<size_t> halves = {0};
  std::vector<size_t> exponents = {};

  const files::GgmlLayout& layout() const {
    return *files::FindGgmlLayout(static_cast<uint32_t>(type));
  }
};

std::optional<Blocks> BlocksOf(Weights weights) {
  switch (weights) {
    case Weights::kBf16:
    case Weights::kInt8:
    case Weights::kU32: return std::nullopt;
    case Weights::kQ8: return Blocks{files::GgmlType::kQ8_0};
    case Weights::kQ4: return Blocks{files::GgmlType::kQ4_0};
    case Weights::kIq4Nl: return Blocks{files::GgmlType::kIq4Nl};
    case Weights::kIq4Xs: return Blocks{files::GgmlType::kIq4Xs};
    case Weights::kMxfp4: return Blocks{files::GgmlType::kMxfp4, {}, {0}};
    case Weights::kQ2K: return Blocks{files::GgmlType::kQ2_K, {80, 82}};
    case Weights::kQ4K: return Blocks{files::GgmlType::kQ4_K, {0, 2}};
    case Weights::kQ6K: return Blocks{files::GgmlType::kQ6_K, {208}};
  }
  return std::nullopt;
}

}  // namespace

int64_t PackedProduct::WeightBytes() const {
  if (const auto blocks = BlocksOf(weights))
    return columns * terms / blocks->layout().block_elements * blocks->layout().block_bytes;
  switch (weights) {
    case Weights::kBf16: return columns * terms * 2;
    case Weights::kInt8: return columns * terms;
    default: return columns * terms / 2;
  }
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
  const auto blocks = BlocksOf(weights);
  if (blocks) {
    const int64_t bytes = blocks->layout().block_bytes;
    w = nn::dequantize(Tensor::zeros({WeightBytes() / bytes, bytes}, DType::kU8).state_(),
                       blocks->type)
            .reshape({columns, terms});
  } else if (weights == Weights::kBf16) {
    w = Tensor::zeros({columns, terms}, DType::kBF16).state_();
  } else if (weights == Weights::kInt8) {
    w = Tensor::zeros({columns, terms}, DType::kI8).state_().cast(DType::kF32) *
        Tensor::zeros({columns, 1}).state_();
  } else {
    const Tensor words = Tensor::zeros({columns, terms / 8, 1}, DType::kU32).state_();
    const Tensor bits = Tensor::arange(8).cast(DType::kU32) * Arg(4);
    w = (((words >> bits) & Arg(15)).cast(DType::kF32) - Arg(8)).reshape({columns, terms}) *
        Tensor::zeros({columns, 1}).state_();
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
  if (const auto blocks = BlocksOf(weights); blocks && param->dtype == DType::kU8) {
    const auto block = static_cast<size_t>(blocks->layout().block_bytes);
    for (size_t at = 0; at < bytes.size(); at += block) {
      for (const size_t half : blocks->halves)
        StoreFloat(DType::kF16, 0.125, bytes.data() + at + half);
      for (const size_t exponent : blocks->exponents)
        bytes[at + exponent] = static_cast<char>(124 + random() % 3);
    }
  }
  return bytes;
}

}  // namespace outboard::test
