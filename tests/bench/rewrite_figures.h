// Measures the rewriter's throughput on one core while training steps are scheduled.
#pragma once

namespace outboard::bench {

// rewrite_attempts_per_s, match attempts as tinygrad counts them (Matcher::CountAttempts), and
// rewrite_visits_per_s, nodes looked up in a table: over the time inside Rewrite, everything else
// of the schedule left out. Medians over repeats, each in a new Graph.
void RewriteFigures();

}  // namespace outboard::bench
