// Measures calls that must not take longer the more there is: usage with a million postings, the
// use of a store of 100,000 blobs. On books and blobs of the benchmark's own.
#pragma once

namespace outboard::bench {

void WallFigures();

}  // namespace outboard::bench
