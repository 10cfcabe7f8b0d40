// What a charge takes from the hold of its lease. Internal to gateway/ledger.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/meter.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

// Within one write transaction, and as often as needed there.
class HeldCharges {
 public:
  static absl::StatusOr<HeldCharges> Create(storage::Database& db);
  // FAILED_PRECONDITION: it is not held.
  absl::Status Use(const Charge& charge);

 private:
  HeldCharges(storage::Statement use, storage::Statement spend)
      : use_(std::move(use)), spend_(std::move(spend)) {}
  storage::Statement use_, spend_;
};

}  // namespace outboard::gateway
