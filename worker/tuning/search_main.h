// The search process, which uses a worker's device while no session does. It is a child of the
// supervisor (idle_searcher.h) and searches, at the lowest priority, for the best Opts of the
// kernels that have cost one account the most (TuningStore::Costliest), one after the other. Like
// an executor it opens no file and starts no process: compilers and store are the supervisor's
// (worker/kernels/kernel_client.h).
//
// It is stopped by killing it: each trial is stored as soon as it is measured, so the next search
// process continues from there.
#pragma once

namespace outboard::worker {

struct SearchMainOptions {
  int debug = 0;  // DEBUG: 1 prints a line when a search begins, and one with its gain
};

// Returns the exit code: 0 when nothing is left to search for.
int SearchMain(const SearchMainOptions& options);

// Reads the options from DEBUG.
SearchMainOptions SearchOptionsFromEnvironment();

}  // namespace outboard::worker
