// Training steps against PyTorch's on the same processors (torch_steps.py), in turns.
#pragma once

namespace outboard::bench {

// With the heuristic's kernels.
void TrainingFigures();
// Of ResNet-18 and a vision transformer in Python (vision_steps.py), also the first step.
void VisionFigures();
// With what BEAM finds.
void TunedTrainingFigures();

}  // namespace outboard::bench
