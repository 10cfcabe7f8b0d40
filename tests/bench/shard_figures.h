// Measures what the gateway does to spread a graph over devices: how long the rewrite takes, what a
// device then stores and computes, and how many random graphs come out wrong.
#pragma once

namespace outboard::bench {

void ShardFigures();

}  // namespace outboard::bench
