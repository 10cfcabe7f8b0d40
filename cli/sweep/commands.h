// `outboard sweep` and its subcommands (docs/sweeps.md): their options, and what each does with the
// folder of a sweep.
#pragma once

#include "cli/arguments.h"

namespace outboard::cli {

// Declares the commands. Each returns the exit code: 0, 1 if a trial failed, 2 for wrong usage, 130
// after Ctrl-C.
void AddSweepCommands(Arguments& app);

}  // namespace outboard::cli
