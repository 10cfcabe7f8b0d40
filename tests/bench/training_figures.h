// Training steps against PyTorch's on the same processors (torch_steps.py), in turns.
#pragma once

namespace outboard::bench {

// With the heuristic's kernels.
void TrainingFigures();
// With what BEAM finds.
void TunedTrainingFigures();

}  // namespace outboard::bench
