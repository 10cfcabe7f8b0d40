// Measures the Python package: programs of python/examples against the same ones in PyTorch,
// alternating, on the same processors. Milliseconds and seconds are of the wall clock.
#pragma once

namespace outboard::bench {

void PythonFigures();

}  // namespace outboard::bench
