// Where an operator on the gateway's machine asks what it has: a unix socket in the data folder,
// "operator.sock", that the user alone who runs the gateway can open. `outboard device ls`, `top`
// and `price show` read it.
//
// A connection sends the line "state" and gets one JSON object, then its end:
//   {"at": unix seconds, "price_per_hour_micro_usd", "classes": [{"name", "hardware",
//    "memory_bytes", "gflops", "memory_gb_per_s", "run_micro_usd", "held_micro_usd",
//    "parked_micro_usd", "stored_micro_usd"}] (null: no price file),
//    "devices": [{"worker", "device", "class", "hardware", "memory_bytes", "gflops",
//    "memory_gb_per_s" (what it reached in the rate check; 0: not measured), "state", "owner" (the
//    account whose own machine it is, else null), "session", "per_hour_micro_usd"}],
//    "sessions": [{"session", "account", "state", "state_seconds", "devices", "worker", "class",
//    "per_hour_micro_usd", "billed_ms", "cost_micro_usd", "before", "expected_seconds"}]}
// Names come from workers, and are escaped. Amounts are micro-dollars.
//
// One connection at a time: whoever says nothing for kOperatorWithin is cut off.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gateway/core/fleet_view.h"

namespace outboard::gateway {

class CoreDriver;
struct PriceList;

inline constexpr std::chrono::milliseconds kOperatorWithin{2000};

std::string OperatorSocketPath(const std::string& data_folder);

// The object above.
std::string FleetJson(const FleetView& view, const PriceList* prices, MicroUsd price_per_hour,
                      WallTime now);

class OperatorSocket {
 public:
  // `driver` outlives it. Errors: UNAVAILABLE  no socket can be made there
  static absl::StatusOr<std::unique_ptr<OperatorSocket>> Start(const std::string& data_folder,
                                                               const CoreDriver* driver,
                                                               MicroUsd price_per_hour);
  ~OperatorSocket();  // nobody asks the driver any more; the socket is gone

 private:
  class Impl;
  explicit OperatorSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What the gateway of this data folder answers.
// Errors: UNAVAILABLE  none runs there, or it does not answer
absl::StatusOr<std::string> AskGateway(const std::string& data_folder);

}  // namespace outboard::gateway
