// Maps a Run to the lines of the program that it came from, for the error messages of the session
// that runs it (client/session/core/provenance.h).
//
// Threads: immutable after construction.
#pragma once

#include <memory>
#include <vector>

#include "client/session/request.h"
#include "client/tensor/at.h"

namespace outboard::internal {

// The line that first wrote each node of a graph, in the canonical order.
using Lines = std::vector<At>;

// Returns the origin of a Run that is sent at line `at`.
std::shared_ptr<const transport::RunOrigin> OriginOf(const At& at,
                                                     std::shared_ptr<const Lines> lines);

}  // namespace outboard::internal
