#include "client/examples/gpt.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::examples {
namespace {

// x times the weights, plus the bias: [..., in] -> [..., out] of `products`.
Tensor Times(const Tensor& x, const nn::Linear& layer, DType products) {
  if (products == DType::kF32) return layer(x);
  return x.cast(products).linear(layer.weight.cast(products).transpose(),
                                 layer.bias.cast(products));
}

}  // namespace

GptAttention::GptAttention(const GptOptions& options)
    : heads(options.heads),
      products(options.products),
      query(options.width, options.width),
      key(options.width, options.width),
      value(options.width, options.width),
      out(options.width, options.width) {}

Tensor GptAttention::operator()(const Tensor& x) const {
  const int64_t batch = x.shape(0), time = x.shape(1), width = x.shape(2), head = width / heads;
  const auto split = [&](const Tensor& t) {  // [batch, heads, time, head]
    return t.reshape({batch, time, heads, head}).permute({0, 2, 1, 3});
  };
  const auto projected = [&](const nn::Linear& layer) { return split(Times(x, layer, products)); };
  const Tensor q = projected(query), k = projected(key), v = projected(value);
  const double scale = 1 / std::sqrt(static_cast<double>(head));
  const Tensor scores = q.matmul(k.transpose()).cast(DType::kF32) * scale;
  const Tensor place = Tensor::arange(time);
  const Tensor later = place > place.reshape({time, 1});
  const Tensor masked = later.where(-std::numeric_limits<double>::infinity(), scores);
  const Tensor mixed = masked.softmax().cast(products).matmul(v);
  return Times(mixed.permute({0, 2, 1, 3}).reshape({batch, time, width}), out, products);
}

void GptAttention::Collect(nn::StateDict& state, const std::string& prefix) const {
  query.Collect(state, nn::Join(prefix, "query"));
  key.Collect(state, nn::Join(prefix, "key"));
  value.Collect(state, nn::Join(prefix, "value"));
  out.Collect(state, nn::Join(prefix, "out"));
}

GptBlock::GptBlock(const GptOptions& options)
    : products(options.products),
      norm1(options.width),
      norm2(options.width),
      attention(options),
      up(options.width, 4 * options.width),
      down(4 * options.width, options.width) {}

Tensor GptBlock::operator()(const Tensor& x) const {
  const Tensor y = x + attention(norm1(x)).cast(DType::kF32);
  return y + Times(Times(norm2(y), up, products).gelu(), down, products).cast(DType::kF32);
}

void GptBlock::Collect(nn::StateDict& state, const std::string& prefix) const {
  norm1.Collect(state, nn::Join(prefix, "norm1"));
  attention.Collect(state, nn::Join(prefix, "attention"));
  norm2.Collect(state, nn::Join(prefix, "norm2"));
  up.Collect(state, nn::Join(prefix, "up"));
  down.Collect(state, nn::Join(prefix, "down"));
}

Gpt::Gpt(const GptOptions& options)
    : products(options.products),
      tokens(options.vocabulary, options.width),
      positions(options.context, options.width),
      norm(options.width) {
  for (int64_t i = 0; i < options.layers; ++i) blocks.emplace_back(options);
}

Tensor Gpt::operator()(const Tensor& text) const {
  Tensor x = tokens(text) + positions.weight.slice(0, 0, text.shape(1));
  for (const GptBlock& block : blocks) x = block(x);
  const Tensor logits =
      norm(x).cast(products).matmul(tokens.weight.cast(products).transpose());
  return logits.cast(DType::kF32);
}

void Gpt::Collect(nn::StateDict& state, const std::string& prefix) const {
  tokens.Collect(state, nn::Join(prefix, "tokens"));
  positions.Collect(state, nn::Join(prefix, "positions"));
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i].Collect(state, nn::Join(prefix, absl::StrCat("block", i)));
  norm.Collect(state, nn::Join(prefix, "norm"));
}

GptTrainer::GptTrainer(Tensor text, const GptOptions& options, int64_t batch, double lr)
    : text_(std::move(text)),
      batch_(batch),
      context_(options.context),
      net_(options),
      adam_(nn::parameters(net_), lr) {}

Tensor GptTrainer::Step() {
  const TrainingMode training(true);
  Tensor loss;
  {  // Nothing of the forward pass outlives this block, so the step is given all that it replaces.
    const Tensor begin = Tensor::randint({batch_, 1}, 0, text_.shape(0) - context_);
    const Tensor places = begin + Tensor::arange(context_);
    loss = net_(text_[places]).sparse_categorical_crossentropy(text_[places + 1]);
    loss.backward();
  }
  adam_.step({loss});
  return loss;
}

}  // namespace outboard::examples
