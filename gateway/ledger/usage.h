// What use was charged.
#pragma once

#include <cstdint>

#include "gateway/ledger/money.h"

namespace outboard::gateway {

struct Usage {
  int64_t device_seconds = 0;
  MicroUsd amount;
  bool operator==(const Usage&) const = default;
};

}  // namespace outboard::gateway
