#include "client/ops/product/recurrent.h"

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"

namespace outboard {

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
