// What `outboard estimate` prints: a table for people, or one object of JSON.
//
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "client/session/estimate/estimate.h"

namespace outboard::cli {

// Both end in a newline.
std::string EstimateTable(const session::RecordedWork& work,
                          const std::vector<session::ClassEstimate>& estimates);
std::string EstimateJson(const session::RecordedWork& work,
                         const std::vector<session::ClassEstimate>& estimates);

}  // namespace outboard::cli
