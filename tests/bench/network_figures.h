// Measures the effect of distance: training through a proxy with a round trip of 100 ms against
// training without it, alternating within one session. Milliseconds and ratios of times; exits with
// a message if the cloud does not start.
#pragma once

namespace outboard::bench {

void NetworkFigures();

}  // namespace outboard::bench
