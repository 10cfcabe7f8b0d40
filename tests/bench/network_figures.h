// What distance costs: training through a proxy that makes a round trip of 100 ms, against the same
// without, in turns within one session. Milliseconds and ratios of times; exits with a message
// where the cloud does not start.
#pragma once

namespace outboard::bench {

void NetworkFigures();

}  // namespace outboard::bench
