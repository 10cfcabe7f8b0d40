// Measures the time from the start of a program to the end of its first step, with its data in the
// cloud.
#pragma once

#include <string>

#include "tests/bench/cloud.h"

namespace outboard::bench {

// Seconds, medians.
struct FirstSteps {
  double cold = 0;  // no kernel known
  double warm = 0;  // its objects on the worker's disk
};

// `command` takes one step and prints "first_step_from_start_s"; it is run once before, which sends
// the data, and twice for each of `repeats`. Exits with a message where it fails.
FirstSteps MeasureFirstSteps(const Cloud& cloud, const std::string& command, int repeats);

void FirstStepFigures();

}  // namespace outboard::bench
