// Measures sessions on several devices: what a client sends, waits for and pays in time per step,
// beside the same on one device of the same worker.
#pragma once

namespace outboard::bench {

void GroupFigures();

}  // namespace outboard::bench
