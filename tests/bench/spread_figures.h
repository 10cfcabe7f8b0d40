// Trains on 1, 2, 3, 4 and 8 devices of one worker with each spread: whether losses are those of
// one device, whether devices agree, and whether the choice is the best one.
#pragma once

namespace outboard::bench {

// Takes some twenty minutes on two cores.
void SpreadFigures();

}  // namespace outboard::bench
