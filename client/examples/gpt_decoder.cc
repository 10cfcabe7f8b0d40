#include "client/examples/gpt_decoder.h"

#include <cmath>

namespace outboard::examples {

GptDecoder::GptDecoder(const Gpt& net, const GptOptions& options)
    : net_(net), options_(options), place_("place", 0, options.context - 1) {
  const Dims dims = {options.heads, options.context, options.width / options.heads};
  std::vector<Tensor> all;
  for (int64_t i = 0; i < options.layers; ++i) {
    caches_.push_back({Tensor::zeros(dims).state_(), Tensor::zeros(dims).state_()});
    all.insert(all.end(), {caches_.back().keys, caches_.back().values});
  }
  realize(all);
}

Tensor GptDecoder::Attention(const GptAttention& attention, Cache& cache, const Tensor& x,
                             const SymInt& at) {
  const int64_t heads = options_.heads, head = options_.width / heads;
  const auto split = [&](const Tensor& t) { return t.reshape({heads, 1, head}); };
  const Tensor here = Tensor::arange(options_.context).reshape({-1, 1}) == at;
  cache.keys.assign(here.where(split(attention.key(x)), cache.keys));
  cache.values.assign(here.where(split(attention.value(x)), cache.values));
  const Tensor keys = cache.keys.slice(1, 0, at + 1), values = cache.values.slice(1, 0, at + 1);
  const Tensor scores = split(attention.query(x)).matmul(keys.transpose()) *
                        (1 / std::sqrt(static_cast<double>(head)));
  return attention.out(scores.softmax().matmul(values).reshape({1, options_.width}));
}

Tensor GptDecoder::Step(const Tensor& token) {
  const SymInt at = place_.bind(position_);
  Tensor x = net_.tokens(token) + net_.positions.weight.slice(0, at, at + 1);
  for (size_t i = 0; i < net_.blocks.size(); ++i) {
    const GptBlock& block = net_.blocks[i];
    x = x + Attention(block.attention, caches_[i], block.norm1(x), at);
    x = x + block.down(block.up(block.norm2(x)).gelu());
  }
  ++position_;
  return net_.norm(x).matmul(net_.tokens.weight.transpose());
}

std::vector<int64_t> GptDecoder::Write(const std::vector<int64_t>& prompt, int64_t count) {
  std::vector<int64_t> written;
  Tensor token;
  const auto read = [&](const Tensor& next) {
    token = Step(next).argmax(-1);
    token.realize();  // when nothing but the caches refers to them: they are updated in place
  };
  for (const int64_t next : prompt) read(Tensor::from<int32_t>({static_cast<int32_t>(next)}));
  while (static_cast<int64_t>(written.size()) < count) {
    written.push_back(token.item<int64_t>());
    if (static_cast<int64_t>(written.size()) < count) read(token);
  }
  return written;
}

}  // namespace outboard::examples
