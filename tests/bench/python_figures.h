// What the Python package takes: programs of python/examples against the same ones in PyTorch, in
// turns, on the same processors. Milliseconds and seconds are of the wall clock.
#pragma once

namespace outboard::bench {

void PythonFigures();

}  // namespace outboard::bench
