// Steps of recurrent networks: compute the next state from a state and an input.
//
// Each step is a graph of its own; for a sequence the program loops.
// Errors: INVALID_ARGUMENT where shapes do not fit. Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Of a long short-term memory (Hochreiter and Schmidhuber, 1997), [B, H] each.
struct LstmState {
  Tensor hidden, cell;
};

// [4 H, input], [4 H, H] and twice [4 H] (or empty), of the gates for input, forgetting, the cell's
// candidate, and output, one below the other.
struct LstmWeights {
  Tensor input, hidden;
  Tensor input_bias, hidden_bias;
};

// x [B, input]; an empty state is zeros.
LstmState lstm_cell(const Tensor& x, const LstmState& state, const LstmWeights& weights,
                    At at = At::current());

}  // namespace outboard
