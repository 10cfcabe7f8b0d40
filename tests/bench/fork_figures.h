// Figures of forks: sessions that begin with another one's state.
#pragma once

namespace outboard::bench {

// `fork_ten_s`: from the call to ten sessions that have a GB of state whose blobs are known;
// `fork_bytes_up`: what the client sends for them.
void ForkFigures();

}  // namespace outboard::bench
