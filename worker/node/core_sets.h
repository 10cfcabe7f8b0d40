// Which cores of the machine each device of a CPU worker is.
#pragma once

#include <vector>

namespace outboard::worker {

// Divides `cores` among `devices` so that no two devices have a core in common and their sizes
// differ by at most one; result[i] is device i. With more devices than cores, each has one core and
// some have the same.
std::vector<std::vector<int>> DivideCores(const std::vector<int>& cores, int devices);

}  // namespace outboard::worker
