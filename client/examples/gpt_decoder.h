// Writing with a Gpt, one token after the other: keys and values of the tokens before are kept, so
// that a token costs one position. One graph serves every position (client/tensor/variable.h).
#pragma once

#include <cstdint>
#include <vector>

#include "client/examples/gpt.h"

namespace outboard::examples {

class GptDecoder {
 public:
  // `net` outlives the decoder and has `options`.
  GptDecoder(const Gpt& net, const GptOptions& options);

  // The next token is `token`, an integer [1]: logits [1, vocabulary] of the one after it. Lazy;
  // the caches are part of the next realize. Throws after options.context tokens.
  Tensor Step(const Tensor& token);

  // `count` tokens after `prompt`, which is not empty, each the likeliest one.
  std::vector<int64_t> Write(const std::vector<int64_t>& prompt, int64_t count);

  int64_t position() const { return position_; }  // tokens so far

 private:
  struct Cache {
    Tensor keys, values;  // [heads, context, head]
  };

  Tensor Attention(const GptAttention& attention, Cache& cache, const Tensor& x, const SymInt& at);

  const Gpt& net_;
  const GptOptions options_;
  const Variable place_;
  std::vector<Cache> caches_;  // by block
  int64_t position_ = 0;
};

}  // namespace outboard::examples
