// `outboard sweep` and its subcommands (docs/sweeps.md): their options, and the background
// process that runs the trials.
#pragma once

#include <string>

#include "cli/arguments.h"

namespace outboard::cli {

// Declares the commands. Each returns the exit code: 0, 1 if a trial failed, 2 for wrong usage, 130
// after Ctrl-C.
void AddSweepCommands(Arguments& app);

// The process that runs the trials of the sweep `id`, as `outboard sweep-trials ID`: it outlives
// the terminal, and ends in order on SIGTERM.
int SweepTrialsMain(const std::string& id);

}  // namespace outboard::cli
