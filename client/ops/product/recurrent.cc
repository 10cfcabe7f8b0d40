#include "client/ops/product/recurrent.h"

#include "absl/strings/str_cat.h"

namespace outboard {

LstmState lstm_cell(const Tensor& x, const LstmState& state, const LstmWeights& weights, At at) {
  const int64_t rows = weights.hidden.shape(0, at), width = weights.hidden.shape(-1, at);
  if (rows != 4 * width)
    ThrowInvalid(at, absl::StrCat("lstm_cell: ", rows, " rows of hidden weights for ", width,
                                  " of state, not four times as many"));
  if (IsBool(x.dtype(at))) ThrowInvalid(at, "lstm_cell: needs numbers, not bool");
  const auto zeros = [&] { return Tensor::zeros({x.shape(0, at), width}, x.dtype(at), at); };
  const Tensor hidden = state.hidden.empty() ? zeros() : state.hidden;
  const Tensor cell = state.cell.empty() ? zeros() : state.cell;
  const Tensor from_input = x.linear(weights.input.transpose(-2, -1, at), weights.input_bias, at);
  const Tensor from_state =
      hidden.linear(weights.hidden.transpose(-2, -1, at), weights.hidden_bias, at);
  const std::vector<Tensor> gates =
      Tensor(Arg(from_input, at) + Arg(from_state, at)).chunk(4, -1, at);
  const Tensor kept = Arg(gates[1].sigmoid(at), at) * Arg(cell, at);
  const Tensor added = Arg(gates[0].sigmoid(at), at) * Arg(gates[2].tanh(at), at);
  const Tensor next = Arg(kept, at) + Arg(added, at);
  return {Arg(gates[3].sigmoid(at), at) * Arg(next.tanh(at), at), next};
}

}  // namespace outboard
