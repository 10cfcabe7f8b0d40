// The order of kernels, so that transfers are started early and waited for late. Without transfers:
// makers before readers, else as they came.
// Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace outboard::schedule {

// What one kernel waits for, as numbers of kernels. Its own number counts for nothing.
struct KernelNeeds {
  std::vector<size_t> makers;   // they store what it reads
  std::vector<size_t> senders;  // they store what a transfer brings to it
};

// Returns the numbers of all kernels: what a kernel waits for first. Of those that could be next,
// those that wait for fewer transfers in a row go first, then those that a transfer waits for, then
// those whose transfers could start first, since these end first, then those that are near the
// transfer that waits for them, else in the order of their numbers. Requires that no kernel waits
// for itself through others.
std::vector<size_t> OrderKernels(const std::vector<KernelNeeds>& needs);

}  // namespace outboard::schedule
