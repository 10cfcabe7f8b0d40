// `outboard estimate`: what a program takes and costs, without a device (docs/estimates.md).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments.h"

namespace outboard::cli {

struct EstimateFlags {
  std::vector<std::string> command;
  int64_t steps = 0;    // 0: to the program's end
  std::string gateway;  // empty: as the environment says
  std::string prices;   // a price file, instead of a gateway's classes
  bool measure = false;
  bool json = false;
};

// Declares the command. `Given` as in arguments.h.
class EstimateCommand {
 public:
  explicit EstimateCommand(Command app);
  bool Given() const { return estimate_.Given(); }
  // Returns the exit code: 0; 1 where the program computed nothing, failed or could not be started,
  // or was not measured; 2 for wrong usage, or where the gateway cannot be reached.
  int Run();

 private:
  EstimateFlags flags_;
  Command estimate_;
};

}  // namespace outboard::cli
