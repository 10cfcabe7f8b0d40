// Measures the sum of arrays over ranks: through executors' engines, and by Gloo's own ring.
#pragma once

namespace outboard::bench {

// allreduce_vs_gloo_2 and _4: 16 MiB of f32 on as many ranks, each a thread of this process: the
// time of Gloo's allreduce over TCP on loopback, divided by that of a graph with an ALLREDUCE on
// engines that sockets connect. The same minute, medians of several rounds. All ranks begin a round
// together; its time is that of the slowest.
void AllReduceFigures();

}  // namespace outboard::bench
