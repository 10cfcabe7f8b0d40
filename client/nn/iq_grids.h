// The codebooks of GGML's IQ types, which map a code to a vector of 8 (IQ3: 4) elements, as f32
// tensors [codes, elements].
//
// Source: the tables iq*_grid of GGML (ggml-common.h), which are part of the format: no formula
// gives them. How they are written down here is in iq_grids.cc. Threads: as Tensors. Errors: those
// of sending a small tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard::nn {

Tensor GridIq2Xxs();  // [256, 8] of 8, 25, 43
Tensor GridIq2Xs();   // [512, 8] of the same
Tensor GridIq2S();    // [1024, 8] of the same
Tensor GridIq3Xxs();  // [256, 4] of 4, 12, 20 ... 52, 62
Tensor GridIq3S();    // [512, 4] of 1, 3, 5 ... 15
Tensor GridIq1S();    // [2048, 8] of -1, 0, 1; IQ1_M's too

}  // namespace outboard::nn
