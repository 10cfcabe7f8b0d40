// Measures the time from the start of a program to the end of its first step, with its data in the
// cloud.
#pragma once

namespace outboard::bench {

void FirstStepFigures();

}  // namespace outboard::bench
