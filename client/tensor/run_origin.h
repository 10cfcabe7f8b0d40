// The lines of the program that a Run came from, for the messages of the session that runs it
// (client/session/core/provenance.h).
//
// Threads: constant once made.
#pragma once

#include <memory>
#include <vector>

#include "client/session/request.h"
#include "client/tensor/at.h"

namespace outboard::internal {

// The line that first wrote each node of a graph, in the canonical order.
using Lines = std::vector<At>;

// Of a Run that `at` sends.
std::shared_ptr<const transport::RunOrigin> OriginOf(const At& at,
                                                     std::shared_ptr<const Lines> lines);

}  // namespace outboard::internal
