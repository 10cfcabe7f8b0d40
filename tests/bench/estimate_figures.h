// Figures of estimates: how far they are from what programs take.
#pragma once

namespace outboard::bench {

// Of ten programs, |actual / estimate - 1| of the time per step, of which the ninth of ten is
// reported: estimate_error_p90_ratio by graphs alone, at the rates that the rate check measures on
// this machine, and estimate_measured_error_p90_ratio after ten measured steps.
void EstimateFigures();

}  // namespace outboard::bench
