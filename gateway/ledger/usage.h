// What the use of devices was charged, as sums over entries of the ledger: what an invoice and
// `outboard usage` have as their totals.
#pragma once

#include <cstdint>

#include "gateway/ledger/money.h"

namespace outboard::gateway {

// Of a tenant, of a session or of all.
struct Usage {
  int64_t device_ms = 0;
  MicroUsd amount;
  bool operator==(const Usage&) const = default;
};

}  // namespace outboard::gateway
