// Ranks that are threads of one process: each copies what it receives out of its partners' memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collective/collective.h"

namespace outboard::collective {

// The Collectives of all ranks of a mesh, by rank. They share what is common to them; each may be
// destroyed at any time, which aborts the others' transfers.
std::vector<std::unique_ptr<Collective>> MakeLoopback(const std::vector<int64_t>& mesh,
                                                      uint64_t epoch = 1);

}  // namespace outboard::collective
