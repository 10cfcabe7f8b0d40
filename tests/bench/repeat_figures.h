// Measures the cost of one repetition of a Run besides its kernels: `repeat_us`, in this process,
// against a step that is sent alone.
#pragma once

namespace outboard::bench {

void RepeatFigures();

}  // namespace outboard::bench
