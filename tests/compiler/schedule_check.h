// A schedule against the interpreter, on random inputs.
#pragma once

#include "compiler/schedule/schedule.h"

namespace outboard::test {

// Walks the schedule of `sink` (schedule_eval.h) and compares each result with the interpreter's:
// equal integers, floats within tolerance * (1 + |x|). Floats of inputs are in low..1.
void ExpectAsInterpreted(const schedule::Schedule& schedule, const UOp* sink,
                         double tolerance = 1e-5, double low = -1);

}  // namespace outboard::test
