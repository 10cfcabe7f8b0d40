// Every engine against the interpreter, on random inputs.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::test {

// Runs `sink` on every engine there is (harness.h) and compares: equal integers, floats within
// tolerance * (1 + |x|). Floats of inputs are in low..1, integers in 0..3.
void ExpectAsInterpreted(const UOp* sink, double tolerance = 1e-5, double low = -1);

}  // namespace outboard::test
