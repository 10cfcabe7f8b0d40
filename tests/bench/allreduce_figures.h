// Measures the sum of arrays over ranks: through executors' engines, and by Gloo's own ring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/collective/collective.h"

namespace outboard::bench {

// allreduce_vs_gloo_2 and _4: 16 MiB of f32 on as many ranks, each a thread of this process: the
// time of Gloo's allreduce over TCP on loopback, divided by that of a graph with an ALLREDUCE on
// engines that sockets connect. The same minute, medians of several rounds. All ranks begin a round
// together; its time is that of the slowest.
void AllReduceFigures();

// The same array on engines that `join(rank)` connects, which is called on the rank's own thread:
// the median in milliseconds.
inline constexpr int64_t kAllReduceBytes = 16 << 20;
double AllReduceMs(
    int ranks, const std::function<std::unique_ptr<collective::Collective>(int rank)>& join);

}  // namespace outboard::bench
