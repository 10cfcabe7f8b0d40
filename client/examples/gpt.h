// A transformer that learns to write a text, character by character, and the loop body of its
// training. The architecture is that of GPT-2 (Radford et al., 2019) with three projections in
// place of a joined one: layer norms before attention and before the feed-forward part, learned
// positions, the embedding used again to read the logits.
#pragma once

#include <string>
#include <vector>

#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard::examples {

struct GptOptions {
  int64_t vocabulary = 256;
  int64_t layers = 12;
  int64_t width = 256;
  int64_t heads = 8;  // divides width
  int64_t context = 128;
  // The type in which matrices are multiplied and activations between products lie: f32, or bf16 or
  // f16 as in mixed precision. Weights, norms, scores, sums of residuals and the loss are f32.
  // GptDecoder computes in f32 alone.
  DType products = DType::kF32;
};

// Each position looks at itself and those before it. [batch, time, width] -> the same.
struct GptAttention {
  explicit GptAttention(const GptOptions& options);
  Tensor operator()(const Tensor& x) const;
  void Collect(nn::StateDict& state, const std::string& prefix) const;

  int64_t heads;
  DType products;
  nn::Linear query, key, value, out;
};

// [batch, time, width] -> the same.
struct GptBlock {
  explicit GptBlock(const GptOptions& options);
  Tensor operator()(const Tensor& x) const;
  void Collect(nn::StateDict& state, const std::string& prefix) const;

  DType products;
  nn::LayerNorm norm1, norm2;
  GptAttention attention;
  nn::Linear up, down;
};

struct Gpt {
  explicit Gpt(const GptOptions& options);
  // Tokens [batch, time] of integers, time <= context -> logits [batch, time, vocabulary].
  Tensor operator()(const Tensor& tokens) const;
  void Collect(nn::StateDict& state, const std::string& prefix) const;

  DType products;
  nn::Embedding tokens, positions;
  std::vector<GptBlock> blocks;
  nn::LayerNorm norm;
};

// A training in progress. Needs a text [n] of integers below the vocabulary, n over the context.
class GptTrainer {
 public:
  GptTrainer(Tensor text, const GptOptions& options, int64_t batch, double lr = 1e-3);

  // One step on passages drawn in the cloud; sends one message and waits for nothing. The loss
  // comes back with it.
  Tensor Step();

  const Gpt& net() const { return net_; }

 private:
  const Tensor text_;
  const int64_t batch_, context_;
  const Gpt net_;
  optim::AdamW adam_;
};

}  // namespace outboard::examples
