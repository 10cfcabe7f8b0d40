// Verifies each graph once for each tenant, before any other code decodes it. Verdicts are cached
// by tenant and id, so that the time of an answer does not tell what another tenant has sent. Of
// kGraphVerdictsMax verdicts the oldest goes of the tenant that has the most: who sends many graphs
// forgets its own.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class GraphAdmission {
 public:
  // Errors: INVALID_ARGUMENT    the bytes do not hash to `id`, or violate a rule (names node and
  //                             rule)
  //         RESOURCE_EXHAUSTED  over a limit
  // Threads: any.
  absl::Status Check(TenantId tenant, const std::string& id, std::string_view bytes);
  // True if the verdict is cached; for tests.
  bool Knows(TenantId tenant, const std::string& id);

 private:
  struct Verdicts {
    std::map<std::string, absl::Status> by_id;
    std::deque<std::string> order;  // oldest first
  };
  void DropOldest();  // requires mutex_

  std::mutex mutex_;
  std::map<TenantId, Verdicts> verdicts_;
  size_t count_ = 0;  // of all tenants
};

}  // namespace outboard::gateway
