// Figures of sweeps.
#pragma once

namespace outboard::bench {

// sweep_ten_running_s: from `outboard sweep` with ten trials, on ten free devices, until the first
// step of each is done; ten_programs_running_s: the same by hand. sweep_overhead_ratio: eight
// trials by a sweep, over the same by hand. lease_grant_ms_p50: from the call until a session has
// its device.
void SweepFigures();

}  // namespace outboard::bench
