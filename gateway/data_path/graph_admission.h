// Verifies graphs before anything else looks at them, once each: the verdict is kept by id, for as
// many of the last graphs as kGraphVerdictsMax says.
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
  // INVALID_ARGUMENT: the bytes are not those of the id, or break a rule (names node and rule).
  // RESOURCE_EXHAUSTED: a limit. Threads: any.
  absl::Status Check(const std::string& id, std::string_view bytes);

 private:
  std::mutex mutex_;
  std::map<std::string, absl::Status> verdicts_;
  std::deque<std::string> order_;  // the oldest is forgotten first
};

}  // namespace outboard::gateway
