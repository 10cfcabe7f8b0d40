// Training steps against PyTorch's on the same processors (torch_steps.py), in turns.
#pragma once

namespace outboard::bench {

// With the heuristic's kernels.
void TrainingFigures();
// gpt_1024_step_vs_torch_nobeam, gpt_1024_step_stored_vs_recomputed: one passage of 1,024 tokens,
// causal.
void LongTrainingFigures();
// Of ResNet-18 and a vision transformer in Python (vision_steps.py), also the first step.
void VisionFigures();
// With what BEAM finds.
void TunedTrainingFigures();

}  // namespace outboard::bench
