// What a repetition of a Run costs beside its kernels: `repeat_us`, in this process, beside a step
// that is sent alone.
#pragma once

namespace outboard::bench {

void RepeatFigures();

}  // namespace outboard::bench
