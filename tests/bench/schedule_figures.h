// Measures the time from a training step's graph to planned kernels, before LLVM runs.
#pragma once

namespace outboard::bench {

// gpt_lower_s: schedule and plan of a GPT's training step (12 layers, width 256, 8 heads, 128
// characters, batch 4), each distinct kernel planned once, as a worker does; gpt_kernels and
// gpt_kernels_distinct. Median over repeats, each in a new Graph.
void ScheduleFigures();

}  // namespace outboard::bench
