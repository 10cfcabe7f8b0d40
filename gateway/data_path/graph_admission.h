// Verifies each graph once, before any other code decodes it. Verdicts are cached by id for the
// last kGraphVerdictsMax graphs.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace outboard::gateway {

class GraphAdmission {
 public:
  // Errors: INVALID_ARGUMENT    the bytes do not hash to `id`, or violate a rule (names node and
  //                             rule)
  //         RESOURCE_EXHAUSTED  over a limit
  // Threads: any.
  absl::Status Check(const std::string& id, std::string_view bytes);

 private:
  std::mutex mutex_;
  std::map<std::string, absl::Status> verdicts_;
  std::deque<std::string> order_;  // oldest first, which is evicted first
};

}  // namespace outboard::gateway
