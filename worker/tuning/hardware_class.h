// What two machines must have in common for one's measured times to be worth something on the
// other.
#pragma once

#include <string>

namespace outboard::worker {

// One line that names this machine's processor by what decides the speed of a kernel: vendor,
// family and model, the vector and matrix instructions, cores, and the size of each cache. For
// example "x86-64 GenuineIntel 6-207 avx2 avx512f amx_bf16, 2 cores, L1d 48K L2 2048K L3 260M". Not
// in it: names, serial numbers, clock rates of the moment. Found out once. Threads: any.
const std::string& HardwareClass();

}  // namespace outboard::worker
