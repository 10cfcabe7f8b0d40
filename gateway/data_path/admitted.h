// A call or stream whose key is good: whose it is, and its part of what the account may have at a
// time, which ends with it.
#pragma once

#include <memory>

#include "gateway/accounts/accounts.h"

namespace outboard::gateway {

struct Admitted {
  Identity identity;
  std::shared_ptr<const void> slot = nullptr;  // kept as long as the call or stream lasts
};

}  // namespace outboard::gateway
