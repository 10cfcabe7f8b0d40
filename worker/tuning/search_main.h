// The search process: what a worker does with its device while no session uses it. A child of the
// supervisor (idle_searcher.h) that searches, at the lowest priority, for the best Opts of the
// kernels that have cost the most (TuningStore::Costliest), one after the other.
//
// It may be killed at any moment, which is how it is stopped: each trial is kept as it is made, so
// that the next one goes on where it was.
#pragma once

namespace outboard::worker {

// How many lists of Opts are kept from round to round.
inline constexpr int kIdleSearchWidth = 4;

struct SearchMainOptions {
  int debug = 0;  // DEBUG: 1 a line when a search begins, and one with what it has won
};

// Returns the exit code: 0 when nothing is left to search for.
int SearchMain(const SearchMainOptions& options);

// From DEBUG.
SearchMainOptions SearchOptionsFromEnvironment();

}  // namespace outboard::worker
