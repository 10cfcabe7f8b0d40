// `outboard sweep` and its subcommands (docs/sweeps.md): their options, and the background
// process that runs the trials.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"

namespace outboard::cli {

struct SweepFlags {
  std::vector<std::string> command, parameters;
  std::string strategy;
  int trials = 0;
  int at_once = 0;  // 0: kTrialsAtOnce; without CLOUD=1 one
  uint64_t seed = 0;
  std::string metric = "loss";
  bool larger_is_better = false;
  std::string max_cost;  // US dollars
  int64_t first_rung = 0;
  int64_t warm_up = 0;
  int keep_one_of = 3;
  bool detach = false;
  std::string id;  // of the subcommands; empty: the newest
  bool json = false, csv = false;
};

// Declares the command; Run dispatches to what was asked for. `Given` as in arguments.h.
class SweepCommand {
 public:
  explicit SweepCommand(Command app);
  bool Given() const { return sweep_.Given(); }
  // Returns the exit code: 0, 1 if a trial failed, 2 for wrong usage, 130 after Ctrl-C.
  int Run();

 private:
  SweepFlags flags_;
  Command sweep_, resume_, watch_, stop_, list_, show_;
};

// The process that runs the trials of the sweep `id`, as `outboard sweep-trials ID`: it outlives
// the terminal, and ends in order on SIGTERM.
int SweepTrialsMain(const std::string& id);

}  // namespace outboard::cli
