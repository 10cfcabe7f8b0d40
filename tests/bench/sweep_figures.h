// Figures of sweeps.
#pragma once

namespace outboard::bench {

// sweep_ten_running_s: from `outboard sweep` with ten trials, on ten free devices, until the first
// step of each is done. sweep_overhead_ratio: eight trials by a sweep, over the same by hand.
void SweepFigures();

}  // namespace outboard::bench
