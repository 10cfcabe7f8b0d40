// Figures of the queue for devices: how long a decision takes, and who waits for whom.
#pragma once

namespace outboard::bench {

// placement_us: a decision (who is next, and where) with 1,000 workers and 10,000 that wait.
// group_placement_us: the same of 1,000 workers of 6 devices and requests for 1 to 54.
// group_starvation_ratio: see GroupStarvationRatio.
// idle_billed_s: of a connected program that stops computing, in virtual time.
void QueueFigures();

}  // namespace outboard::bench
