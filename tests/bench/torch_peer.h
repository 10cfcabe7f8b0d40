// Finds the PyTorch to measure against. A ratio against a PyTorch without its fast libraries would
// be too favourable, so a reason is printed instead of it.
#pragma once

#include <string>

namespace outboard::bench {

struct TorchPeer {
  std::string python;   // runs it: that of `scripts/setup --bench`, else Debian's
  std::string version;  // "2.9.1+cpu (MKL, oneDNN)"
  std::string lacks;    // why there is no ratio against it; empty where there may be one
};

// Asks the PyTorch that is installed, once.
const TorchPeer& Torch();

// The Python to run PyTorch with: OUTBOARD_TORCH_PYTHON where it is set, else the one of Torch().
std::string TorchPython();
// The folder of this folder's scripts: OUTBOARD_BENCH_SOURCES where it is set, else as built.
std::string BenchSources();

// Judges what torch_peer.py printed:
//   {"version": "2.9.1+cpu", "mkl": true, "openblas": false, "onednn": true}
// `text` is empty where there is no PyTorch.
TorchPeer JudgeTorch(const std::string& text);

}  // namespace outboard::bench
