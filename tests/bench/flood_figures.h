// What another account notices of one that floods the gateway (tests/bench/flood.cc).
#pragma once

namespace outboard::bench {

void FloodFigures();

}  // namespace outboard::bench
