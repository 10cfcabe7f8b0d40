// `outboard estimate`: what a program takes and costs, without a device (docs/estimates.md). The
// options, and what they do, are in estimate.cc.
#pragma once

#include "cli/arguments.h"

namespace outboard::cli {

void AddEstimateCommand(Arguments& app);

}  // namespace outboard::cli
